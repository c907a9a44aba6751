//! Keys and masks from a small world, so that random rules and random packets do meet.
#![allow(dead_code)]

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_classifier::{ExtraKey, ExtraMatch, RuleMatch};
use tollgate_packet::key::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::{FLOW_WORDS, FlowKey, FlowMask, FlowMatch, MacAddr};

/// A rule to put into a table, and what it is compared by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(crate) id: usize,
    pub(crate) priority: u16,
    pub(crate) matcher: RuleMatch,
}

impl Rule {
    pub(crate) fn new(id: usize, priority: u16, flow: &FlowMatch, extra: &ExtraMatch) -> Self {
        Self { id, priority, matcher: RuleMatch::new(flow, extra) }
    }

    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        (self.priority, &self.matcher) == (other.priority, &other.matcher)
    }

    pub(crate) fn matches(&self, key: &FlowKey, extra: &ExtraKey) -> bool {
        self.matcher.flow().matches(key) && self.matcher.extra().matches(extra)
    }
}

impl tollgate_classifier::Rule for Rule {
    fn priority(&self) -> u16 {
        self.priority
    }

    fn matcher(&self) -> &RuleMatch {
        &self.matcher
    }
}

const NOTHING: FlowMask = FlowMask(FlowKey::ZERO);

pub(crate) fn packet() -> impl Strategy<Value = FlowKey> {
    let word0 = (0..3u32, select(&[0x0800u16, 0x86dd][..]), select(&[6u8, 17][..]));
    let rest = (
        select(&[0, FRAG_ANY, FRAG_ANY | FRAG_LATER][..]),
        0..3u8,
        select(&[0, VLAN_PRESENT, VLAN_PRESENT | 5][..]),
        0..4u8,
        0..4u8,
        (0..2u16, select(&[0u16, 1, 2, 3, 0x50, 0x8050][..])),
        0..2u16,
    );
    (word0, rest).prop_map(|((in_port, eth_type, ip_proto), rest)| {
        let (ip_frag, mac, vlan_tci, src, dst, (l4_src, l4_dst), tcp_flags) = rest;
        FlowKey {
            in_port,
            eth_type,
            ip_proto,
            ip_frag,
            eth_dst: MacAddr([2, 0, 0, 0, 0, mac]),
            vlan_tci,
            ip_src: [10, src, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ip_dst: [10, dst, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, dst],
            l4_src,
            l4_dst,
            tcp_flags,
            ..FlowKey::default()
        }
    })
}

/// The first bits of an address.
fn address_prefix() -> impl Strategy<Value = [u8; 16]> {
    let bits = select(&[0u32, 0, 0, 7, 12, 14, 15, 16, 24, 32, 48, 127, 128][..]);
    bits.prop_map(|bits| u128::MAX.checked_shl(128 - bits).unwrap_or(0).to_be_bytes())
}

fn port_mask() -> impl Strategy<Value = u16> {
    select(&[0u16, 0, 0, 0x8000, 0xfff0, 0xfffe, 0xffff, 0x00ff][..])
}

/// A mask made of whole fields and prefixes.
pub(crate) fn mask() -> impl Strategy<Value = FlowMask> {
    let field = |set: fn(&mut FlowKey)| {
        any::<bool>().prop_map(move |on| {
            let mut mask = NOTHING;
            if on {
                set(&mut mask.0);
            }
            mask
        })
    };
    (
        field(|mask| mask.in_port = u32::MAX),
        field(|mask| mask.eth_type = u16::MAX),
        field(|mask| mask.ip_proto = u8::MAX),
        field(|mask| mask.eth_dst = MacAddr::BROADCAST),
        field(|mask| mask.vlan_tci = VLAN_PRESENT),
        field(|mask| mask.ip_frag = FRAG_LATER),
        (address_prefix(), address_prefix(), port_mask(), port_mask()),
    )
        .prop_map(|(a, b, c, d, e, f, (ip_src, ip_dst, l4_src, l4_dst))| {
            let prefixes = FlowKey { ip_src, ip_dst, l4_src, l4_dst, ..FlowKey::ZERO };
            a | b | c | d | e | f | FlowMask(prefixes)
        })
}

pub(crate) fn flow_match() -> impl Strategy<Value = FlowMatch> {
    (packet(), mask()).prop_map(|(key, mask)| FlowMatch::new(&key, mask))
}

/// Pipeline fields; also their masks.
pub(crate) fn extra() -> impl Strategy<Value = ExtraKey> {
    (0..4u64, 0..3u32, 0..2u32).prop_map(|(metadata, reg0, reg15)| {
        let mut extra = ExtraKey { metadata, ..ExtraKey::ZERO };
        (extra.regs[0], extra.regs[15]) = (reg0, reg15);
        extra
    })
}

/// `inside` where the mask is set, `outside` elsewhere.
pub(crate) fn blend(inside: &FlowKey, outside: &FlowKey, mask: &FlowMask) -> FlowKey {
    let mut key = *outside;
    for (index, word) in key.words_mut().iter_mut().enumerate() {
        let mask = mask.words()[index];
        *word = (inside.words()[index] & mask) | (*word & !mask);
    }
    key
}

/// Any bits at all.
pub(crate) fn noise() -> impl Strategy<Value = FlowKey> {
    any::<[u64; FLOW_WORDS]>().prop_map(|words| {
        let mut key = FlowKey::default();
        *key.words_mut() = words;
        key
    })
}
