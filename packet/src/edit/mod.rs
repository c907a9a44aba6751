//! Changes to a header copy, and the same changes to a [`FlowKey`].

mod link;
mod network;
mod on_key;
mod transport;

pub use on_key::{apply_to_key, prerequisites};

use crate::key::FRAG_LATER;
use crate::limits::MAX_VLAN_TAGS;
use crate::wire::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_RARP, PROTO_ICMP, PROTO_ICMPV6,
    PROTO_SCTP, PROTO_TCP, PROTO_UDP, is_vlan_tpid,
};
use crate::{FlowKey, HeaderBuf, HeaderField, Layout, MacAddr, nd};

/// One change to a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// The bits of `value` that are ones in `mask` replace those of the field.
    Set {
        /// Which field.
        field: HeaderField,
        /// The new bits, in the low [`HeaderField::bits`].
        value: u128,
        /// Which of them count.
        mask: u128,
    },
    /// A new outer tag with the VID and priority of the old one, or zero (OpenFlow 1.3.5, 5.12).
    PushVlan {
        /// 0x8100 or 0x88a8.
        tpid: u16,
    },
    /// Removes the outer tag. A third tag does not become a second one: the packet keeps the
    /// fields that it was parsed with.
    PopVlan,
    /// IPv4 TTL or IPv6 hop limit, minus one.
    DecTtl,
}

impl Edit {
    /// Sets all bits of a field.
    #[inline]
    pub const fn set(field: HeaderField, value: u128) -> Self {
        Self::Set { field, value, mask: field.full_mask() }
    }
}

/// Why an edit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The edit is for IPv4.
    #[error("the packet is not IPv4")]
    NotIpv4,
    /// The edit is for IPv6.
    #[error("the packet is not IPv6")]
    NotIpv6,
    /// The edit is for IPv4 or IPv6.
    #[error("the packet is not IP")]
    NotIp,
    /// The edit is for ARP or RARP.
    #[error("the packet is not ARP")]
    NotArp,
    /// The edit is for TCP, UDP or SCTP, and not for a fragment after the first.
    #[error("the packet has no ports")]
    NoPorts,
    /// The edit is for ICMP in IPv4 or ICMPv6 in IPv6, and not for a fragment after the first.
    #[error("the packet is not ICMP")]
    NotIcmp,
    /// The edit is for a neighbour solicitation or advertisement that has the field. (A field that
    /// is zero counts as absent, as a flow key cannot tell the two apart.)
    #[error("the packet has no such neighbour discovery field")]
    NoNdField,
    /// The edit is for a tagged packet.
    #[error("the packet has no VLAN tag")]
    NoVlanTag,
    /// One more tag would hide layer 3 from a later parse.
    #[error("the packet has {MAX_VLAN_TAGS} VLAN tags already")]
    TooManyVlanTags,
    /// Not a TPID of 802.1Q.
    #[error("the tag's TPID is neither 0x8100 nor 0x88a8")]
    BadTpid,
    /// TTL or hop limit was 1 or 0.
    #[error("the packet's TTL has expired")]
    TtlExpired,
    /// SCTP's checksum covers bytes of other fragments.
    #[error("the checksum of a fragmented SCTP packet cannot be updated")]
    SctpFragment,
    /// The header to be changed, or the one with the checksum, is truncated or malformed.
    #[error("a header is truncated or malformed")]
    Malformed,
    /// No room in front of the header copy.
    #[error("no room for another tag")]
    NoHeadroom,
}

/// Applies `edit` to the header copy, and keeps the checksums of IPv4, TCP, UDP, SCTP, ICMP and
/// ICMPv6 as right as they were. `key` is the packet's key as parsed, before any edit.
///
/// Returns by how many bytes the frame grew.
///
/// # Errors
/// When the packet lacks what the edit needs; then nothing is changed.
#[inline]
pub fn apply(
    edit: &Edit,
    header: &mut HeaderBuf,
    layout: &mut Layout,
    key: &FlowKey,
) -> Result<i32, EditError> {
    check(edit, key, layout.vlan_tags)?;
    match *edit {
        Edit::Set { field, value, mask } => {
            let bits = Bits { value, mask: mask & field.full_mask() };
            set(field, bits, header.bytes_mut(), layout, key)?;
        }
        Edit::PushVlan { tpid } => return link::push_vlan(header, layout, tpid),
        Edit::PopVlan => return link::pop_vlan(header, layout),
        Edit::DecTtl => network::decrement_ttl(header.bytes_mut(), layout, key)?,
    }
    Ok(0)
}

fn set(
    field: HeaderField,
    bits: Bits,
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
) -> Result<(), EditError> {
    match field {
        HeaderField::EthSrc => link::set_address(bytes, bits, |ethernet| &mut ethernet.src),
        HeaderField::EthDst => link::set_address(bytes, bits, |ethernet| &mut ethernet.dst),
        HeaderField::VlanVid | HeaderField::VlanPcp => link::set_tci(bytes, field, bits),
        HeaderField::IpDscp | HeaderField::IpEcn => {
            network::set_tos(bytes, layout, key, field, bits)
        }
        HeaderField::IpTtl => network::set_ttl(bytes, layout, key, bits),
        HeaderField::Ipv4Src => {
            network::set_ipv4_address(bytes, layout, key, bits, |ip| &mut ip.src)
        }
        HeaderField::Ipv4Dst => {
            network::set_ipv4_address(bytes, layout, key, bits, |ip| &mut ip.dst)
        }
        HeaderField::Ipv6Src => network::set_ipv6_src(bytes, layout, key, bits),
        HeaderField::Ipv6Dst => network::set_ipv6_dst(bytes, layout, key, bits),
        HeaderField::Ipv6Label => network::set_ipv6_label(bytes, layout, bits),
        HeaderField::L4Src => transport::set_port(bytes, layout, key, 0, bits),
        HeaderField::L4Dst => transport::set_port(bytes, layout, key, 2, bits),
        HeaderField::IcmpType => transport::set_icmp(bytes, layout, |icmp| {
            icmp.kind = bits.over_u8(icmp.kind);
        }),
        HeaderField::IcmpCode => transport::set_icmp(bytes, layout, |icmp| {
            icmp.code = bits.over_u8(icmp.code);
        }),
        HeaderField::ArpOp
        | HeaderField::ArpSpa
        | HeaderField::ArpTpa
        | HeaderField::ArpSha
        | HeaderField::ArpTha => network::set_arp(bytes, layout, field, bits),
        HeaderField::NdTarget | HeaderField::NdSll | HeaderField::NdTll => {
            transport::set_nd(bytes, layout, key, field, bits)
        }
    }
}

/// The new bits for some of a field's.
#[derive(Clone, Copy)]
struct Bits {
    value: u128,
    /// No bit outside the field.
    mask: u128,
}

impl Bits {
    #[inline]
    fn over_u128(self, old: u128) -> u128 {
        (old & !self.mask) | (self.value & self.mask)
    }

    #[inline]
    fn over_u32(self, old: u32) -> u32 {
        (old & !(self.mask as u32)) | (self.value & self.mask) as u32
    }

    #[inline]
    fn over_u16(self, old: u16) -> u16 {
        self.over_u32(old.into()) as u16
    }

    #[inline]
    fn over_u8(self, old: u8) -> u8 {
        self.over_u32(old.into()) as u8
    }

    #[inline]
    fn over_mac(self, old: MacAddr) -> MacAddr {
        let (value, mask) = (self.value as u64, self.mask as u64);
        MacAddr::from_bits((old.to_bits() & !mask) | (value & mask))
    }

    #[inline]
    fn over_ipv4(self, old: [u8; 4]) -> [u8; 4] {
        self.over_u32(u32::from_be_bytes(old)).to_be_bytes()
    }

    #[inline]
    fn over_ipv6(self, old: [u8; 16]) -> [u8; 16] {
        self.over_u128(u128::from_be_bytes(old)).to_be_bytes()
    }
}

/// What the key and the number of tags tell of an edit's legality.
#[inline]
fn check(edit: &Edit, key: &FlowKey, vlan_tags: u8) -> Result<(), EditError> {
    let (legal, error) = match *edit {
        Edit::Set { field, .. } => return check_set(field, key, vlan_tags),
        Edit::DecTtl => (is_ip(key), EditError::NotIp),
        Edit::PopVlan => (vlan_tags > 0, EditError::NoVlanTag),
        Edit::PushVlan { tpid } if !is_vlan_tpid(tpid) => (false, EditError::BadTpid),
        Edit::PushVlan { .. } => {
            (usize::from(vlan_tags) < MAX_VLAN_TAGS, EditError::TooManyVlanTags)
        }
    };
    if legal { Ok(()) } else { Err(error) }
}

#[inline]
fn check_set(field: HeaderField, key: &FlowKey, vlan_tags: u8) -> Result<(), EditError> {
    let (legal, error) = match field {
        HeaderField::EthSrc | HeaderField::EthDst => return Ok(()),
        HeaderField::VlanVid | HeaderField::VlanPcp => (vlan_tags > 0, EditError::NoVlanTag),
        HeaderField::Ipv4Src | HeaderField::Ipv4Dst => {
            (key.eth_type == ETHERTYPE_IPV4, EditError::NotIpv4)
        }
        HeaderField::Ipv6Src | HeaderField::Ipv6Dst | HeaderField::Ipv6Label => {
            (key.eth_type == ETHERTYPE_IPV6, EditError::NotIpv6)
        }
        HeaderField::IpDscp | HeaderField::IpEcn | HeaderField::IpTtl => {
            (is_ip(key), EditError::NotIp)
        }
        HeaderField::L4Src | HeaderField::L4Dst => {
            let has_ports = is_ip(key)
                && key.ip_frag & FRAG_LATER == 0
                && matches!(key.ip_proto, PROTO_TCP | PROTO_UDP | PROTO_SCTP);
            if has_ports && key.ip_frag != 0 && key.ip_proto == PROTO_SCTP {
                return Err(EditError::SctpFragment);
            }
            (has_ports, EditError::NoPorts)
        }
        HeaderField::IcmpType | HeaderField::IcmpCode => (is_icmp(key), EditError::NotIcmp),
        HeaderField::ArpOp
        | HeaderField::ArpSpa
        | HeaderField::ArpTpa
        | HeaderField::ArpSha
        | HeaderField::ArpTha => (is_arp(key), EditError::NotArp),
        HeaderField::NdTarget | HeaderField::NdSll | HeaderField::NdTll => {
            let is_icmpv6 = key.eth_type == ETHERTYPE_IPV6 && is_icmp(key);
            (is_icmpv6 && field.read(key) != 0, EditError::NoNdField)
        }
    };
    if legal { Ok(()) } else { Err(error) }
}

/// Whether a message of this ICMPv6 type and code is one that has the field; the answer for other
/// fields is no.
#[inline]
fn is_nd_with(field: HeaderField, kind: u16, code: u16) -> bool {
    let kinds = match field {
        HeaderField::NdTarget => [nd::SOLICITATION, nd::ADVERTISEMENT],
        HeaderField::NdSll => [nd::SOLICITATION; 2],
        HeaderField::NdTll => [nd::ADVERTISEMENT; 2],
        _ => return false,
    };
    code == 0 && kinds.map(u16::from).contains(&kind)
}

#[inline]
fn is_ip(key: &FlowKey) -> bool {
    matches!(key.eth_type, ETHERTYPE_IPV4 | ETHERTYPE_IPV6)
}

/// RARP has ARP's header.
#[inline]
fn is_arp(key: &FlowKey) -> bool {
    matches!(key.eth_type, ETHERTYPE_ARP | ETHERTYPE_RARP)
}

#[inline]
fn is_icmp(key: &FlowKey) -> bool {
    let this_version = (key.eth_type == ETHERTYPE_IPV4 && key.ip_proto == PROTO_ICMP)
        || (key.eth_type == ETHERTYPE_IPV6 && key.ip_proto == PROTO_ICMPV6);
    this_version && key.ip_frag & FRAG_LATER == 0
}
