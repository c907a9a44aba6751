//! Flows and packets, and commands that repeat them.

use std::fmt::{self, Display, Formatter};

use proptest::option::weighted;
use proptest::prelude::*;

use super::flows::{Flow, TABLES, any_flow};
use super::peer::hex;
use super::wild::{Packet, any_packet};

/// Packets that come a second time, when the flows have changed.
const AGAIN: usize = 3;

/// Flows and packets.
#[derive(Clone, Debug)]
pub(super) struct Case {
    flows: Vec<Flow>,
    /// How many of the flows, but not of the last one, come when decisions have been cached.
    late: usize,
    /// One that goes then, if it was there.
    doomed: Option<usize>,
    /// What flows of the lowest priority do in every table, if there are any.
    floor: Option<&'static str>,
    packets: Vec<Option<Packet>>,
    /// Open vSwitch gets the flows from `ovs-ofctl`, which reads the text itself.
    pub(super) by_ofctl: bool,
}

pub(super) fn any_case() -> impl Strategy<Value = Case> {
    let flows = prop::collection::vec(any_flow(), 1..=20);
    let changes = (0..4_usize, weighted(0.5, 0..20_usize));
    // A vector of options can be shrunk from within.
    let packets = prop::collection::vec(weighted(0.99, any_packet()), 8);
    let floor =
        weighted(0.8, prop::sample::select(&["drop", "normal", "output:1", "controller:60"][..]));
    (flows, changes, floor, packets, prop::bool::weighted(0.1)).prop_map(
        |(flows, (late, doomed), floor, packets, by_ofctl)| Case {
            flows,
            late,
            doomed,
            floor,
            packets,
            by_ofctl,
        },
    )
}

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Add(Vec<String>),
    DeleteStrict(String),
    Send(u32, Vec<u8>),
}

impl Case {
    /// All flows. Each above the floor has a priority of its own, from 1.
    pub(super) fn flows(&self) -> Vec<String> {
        let lines = (1..).zip(&self.flows).map(|(priority, flow)| flow.text(priority));
        let floor = |actions| {
            (0..TABLES).map(move |table| format!("table={table},priority=0,actions={actions}"))
        };
        lines.chain(self.floor.into_iter().flat_map(floor)).collect()
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let mut early = self.flows();
        let first_late = self.flows.len().saturating_sub(self.late).max(1);
        let late: Vec<String> = early.splice(first_late..self.flows.len(), []).collect();
        let doomed = self.doomed.filter(|doomed| *doomed < first_late);
        let doomed = doomed.map(|doomed| self.flows[doomed].place(doomed as u16 + 1));
        let packets = self.packets.iter().flatten();
        let packets = packets.map(|packet| Step::Send(packet.ofport, packet.build()));
        [Step::Add(early)]
            .into_iter()
            .chain(packets.clone())
            .chain(Some(Step::Add(late)))
            .chain(doomed.map(Step::DeleteStrict))
            .chain(packets.take(AGAIN))
            .collect()
    }
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.steps().iter().try_for_each(|step| write!(f, "{step}"))
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(flows) => flows
                .iter()
                .try_for_each(|flow| writeln!(f, "ovs-ofctl -O OpenFlow13 add-flow br0 '{flow}'")),
            Self::DeleteStrict(flow) => {
                writeln!(f, "ovs-ofctl -O OpenFlow13 --strict del-flows br0 '{flow}'")
            }
            Self::Send(ofport, frame) => {
                writeln!(f, "ovs-appctl netdev-dummy/receive p{ofport} {}", hex(frame))
            }
        }
    }
}
