//! Packets that are known to fare differently, and why. `docs/openflow.md` says more about it.

use tollgate_datapath::Op;
use tollgate_frame::DropReason;
use tollgate_packet::edit::{Edit, EditError, apply_to_key};
use tollgate_packet::key::{FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, HeaderBuf, HeaderField, Layout, MacAddr};

use super::super::sim::{Sim, index_of, key_of, run_until_refused};
use crate::pipeline::rule::Rule;
use crate::pipeline::walk::Walk;

const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_RARP: u16 = 0x8035;
const ETH_TYPE_IPV6: u16 = 0x86dd;
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
    let met = rules.map(|rule| text(flows, rule)).collect();
    let fate = Fate { frame, key, drop_reason: walk.drop_reason, edits: edits(&walk), met };
    fate.ends_early()
        .or_else(|| fate.tags())
        .or_else(|| fate.network())
        .or_else(|| fate.transport())
}

/// The text of a rule.
fn text<'a>(flows: &'a [String], rule: &Rule) -> &'a str {
    let place = format!("table={},priority={},", rule.table, rule.priority);
    flows.iter().find(|flow| flow.starts_with(&place)).unwrap()
}

/// All that is done to the packet that somebody sees.
fn edits(walk: &Walk) -> Vec<Edit> {
    let of_ops = walk.ops.iter().filter_map(|op| match op {
        Op::Edit(edit) => Some(*edit),
        _ => None,
    });
    let of_ops: Vec<Edit> = of_ops.collect();
    let of_copies = walk.punts.last().map_or(&[][..], |punt| &punt.edits);
    if of_copies.len() > of_ops.len() { of_copies.to_vec() } else { of_ops }
}

/// What happens to a packet.
struct Fate<'a> {
    frame: &'a [u8],
    key: FlowKey,
    drop_reason: DropReason,
    edits: Vec<Edit>,
    /// Flows that match it on its way.
    met: Vec<&'a str>,
}

impl Fate<'_> {
    fn times(&self, word: &str) -> usize {
        self.met.iter().map(|flow| flow.matches(word).count()).sum()
    }

    fn has(&self, word: &str) -> bool {
        self.times(word) > 0
    }

    fn sets(&self, wanted: impl Fn(HeaderField) -> bool) -> bool {
        self.edits.iter().any(|edit| matches!(edit, Edit::Set { field, .. } if wanted(*field)))
    }

    fn layout(&self) -> Layout {
        let header = HeaderBuf::from_frame(self.frame);
        parse(header.bytes(), self.frame.len() as u32, index_of(1)).layout
    }

    /// The packet is dropped here.
    fn ends_early(&self) -> Option<&'static str> {
        let work = ["set_field", "load", "move", "vlan", "ttl", "output", "all", "flood", "_port"];
        let tags = self.times("push_vlan") + tags(&self.key);
        match self.drop_reason {
            DropReason::NoRule if self.has("write_actions") => {
                Some("a table miss drops the action set (OpenFlow 1.3.5, section 5.4)")
            }
            DropReason::TooManySteps if work.iter().any(|word| self.has(word)) => {
                Some("a packet in a circle is dropped earlier if operations pile up on the way")
            }
            DropReason::TtlExpired if self.has("dec_ttl") => {
                Some("an expired packet goes no further (OpenFlow 1.3.5, section 5.12)")
            }
            DropReason::EditFailed if tags > 2 => {
                Some("a third tag would hide layer 3; Open vSwitch replaces the inner one")
            }
            DropReason::EditFailed if self.key.ip_proto == PROTO_SCTP && self.key.ip_frag != 0 => {
                Some("SCTP's checksum cannot be updated in a fragment; Open vSwitch's is wrong")
            }
            _ if self.is_malformed() => {
                Some("a frame whose header is too broken for an edit is not sent without it")
            }
            _ => None,
        }
    }

    fn is_malformed(&self) -> bool {
        let ops: Vec<Op> = self.edits.iter().map(|edit| Op::Edit(*edit)).collect();
        run_until_refused(&ops, self.frame, index_of(1)).1 == Some(EditError::Malformed)
    }

    fn tags(&self) -> Option<&'static str> {
        use HeaderField::{VlanPcp, VlanVid};
        let changes_tags = self.sets(|field| matches!(field, VlanVid | VlanPcp))
            || self.edits.iter().any(|e| matches!(e, Edit::PushVlan { .. } | Edit::PopVlan));
        if changes_tags && is_drop_eligible(self.frame) {
            return Some("Open vSwitch clears the drop-eligible bit of a tag that it changes");
        }
        let pushed = self.times("push_vlan");
        let may_have_null_tag =
            pushed > 1 || [self.key.vlan_tci, self.key.inner_vlan_tci].contains(&VLAN_PRESENT);
        if self.has("normal") && may_have_null_tag && pushed + tags(&self.key) > 1 {
            return Some("NORMAL removes an outer null tag, with Open vSwitch also inner ones");
        }
        None
    }

    fn network(&self) -> Option<&'static str> {
        use HeaderField::{EthDst, EthSrc, VlanPcp, VlanVid};
        let key = &self.key;
        let edits_network = self.sets(|f| !matches!(f, EthSrc | EthDst | VlanVid | VlanPcp))
            || self.edits.contains(&Edit::DecTtl);
        let has_more = (key.ip_tos, key.ip_ttl, key.ipv6_label) != (0, 0, 0);
        if key.eth_type == ETH_TYPE_IPV6 && key.ip_proto == 0 && has_more {
            return Some("Open vSwitch reads no IPv6 fields but addresses before a broken chain");
        }
        if key.ip_proto == 0 && edits_network {
            return Some("Open vSwitch edits nothing whose protocol or ARP opcode is 0 to it");
        }
        if key.eth_type == ETH_TYPE_RARP && edits_network {
            return Some("Open vSwitch edits RARP for later tables to see, but not in the frame");
        }
        if key.eth_type == ETH_TYPE_ARP && self.writes_odd_opcode() {
            return Some("Open vSwitch writes ARP opcode 255 as 65535, and no opcode once it is 0");
        }
        None
    }

    /// Whether edits make the ARP opcode one that Open vSwitch cannot write.
    fn writes_odd_opcode(&self) -> bool {
        let mut key = self.key;
        self.edits.iter().any(|edit| {
            let done = apply_to_key(edit, &mut key).is_ok();
            let is_opcode = matches!(edit, Edit::Set { field: HeaderField::ArpOp, .. });
            done && is_opcode && [0, 255].contains(&key.ip_proto)
        })
    }

    fn transport(&self) -> Option<&'static str> {
        use HeaderField::{Ipv4Dst, Ipv4Src, Ipv6Dst, Ipv6Src};
        let key = &self.key;
        let uses_icmp = self.has("->icmp") || self.has("move:icmp");
        let sets_ipv4 = self.sets(|field| matches!(field, Ipv4Src | Ipv4Dst));
        if key.ip_frag & FRAG_LATER != 0 && (sets_ipv4 || uses_icmp) {
            return Some("Open vSwitch takes a later fragment's payload for a header");
        }
        let sets_ipv6 = self.sets(|field| matches!(field, Ipv6Src | Ipv6Dst));
        if sets_ipv6 && self.is_whole_fragment_or_routed() {
            return Some("Open vSwitch leaves the checksum of whole fragments and routed packets");
        }
        let zero = MacAddr([0; 6]);
        let lacks = |name: &str, is_zero: bool| is_zero && self.has(name);
        if lacks("->nd_target", key.nd_target == [0; 16])
            || lacks("->nd_sll", key.arp_sha == zero)
            || lacks("->nd_tll", key.arp_tha == zero)
        {
            return Some("a neighbour discovery field that is zero, or twice, counts as absent");
        }
        if (self.has("->nd_sll") || self.has("->nd_tll")) && self.option_bytes() > 8 {
            return Some("Open vSwitch edits the first neighbour discovery option, or none");
        }
        None
    }

    /// Whether an IPv6 frame has a fragment header though it is whole, or a routing header that is
    /// not done with.
    fn is_whole_fragment_or_routed(&self) -> bool {
        let packet = self.frame.get(self.layout().l3_offset.into()..).unwrap_or_default();
        let mut next = packet.get(6).copied();
        let mut rest = packet.get(40..).unwrap_or_default();
        while let Some([after, len, _, left, ..]) = rest.first_chunk::<4>() {
            let bytes = match next {
                Some(44) if *left & 1 == 0 => return true,
                Some(43) if *left > 0 => return true,
                Some(44) => 8,
                Some(51) => (usize::from(*len) + 2) * 4,
                Some(0 | 43 | 60) => (usize::from(*len) + 1) * 8,
                _ => return false,
            };
            (next, rest) = (Some(*after), rest.get(bytes..).unwrap_or_default());
        }
        false
    }

    /// Bytes after the target of a neighbour discovery message.
    fn option_bytes(&self) -> usize {
        let Layout { l3_offset, l4_offset, .. } = self.layout();
        let ip = self.frame.get(l3_offset.into()..).and_then(<[u8]>::first_chunk::<6>);
        let Some([_, _, _, _, high, low]) = ip else { return 0 };
        let end = usize::from(l3_offset) + 40 + usize::from(u16::from_be_bytes([*high, *low]));
        end.saturating_sub(usize::from(l4_offset) + 24)
    }
}

fn tags(key: &FlowKey) -> usize {
    usize::from(key.vlan_tci != 0) + usize::from(key.inner_vlan_tci != 0)
}

/// Whether one of two tags has the bit that a key does not hold.
fn is_drop_eligible(frame: &[u8]) -> bool {
    let tags = frame.get(12..).unwrap_or_default().chunks_exact(4).take(2);
    let mut tags = tags.take_while(|tag| matches!(tag, [0x81, 0x00, ..] | [0x88, 0xa8, ..]));
    tags.any(|tag| tag[2] & 0x10 != 0)
}
