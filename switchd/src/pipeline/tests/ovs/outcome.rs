//! What became of packets, here and there.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use tollgate_openflow::Match;
use tollgate_openflow::event::PacketIn;
use tollgate_openflow::text::{NoNames, format_match};

use super::super::sim::{Sent, Sim};
use super::flows::TABLES;
use super::peer::{Ovs, hex};
use crate::pipeline::events::{Event, PacketInEvent};

/// What became of a packet: frames by the port that sends them, in order, and what a controller
/// got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) ports: BTreeMap<u32, Vec<String>>,
    pub(super) controller: Vec<String>,
}

impl Outcome {
    fn new(sent: Vec<Sent>, controller: Vec<String>) -> Self {
        let mut ports: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (ofport, frame) in sent {
            ports.entry(ofport).or_default().push(hex(&frame));
        }
        Self { ports, controller }
    }

    pub(super) fn of_sim(sim: &mut Sim, ofport: u32, frame: &[u8]) -> Self {
        sim.events();
        let sent = sim.send(ofport, frame);
        let heard = sim.events().into_iter().filter_map(|event| match event {
            Event::PacketIn(heard) => Some(heard),
            _ => None,
        });
        let heard = heard.map(|heard| {
            let PacketInEvent { reason, table_id, cookie, matcher, data, .. } = heard;
            copy(reason as u8, table_id, cookie, &matcher, &data)
        });
        let heard = heard.collect();
        Self::new(sent, heard)
    }

    pub(super) fn of_ovs(ovs: &mut Ovs, ofport: u32, frame: &[u8]) -> Self {
        let (sent, heard) = ovs.send(ofport, frame);
        let heard = heard.iter().map(|heard| {
            let PacketIn { reason, table_id, cookie, matcher, data, .. } = heard;
            copy(*reason, *table_id, *cookie, matcher, data)
        });
        Self::new(sent, heard.collect())
    }
}

fn copy(reason: u8, table: u8, cookie: u64, matcher: &Match, data: &[u8]) -> String {
    let matcher = format_match(matcher, 0, &NoNames);
    format!("reason {reason}, table {table}, cookie {cookie:#x}, {matcher}: {}", hex(data))
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (port, frames) in &self.ports {
            frames.iter().try_for_each(|frame| writeln!(f, "  out of port {port}: {frame}"))?;
        }
        self.controller.iter().try_for_each(|copy| writeln!(f, "  to the controller: {copy}"))
    }
}

/// Packets and bytes of each flow, by its table and priority; look-ups and matches of each table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    flows: BTreeMap<(u8, u16), (u64, u64)>,
    tables: BTreeMap<u8, (u64, u64)>,
}

impl Counts {
    pub(super) fn of_sim(sim: &Sim) -> Self {
        let flows = sim.flows();
        let flows =
            flows.iter().map(|f| ((f.table_id, f.priority), (f.packet_count, f.byte_count)));
        let tables = sim.core.table_stats(sim.bridge).unwrap();
        let tables = tables.iter().filter(|table| table.table_id < TABLES);
        let tables = tables.map(|t| (t.table_id, (t.lookup_count, t.matched_count)));
        Self { flows: flows.collect(), tables: tables.collect() }
    }

    /// Tables count on from case to case.
    pub(super) fn of_ovs(ovs: &mut Ovs, before: &Counts) -> Self {
        let flows = ovs.flows();
        let flows =
            flows.iter().map(|f| ((f.table_id, f.priority), (f.packet_count, f.byte_count)));
        let tables = ovs.tables();
        let tables = tables.iter().filter(|table| table.table_id < TABLES);
        let tables = tables.map(|table| {
            let (lookups, matches) =
                before.tables.get(&table.table_id).copied().unwrap_or_default();
            (table.table_id, (table.lookup_count - lookups, table.matched_count - matches))
        });
        Self { flows: flows.collect(), tables: tables.collect() }
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for ((table, priority), (packets, bytes)) in &self.flows {
            writeln!(f, "  {table}, priority {priority}: {packets} packets, {bytes} bytes")?;
        }
        for (table, (lookups, matches)) in &self.tables {
            writeln!(f, "  table {table}: {lookups} looked up, {matches} matched")?;
        }
        Ok(())
    }
}
