//! What the pipeline tells controllers without having been asked: packets, rules that went, ports
//! that changed. Who wants to hear it, and what becomes of it when he is slow, is the receiver's
//! business.

use std::time::Duration;

use tollgate_openflow::Match;
use tollgate_openflow::event::{OFPR_INVALID_TTL, OFPR_NO_MATCH};

use super::bridge::{BridgeId, PortInfo};

/// One asynchronous message (OpenFlow 1.3.5, section 7.4), before it is known who gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet for a controller.
    PacketIn(PacketInEvent),
    /// A rule with OFPFF_SEND_FLOW_REM went.
    FlowRemoved(FlowRemovedEvent),
    /// A port came, went or was configured.
    PortStatus(PortStatusEvent),
}

/// Why a packet is sent to the controller (`OFPR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketInReason {
    /// A table-miss rule sent it.
    NoMatch = 0,
    /// Another rule's action sent it.
    Action = 1,
    /// Its TTL ran out.
    InvalidTtl = 2,
}

impl PacketInReason {
    /// From `OFPR_*`.
    pub(super) fn from_wire(reason: u8) -> Self {
        match reason {
            OFPR_NO_MATCH => Self::NoMatch,
            OFPR_INVALID_TTL => Self::InvalidTtl,
            _ => Self::Action,
        }
    }
}

/// A packet for a controller. It is never buffered, so that all of it is sent, whatever the rule
/// says (OpenFlow 1.3.5, section 7.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketInEvent {
    /// Why.
    pub reason: PacketInReason,
    /// The table of the rule that sent it.
    pub table_id: u8,
    /// That rule's cookie.
    pub cookie: u64,
    /// Its pipeline fields: `in_port`, and metadata and registers where they are not zero.
    pub matcher: Match,
    /// The frame as the action found it.
    pub data: Vec<u8>,
    /// Which controllers it is for (Nicira's controller ids); 0 is all that have not chosen one.
    pub controller_id: u16,
}

/// Why a rule went (`OFPRR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowRemovedReason {
    /// No packet came for too long.
    IdleTimeout = 0,
    /// Its time was over.
    HardTimeout = 1,
    /// It was deleted.
    Delete = 2,
    /// A group that it used was deleted.
    GroupDelete = 3,
    /// A meter that it used was deleted.
    MeterDelete = 4,
    /// It had to make room for another.
    Eviction = 5,
}

/// A rule that went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemovedEvent {
    /// Why.
    pub reason: FlowRemovedReason,
    /// Its cookie.
    pub cookie: u64,
    /// Its priority.
    pub priority: u16,
    /// Its table.
    pub table_id: u8,
    /// How long it was there.
    pub duration: Duration,
    /// Its idle timeout in seconds; 0 for none.
    pub idle_timeout_s: u16,
    /// Its hard timeout in seconds; 0 for none.
    pub hard_timeout_s: u16,
    /// Packets that it matched, up to its end.
    pub packet_count: u64,
    /// Their bytes.
    pub byte_count: u64,
    /// What it matched.
    pub matcher: Match,
}

/// What happened to a port (`OFPPR_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortReason {
    /// It was added.
    Add = 0,
    /// It was removed.
    Delete = 1,
    /// It was configured otherwise.
    Modify = 2,
}

/// A port that came, went or changed; on removal, as it was last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatusEvent {
    /// What happened.
    pub reason: PortReason,
    /// The port.
    pub port: PortInfo,
}

/// Takes events. Called by the slow path and under the pipeline's locks: it must neither block
/// nor call back, and drops what it has no room for.
pub trait EventSink: Send + Sync {
    /// Something happened on a bridge.
    fn event(&self, bridge: BridgeId, event: Event);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _bridge: BridgeId, _event: Event) {}
}
