//! Prints what `monitor` receives, and queues.

use super::format::{PACKET_IN_REASONS, format_duration, format_match};
use super::names::{PortNames, format_port};
use super::replies::format_port_desc;
use crate::event::{
    FlowRemoved, OFPPR_ADD, OFPPR_DELETE, OFPPR_MODIFY, OFPRR_DELETE, OFPRR_GROUP_DELETE,
    OFPRR_HARD_TIMEOUT, OFPRR_IDLE_TIMEOUT, OFPRR_METER_DELETE, PacketIn, PortStatus,
};
use crate::flow_mod::DEFAULT_PRIORITY;
use crate::multipart::COUNTER_UNSUPPORTED;
use crate::port::OFP_NO_BUFFER;
use crate::queue::QueueStats;

fn name_or_number(number: u8, names: &[(u8, &str)]) -> String {
    let known = names.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// A PACKET_IN, continuing its heading; the frame itself is not in it.
pub fn format_packet_in(packet: &PacketIn, names: &dyn PortNames) -> String {
    let table = match packet.table_id {
        0 => String::new(),
        table => format!(" table_id={table}"),
    };
    let buffer = match packet.buffer_id {
        OFP_NO_BUFFER => " (unbuffered)".to_owned(),
        buffer => format!(" buffer=0x{buffer:08x}"),
    };
    // A packet that no flow sent has all bits set.
    let cookie = match packet.cookie {
        u64::MAX => String::new(),
        cookie => format!(" cookie={cookie:#x}"),
    };
    format!(
        "{table}{cookie} total_len={} {} (via {}) data_len={}{buffer}\n",
        packet.total_len,
        format_match(&packet.matcher, DEFAULT_PRIORITY, names),
        name_or_number(packet.reason, &PACKET_IN_REASONS),
        packet.data.len()
    )
}

/// A FLOW_REMOVED, continuing its heading.
pub fn format_flow_removed(flow: &FlowRemoved, names: &dyn PortNames) -> String {
    const REASONS: [(u8, &str); 5] = [
        (OFPRR_IDLE_TIMEOUT, "idle"),
        (OFPRR_HARD_TIMEOUT, "hard"),
        (OFPRR_DELETE, "delete"),
        (OFPRR_GROUP_DELETE, "group_delete"),
        (OFPRR_METER_DELETE, "meter_delete"),
    ];
    let mut text = format!(
        " {} reason={} table_id={}",
        format_match(&flow.matcher, flow.priority, names),
        name_or_number(flow.reason, &REASONS),
        flow.table_id
    );
    if flow.cookie != 0 {
        text += &format!(" cookie:{:#x}", flow.cookie);
    }
    text += &format!(" duration{} idle{}", format_duration(flow.duration), flow.idle_timeout_s);
    if flow.hard_timeout_s != 0 {
        text += &format!(" hard{}", flow.hard_timeout_s);
    }
    text + &format!(" pkts{} bytes{}\n", flow.packet_count, flow.byte_count)
}

/// A PORT_STATUS, continuing its heading.
pub fn format_port_status(status: &PortStatus) -> String {
    const REASONS: [(u8, &str); 3] =
        [(OFPPR_ADD, "ADD"), (OFPPR_DELETE, "DEL"), (OFPPR_MODIFY, "MOD")];
    let reason = name_or_number(status.reason, &REASONS);
    format!(" {reason}:{}", format_port_desc(&status.port))
}

/// One queue of `queue-stats`, a line.
pub fn format_queue_stats(queue: &QueueStats, names: &dyn PortNames) -> String {
    let counter = |value: u64| match value {
        COUNTER_UNSUPPORTED => "?".to_owned(),
        value => value.to_string(),
    };
    format!(
        "  port {} queue {}: bytes={}, pkts={}, errors={}, duration={}\n",
        format_port(queue.port_no, names),
        queue.queue_id,
        counter(queue.tx_bytes),
        counter(queue.tx_packets),
        counter(queue.tx_errors),
        queue.duration.map_or_else(|| "?".to_owned(), format_duration)
    )
}
