//! Packets that are known to fare differently, and why.

use tollgate_datapath::Op;
use tollgate_frame::DropReason;
use tollgate_packet::edit::{Edit, EditError, apply_to_key};
use tollgate_packet::key::{FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, HeaderBuf, HeaderField, MacAddr};

use super::super::sim::{Sim, index_of, key_of, run_until_refused};
use crate::pipeline::rule::Rule;

const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_RARP: u16 = 0x8035;
const PROTO_SCTP: u8 = 132;

/// Why a packet is kept out of the comparison, if it is. `flows` is the text of all flows.
pub(super) fn excuse(
    sim: &Sim,
    flows: &[String],
    ofport: u32,
    frame: &[u8],
) -> Option<&'static str> {
    let key = key_of(ofport, frame);
    let walk = sim.fresh_walk(ofport, &key);
    let rules = walk.visits.iter().filter_map(|visit| visit.rule.as_ref());
    let met: Vec<&str> = rules.map(|rule| text(flows, rule)).collect();
    let times = |word: &str| met.iter().map(|flow| flow.matches(word).count()).sum::<usize>();
    let has = |word: &str| times(word) > 0;
    let edits = |wanted: fn(HeaderField) -> bool| {
        walk.ops.iter().any(|op| matches!(op, Op::Edit(Edit::Set { field, .. }) if wanted(*field)))
    };
    if walk.drop_reason == DropReason::NoRule && has("write_actions") {
        return Some("a table miss drops the action set (OpenFlow 1.3.5, section 5.4)");
    }
    let is_busy = ["set_field", "load", "move", "vlan", "ttl", "output", "all", "flood", "in_port"]
        .into_iter()
        .any(has);
    if walk.drop_reason == DropReason::TooManySteps && is_busy {
        return Some("a packet in a circle is dropped earlier if operations pile up on the way");
    }
    if walk.drop_reason == DropReason::EditFailed && has("dec_ttl") {
        return Some("an expired packet goes no further (OpenFlow 1.3.5, section 5.12)");
    }
    if walk.drop_reason == DropReason::EditFailed && times("push_vlan") + tags(&key) > 2 {
        return Some("a third tag would hide layer 3; Open vSwitch replaces the inner one");
    }
    if walk.drop_reason == DropReason::EditFailed && key.ip_proto == PROTO_SCTP && key.ip_frag != 0
    {
        return Some(
            "a fragment's SCTP checksum cannot be updated; Open vSwitch sends a wrong one",
        );
    }
    let (_, refused) = run_until_refused(&walk.ops, frame, index_of(ofport));
    if refused == Some(EditError::Malformed) {
        return Some("a frame whose header is too broken for an edit is not sent without it");
    }
    let has_more = (key.ip_tos, key.ip_ttl, key.ipv6_label) != (0, 0, 0);
    if key.eth_type == 0x86dd && key.ip_proto == 0 && has_more {
        return Some("Open vSwitch reads no IPv6 fields but addresses before a broken chain");
    }
    if key.ip_proto == 0 && (edits(is_behind_link) || walk.ops.contains(&Op::Edit(Edit::DecTtl))) {
        return Some("Open vSwitch edits no IP or ARP header whose protocol or opcode is 0 to it");
    }
    if key.eth_type == ETH_TYPE_RARP && edits(is_behind_link) {
        return Some("Open vSwitch edits RARP for later tables to see, but not in the frame");
    }
    if key.eth_type == ETH_TYPE_ARP && writes_odd_opcode(key, &walk.ops) {
        return Some("Open vSwitch writes ARP opcode 255 as 65535, and edits nothing once it is 0");
    }
    let is_ipv4 = |field| matches!(field, HeaderField::Ipv4Src | HeaderField::Ipv4Dst);
    let uses_icmp = has("->icmp") || has("move:icmp");
    if key.ip_frag & FRAG_LATER != 0 && (edits(is_ipv4) || uses_icmp) {
        return Some(
            "Open vSwitch takes a later fragment for one with an ICMP header or a checksum",
        );
    }
    let is_ipv6 = |field| matches!(field, HeaderField::Ipv6Src | HeaderField::Ipv6Dst);
    if edits(is_ipv6) && is_whole_fragment_or_routed(frame) {
        return Some(
            "Open vSwitch leaves the checksum of routed packets and of fragments that are whole",
        );
    }
    let zero = MacAddr([0; 6]);
    let lacks = |name: &str, is_zero: bool| is_zero && has(name);
    if lacks("->nd_target", key.nd_target == [0; 16])
        || lacks("->nd_sll", key.arp_sha == zero)
        || lacks("->nd_tll", key.arp_tha == zero)
    {
        return Some("a neighbour discovery field that is zero, or there twice, counts as absent");
    }
    if (has("->nd_sll") || has("->nd_tll")) && option_bytes(frame) > 8 {
        return Some("Open vSwitch edits the first neighbour discovery option, or none");
    }
    let may_have_null_tag =
        times("push_vlan") > 1 || [key.vlan_tci, key.inner_vlan_tci].contains(&VLAN_PRESENT);
    if has("normal") && may_have_null_tag && times("push_vlan") + tags(&key) > 1 {
        return Some("NORMAL removes an outer null tag, with Open vSwitch also inner ones");
    }
    None
}

/// Whether edits make the ARP opcode one that Open vSwitch cannot write.
fn writes_odd_opcode(mut key: FlowKey, ops: &[Op]) -> bool {
    ops.iter().any(|op| {
        let Op::Edit(edit) = op else { return false };
        let done = apply_to_key(edit, &mut key).is_ok();
        let is_opcode = matches!(edit, Edit::Set { field: HeaderField::ArpOp, .. });
        done && is_opcode && [0, 255].contains(&key.ip_proto)
    })
}

/// The text of a rule.
fn text<'a>(flows: &'a [String], rule: &Rule) -> &'a str {
    let place = format!("table={},priority={},", rule.table, rule.priority);
    flows.iter().find(|flow| flow.starts_with(&place)).unwrap()
}

fn tags(key: &FlowKey) -> usize {
    usize::from(key.vlan_tci != 0) + usize::from(key.inner_vlan_tci != 0)
}

fn is_behind_link(field: HeaderField) -> bool {
    use HeaderField::{EthDst, EthSrc, VlanPcp, VlanVid};
    !matches!(field, EthSrc | EthDst | VlanVid | VlanPcp)
}

/// Whether an IPv6 frame has a fragment header though it is whole, or a routing header that is not
/// done with.
fn is_whole_fragment_or_routed(frame: &[u8]) -> bool {
    let header = HeaderBuf::from_frame(frame);
    let layout = parse(header.bytes(), frame.len() as u32, index_of(1)).layout;
    let packet = frame.get(usize::from(layout.l3_offset)..).unwrap_or_default();
    let mut next = packet.get(6).copied();
    let mut rest = packet.get(40..).unwrap_or_default();
    while let Some([after, len, _, left, ..]) = rest.first_chunk::<4>() {
        let bytes = match next {
            Some(44) if *left & 1 == 0 => return true,
            Some(44) => 8,
            Some(43) if *left > 0 => return true,
            Some(51) => (usize::from(*len) + 2) * 4,
            Some(0 | 43 | 60) => (usize::from(*len) + 1) * 8,
            _ => return false,
        };
        (next, rest) = (Some(*after), rest.get(bytes..).unwrap_or_default());
    }
    false
}

/// Bytes after the target of a neighbour discovery message, padding included.
fn option_bytes(frame: &[u8]) -> usize {
    let header = HeaderBuf::from_frame(frame);
    let layout = parse(header.bytes(), frame.len() as u32, index_of(1)).layout;
    let ip = frame.get(usize::from(layout.l3_offset)..).and_then(<[u8]>::first_chunk::<6>);
    let Some([_, _, _, _, high, low]) = ip else { return 0 };
    let end = usize::from(layout.l3_offset) + 40 + usize::from(u16::from_be_bytes([*high, *low]));
    end.saturating_sub(usize::from(layout.l4_offset) + 24)
}
