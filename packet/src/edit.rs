//! Changes to a header copy, and the same changes to a [`FlowKey`].

use std::mem::offset_of;

use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{ChecksumChange, update_crc32c};
use crate::ipv6::Extensions;
use crate::key::{FRAG_LATER, VLAN_PRESENT};
use crate::limits::MAX_VLAN_TAGS;
use crate::parse::set_ipv4;
use crate::wire::{
    Arp, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Icmp, Ipv4, Ipv6, PROTO_ICMPV6,
    PROTO_SCTP, PROTO_TCP, PROTO_UDP, Sctp, Tcp, Udp, VlanTag, is_vlan_tpid, read, read_mut,
};
use crate::{FlowKey, FlowMask, HeaderBuf, Layout, MacAddr};

const VLAN_VID: u16 = 0x0fff;
const VLAN_PCP_SHIFT: u32 = 13;
const VLAN_PCP: u16 = 0x7 << VLAN_PCP_SHIFT;
const TOS_ECN: u8 = 0x03;

/// One change to a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Ethernet source.
    SetEthSrc(MacAddr),
    /// Ethernet destination.
    SetEthDst(MacAddr),
    /// IPv4 source.
    SetIpv4Src([u8; 4]),
    /// IPv4 destination.
    SetIpv4Dst([u8; 4]),
    /// IPv6 source.
    SetIpv6Src([u8; 16]),
    /// IPv6 destination.
    SetIpv6Dst([u8; 16]),
    /// The upper six bits of the IPv4 TOS or IPv6 traffic class; the value has six bits.
    SetIpDscp(u8),
    /// The lower two bits of the IPv4 TOS or IPv6 traffic class; the value has two bits.
    SetIpEcn(u8),
    /// TCP, UDP or SCTP source port.
    SetL4Src(u16),
    /// TCP, UDP or SCTP destination port.
    SetL4Dst(u16),
    /// ARP sender protocol address.
    SetArpSpa([u8; 4]),
    /// ARP target protocol address.
    SetArpTpa([u8; 4]),
    /// VLAN identifier of the outer tag; 12 bits.
    SetVlanVid(u16),
    /// Priority of the outer tag; 3 bits.
    SetVlanPcp(u8),
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
    /// The edit is for ARP.
    #[error("the packet is not ARP")]
    NotArp,
    /// The edit is for TCP, UDP or SCTP, and not for a fragment after the first.
    #[error("the packet has no ports")]
    NoPorts,
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

/// Applies `edit` to the header copy, and keeps the checksums of IPv4, TCP, UDP, SCTP and ICMPv6
/// as right as they were. `key` is the packet's key as parsed, before any edit.
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
    let bytes = header.bytes_mut();
    match *edit {
        Edit::SetEthSrc(mac) => ethernet(bytes)?.src = mac,
        Edit::SetEthDst(mac) => ethernet(bytes)?.dst = mac,
        Edit::SetIpv4Src(address) => {
            set_ipv4_address(bytes, layout, key, address, |ip| &mut ip.src)?;
        }
        Edit::SetIpv4Dst(address) => {
            set_ipv4_address(bytes, layout, key, address, |ip| &mut ip.dst)?;
        }
        Edit::SetIpv6Src(address) => {
            set_ipv6_address(bytes, layout, key, address, |ip| &mut ip.src, true)?;
        }
        Edit::SetIpv6Dst(address) => {
            let is_final = is_final_destination(bytes, layout)?;
            set_ipv6_address(bytes, layout, key, address, |ip| &mut ip.dst, is_final)?;
        }
        Edit::SetIpDscp(dscp) => set_tos(bytes, layout, key, !TOS_ECN, dscp << 2)?,
        Edit::SetIpEcn(ecn) => set_tos(bytes, layout, key, TOS_ECN, ecn)?,
        Edit::SetL4Src(port) => set_port(bytes, layout, key, 0, port)?,
        Edit::SetL4Dst(port) => set_port(bytes, layout, key, 2, port)?,
        Edit::SetArpSpa(address) => layer3::<Arp>(bytes, layout)?.spa = address,
        Edit::SetArpTpa(address) => layer3::<Arp>(bytes, layout)?.tpa = address,
        Edit::SetVlanVid(vid) => set_tci(bytes, VLAN_VID, vid)?,
        Edit::SetVlanPcp(pcp) => set_tci(bytes, VLAN_PCP, u16::from(pcp) << VLAN_PCP_SHIFT)?,
        Edit::PushVlan { tpid } => return push_vlan(header, layout, tpid),
        Edit::PopVlan => return pop_vlan(header, layout),
        Edit::DecTtl => decrement_ttl(bytes, layout, key)?,
    }
    Ok(0)
}

/// The same change to a key: what a lookup after the edit sees.
///
/// # Errors
/// When the packet lacks what the edit needs, as far as the key tells: [`apply`] alone sees that a
/// header is malformed.
pub fn apply_to_key(edit: &Edit, key: &mut FlowKey) -> Result<(), EditError> {
    check(edit, key, vlan_tags(key))?;
    match *edit {
        Edit::SetEthSrc(mac) => key.eth_src = mac,
        Edit::SetEthDst(mac) => key.eth_dst = mac,
        Edit::SetIpv4Src(address) | Edit::SetArpSpa(address) => set_ipv4(&mut key.ip_src, address),
        Edit::SetIpv4Dst(address) | Edit::SetArpTpa(address) => set_ipv4(&mut key.ip_dst, address),
        Edit::SetIpv6Src(address) => key.ip_src = address,
        Edit::SetIpv6Dst(address) => key.ip_dst = address,
        Edit::SetIpDscp(dscp) => key.ip_tos = (key.ip_tos & TOS_ECN) | dscp << 2,
        Edit::SetIpEcn(ecn) => key.ip_tos = (key.ip_tos & !TOS_ECN) | ecn & TOS_ECN,
        Edit::SetL4Src(port) => key.l4_src = port,
        Edit::SetL4Dst(port) => key.l4_dst = port,
        Edit::SetVlanVid(vid) => key.vlan_tci = (key.vlan_tci & !VLAN_VID) | vid & VLAN_VID,
        Edit::SetVlanPcp(pcp) => {
            key.vlan_tci = (key.vlan_tci & !VLAN_PCP) | (u16::from(pcp) << VLAN_PCP_SHIFT);
        }
        Edit::PushVlan { tpid } => {
            (key.inner_vlan_tpid, key.inner_vlan_tci) = (key.vlan_tpid, key.vlan_tci);
            (key.vlan_tpid, key.vlan_tci) = (tpid, key.vlan_tci | VLAN_PRESENT);
        }
        Edit::PopVlan => {
            (key.vlan_tpid, key.vlan_tci) = (key.inner_vlan_tpid, key.inner_vlan_tci);
            (key.inner_vlan_tpid, key.inner_vlan_tci) = (0, 0);
        }
        Edit::DecTtl => match key.ip_ttl {
            0 | 1 => return Err(EditError::TtlExpired),
            _ => key.ip_ttl -= 1,
        },
    }
    Ok(())
}

/// The bits of the packet's key, before the edit, that decide whether it is legal and what a
/// lookup after it may see that the same bits of the key before it do not tell.
pub fn prerequisites(edit: &Edit) -> FlowMask {
    let none = FlowKey::default();
    let eth_type = FlowKey { eth_type: u16::MAX, ..none };
    FlowMask(match edit {
        Edit::SetEthSrc(_) | Edit::SetEthDst(_) => none,
        Edit::SetIpv4Src(_)
        | Edit::SetIpv4Dst(_)
        | Edit::SetIpv6Src(_)
        | Edit::SetIpv6Dst(_)
        | Edit::SetIpDscp(_)
        | Edit::SetIpEcn(_)
        | Edit::SetArpSpa(_)
        | Edit::SetArpTpa(_) => eth_type,
        Edit::SetL4Src(_) | Edit::SetL4Dst(_) => {
            FlowKey { ip_proto: u8::MAX, ip_frag: u8::MAX, ..eth_type }
        }
        Edit::DecTtl => FlowKey { ip_ttl: u8::MAX, ..eth_type },
        Edit::SetVlanVid(_) | Edit::SetVlanPcp(_) => FlowKey { vlan_tci: VLAN_PRESENT, ..none },
        // The outer tag moves to the inner one's place, and the other way round.
        Edit::PushVlan { .. } => FlowKey {
            vlan_tci: u16::MAX,
            vlan_tpid: u16::MAX,
            inner_vlan_tci: VLAN_PRESENT,
            ..none
        },
        Edit::PopVlan => FlowKey {
            vlan_tci: VLAN_PRESENT,
            inner_vlan_tci: u16::MAX,
            inner_vlan_tpid: u16::MAX,
            ..none
        },
    })
}

/// What the key and the number of tags tell of an edit's legality.
#[inline]
fn check(edit: &Edit, key: &FlowKey, vlan_tags: u8) -> Result<(), EditError> {
    let is_ip = matches!(key.eth_type, ETHERTYPE_IPV4 | ETHERTYPE_IPV6);
    let has_ports = is_ip
        && key.ip_frag & FRAG_LATER == 0
        && matches!(key.ip_proto, PROTO_TCP | PROTO_UDP | PROTO_SCTP);
    let (legal, error) = match *edit {
        Edit::SetEthSrc(_) | Edit::SetEthDst(_) => return Ok(()),
        Edit::SetIpv4Src(_) | Edit::SetIpv4Dst(_) => {
            (key.eth_type == ETHERTYPE_IPV4, EditError::NotIpv4)
        }
        Edit::SetIpv6Src(_) | Edit::SetIpv6Dst(_) => {
            (key.eth_type == ETHERTYPE_IPV6, EditError::NotIpv6)
        }
        Edit::SetIpDscp(_) | Edit::SetIpEcn(_) | Edit::DecTtl => (is_ip, EditError::NotIp),
        Edit::SetArpSpa(_) | Edit::SetArpTpa(_) => {
            (key.eth_type == ETHERTYPE_ARP, EditError::NotArp)
        }
        Edit::SetL4Src(_) | Edit::SetL4Dst(_) if has_ports && key.ip_frag != 0 => {
            (key.ip_proto != PROTO_SCTP, EditError::SctpFragment)
        }
        Edit::SetL4Src(_) | Edit::SetL4Dst(_) => (has_ports, EditError::NoPorts),
        Edit::SetVlanVid(_) | Edit::SetVlanPcp(_) | Edit::PopVlan => {
            (vlan_tags > 0, EditError::NoVlanTag)
        }
        Edit::PushVlan { tpid } if !is_vlan_tpid(tpid) => (false, EditError::BadTpid),
        Edit::PushVlan { .. } => {
            (usize::from(vlan_tags) < MAX_VLAN_TAGS, EditError::TooManyVlanTags)
        }
    };
    if legal { Ok(()) } else { Err(error) }
}

fn vlan_tags(key: &FlowKey) -> u8 {
    match (key.vlan_tci & VLAN_PRESENT, key.inner_vlan_tci & VLAN_PRESENT) {
        (0, _) => 0,
        (_, 0) => 1,
        _ => 2,
    }
}

fn ethernet(bytes: &mut [u8]) -> Result<&mut Ethernet, EditError> {
    read_mut(bytes, 0).ok_or(EditError::Malformed)
}

fn layer3<'a, T>(bytes: &'a mut [u8], layout: &Layout) -> Result<&'a mut T, EditError>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned,
{
    match layout.l3_offset {
        0 => Err(EditError::Malformed),
        offset => read_mut(bytes, usize::from(offset)).ok_or(EditError::Malformed),
    }
}

/// Where the layer 4 checksum over the pseudo-header lies, if the packet has one.
fn pseudo_checksum(
    bytes: &[u8],
    layout: &Layout,
    key: &FlowKey,
) -> Result<Option<usize>, EditError> {
    if key.ip_frag & FRAG_LATER != 0 {
        return Ok(None);
    }
    let is_ipv6 = key.eth_type == ETHERTYPE_IPV6;
    let field = match key.ip_proto {
        PROTO_TCP => offset_of!(Tcp, checksum),
        PROTO_UDP => offset_of!(Udp, checksum),
        PROTO_ICMPV6 if is_ipv6 => offset_of!(Icmp, checksum),
        // Extension headers that could not be walked: what follows is unknown.
        0 if is_ipv6 => return Err(EditError::Malformed),
        _ => return Ok(None),
    };
    let offset = usize::from(layout.l4_offset) + field;
    match read::<U16>(bytes, offset) {
        Some(_) if layout.l4_offset != 0 => Ok(Some(offset)),
        _ => Err(EditError::Malformed),
    }
}

/// Takes `change` into the checksum that [`pseudo_checksum`] found.
fn update_layer4(bytes: &mut [u8], offset: Option<usize>, key: &FlowKey, change: ChecksumChange) {
    if let Some(checksum) = offset.and_then(|offset| read_mut::<U16>(bytes, offset)) {
        checksum.set(match key.ip_proto {
            PROTO_UDP => change.update_udp(checksum.get()),
            _ => change.update(checksum.get()),
        });
    }
}

fn set_ipv4_address(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    address: [u8; 4],
    field: fn(&mut Ipv4) -> &mut [u8; 4],
) -> Result<(), EditError> {
    let layer4 = pseudo_checksum(bytes, layout, key)?;
    let ip = layer3::<Ipv4>(bytes, layout)?;
    let field = field(ip);
    let change = ChecksumChange::words(field, &address);
    *field = address;
    ip.checksum.set(change.update(ip.checksum.get()));
    update_layer4(bytes, layer4, key, change);
    Ok(())
}

fn set_ipv6_address(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    address: [u8; 16],
    field: fn(&mut Ipv6) -> &mut [u8; 16],
    in_pseudo_header: bool,
) -> Result<(), EditError> {
    let layer4 = pseudo_checksum(bytes, layout, key)?.filter(|_| in_pseudo_header);
    let field = field(layer3::<Ipv6>(bytes, layout)?);
    let change = ChecksumChange::words(field, &address);
    *field = address;
    update_layer4(bytes, layer4, key, change);
    Ok(())
}

/// Whether the destination address is the final one, which checksums cover.
fn is_final_destination(bytes: &mut [u8], layout: &Layout) -> Result<bool, EditError> {
    let next_header = layer3::<Ipv6>(bytes, layout)?.next_header;
    let payload = usize::from(layout.l3_offset) + size_of::<Ipv6>();
    Ok(!Extensions::walk(bytes, payload, next_header).routed)
}

fn set_tos(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    field: u8,
    value: u8,
) -> Result<(), EditError> {
    let replace = |tos: u8| (tos & !field) | (value & field);
    if key.eth_type == ETHERTYPE_IPV4 {
        let ip = layer3::<Ipv4>(bytes, layout)?;
        let old = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.tos = replace(ip.tos);
        let new = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.checksum.set(ChecksumChange::word(old, new).update(ip.checksum.get()));
    } else {
        let ip = layer3::<Ipv6>(bytes, layout)?;
        ip.set_traffic_class(replace(ip.traffic_class()));
    }
    Ok(())
}

fn decrement_ttl(bytes: &mut [u8], layout: &Layout, key: &FlowKey) -> Result<(), EditError> {
    if key.eth_type == ETHERTYPE_IPV4 {
        let ip = layer3::<Ipv4>(bytes, layout)?;
        let old = u16::from_be_bytes([ip.ttl, ip.protocol]);
        ip.ttl = decremented(ip.ttl)?;
        let new = u16::from_be_bytes([ip.ttl, ip.protocol]);
        ip.checksum.set(ChecksumChange::word(old, new).update(ip.checksum.get()));
    } else {
        let ip = layer3::<Ipv6>(bytes, layout)?;
        ip.hop_limit = decremented(ip.hop_limit)?;
    }
    Ok(())
}

fn decremented(ttl: u8) -> Result<u8, EditError> {
    match ttl {
        0 | 1 => Err(EditError::TtlExpired),
        _ => Ok(ttl - 1),
    }
}

/// Sets the port at `field` bytes from the start of a TCP, UDP or SCTP header.
fn set_port(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    field: usize,
    port: u16,
) -> Result<(), EditError> {
    if key.ip_proto == PROTO_SCTP {
        return set_sctp_port(bytes, layout, key, field, port);
    }
    let checksum = pseudo_checksum(bytes, layout, key)?.ok_or(EditError::Malformed)?;
    let field = usize::from(layout.l4_offset) + field;
    let field = read_mut::<U16>(bytes, field).ok_or(EditError::Malformed)?;
    let change = ChecksumChange::word(field.get(), port);
    field.set(port);
    update_layer4(bytes, Some(checksum), key, change);
    Ok(())
}

fn set_sctp_port(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    field: usize,
    port: u16,
) -> Result<(), EditError> {
    let end = usize::from(layout.l3_offset)
        + if key.eth_type == ETHERTYPE_IPV4 {
            usize::from(layer3::<Ipv4>(bytes, layout)?.total_len.get())
        } else {
            size_of::<Ipv6>() + usize::from(layer3::<Ipv6>(bytes, layout)?.payload_len.get())
        };
    let offset = match layout.l4_offset {
        0 => return Err(EditError::Malformed),
        offset => usize::from(offset),
    };
    let ports_end = offset + size_of::<[U16; 2]>();
    let bytes_after = end.checked_sub(ports_end).ok_or(EditError::Malformed)?;
    let sctp = read_mut::<Sctp>(bytes, offset).ok_or(EditError::Malformed)?;
    let crc = u32::from_le_bytes(sctp.checksum);
    let old = sctp.ports;
    if let Some(ports) = read_mut::<U16>(&mut sctp.ports, field) {
        ports.set(port);
    }
    sctp.checksum = update_crc32c(crc, old, sctp.ports, bytes_after as u32).to_le_bytes();
    Ok(())
}

fn set_tci(bytes: &mut [u8], field: u16, value: u16) -> Result<(), EditError> {
    let tag = outer_tag(bytes)?;
    tag.tci.set((tag.tci.get() & !field) | (value & field));
    Ok(())
}

fn outer_tag(bytes: &mut [u8]) -> Result<&mut VlanTag, EditError> {
    read_mut(bytes, size_of::<Ethernet>()).ok_or(EditError::Malformed)
}

const TPID_OFFSET: usize = offset_of!(Ethernet, ethertype);
const TAG_BYTES: u16 = size_of::<VlanTag>() as u16;

fn push_vlan(header: &mut HeaderBuf, layout: &mut Layout, tpid: u16) -> Result<i32, EditError> {
    ethernet(header.bytes_mut())?;
    // The drop-eligible bit is not inherited: OpenFlow has no field for it.
    let tci = match layout.vlan_tags {
        0 => 0,
        _ => outer_tag(header.bytes_mut())?.tci.get() & (VLAN_PCP | VLAN_VID),
    };
    if !header.insert(TPID_OFFSET, usize::from(TAG_BYTES)) {
        return Err(EditError::NoHeadroom);
    }
    ethernet(header.bytes_mut())?.ethertype.set(tpid);
    outer_tag(header.bytes_mut())?.tci.set(tci);
    layout.vlan_tags += 1;
    for offset in [&mut layout.l3_offset, &mut layout.l4_offset] {
        *offset += if *offset == 0 { 0 } else { TAG_BYTES };
    }
    Ok(i32::from(TAG_BYTES))
}

fn pop_vlan(header: &mut HeaderBuf, layout: &mut Layout) -> Result<i32, EditError> {
    outer_tag(header.bytes_mut())?;
    if !header.remove(TPID_OFFSET, usize::from(TAG_BYTES)) {
        return Err(EditError::Malformed);
    }
    layout.vlan_tags -= 1;
    for offset in [&mut layout.l3_offset, &mut layout.l4_offset] {
        *offset = offset.saturating_sub(TAG_BYTES);
    }
    Ok(-i32::from(TAG_BYTES))
}
