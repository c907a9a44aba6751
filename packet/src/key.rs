//! The flow key: everything of a packet that a flow may match, in a fixed layout of 64-bit words,
//! so that masking, hashing and comparing need not know the fields.

use std::hash::{Hash, Hasher};
use std::ops::{BitAnd, BitOr, BitOrAssign};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute_mut, transmute_ref};

use crate::MacAddr;

/// A port's dense number inside the datapath (not its OpenFlow number, which a bridge assigns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u16);

/// 64-bit words in a [`FlowKey`].
pub const FLOW_WORDS: usize = 13;

/// `ip_frag`: the packet is a fragment.
pub const FRAG_ANY: u8 = 1;
/// `ip_frag`: the packet is a fragment other than the first, so it has no layer 4 header.
pub const FRAG_LATER: u8 = 2;
/// Bit of `vlan_tci` that says that the tag is there (OFPVID_PRESENT; the DEI bit is not matched).
pub const VLAN_PRESENT: u16 = 0x1000;

/// One packet's fields. Numbers are in host order, addresses in wire order; a field that the
/// packet does not have is zero. The same layout serves as key and, with every bit a "must
/// match", as mask ([`FlowMask`]).
#[derive(Clone, Copy, Debug, Default, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct FlowKey {
    // word 0
    /// Ingress: a [`PortIndex`] in the datapath, an OpenFlow port number in rule tables.
    pub in_port: u32,
    /// EtherType after all VLAN tags; the DSAP/SSAP word of 802.3 frames is 0x05ff as in OpenFlow.
    pub eth_type: u16,
    /// IP protocol after extension headers; the opcode of ARP and RARP, zero when above 255.
    pub ip_proto: u8,
    /// [`FRAG_ANY`] | [`FRAG_LATER`].
    pub ip_frag: u8,
    // word 1
    /// Destination address.
    pub eth_dst: MacAddr,
    /// Outer tag: PCP << 13 | [`VLAN_PRESENT`] | VID, or zero.
    pub vlan_tci: u16,
    // word 2
    /// Source address.
    pub eth_src: MacAddr,
    /// Inner tag, as `vlan_tci`.
    pub inner_vlan_tci: u16,
    // word 3
    /// TPID of the outer tag (0x8100 or 0x88a8), or zero.
    pub vlan_tpid: u16,
    /// TPID of the inner tag, or zero.
    pub inner_vlan_tpid: u16,
    /// IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN.
    pub ip_tos: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub ip_ttl: u8,
    /// TCP flags, 12 bits.
    pub tcp_flags: u16,
    // word 4
    /// TCP, UDP or SCTP source port; ICMP type.
    pub l4_src: u16,
    /// TCP, UDP or SCTP destination port; ICMP code.
    pub l4_dst: u16,
    /// IPv6 flow label, 20 bits.
    pub ipv6_label: u32,
    // words 5 and 6
    /// IPv6 source, or IPv4 source / ARP sender address in the first four bytes.
    pub ip_src: [u8; 16],
    // words 7 and 8
    /// IPv6 destination, or IPv4 destination / ARP target address in the first four bytes.
    pub ip_dst: [u8; 16],
    // word 9
    /// ARP sender hardware address, or source link-layer address option of neighbour discovery.
    pub arp_sha: MacAddr,
    /// Always zero.
    pub reserved0: u16,
    // word 10
    /// ARP target hardware address, or target link-layer address option of neighbour discovery.
    pub arp_tha: MacAddr,
    /// Always zero.
    pub reserved1: u16,
    // words 11 and 12
    /// Target address of a neighbour solicitation or advertisement.
    pub nd_target: [u8; 16],
}

impl FlowKey {
    /// No field at all; what [`Default`] gives, for constants.
    pub const ZERO: Self = Self {
        in_port: 0,
        eth_type: 0,
        ip_proto: 0,
        ip_frag: 0,
        eth_dst: MacAddr([0; 6]),
        vlan_tci: 0,
        eth_src: MacAddr([0; 6]),
        inner_vlan_tci: 0,
        vlan_tpid: 0,
        inner_vlan_tpid: 0,
        ip_tos: 0,
        ip_ttl: 0,
        tcp_flags: 0,
        l4_src: 0,
        l4_dst: 0,
        ipv6_label: 0,
        ip_src: [0; 16],
        ip_dst: [0; 16],
        arp_sha: MacAddr([0; 6]),
        reserved0: 0,
        arp_tha: MacAddr([0; 6]),
        reserved1: 0,
        nd_target: [0; 16],
    };

    /// The key as words, for hashing, masking and comparing.
    #[inline]
    pub fn words(&self) -> &[u64; FLOW_WORDS] {
        transmute_ref!(self)
    }

    /// The words, to be changed.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64; FLOW_WORDS] {
        transmute_mut!(self)
    }

    /// The IPv4 source (or ARP sender) address.
    pub fn ipv4_src(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.ip_src;
        [a, b, c, d]
    }

    /// The IPv4 destination (or ARP target) address.
    pub fn ipv4_dst(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.ip_dst;
        [a, b, c, d]
    }

    /// The key with every bit outside `mask` cleared.
    #[inline]
    pub fn masked(&self, mask: &FlowMask) -> Self {
        let mut key = *self;
        for (word, mask) in key.words_mut().iter_mut().zip(mask.0.words()) {
            *word &= mask;
        }
        key
    }
}

// By words and without a branch: field by field would be twenty comparisons per cache hit.
impl PartialEq for FlowKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let words = self.words().iter().zip(other.words());
        words.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}

/// Which bits of a [`FlowKey`] must match: a set bit is looked at, a clear bit is wild.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowMask(pub FlowKey);

impl FlowMask {
    /// The mask as words.
    #[inline]
    pub fn words(&self) -> &[u64; FLOW_WORDS] {
        self.0.words()
    }

    /// Whether every bit of `other` is also in `self`.
    pub fn contains(&self, other: &Self) -> bool {
        self.words().iter().zip(other.words()).all(|(a, b)| b & !a == 0)
    }
}

impl BitOrAssign for FlowMask {
    fn bitor_assign(&mut self, other: Self) {
        for (word, other) in self.0.words_mut().iter_mut().zip(other.words()) {
            *word |= other;
        }
    }
}

impl BitOr for FlowMask {
    type Output = Self;

    fn bitor(mut self, other: Self) -> Self {
        self |= other;
        self
    }
}

impl BitAnd for FlowMask {
    type Output = Self;

    fn bitand(mut self, other: Self) -> Self {
        for (word, other) in self.0.words_mut().iter_mut().zip(other.words()) {
            *word &= other;
        }
        self
    }
}

/// A key and the bits of it that count. Bits of the key outside the mask are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowMatch {
    key: FlowKey,
    mask: FlowMask,
}

impl FlowMatch {
    /// Matches every packet.
    pub const ANY: Self = Self { key: FlowKey::ZERO, mask: FlowMask(FlowKey::ZERO) };

    /// `key` restricted to `mask`.
    pub fn new(key: &FlowKey, mask: FlowMask) -> Self {
        Self { key: key.masked(&mask), mask }
    }

    /// The key, zero outside the mask.
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The mask.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// Whether `packet` agrees with the key in every bit of the mask.
    #[inline]
    pub fn matches(&self, packet: &FlowKey) -> bool {
        let words = self.key.words().iter().zip(self.mask.words()).zip(packet.words());
        words.fold(0, |differ, ((key, mask), word)| differ | ((word & mask) ^ key)) == 0
    }

    /// Whether some packet could match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ours = self.key.words().iter().zip(self.mask.words());
        let theirs = other.key.words().iter().zip(other.mask.words());
        ours.zip(theirs)
            .all(|((key, mask), (other, other_mask))| (key ^ other) & mask & other_mask == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cover_the_whole_key() {
        assert_eq!(size_of::<FlowKey>(), FLOW_WORDS * 8);
        let mut key = FlowKey::default();
        key.nd_target[15] = 1;
        assert_ne!(key.words()[FLOW_WORDS - 1], 0);
    }

    #[test]
    fn a_match_ignores_what_its_mask_leaves_out() {
        let mask = FlowMask(FlowKey { eth_type: 0xffff, l4_dst: 0xff00, ..FlowKey::default() });
        let rule = FlowMatch::new(
            &FlowKey { eth_type: 0x800, l4_dst: 0x1234, in_port: 9, ..FlowKey::default() },
            mask,
        );
        assert!(rule.matches(&FlowKey {
            eth_type: 0x800,
            l4_dst: 0x1299,
            in_port: 1,
            ..FlowKey::default()
        }));
        assert!(!rule.matches(&FlowKey { eth_type: 0x800, l4_dst: 0x1334, ..FlowKey::default() }));
        assert!(rule.overlaps(&FlowMatch::ANY));
        assert!(FlowMatch::ANY.matches(&FlowKey::default()));
    }
}
