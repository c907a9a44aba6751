//! The fields of the flow language, with values of a small world, so that random flows and random
//! frames often meet.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tollgate_packet::MacAddr;

use super::super::rules::PORTS;

/// A random choice: of what, with which value, under which mask. Zeros are the plainest choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Die {
    pub(super) pick: u16,
    pub(super) value: u16,
    pub(super) mask: u16,
}

impl Die {
    pub(super) fn pick<'a, T>(&self, among: &'a [T]) -> &'a T {
        &among[usize::from(self.pick) % among.len()]
    }
}

pub(super) fn any_die() -> impl Strategy<Value = Die> {
    any::<(u16, u16, u16)>().prop_map(|(pick, value, mask)| Die { pick, value, mask })
}

/// Values that occur.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pool {
    Port,
    Mac,
    Ipv4,
    Ipv6,
    Of(&'static [u32]),
}

/// Whether flows may match a field with a mask, and actions may set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Only read by actions: what may match it is chosen elsewhere.
    Read,
    MatchExact,
    Match,
    /// Exactly matched, and set.
    SetExact,
    Set,
}

/// A field by its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldWords {
    pub(super) name: &'static str,
    pub(super) bits: u8,
    pub(super) pool: Pool,
    pub(super) usage: Use,
}

pub(super) const L4_PORTS: [u16; 6] = [80, 81, 443, 0x1234, 0, 0xffff];
const PORT_POOL: Pool = Pool::Of(&[80, 81, 443, 0x1234, 0, 0xffff]);
pub(super) const TTLS: [u8; 5] = [64, 1, 2, 0, 255];
const SMALL: Pool = Pool::Of(&[0, 1, 2, 3]);

const fn field(name: &'static str, bits: u8, pool: Pool, usage: Use) -> FieldWords {
    FieldWords { name, bits, pool, usage }
}

pub(super) const ANY_PACKET: &[FieldWords] = &[
    field("in_port", 16, Pool::Port, Use::MatchExact),
    field("eth_src", 48, Pool::Mac, Use::Set),
    field("eth_dst", 48, Pool::Mac, Use::Set),
    field("metadata", 64, Pool::Of(&[0, 1, 2, 3, 4, 5, 6, 7]), Use::Set),
    field("reg0", 32, SMALL, Use::Set),
    field("reg15", 32, Pool::Of(&[0, 1, 80, 0x0a00_0000]), Use::Set),
];

pub(super) const IPV4: &[FieldWords] =
    &[field("ip_src", 32, Pool::Ipv4, Use::Set), field("ip_dst", 32, Pool::Ipv4, Use::Set)];

pub(super) const IPV6: &[FieldWords] = &[
    field("ipv6_src", 128, Pool::Ipv6, Use::Set),
    field("ipv6_dst", 128, Pool::Ipv6, Use::Set),
    field("ipv6_label", 20, Pool::Of(&[0, 1, 2, 0xf_ffff]), Use::Set),
];

/// Either version.
pub(super) const IP: &[FieldWords] = &[
    field("ip_proto", 8, Pool::Of(&[6, 17, 1, 58]), Use::Read),
    field("ip_dscp", 6, Pool::Of(&[0, 10, 63]), Use::SetExact),
    field("nw_ecn", 2, SMALL, Use::SetExact),
    field("nw_ttl", 8, Pool::Of(&[64, 1, 2, 0, 255]), Use::SetExact),
];

pub(super) const TCP: &[FieldWords] = &[
    field("tcp_src", 16, PORT_POOL, Use::Set),
    field("tcp_dst", 16, PORT_POOL, Use::Set),
    field("tcp_flags", 12, Pool::Of(&[0x10, 0x02, 0x12, 0x11, 0xfff]), Use::Match),
];

pub(super) const UDP: &[FieldWords] =
    &[field("udp_src", 16, PORT_POOL, Use::Set), field("udp_dst", 16, PORT_POOL, Use::Set)];

pub(super) const SCTP: &[FieldWords] =
    &[field("sctp_src", 16, PORT_POOL, Use::Set), field("sctp_dst", 16, PORT_POOL, Use::Set)];

pub(super) const ICMP: &[FieldWords] = &[
    field("icmp_type", 8, Pool::Of(&[8, 0, 3]), Use::SetExact),
    field("icmp_code", 8, SMALL, Use::SetExact),
];

pub(super) const ICMPV6: &[FieldWords] = &[
    field("icmpv6_type", 8, Pool::Of(&[128, 135, 136, 1]), Use::SetExact),
    field("icmpv6_code", 8, SMALL, Use::SetExact),
];

pub(super) const ND: &[FieldWords] = &[field("nd_target", 128, Pool::Ipv6, Use::Set)];
pub(super) const ND_SOLICIT: &[FieldWords] = &[field("nd_sll", 48, Pool::Mac, Use::Set)];
pub(super) const ND_ADVERT: &[FieldWords] = &[field("nd_tll", 48, Pool::Mac, Use::Set)];

pub(super) const ARP: &[FieldWords] = &[
    field("arp_op", 16, Pool::Of(&[1, 2, 3, 255]), Use::SetExact),
    field("arp_spa", 32, Pool::Ipv4, Use::Set),
    field("arp_tpa", 32, Pool::Ipv4, Use::Set),
    field("arp_sha", 48, Pool::Mac, Use::Set),
    field("arp_tha", 48, Pool::Mac, Use::Set),
];

pub(super) fn mac(n: u16) -> [u8; 6] {
    match n % 11 {
        8 => [0xff; 6],
        9 => [0x01, 0, 0x5e, 0, 0, 1],
        10 => [0x01, 0x80, 0xc2, 0, 0, 0x0e],
        n => [2, 0, 0, 0, 0, n as u8],
    }
}

pub(super) fn ipv4(n: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, n as u8 >> 1 & 3, n as u8 & 1)
}

pub(super) fn ipv6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, n >> 1 & 3, 0, 0, 0, n & 1)
}

impl FieldWords {
    pub(super) fn is_settable(&self) -> bool {
        matches!(self.usage, Use::Set | Use::SetExact)
    }

    pub(super) fn is_maskable(&self) -> bool {
        matches!(self.usage, Use::Set | Use::Match)
    }

    pub(super) fn value(&self, n: u16) -> u128 {
        match self.pool {
            Pool::Port => u128::from(n) % u128::from(PORTS) + 1,
            Pool::Mac => mac(n).iter().fold(0, |value, byte| value << 8 | u128::from(*byte)),
            Pool::Ipv4 => u128::from(u32::from(ipv4(n))),
            Pool::Ipv6 => u128::from(ipv6(n)),
            Pool::Of(values) => u128::from(values[usize::from(n) % values.len()]),
        }
    }

    /// All ones more often than not; else a prefix, or the lowest bits, or any.
    fn mask(&self, die: &Die) -> u128 {
        let full = u128::MAX >> (128 - u32::from(self.bits));
        // ovs-ofctl takes an IPv6 mask whose first digit is decimal for a prefix length.
        let always = if self.bits == 128 { 0xf << 124 } else { 0 };
        let amount = u32::from(die.mask / 8) % u32::from(self.bits);
        match die.mask % 8 {
            _ if !self.is_maskable() => full,
            1 => full << amount & full | always,
            2 => full >> amount | always,
            3 => {
                let noise = u128::from(die.mask);
                (0..8).fold(always, |mask, shift| mask | noise << (16 * shift)) & full
            }
            _ => full,
        }
    }

    fn print(&self, value: u128) -> String {
        match self.pool {
            Pool::Mac => {
                let [.., a, b, c, d, e, f] = value.to_be_bytes();
                MacAddr([a, b, c, d, e, f]).to_string()
            }
            Pool::Ipv4 => Ipv4Addr::from(value as u32).to_string(),
            Pool::Ipv6 => Ipv6Addr::from(value).to_string(),
            Pool::Port => value.to_string(),
            Pool::Of(_) => format!("{value:#x}"),
        }
    }

    /// `count` of its bits, as `NAME[FIRST..LAST]`.
    pub(super) fn part(&self, first: u8, count: u8) -> String {
        format!("{}[{first}..{}]", self.name, first + count - 1)
    }

    /// A value, perhaps with a mask: `VALUE` or `VALUE/MASK`.
    pub(super) fn text(&self, die: &Die) -> String {
        let (value, mask) = (self.value(die.value), self.mask(die));
        let full = u128::MAX >> (128 - u32::from(self.bits));
        match mask == full || mask == 0 {
            true => self.print(value),
            false => format!("{}/{}", self.print(value & mask), self.print(mask)),
        }
    }
}
