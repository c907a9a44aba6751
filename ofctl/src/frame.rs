//! What a frame is, for people and for flow text.

use std::net::{Ipv4Addr, Ipv6Addr};

use tollgate_openflow::field::OFPVID_PRESENT;
use tollgate_openflow::text::format_tcp_flags;
use tollgate_openflow::{Field, Match, OxmField};
use tollgate_packet::key::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, MacAddr, Parsed, PortIndex};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

fn parsed(frame: &[u8]) -> Parsed {
    parse(frame, u32::try_from(frame.len()).unwrap_or(u32::MAX), PortIndex(0))
}

/// The match of all frames with the headers that this one has: what may be done with it.
pub(crate) fn describe(frame: &[u8]) -> Match {
    let key = parsed(frame).key;
    let mut fields = vec![OxmField::exact(Field::EthType, key.eth_type)];
    if key.vlan_tci & VLAN_PRESENT != 0 {
        fields.push(OxmField::masked(Field::VlanVid, OFPVID_PRESENT, OFPVID_PRESENT));
    }
    if matches!(key.eth_type, IPV4 | IPV6) {
        fields.push(OxmField::exact(Field::IpProto, key.ip_proto));
        fields.push(OxmField::exact(Field::NwFrag, key.ip_frag));
    }
    if (key.eth_type, key.ip_proto) == (IPV6, ICMPV6) && key.ip_frag & FRAG_LATER == 0 {
        fields.push(OxmField::exact(Field::Icmpv6Type, key.l4_src));
        fields.push(OxmField::exact(Field::Icmpv6Code, key.l4_dst));
    }
    Match::from_fields(fields).unwrap_or_default()
}

/// A frame in one line, as ovs-ofctl prints it below a PACKET_IN.
pub(crate) fn summary(frame: &[u8]) -> String {
    let Parsed { key, layout } = parsed(frame);
    let name = protocol(&key);
    let mut parts: Vec<String> = name.map(str::to_owned).into_iter().collect();
    parts.extend(tags(&key));
    parts.push(format!("dl_src={}", mac(key.eth_src)));
    parts.push(format!("dl_dst={}", mac(key.eth_dst)));
    match key.eth_type {
        IPV4 | IPV6 => {
            parts.extend(network(&key, name));
            if key.ip_frag & FRAG_LATER == 0 {
                parts.extend(transport(&key));
            }
        }
        ARP | RARP => parts.extend(arp(&key)),
        _ if name.is_none() => parts.push(format!("dl_type=0x{:04x}", key.eth_type)),
        _ => {}
    }
    parts.join(",") + &checksum(&key, usize::from(layout.l4_offset), frame)
}

/// The word for the frame's protocol.
fn protocol(key: &FlowKey) -> Option<&'static str> {
    Some(match (key.eth_type, key.ip_proto) {
        (IPV4, ICMP) => "icmp",
        (IPV4, TCP) => "tcp",
        (IPV4, UDP) => "udp",
        (IPV4, SCTP) => "sctp",
        (IPV4, _) => "ip",
        (IPV6, ICMPV6) => "icmp6",
        (IPV6, TCP) => "tcp6",
        (IPV6, UDP) => "udp6",
        (IPV6, SCTP) => "sctp6",
        (IPV6, _) => "ipv6",
        (ARP, _) => "arp",
        (RARP, _) => "rarp",
        (0x8847, _) => "mpls",
        (0x8848, _) => "mplsm",
        _ => return None,
    })
}

fn tags(key: &FlowKey) -> Vec<String> {
    if key.vlan_tci & VLAN_PRESENT == 0 {
        return vec!["vlan_tci=0x0000".to_owned()];
    }
    vec![
        format!("dl_vlan={}", key.vlan_tci & 0xfff),
        format!("dl_vlan_pcp={}", key.vlan_tci >> 13),
        format!("vlan_tci1=0x{:04x}", key.inner_vlan_tci),
    ]
}

fn mac(MacAddr([a, b, c, d, e, f]): MacAddr) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn network(key: &FlowKey, name: Option<&str>) -> Vec<String> {
    let mut parts = match key.eth_type {
        IPV4 => vec![
            format!("nw_src={}", Ipv4Addr::from(key.ipv4_src())),
            format!("nw_dst={}", Ipv4Addr::from(key.ipv4_dst())),
        ],
        _ => vec![
            format!("ipv6_src={}", Ipv6Addr::from(key.ip_src)),
            format!("ipv6_dst={}", Ipv6Addr::from(key.ip_dst)),
            format!("ipv6_label=0x{:05x}", key.ipv6_label),
        ],
    };
    if matches!(name, Some("ip" | "ipv6")) {
        parts.push(format!("nw_proto={}", key.ip_proto));
    }
    let fragment = match key.ip_frag & (FRAG_ANY | FRAG_LATER) {
        0 => "no",
        FRAG_ANY => "first",
        _ => "later",
    };
    parts.push(format!("nw_tos={}", key.ip_tos & 0xfc));
    parts.push(format!("nw_ecn={}", key.ip_tos & 3));
    parts.push(format!("nw_ttl={}", key.ip_ttl));
    parts.push(format!("nw_frag={fragment}"));
    parts
}

fn transport(key: &FlowKey) -> Vec<String> {
    let pair = |src: &str, dst: &str| {
        vec![format!("{src}={}", key.l4_src), format!("{dst}={}", key.l4_dst)]
    };
    match (key.eth_type, key.ip_proto) {
        (_, TCP) => {
            let mut parts = pair("tp_src", "tp_dst");
            parts.push(format!("tcp_flags={}", format_tcp_flags(key.tcp_flags)));
            parts
        }
        (_, UDP | SCTP) => pair("tp_src", "tp_dst"),
        (IPV4, ICMP) => pair("icmp_type", "icmp_code"),
        (IPV6, ICMPV6) => {
            let mut parts = pair("icmp_type", "icmp_code");
            if matches!((key.l4_src, key.l4_dst), (135 | 136, 0)) {
                parts.push(format!("nd_target={}", Ipv6Addr::from(key.nd_target)));
                parts.push(format!("nd_sll={}", mac(key.arp_sha)));
                parts.push(format!("nd_tll={}", mac(key.arp_tha)));
            }
            parts
        }
        _ => vec![],
    }
}

fn arp(key: &FlowKey) -> Vec<String> {
    vec![
        format!("arp_spa={}", Ipv4Addr::from(key.ipv4_src())),
        format!("arp_tpa={}", Ipv4Addr::from(key.ipv4_dst())),
        format!("arp_op={}", key.ip_proto),
        format!("arp_sha={}", mac(key.arp_sha)),
        format!("arp_tha={}", mac(key.arp_tha)),
    ]
}

/// The checksum in the transport header, which says whether it was filled in.
fn checksum(key: &FlowKey, l4_offset: usize, frame: &[u8]) -> String {
    let (name, at, bytes) = match (key.eth_type, key.ip_proto) {
        (IPV4 | IPV6, TCP) => ("tcp", 16, 2),
        (IPV4 | IPV6, UDP) => ("udp", 6, 2),
        (IPV4 | IPV6, SCTP) => ("sctp", 8, 4),
        (IPV4, ICMP) => ("icmp", 2, 2),
        (IPV6, ICMPV6) => ("icmp6", 2, 2),
        _ => return String::new(),
    };
    let start = l4_offset + at;
    match frame.get(start..start + bytes) {
        Some(field) if l4_offset > 0 => {
            let value = field.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
            format!(" {name}_csum:{value:x}")
        }
        _ => String::new(),
    }
}
