//! The copies of packets that controllers get (OpenFlow 1.3.5, section 7.4.1).

use tollgate_packet::edit::{Edit, apply};
use tollgate_packet::parse::parse;
use tollgate_packet::{HeaderBuf, PortIndex};

use super::bridge::BridgeId;
use super::core::Core;
use super::describe::pipeline_match;
use super::events::{Event, PacketInEvent, PacketInReason};
use super::walk::Punt;

impl Core {
    /// Sends the copies that a walk of `frame` makes.
    pub(super) fn send_copies(&self, bridge: BridgeId, punts: &[Punt], frame: &[u8]) {
        for punt in punts {
            self.tell(bridge, Event::PacketIn(message(punt, frame)));
        }
    }
}

fn message(punt: &Punt, frame: &[u8]) -> PacketInEvent {
    PacketInEvent {
        reason: PacketInReason::from_wire(punt.reason),
        table_id: punt.table,
        cookie: punt.cookie,
        matcher: pipeline_match(punt.in_port, &punt.extra),
        data: edited(frame, &punt.edits),
        controller_id: punt.controller_id,
    }
}

/// The frame after these edits, which a walk has found possible. One that is not after all (a
/// header is malformed) ends them, as it would end the packet.
pub(super) fn edited(frame: &[u8], edits: &[Edit]) -> Vec<u8> {
    if edits.is_empty() {
        return frame.to_vec();
    }
    let mut header = HeaderBuf::from_frame(frame);
    let payload = frame.get(header.len()..).unwrap_or_default();
    let parsed = parse(header.bytes(), frame.len() as u32, PortIndex(0));
    let mut layout = parsed.layout;
    for edit in edits {
        if apply(edit, &mut header, &mut layout, &parsed.key).is_err() {
            break;
        }
    }
    [header.bytes(), payload].concat()
}
