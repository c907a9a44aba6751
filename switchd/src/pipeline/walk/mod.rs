//! One packet's way through a bridge's tables, and the decision that it teaches.
//!
//! A walk changes nothing: what it would teach the forwarding database is in its result. So the
//! same function decides misses, serves as the oracle of tests, and can explain a decision.

mod machine;
mod output;
mod record;

use std::sync::Arc;

use tollgate_classifier::ExtraKey;
use tollgate_datapath::{Meter, Op};
use tollgate_frame::DropReason;
use tollgate_openflow::port::{OFPPC_NO_RECV, OFPPC_PORT_DOWN};
use tollgate_packet::edit::Edit;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};

pub(super) use self::record::{Record, Recorded};

use self::machine::Machine;
use super::bridge::{Bridge, PortInfo};
use super::fdb::{Fdb, Station};
use super::program::Item;
use super::rule::Rule;
use super::tracker::Tracker;

/// Where a packet came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ingress<'a> {
    /// Its OpenFlow number; a reserved one if it came from no port.
    pub(super) ofport: u32,
    pub(super) port: Option<&'a PortInfo>,
}

impl<'a> From<&'a PortInfo> for Ingress<'a> {
    fn from(port: &'a PortInfo) -> Self {
        Self { ofport: port.ofport, port: Some(port) }
    }
}

/// A look-up in one table.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) table: u8,
    /// What was found; `None` is a table miss.
    pub(super) rule: Option<Arc<Rule>>,
    /// The pipeline fields as the table saw them, if any was set by then.
    pub(super) extra: Option<Box<ExtraKey>>,
    /// The packet as the table saw it, if actions had changed it by then.
    pub(super) edited: Option<Box<FlowMatch>>,
}

/// What a walk asked of the bridge besides its rules: when the answer changes, so may the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dependencies {
    /// Stations looked up or learned.
    pub(super) stations: Vec<Station>,
    /// Ports named by outputs.
    pub(super) ofports: Vec<u32>,
    /// The list of all ports.
    pub(super) flooded: bool,
    /// Meters passed, in the order of [`Walk::meters`].
    pub(super) meters: Vec<u32>,
}

/// A copy of the packet for controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Punt {
    /// `OFPR_*`.
    pub(super) reason: u8,
    pub(super) table: u8,
    pub(super) cookie: u64,
    pub(super) controller_id: u16,
    pub(super) in_port: u32,
    pub(super) extra: ExtraKey,
    /// What had been done to the packet by then.
    pub(super) edits: Vec<Edit>,
}

/// A decision and the packets it is good for.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// `in_port` holds the datapath's [`PortIndex`], exact.
    pub(super) matcher: FlowMatch,
    pub(super) ops: Vec<Op>,
    /// Those that the ops name.
    pub(super) meters: Vec<Arc<Meter>>,
    /// Why nothing is sent, if nothing is.
    pub(super) drop_reason: DropReason,
    pub(super) visits: Vec<Visit>,
    pub(super) dependencies: Dependencies,
    /// Stations that the packet shows to be behind a port.
    pub(super) learned: Vec<(Station, u32)>,
    /// Stations looked up, with the answers.
    pub(super) asked: Vec<(Station, Option<u32>)>,
    pub(super) punts: Vec<Punt>,
    /// The packet after all of it.
    pub(super) last_key: FlowKey,
    pub(super) last_extra: ExtraKey,
}

impl Walk {
    /// Whether copies for controllers come after a meter.
    pub(super) fn has_metered_copies(&self) -> bool {
        let copies = self.ops.iter().position(|op| *op == Op::Punt);
        let before = copies.and_then(|at| self.ops.get(..at)).unwrap_or_default();
        before.iter().any(|op| matches!(op, Op::Meter(_)))
    }

    /// Passes one packet through the meters now, so that its copies know whether they are to be
    /// sent. What is left is for this packet only.
    pub(super) fn pass_meters(&mut self, frame_bytes: u32, now_tsc: u64) {
        let mut passed = Vec::new();
        for op in std::mem::take(&mut self.ops) {
            let Op::Meter(place) = op else {
                passed.push(op);
                continue;
            };
            let meter = self.meters.get(usize::from(place));
            if meter.is_none_or(|meter| !meter.admit(frame_bytes, now_tsc)) {
                self.drop_reason = DropReason::Meter;
                break;
            }
        }
        if !passed.contains(&Op::Punt) {
            self.punts.clear();
        }
        self.ops = visible(passed);
    }
}

/// Whether a step makes a copy of the packet.
pub(super) fn sends(op: &Op) -> bool {
    matches!(op, Op::Output(_) | Op::Punt)
}

/// The steps without the edits after the last output, which change what nobody sees.
fn visible(mut ops: Vec<Op>) -> Vec<Op> {
    let last = ops.iter().rposition(|op| matches!(op, Op::Output(_)));
    let seen = last.map_or(0, |last| last + 1);
    let mut place = 0;
    ops.retain(|op| {
        place += 1;
        place <= seen || !matches!(op, Op::Edit(_))
    });
    ops
}

/// Every decision is about one ingress port.
const INGRESS: FlowMask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::ZERO });

/// Walks the packet `key` (whose `in_port` does not matter) that entered through `ingress`.
pub(super) fn walk(bridge: &Bridge, fdb: &Fdb, ingress: &PortInfo, key: &FlowKey) -> Walk {
    walk_from(bridge, fdb, Start::table_0(ingress.into(), key), &mut Record::Nothing)
}

/// Walks a packet of an earlier decision again. What that decision has looked at costs nothing now,
/// so the walk looks at other bits only if it has to.
pub(super) fn walk_again(
    bridge: &Bridge,
    fdb: &Fdb,
    ingress: &PortInfo,
    decision: &FlowMatch,
) -> Walk {
    let known = *decision.mask() | INGRESS;
    let start = Start { known, ..Start::table_0(ingress.into(), decision.key()) };
    walk_from(bridge, fdb, start, &mut Record::Nothing)
}

/// What a walk begins with.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) ingress: Ingress<'a>,
    /// The packet; its `in_port` does not matter.
    pub(super) key: FlowKey,
    /// Its pipeline fields, zero for every packet that enters.
    pub(super) extra: ExtraKey,
    /// Bits of the packet that are known from the start.
    pub(super) known: FlowMask,
    /// What is executed instead of table 0.
    pub(super) list: Option<Vec<Item<'a>>>,
}

impl<'a> Start<'a> {
    pub(super) fn table_0(ingress: Ingress<'a>, key: &FlowKey) -> Self {
        Self { ingress, key: *key, extra: ExtraKey::ZERO, known: INGRESS, list: None }
    }
}

/// Any walk, with notes about it.
pub(super) fn walk_from<'a>(
    bridge: &'a Bridge,
    fdb: &'a Fdb,
    start: Start<'a>,
    record: &'a mut Record,
) -> Walk {
    let Start { ingress, key, extra, known, list } = start;
    let packet = FlowKey { in_port: ingress.ofport, ..key };
    let tracker = Tracker::new(packet, known);
    let mut machine = Machine::new(bridge, fdb, ingress, tracker, extra, record);
    let receives = |port: &PortInfo| port.config & (OFPPC_NO_RECV | OFPPC_PORT_DOWN) == 0;
    match list {
        Some(list) => machine.run_list(list),
        None if ingress.port.is_none_or(receives) => machine.run_tables(),
        None => machine.drop_reason = DropReason::RxDisabled,
    }
    machine.finish(&packet)
}

/// `matcher` with another number of its port: OpenFlow's and the datapath's differ.
pub(super) fn with_port(matcher: &FlowMatch, in_port: u32) -> FlowMatch {
    FlowMatch::new(&FlowKey { in_port, ..*matcher.key() }, *matcher.mask())
}

/// The number of the port of a packet that came from none, as the datapath has no such port.
pub(super) fn index_number(ingress: Ingress<'_>) -> u32 {
    ingress.port.map_or(u32::MAX, |PortInfo { index: PortIndex(index), .. }| u32::from(*index))
}
