//! Prints matches, actions and flows.

use std::fmt::Write;

use super::names::{PortNames, format_port};
use super::value::{format_field, format_hex, format_set_value};
use crate::action::Action;
use crate::event::{OFPR_ACTION, OFPR_INVALID_TTL, OFPR_NO_MATCH};
use crate::field::{
    ETH_TYPE_ARP, ETH_TYPE_IPV4, ETH_TYPE_IPV6, ETH_TYPE_RARP, Field, IP_PROTO_ICMP,
    IP_PROTO_ICMPV6, IP_PROTO_SCTP, IP_PROTO_TCP, IP_PROTO_UDP, OFPVID_PRESENT,
};
use crate::flow_mod::{DEFAULT_PRIORITY, FlowFlags};
use crate::instruction::{Instruction, Instructions};
use crate::multipart::FlowStats;
use crate::oxm::{Match, OxmField};
use crate::port::{OFPCML_NO_BUFFER, OFPP_CONTROLLER};
use crate::subfield::SubField;

/// What of a flow is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFormat {
    /// Duration, counters, and the cookie and table even if zero (`--no-stats` turns it off).
    pub stats: bool,
}

/// One flow as a line of `dump-flows`, without the leading space and the newline.
pub fn format_flow(flow: &FlowStats, names: &dyn PortNames, format: FlowFormat) -> String {
    let mut line = String::new();
    let stats = format.stats;
    if stats || flow.cookie != 0 {
        put(&mut line, format_args!("cookie={:#x}, ", flow.cookie));
    }
    if stats {
        put(&mut line, format_args!("duration={}, ", format_duration(flow.duration)));
    }
    if stats || flow.table_id != 0 {
        put(&mut line, format_args!("table={}, ", flow.table_id));
    }
    if stats {
        let (packets, bytes) = (flow.packet_count, flow.byte_count);
        put(&mut line, format_args!("n_packets={packets}, n_bytes={bytes}, "));
    }
    for (name, seconds) in
        [("idle_timeout", flow.idle_timeout_s), ("hard_timeout", flow.hard_timeout_s)]
    {
        if seconds != 0 {
            put(&mut line, format_args!("{name}={seconds}, "));
        }
    }
    for (flag, name) in FlowFlags::NAMES {
        if flow.flags.contains(flag) {
            put(&mut line, format_args!("{name} "));
        }
    }
    let matched = format_match(&flow.matcher, flow.priority, names);
    line.push_str(&matched);
    if !matched.is_empty() {
        line.push(' ');
    }
    put(&mut line, format_args!("actions={}", format_actions(&flow.instructions, names)));
    line
}

/// Writing to a string cannot fail.
fn put(line: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = line.write_fmt(text);
}

/// Seconds with a fraction of three digits if it is whole milliseconds, else up to nine without
/// trailing zeros.
pub(super) fn format_duration(duration: std::time::Duration) -> String {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    if nanoseconds == 0 {
        format!("{seconds}s")
    } else if nanoseconds % 1_000_000 == 0 {
        format!("{seconds}.{:03}s", nanoseconds / 1_000_000)
    } else {
        let fraction = format!("{nanoseconds:09}");
        format!("{seconds}.{}s", fraction.trim_end_matches('0'))
    }
}

/// A match with its priority, which is left out when it is the default.
pub fn format_match(matcher: &Match, priority: u16, names: &dyn PortNames) -> String {
    let mut parts = Parts { matcher, names, parts: Vec::new() };
    if priority != DEFAULT_PRIORITY {
        parts.text(format!("priority={priority}"));
    }
    let protocol = Protocol::of(matcher);
    if let Some(name) = protocol.name {
        parts.text(name.to_owned());
    }
    for register in Field::REGISTERS {
        parts.field(register, register.info().name);
    }
    parts.field(Field::Metadata, "metadata");
    parts.field(Field::InPort, "in_port");
    parts.vlan();
    parts.field(Field::EthSrc, "dl_src");
    parts.field(Field::EthDst, "dl_dst");
    if protocol.name.is_none() {
        parts.field(Field::EthType, "dl_type");
    }
    for (field, name) in LAYER_3 {
        parts.field(field, name);
    }
    if !protocol.covers_ip_proto {
        parts.field(Field::IpProto, "nw_proto");
    }
    parts.field(Field::ArpOp, "arp_op");
    parts.field(Field::ArpSha, "arp_sha");
    parts.field(Field::ArpTha, "arp_tha");
    if let Some(dscp) = matcher.get(Field::IpDscp) {
        parts.text(format!("nw_tos={}", dscp.value() << 2));
    }
    for (field, name) in LAYER_4 {
        parts.field(field, name);
    }
    parts.parts.join(",")
}

const LAYER_3: [(Field, &str); 7] = [
    (Field::Ipv6Src, "ipv6_src"),
    (Field::Ipv6Dst, "ipv6_dst"),
    (Field::Ipv6Flabel, "ipv6_label"),
    (Field::ArpSpa, "arp_spa"),
    (Field::ArpTpa, "arp_tpa"),
    (Field::Ipv4Src, "nw_src"),
    (Field::Ipv4Dst, "nw_dst"),
];

const LAYER_4: [(Field, &str); 17] = [
    (Field::IpEcn, "nw_ecn"),
    (Field::NwTtl, "nw_ttl"),
    (Field::NwFrag, "nw_frag"),
    (Field::Icmpv4Type, "icmp_type"),
    (Field::Icmpv4Code, "icmp_code"),
    (Field::Icmpv6Type, "icmp_type"),
    (Field::Icmpv6Code, "icmp_code"),
    (Field::NdTarget, "nd_target"),
    (Field::NdSll, "nd_sll"),
    (Field::NdTll, "nd_tll"),
    (Field::TcpSrc, "tp_src"),
    (Field::TcpDst, "tp_dst"),
    (Field::UdpSrc, "tp_src"),
    (Field::UdpDst, "tp_dst"),
    (Field::SctpSrc, "tp_src"),
    (Field::SctpDst, "tp_dst"),
    (Field::TcpFlags, "tcp_flags"),
];

/// The shorthand for a match's Ethernet type and IP protocol.
struct Protocol {
    name: Option<&'static str>,
    /// Whether the shorthand says the IP protocol too.
    covers_ip_proto: bool,
}

impl Protocol {
    fn of(matcher: &Match) -> Protocol {
        let value = |field| matcher.get(field).map(OxmField::value);
        let proto = value(Field::IpProto).and_then(|proto| u8::try_from(proto).ok());
        let plain = |name| Protocol { name, covers_ip_proto: false };
        let with_proto = |bare, names: [(u8, &'static str); 4]| {
            let named = names.into_iter().find(|(number, _)| Some(*number) == proto);
            Protocol {
                name: Some(named.map_or(bare, |(_, name)| name)),
                covers_ip_proto: named.is_some(),
            }
        };
        match value(Field::EthType).and_then(|kind| u16::try_from(kind).ok()) {
            Some(ETH_TYPE_IPV4) => with_proto(
                "ip",
                [
                    (IP_PROTO_ICMP, "icmp"),
                    (IP_PROTO_TCP, "tcp"),
                    (IP_PROTO_UDP, "udp"),
                    (IP_PROTO_SCTP, "sctp"),
                ],
            ),
            Some(ETH_TYPE_IPV6) => with_proto(
                "ipv6",
                [
                    (IP_PROTO_ICMPV6, "icmp6"),
                    (IP_PROTO_TCP, "tcp6"),
                    (IP_PROTO_UDP, "udp6"),
                    (IP_PROTO_SCTP, "sctp6"),
                ],
            ),
            Some(ETH_TYPE_ARP) => plain(Some("arp")),
            Some(ETH_TYPE_RARP) => plain(Some("rarp")),
            Some(0x8847) => plain(Some("mpls")),
            Some(0x8848) => plain(Some("mplsm")),
            _ => plain(None),
        }
    }
}

struct Parts<'a> {
    matcher: &'a Match,
    names: &'a dyn PortNames,
    parts: Vec<String>,
}

impl Parts<'_> {
    fn text(&mut self, text: String) {
        self.parts.push(text);
    }

    fn field(&mut self, field: Field, name: &str) {
        if let Some(set) = self.matcher.get(field) {
            let value = format_field(set, self.names);
            self.parts.push(format!("{name}={value}"));
        }
    }

    /// Id and priority of the tag print as `dl_vlan` and `dl_vlan_pcp` if each is whole and the
    /// match says that there is a tag, otherwise as the control word.
    fn vlan(&mut self) {
        let get = |field| self.matcher.get(field).map_or((0, 0), |f| (f.value(), f.mask()));
        let (vid, vid_mask) = get(Field::VlanVid);
        let (pcp, pcp_mask) = get(Field::VlanPcp);
        if vid_mask == 0 && pcp_mask == 0 {
            return;
        }
        let present = u128::from(OFPVID_PRESENT);
        let id_mask = vid_mask & 0xfff;
        if vid & present != 0 && matches!(id_mask, 0 | 0xfff) && (id_mask | pcp_mask) != 0 {
            if id_mask != 0 {
                self.text(format!("dl_vlan={}", vid & 0xfff));
            }
            if pcp_mask != 0 {
                self.text(format!("dl_vlan_pcp={pcp}"));
            }
            return;
        }
        let (tci, mask) = (pcp << 13 | vid, pcp_mask << 13 | vid_mask);
        self.text(match mask {
            0xffff => format!("vlan_tci=0x{tci:04x}"),
            _ => format!("vlan_tci=0x{tci:04x}/0x{mask:04x}"),
        });
    }
}

/// What a flow does, as after `actions=`.
pub fn format_actions(instructions: &Instructions, names: &dyn PortNames) -> String {
    let parts: Vec<String> = instructions
        .iter()
        .filter_map(|instruction| format_instruction(instruction, names))
        .collect();
    if parts.is_empty() { "drop".to_owned() } else { parts.join(",") }
}

fn format_instruction(instruction: &Instruction, names: &dyn PortNames) -> Option<String> {
    let list = |actions: &[Action]| {
        let parts: Vec<String> =
            actions.iter().map(|action| format_action(action, names)).collect();
        parts.join(",")
    };
    Some(match instruction {
        Instruction::Meter(meter) => format!("meter:{meter}"),
        Instruction::ApplyActions(actions) if actions.is_empty() => return None,
        Instruction::ApplyActions(actions) => list(actions),
        Instruction::ClearActions => "clear_actions".to_owned(),
        Instruction::WriteActions(actions) if actions.is_empty() => {
            "write_actions(drop)".to_owned()
        }
        Instruction::WriteActions(actions) => format!("write_actions({})", list(actions)),
        Instruction::WriteMetadata { metadata, mask } => {
            let value = format_hex(u128::from(*metadata), 0);
            match *mask {
                u64::MAX => format!("write_metadata:{value}"),
                mask => format!("write_metadata:{value}/{}", format_hex(u128::from(mask), 0)),
            }
        }
        Instruction::GotoTable(table) => format!("goto_table:{table}"),
    })
}

fn format_action(action: &Action, names: &dyn PortNames) -> String {
    match action {
        Action::Output { port: OFPP_CONTROLLER, max_len } => format!("CONTROLLER:{max_len}"),
        Action::Output { port, .. } => {
            let port_text = format_port(*port, names);
            if *port > crate::port::OFPP_MAX { port_text } else { format!("output:{port_text}") }
        }
        Action::SetField(field) => {
            let value = format_set_value(field, names);
            format!("set_field:{value}->{}", field.field().info().name)
        }
        Action::PushVlan(tpid) => format!("push_vlan:0x{tpid:04x}"),
        Action::PopVlan => "pop_vlan".to_owned(),
        Action::DecNwTtl => "dec_ttl".to_owned(),
        Action::SetNwTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::Group(group) => format!("group:{group}"),
        Action::RegLoad { dst, value } => {
            format!("load:{}->{}", format_hex(u128::from(*value), 0), format_subfield(dst))
        }
        Action::RegMove { src, dst } => {
            format!("move:{}->{}", format_subfield(src), format_subfield(dst))
        }
        Action::Resubmit { in_port: Some(port), table: None } => {
            format!("resubmit:{}", format_port(*port, names))
        }
        Action::Resubmit { in_port, table } => {
            let port = in_port.map(|port| format_port(port, names)).unwrap_or_default();
            let table = table.map(|table| table.to_string()).unwrap_or_default();
            format!("resubmit({port},{table})")
        }
        Action::Note(note) => {
            let bytes: Vec<String> = note.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("note:{}", bytes.join("."))
        }
        Action::Controller { max_len, controller_id, reason } => {
            format_controller(*max_len, *controller_id, *reason)
        }
    }
}

fn format_controller(max_len: u16, controller_id: u16, reason: u8) -> String {
    let mut parts = Vec::new();
    if reason != OFPR_ACTION {
        let known = PACKET_IN_REASONS.iter().find(|(number, _)| *number == reason);
        parts.push(match known {
            Some((_, name)) => format!("reason={name}"),
            None => format!("reason={reason}"),
        });
    }
    if max_len != OFPCML_NO_BUFFER {
        parts.push(format!("max_len={max_len}"));
    }
    if controller_id != 0 {
        parts.push(format!("id={controller_id}"));
    }
    format!("controller({})", parts.join(","))
}

/// Why a packet goes to the controller, as flow text names it.
pub(super) const PACKET_IN_REASONS: [(u8, &str); 3] =
    [(OFPR_NO_MATCH, "no_match"), (OFPR_ACTION, "action"), (OFPR_INVALID_TTL, "invalid_ttl")];

fn format_subfield(subfield: &SubField) -> String {
    let (name, width, offset) = subfield.spelling();
    match subfield.bits() {
        bits if bits == width => format!("{name}[]"),
        1 => format!("{name}[{offset}]"),
        bits => format!("{name}[{offset}..{}]", offset + bits - 1),
    }
}
