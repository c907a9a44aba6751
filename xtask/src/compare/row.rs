//! What is compared: the rows, in the order in which they are measured.

use std::time::Duration;

use anyhow::{bail, ensure};

use crate::rules;

/// What tells flows apart: sixteen hashed bits of each of the four fields.
const MIXED: &str = "vary=sip+dip+sport+dport";

/// New flows per second of the row of misses: a rate that leaves both switches idle time, as the
/// question is what one costs.
const MISSES_PER_SECOND: u32 = 20_000;

/// Round trips per second of the row with one in flight.
const ROUND_TRIPS_PER_SECOND: u32 = 10_000;

/// Entries of the exact-match table and megaflows, by default.
pub(super) const ENTRIES: usize = 64 * 1024;

/// One row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// In tables, files and arguments; what comes before the first `-` names its group.
    pub(super) name: &'static str,
    /// For people.
    pub(super) title: &'static str,
    /// On the ring: without the wire's checksum.
    pub(super) frame_bytes: usize,
    pub(super) kind: Kind,
    /// Distinct 5-tuples, in random order.
    pub(super) flows: u64,
    rules: Rules,
    /// Pairs of ports, with traffic one way in each.
    pub(super) pairs: usize,
    /// Whether the first level of caches is on, on both switches.
    pub(super) exact_match: bool,
    /// What our caches are configured for; OVS's are of fixed size, or grow.
    pub(super) entries: usize,
    /// Whether another generator can send the same without further ado.
    pub(super) by_others: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Frames flat out, one way.
    Throughput,
    /// Requests at a rate, one in flight.
    RoundTrips,
    /// Every packet a new flow, at a rate.
    Misses,
}

/// The flows from one port of a pair to the other.
#[derive(Debug, Clone, Copy)]
enum Rules {
    /// These actions; a match on the port alone, and these further ones.
    Actions { matches: &'static str, actions: &'static str },
    /// A decision for each 5-tuple.
    EveryTuple,
    /// Rules under so many masks.
    Masks(u32),
}

const FORWARD: Rules = Rules::Actions { matches: "", actions: "" };

const SIZE_64: Row = Row {
    name: "size-64",
    title: "64 B, one flow",
    frame_bytes: 60,
    kind: Kind::Throughput,
    flows: 1,
    rules: FORWARD,
    pairs: 1,
    exact_match: true,
    entries: ENTRIES,
    by_others: true,
};

const fn flows(name: &'static str, title: &'static str, flows: u64, entries: usize) -> Row {
    Row { name, title, flows, entries, rules: Rules::EveryTuple, by_others: false, ..SIZE_64 }
}

const fn masks(name: &'static str, title: &'static str, masks: u32) -> Row {
    Row { name, title, flows: 10_000, rules: Rules::Masks(masks), by_others: false, ..SIZE_64 }
}

const fn action(
    name: &'static str,
    title: &'static str,
    matches: &'static str,
    actions: &'static str,
) -> Row {
    Row { name, title, rules: Rules::Actions { matches, actions }, by_others: false, ..SIZE_64 }
}

/// All of them. Those with more ports come last: a port that is there is polled in every later row.
const ROWS: [Row; 23] = [
    SIZE_64,
    Row { name: "size-256", title: "256 B, one flow", frame_bytes: 252, ..SIZE_64 },
    Row { name: "size-1500", title: "1500 B, one flow", frame_bytes: 1496, ..SIZE_64 },
    Row { by_others: true, ..flows("flows-1", "1 flow, exact", 1, ENTRIES) },
    Row { by_others: true, ..flows("flows-1k", "1k flows, exact", 1000, ENTRIES) },
    flows("flows-10k", "10k flows, exact", 10_000, ENTRIES),
    flows("flows-100k", "100k flows, exact", 100_000, 256 * 1024),
    flows("flows-1m", "1M flows, exact", 1_000_000, 2048 * 1024),
    masks("masks-1", "10k flows, 1 mask", 1),
    masks("masks-5", "10k flows, 5 masks", 5),
    masks("masks-20", "10k flows, 20 masks", 20),
    masks("masks-50", "10k flows, 50 masks", 50),
    Row {
        flows: 100_000,
        entries: 256 * 1024,
        ..masks("masks-20-100k", "100k flows, 20 masks", 20)
    },
    // A match on an address: it keeps OVS off its shortcut for ports without any, so that each packet
    // is a megaflow hit.
    Row {
        flows: 1000,
        exact_match: false,
        ..action("exact-off", "1k flows, exact-match off", "ip,nw_dst=10.0.0.0/16", "")
    },
    action("actions-push-vlan", "VLAN push", "", "push_vlan:0x8100,set_field:4196->vlan_vid,"),
    // With the tag it must be four bytes longer.
    Row { frame_bytes: 64, ..action("actions-pop-vlan", "VLAN pop", "dl_vlan=100", "pop_vlan,") },
    action("actions-set-field", "set_field", "ip", "set_field:10.0.9.9->ip_dst,"),
    action("actions-dec-ttl", "dec_ttl", "ip", "dec_ttl,"),
    Row {
        kind: Kind::Misses,
        flows: 1_000_000_000,
        entries: 1024 * 1024,
        ..flows("misses", "a new flow per packet", 1, ENTRIES)
    },
    Row { name: "trips", title: "one in flight", kind: Kind::RoundTrips, ..SIZE_64 },
    Row { name: "pairs-1", title: "1 pair of ports", by_others: false, ..SIZE_64 },
    Row { name: "pairs-8", title: "8 pairs of ports", pairs: 8, by_others: false, ..SIZE_64 },
    Row { name: "pairs-64", title: "64 pairs of ports", pairs: 64, by_others: false, ..SIZE_64 },
];

/// The rows that `wanted` names, by their names or those of groups; all if it is empty.
pub(super) fn chosen(wanted: &[String]) -> anyhow::Result<Vec<Row>> {
    let is_meant = |row: &Row, name: &String| {
        row.name == name || row.name.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with('-'))
    };
    if let Some(unknown) = wanted.iter().find(|name| !ROWS.iter().any(|row| is_meant(row, name))) {
        bail!("there is no row {unknown:?}; there are {}", ROWS.map(|row| row.name).join(", "));
    }
    let is_wanted = |row: &&Row| wanted.is_empty() || wanted.iter().any(|name| is_meant(row, name));
    let rows: Vec<Row> = ROWS.iter().filter(is_wanted).copied().collect();
    ensure!(!rows.is_empty(), "no row");
    Ok(rows)
}

/// The ports of pair `number`.
pub(super) fn ports(number: usize) -> [String; 2] {
    [format!("v{}", 2 * number), format!("v{}", 2 * number + 1)]
}

impl Row {
    /// The flows of all its pairs; the way back is always plain.
    pub(super) fn rules(&self) -> Vec<String> {
        let mut all = Vec::new();
        for [from, to] in (0..self.pairs).map(ports) {
            match self.rules {
                Rules::Actions { matches, actions } => {
                    let comma = if matches.is_empty() { "" } else { "," };
                    let matches = format!("{matches}{comma}in_port={from}");
                    all.push(format!("{matches},actions={actions}output:{to}"));
                }
                Rules::EveryTuple => all.push(rules::every_tuple(&from, &to)),
                Rules::Masks(masks) => all.extend(rules::many_masks(&from, &to, masks)),
            }
            all.push(format!("in_port={to},actions=output:{from}"));
        }
        all
    }

    /// Whether the floor stands beside it: rows that differ in what is moved, not in what is decided.
    pub(super) fn has_floor(&self) -> bool {
        self.name.starts_with("size-")
    }

    /// Frames or requests per second; 0 for flat out.
    pub(super) fn rate(&self) -> u32 {
        match self.kind {
            Kind::Throughput => 0,
            Kind::RoundTrips => ROUND_TRIPS_PER_SECOND,
            Kind::Misses => MISSES_PER_SECOND,
        }
    }

    /// What a generator's pair is told of the frames.
    pub(super) fn pair_keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        if self.flows > 1 {
            keys.push(format!("flows={}", self.flows));
            // One field counts up; 64k of them are all that it can.
            keys.extend((self.flows > 1000).then(|| MIXED.to_owned()));
            keys.extend((self.kind != Kind::Misses).then(|| "order=rand".to_owned()));
        }
        if self.name == "actions-pop-vlan" {
            keys.push("vlan=100".to_owned());
        }
        keys
    }

    /// The same in turn: each flow comes soon.
    pub(super) fn warming_keys(&self) -> Vec<String> {
        self.pair_keys().into_iter().filter(|key| key != "order=rand").collect()
    }

    /// Whether frames arrive as they were sent.
    pub(super) fn keeps_frames(&self) -> bool {
        !self.name.starts_with("actions-")
    }

    /// Keys of ports for our generator: many have small rings, so that they fit in memory.
    pub(super) fn port_keys(&self) -> &'static str {
        if self.pairs > 8 { "ring=256" } else { "" }
    }

    /// How long its caches may take to fill.
    pub(super) fn warming_limit(&self) -> Option<Duration> {
        let is_filled = self.kind == Kind::Throughput && self.flows > 1;
        is_filled.then(|| Duration::from_secs(if self.flows > 10_000 { 120 } else { 20 }))
    }

    /// Whether it needs so many flows that OVS must not be left to its own limits.
    pub(super) fn holds_flows(&self) -> bool {
        self.kind == Kind::Throughput && self.flows >= 100_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_and_group_and_stay_in_order() -> anyhow::Result<()> {
        let names = |wanted: &[&str]| -> anyhow::Result<Vec<&str>> {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            Ok(chosen(&wanted)?.iter().map(|row| row.name).collect())
        };
        assert_eq!(names(&[])?.len(), ROWS.len());
        assert_eq!(names(&["pairs-8", "size"])?, ["size-64", "size-256", "size-1500", "pairs-8"]);
        assert_eq!(names(&["masks-20"])?, ["masks-20", "masks-20-100k"]);
        let error = names(&["sizes"]).unwrap_err().to_string();
        assert!(error.contains("\"sizes\"") && error.contains("size-256"), "{error}");
        Ok(())
    }

    #[test]
    fn names_are_different_and_ports_only_become_more() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        assert!(ROWS.is_sorted_by_key(|row| row.pairs));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn a_row_with_more_flows_than_a_default_cache_gets_larger_ones() {
        let small = |row: &&Row| row.kind == Kind::Throughput && row.flows * 2 > row.entries as u64;
        assert!(ROWS.iter().find(small).is_none());
    }

    #[test]
    fn rules_are_written_for_each_pair() {
        let row = Row { pairs: 2, ..action("a", "", "ip", "dec_ttl,") };
        let flows = [
            "ip,in_port=v0,actions=dec_ttl,output:v1",
            "in_port=v1,actions=output:v0",
            "ip,in_port=v2,actions=dec_ttl,output:v3",
            "in_port=v3,actions=output:v2",
        ];
        assert_eq!(row.rules(), flows);
        assert_eq!(SIZE_64.rules()[0], "in_port=v0,actions=output:v1");
    }
}
