//! Events as the messages that a connection gets (OpenFlow 1.3.5, section 7.4).

use tollgate_openflow::Message;
use tollgate_openflow::event::{FlowRemoved, PacketIn, PortStatus};
use tollgate_openflow::port::OFP_NO_BUFFER;

use super::Bridge;
use super::peer::Item;
use crate::pipeline::{Event, FlowRemovedEvent, FlowRemovedReason, PacketInEvent};

/// Appends what is to be sent.
pub(super) fn encode(items: Vec<Item>, bridge: &dyn Bridge, buffer: &mut Vec<u8>) {
    for item in items {
        match item {
            Item::Reply(messages) => buffer.extend_from_slice(&messages),
            Item::Event(event) => buffer.extend_from_slice(&encode_event(&event, bridge)),
        }
    }
}

/// The bytes of an event; an event is in reply to nothing, so its xid is 0.
fn encode_event(event: &Event, bridge: &dyn Bridge) -> Vec<u8> {
    let message = match event {
        Event::PacketIn(packet) => packet_in(packet),
        Event::FlowRemoved(flow) => flow_removed(flow),
        Event::PortStatus(status) => Message::PortStatus(Box::new(PortStatus {
            reason: status.reason as u8,
            port: bridge.port_desc(&status.port),
        })),
    };
    message.encode(0)
}

fn packet_in(packet: &PacketInEvent) -> Message {
    Message::PacketIn(Box::new(PacketIn {
        buffer_id: OFP_NO_BUFFER,
        total_len: u16::try_from(packet.data.len()).unwrap_or(u16::MAX),
        reason: packet.reason as u8,
        table_id: packet.table_id,
        cookie: packet.cookie,
        matcher: packet.matcher.clone(),
        data: packet.data.clone(),
    }))
}

fn flow_removed(flow: &FlowRemovedEvent) -> Message {
    Message::FlowRemoved(Box::new(FlowRemoved {
        cookie: flow.cookie,
        priority: flow.priority,
        reason: removed_reason(flow.reason) as u8,
        table_id: flow.table_id,
        duration: flow.duration,
        idle_timeout_s: flow.idle_timeout_s,
        hard_timeout_s: flow.hard_timeout_s,
        packet_count: flow.packet_count,
        byte_count: flow.byte_count,
        matcher: flow.matcher.clone(),
    }))
}

/// The reason as OpenFlow 1.3 has it. It has none for flows that make room for others; they are
/// deleted, if not by a controller.
pub(super) fn removed_reason(reason: FlowRemovedReason) -> FlowRemovedReason {
    match reason {
        FlowRemovedReason::Eviction => FlowRemovedReason::Delete,
        reason => reason,
    }
}
