//! Neighbours that a victim may have: their flows and their traffic.

use std::time::Duration;

use super::bench::{UPLINK, neighbour_ports, ports_but_victims};
use crate::generator::Mode;
use crate::rules;

/// The smallest frame on the ring, and a full one.
pub(super) const SMALL_BYTES: usize = 60;
pub(super) const LARGE_BYTES: usize = 1496;

/// One kind of neighbour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Adversary {
    /// In tables and files.
    pub(super) name: &'static str,
    pub(super) frame_bytes: usize,
    pub(super) mode: Mode,
    /// Further keys of its pair and of its ports, for the generator.
    pub(super) keys: &'static str,
    pub(super) port_keys: &'static str,
    /// The flows from its port to its other port.
    pub(super) flows: Flows,
    /// Whether its frames come from the wire instead, for its port.
    pub(super) from_uplink: bool,
    /// Its weight; the victim's is 1.
    pub(super) weight: f64,
    /// The most of OVS-DPDK's excess p99 that the victim may see of ours (1/3, 1/5, 1/50).
    pub(super) of_ovs: f64,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Flows {
    /// Forward.
    Forward,
    /// Forward under masks of so many kinds.
    Masks(u32),
    /// So many passes through the tables (through the connection tracker in OVS, whose resubmits cost
    /// its datapath nothing).
    Passes(u32),
    /// The decision depends on every bit of the 5-tuple: each new one is a miss.
    EveryTuple,
    Drop,
    /// A copy to every other port but the victim's: 64 of them, with a guest each.
    Broadcast,
    /// So many rewrites of an address (as many passes as OVS allows there, which does but the last of
    /// the rewrites).
    Rewrites(u32),
    /// So many rewrites, and then to a port of the victim's, which must not be there: all work and no
    /// delivery.
    RewritesToNobody(u32),
}

const FLAT_OUT: Adversary = Adversary {
    name: "",
    frame_bytes: SMALL_BYTES,
    mode: Mode::FlatOut,
    keys: "",
    port_keys: "",
    flows: Flows::Forward,
    from_uplink: false,
    weight: 1.0,
    of_ovs: 1.0 / 3.0,
};

const MIXED: &str = "flows=10000,order=rand,vary=sip+dip+sport+dport";

/// Every kind, the mildest first.
pub(super) const ALL: [Adversary; 13] = [
    CHEAP,
    LARGE,
    FLOWS_50K,
    Adversary {
        name: "20 masks",
        keys: MIXED,
        flows: Flows::Masks(20),
        of_ovs: 1.0 / 5.0,
        ..FLAT_OUT
    },
    Adversary {
        name: "4 passes",
        keys: "flows=1000",
        flows: Flows::Passes(4),
        of_ovs: 1.0 / 5.0,
        ..FLAT_OUT
    },
    Adversary {
        name: "new flow per packet",
        keys: "flows=1000000000,vary=sip+dip+sport+dport",
        flows: Flows::EveryTuple,
        of_ovs: 1.0 / 50.0,
        ..FLAT_OUT
    },
    Adversary { name: "drop rule", flows: Flows::Drop, ..FLAT_OUT },
    Adversary { name: "broadcast to 64 ports", flows: Flows::Broadcast, ..FLAT_OUT },
    Adversary {
        name: "256 descriptors",
        frame_bytes: LARGE_BYTES,
        keys: "segments=256,burst=16",
        port_keys: "ring=4096",
        ..FLAT_OUT
    },
    // A buffer of 13 bytes, of which the header takes 12: no smaller one can begin a frame. Such a
    // frame then fills 62 of them, as many as our guest reads as one frame.
    Adversary { name: "one-byte buffers", frame_bytes: 800, port_keys: "rx=1", ..FLAT_OUT },
    Adversary { name: "on/off bursts", keys: "on=2,off=5", ..FLAT_OUT },
    Adversary { name: "uplink flood", from_uplink: true, ..FLAT_OUT },
    Adversary { name: "weight 8", weight: 8.0, ..FLAT_OUT },
];

/// So expensive for the switch that one core of a generator keeps many of them supplied, and with so
/// long a ring that it stays supplied while that core is taken away for some milliseconds: whoever
/// measures shares or throughput wants the switch to be the limit.
pub(super) const SATURATING: Adversary = Adversary {
    name: "saturating",
    port_keys: "ring=2048",
    flows: Flows::Rewrites(250),
    ..FLAT_OUT
};

/// Frames of equal cost, whoever's they are and however seldom: their numbers then show shares that
/// owe nothing to the switch's own books.
///
/// What made frames of a light tenant dearer than those of a heavy one, by up to a fifth, was memory
/// that others had pushed out of the caches between two of its turns: buffers of 2 KiB, which all fall
/// into the same few sets, and the receiver's as well. So buffers are small and lie close, nothing is
/// delivered, and the rest, a few lines that come from the sender's core, weighs little beside the
/// work, which is on one header. A frame is worth most of a quantum, so none of them has company to
/// share a turn's own cost with, and none is cut.
pub(super) const EQUAL_COST: Adversary = Adversary {
    name: "equal cost",
    port_keys: "ring=512,tx=128,rx=128",
    flows: Flows::RewritesToNobody(140),
    ..FLAT_OUT
};

/// [`EQUAL_COST`]'s ring: so many frames are left when the sender's core is taken away.
pub(super) const EQUAL_COST_RING: f64 = 512.0;

/// The victim's second port.
const ABSENT: &str = "v1";

/// 64-byte frames of one flow, flat out.
pub(super) const CHEAP: Adversary = Adversary { name: "cheap frames", ..FLAT_OUT };

/// Full frames of one flow, flat out.
pub(super) const LARGE: Adversary =
    Adversary { name: "large frames", frame_bytes: LARGE_BYTES, ..FLAT_OUT };

const FLOWS_50K: Adversary =
    Adversary { name: "50k flows", keys: "flows=50000", flows: Flows::EveryTuple, ..FLAT_OUT };

impl Adversary {
    /// The ports of the `number`th neighbour that is one of these: where its frames enter, and where
    /// they leave.
    pub(super) fn ports(&self, number: usize) -> [String; 2] {
        let [own, to] = neighbour_ports(number);
        [if self.from_uplink { UPLINK.to_owned() } else { own }, to]
    }

    /// How long its flows take to be known, by a slow path that has half a core for that: many decisions,
    /// or the same once more under long rules that have just replaced others.
    pub(super) fn warm_up(&self) -> Duration {
        match self.flows {
            Flows::Rewrites(_) | Flows::Broadcast => Duration::from_secs(2),
            Flows::EveryTuple if self.name == FLOWS_50K.name => Duration::from_secs(2),
            _ => Duration::ZERO,
        }
    }

    /// Its flows between the ports `from` and `to`.
    pub(super) fn flows(&self, from: &str, to: &str, ovs: bool) -> Vec<String> {
        match self.flows {
            Flows::Forward => vec![format!("in_port={from},actions=output:{to}")],
            Flows::Drop => vec![format!("in_port={from},actions=drop")],
            Flows::Broadcast => {
                let others = ports_but_victims().filter(|port| port != from);
                let outputs: Vec<_> = others.map(|port| format!("output:{port}")).collect();
                vec![format!("in_port={from},actions={}", outputs.join(","))]
            }
            Flows::Rewrites(_) if ovs => tracked_passes(from, to, OVS_PASSES_MAX),
            Flows::Rewrites(count) => rewrites(from, to, count),
            Flows::RewritesToNobody(count) => rewrites(from, ABSENT, count),
            Flows::Masks(masks) => rules::many_masks(from, to, masks),
            Flows::Passes(passes) if ovs => tracked_passes(from, to, passes),
            Flows::Passes(passes) => table_passes(from, to, passes),
            Flows::EveryTuple => vec![rules::every_tuple(from, to)],
        }
    }
}

fn rewrites(from: &str, to: &str, count: u32) -> Vec<String> {
    let rewrite = |n| format!("set_field:10.0.{}.{}->ip_dst", n / 250, n % 250 + 1);
    let rewrites: Vec<_> = (0..count).map(rewrite).collect();
    vec![format!("ip,in_port={from},actions={},output:{to}", rewrites.join(","))]
}

/// OVS drops what passes through its datapath more often, 6 times with the first.
const OVS_PASSES_MAX: u32 = 5;

fn tracked_passes(from: &str, to: &str, passes: u32) -> Vec<String> {
    let table = |pass: u32| {
        let next = pass + 1;
        format!("table={pass},ip,in_port={from},actions=ct(table={next},zone={next})")
    };
    let last = format!("table={passes},ip,in_port={from},actions=output:{to}");
    (0..passes).map(table).chain([last]).collect()
}

fn table_passes(from: &str, to: &str, passes: u32) -> Vec<String> {
    let table =
        |pass: u32| format!("table={pass},ip,in_port={from},actions=resubmit(,{})", pass + 1);
    let last = format!("table={passes},ip,in_port={from},actions=output:{to}");
    (0..passes).map(table).chain([last]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_rewrites_are_valid_and_different_from_one_to_the_next() {
        let flows = rewrites("a", "b", 1000);
        let addresses =
            flows[0].split("set_field:").skip(1).filter_map(|text| text.split("->").next());
        let addresses: Vec<std::net::Ipv4Addr> =
            addresses.map(|text| text.parse().unwrap()).collect();
        assert_eq!(addresses.len(), 1000);
        assert!(addresses.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
