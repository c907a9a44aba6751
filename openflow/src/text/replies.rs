//! Prints what `show`, `dump-ports`, `dump-desc` and the like receive.

use super::format::format_duration;
use super::names::{PortNames, format_port};
use crate::error::ErrorCode;
use crate::message::{Features, SwitchConfig};
use crate::multipart::{AggregateStats, COUNTER_UNSUPPORTED, DescStats, PortStats, TableStats};
use crate::port::PortDesc;

/// The line that `ovs-ofctl` prints above a reply, without a newline: `message` is as in
/// `OFPST_FLOW reply`; `more` says that the reply continues in another message.
pub fn reply_heading(message: &str, xid: u32, more: bool) -> String {
    let flags = if more { " flags=[more]" } else { "" };
    format!("{message} (OF1.3) (xid={xid:#x}):{flags}")
}

/// `show`: what the switch is; three lines, the first continuing the heading.
pub fn format_features(features: &Features) -> String {
    let auxiliary = match features.auxiliary_id {
        0 => String::new(),
        id => format!(", auxiliary_id:{id}"),
    };
    format!(
        " dpid:{:016x}\nn_tables:{}, n_buffers:{}{auxiliary}\ncapabilities: {}\n",
        features.datapath_id,
        features.n_tables,
        features.n_buffers,
        bits(features.capabilities, &CAPABILITIES)
    )
}

const CAPABILITIES: [(u32, &str); 7] = [
    (crate::message::OFPC_FLOW_STATS, "FLOW_STATS"),
    (crate::message::OFPC_TABLE_STATS, "TABLE_STATS"),
    (crate::message::OFPC_PORT_STATS, "PORT_STATS"),
    (crate::message::OFPC_GROUP_STATS, "GROUP_STATS"),
    (crate::message::OFPC_IP_REASM, "IP_REASM"),
    (crate::message::OFPC_QUEUE_STATS, "QUEUE_STATS"),
    (crate::message::OFPC_PORT_BLOCKED, "PORT_BLOCKED"),
];

const PORT_CONFIG: [(u32, &str); 4] = [
    (crate::port::OFPPC_PORT_DOWN, "PORT_DOWN"),
    (crate::port::OFPPC_NO_RECV, "NO_RECV"),
    (crate::port::OFPPC_NO_FWD, "NO_FWD"),
    (crate::port::OFPPC_NO_PACKET_IN, "NO_PACKET_IN"),
];

const PORT_STATE: [(u32, &str); 3] = [
    (crate::port::OFPPS_LINK_DOWN, "LINK_DOWN"),
    (crate::port::OFPPS_BLOCKED, "BLOCKED"),
    (crate::port::OFPPS_LIVE, "LIVE"),
];

/// `OFPPF_*`, OF 1.3.5 §7.2.1.
const PORT_FEATURES: [(u32, &str); 16] = [
    (1, "10MB-HD"),
    (1 << 1, "10MB-FD"),
    (1 << 2, "100MB-HD"),
    (1 << 3, "100MB-FD"),
    (1 << 4, "1GB-HD"),
    (1 << 5, "1GB-FD"),
    (1 << 6, "10GB-FD"),
    (1 << 7, "40GB-FD"),
    (1 << 8, "100GB-FD"),
    (1 << 9, "1TB-FD"),
    (1 << 10, "OTHER"),
    (1 << 11, "COPPER"),
    (1 << 12, "FIBER"),
    (1 << 13, "AUTO_NEG"),
    (1 << 14, "AUTO_PAUSE"),
    (1 << 15, "AUTO_PAUSE_ASYM"),
];

/// The names of the set bits, unknown ones in hexadecimal; `0` for none.
fn bits(value: u32, names: &[(u32, &str)]) -> String {
    let known = names.iter().filter(|(bit, _)| value & bit != 0);
    let unknown = names.iter().fold(value, |rest, (bit, _)| rest & !bit);
    let mut words: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
    if unknown != 0 || words.is_empty() {
        words.push(super::value::format_hex(u128::from(unknown), 0));
    }
    words.join(" ")
}

/// One port of `show`, several lines.
pub fn format_port_desc(port: &PortDesc) -> String {
    let [a, b, c, d, e, f] = port.hw_addr;
    let number = format_port(port.port_no, &super::NoNames);
    let mut text = format!(
        " {number}({}): addr:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\n     config:     {}\n     state:      {}\n",
        port.name,
        bits(port.config, &PORT_CONFIG),
        bits(port.state, &PORT_STATE)
    );
    for (title, value) in [
        ("current:    ", port.curr),
        ("advertised: ", port.advertised),
        ("supported:  ", port.supported),
        ("peer:       ", port.peer),
    ] {
        if value != 0 {
            text += &format!("     {title}{}\n", bits(value, &PORT_FEATURES));
        }
    }
    text + &format!(
        "     speed: {} Mbps now, {} Mbps max\n",
        port.curr_speed_kbps / 1000,
        port.max_speed_kbps / 1000
    )
}

/// The last line of `show`, continuing its heading.
pub fn format_switch_config(config: &SwitchConfig) -> String {
    let frags = match config.flags & 3 {
        0 => "normal",
        1 => "drop",
        2 => "reassemble",
        _ => "<error>",
    };
    format!(" frags={frags} miss_send_len={}\n", config.miss_send_len)
}

/// One port of `dump-ports`, three lines.
pub fn format_port_stats(stats: &PortStats, names: &dyn PortNames) -> String {
    let counter = |value: u64| match value {
        COUNTER_UNSUPPORTED => "?".to_owned(),
        value => value.to_string(),
    };
    let list = |counters: &[(&str, u64)]| {
        let parts: Vec<String> =
            counters.iter().map(|(name, value)| format!("{name}={}", counter(*value))).collect();
        parts.join(", ")
    };
    let narrow = if stats.port_no < 10 { " " } else { "" };
    let port = format_port(stats.port_no, names);
    let receive = list(&[
        ("pkts", stats.rx_packets),
        ("bytes", stats.rx_bytes),
        ("drop", stats.rx_dropped),
        ("errs", stats.rx_errors),
        ("frame", stats.rx_frame_err),
        ("over", stats.rx_over_err),
        ("crc", stats.rx_crc_err),
    ]);
    let send = list(&[
        ("pkts", stats.tx_packets),
        ("bytes", stats.tx_bytes),
        ("drop", stats.tx_dropped),
        ("errs", stats.tx_errors),
        ("coll", stats.collisions),
    ]);
    format!(
        "  port {narrow}{port}: rx {receive}\n           tx {send}\n           duration={}\n",
        format_duration(stats.duration)
    )
}

/// `dump-aggregate`, continuing its heading.
pub fn format_aggregate(stats: &AggregateStats) -> String {
    let AggregateStats { packet_count, byte_count, flow_count } = stats;
    format!(" packet_count={packet_count} byte_count={byte_count} flow_count={flow_count}\n")
}

/// `dump-desc`, below its heading.
pub fn format_desc(desc: &DescStats) -> String {
    format!(
        "Manufacturer: {}\nHardware: {}\nSoftware: {}\nSerial Num: {}\nDP Description: {}\n",
        desc.mfr_desc, desc.hw_desc, desc.sw_desc, desc.serial_num, desc.dp_desc
    )
}

/// `dump-tables`, below its heading. A table with the numbers of the one before it prints as
/// `ditto`.
pub fn format_table_stats(tables: &[TableStats]) -> String {
    let counters = |t: &TableStats| (t.active_count, t.lookup_count, t.matched_count);
    let mut paragraphs = Vec::new();
    for run in tables.chunk_by(|a, b| counters(a) == counters(b)) {
        let [first, same @ ..] = run else { continue };
        let (active, lookup, matched) = counters(first);
        paragraphs.push(format!(
            "  table {}:\n    active={active}, lookup={lookup}, matched={matched}\n",
            first.table_id
        ));
        match same {
            [] => {}
            [one] => paragraphs.push(format!("  table {}: ditto\n", one.table_id)),
            [from, .., to] => {
                paragraphs.push(format!("  tables {}...{}: ditto\n", from.table_id, to.table_id));
            }
        }
    }
    paragraphs.join("\n")
}

/// An OFPT_ERROR in words: the specification's name, and what it means where that helps.
pub fn format_error(code: ErrorCode) -> String {
    let meaning = match code {
        ErrorCode::OFPFMFC_TABLE_FULL => "the table is full",
        ErrorCode::OFPFMFC_OVERLAP => "it overlaps a flow of the same priority",
        ErrorCode::OFPFMFC_BAD_TABLE_ID
        | ErrorCode::OFPBRC_BAD_TABLE_ID
        | ErrorCode::OFPBIC_BAD_TABLE_ID => {
            "the switch has no such table, or goto_table does not lead forwards"
        }
        ErrorCode::OFPBIC_UNSUP_INST => "the switch does not support one of the instructions",
        ErrorCode::OFPBAC_BAD_OUT_PORT => {
            "the switch has no such output port, or does not support a reserved one like CONTROLLER or LOCAL"
        }
        ErrorCode::OFPBAC_BAD_OUT_GROUP => "the switch has no such group",
        ErrorCode::OFPMMFC_INVALID_METER => "the switch has no such meter",
        ErrorCode::OFPBMC_BAD_FIELD => "the switch cannot match one of the fields",
        ErrorCode::OFPBMC_BAD_PREREQ => "a field lacks its prerequisite",
        ErrorCode::OFPBAC_BAD_TYPE => "the switch does not know one of the actions",
        ErrorCode::OFPBAC_BAD_SET_TYPE => "the switch cannot set one of the fields",
        ErrorCode::OFPBAC_MATCH_INCONSISTENT => "an action needs more in the match",
        ErrorCode::OFPBRC_BAD_TYPE => "the switch does not know this message",
        ErrorCode::OFPBRC_BAD_PORT => "the switch has no such port",
        _ => return code.to_string(),
    };
    format!("{code} ({meaning})")
}
