//! Edits of ARP, IPv4 and IPv6 headers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::transport::{pseudo_checksum, update_checksum};
use super::{Bits, EditError};
use crate::checksum::ChecksumChange;
use crate::ipv6::Extensions;
use crate::wire::{Arp, ETHERTYPE_IPV4, Ipv4, Ipv6, read_mut};
use crate::{FlowKey, HeaderField, Layout};

const DSCP_SHIFT: u32 = 2;

/// The layer 3 header, of the type that the caller knows it to be.
pub(super) fn layer3<'a, T>(bytes: &'a mut [u8], layout: &Layout) -> Result<&'a mut T, EditError>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned,
{
    match layout.l3_offset {
        0 => Err(EditError::Malformed),
        offset => read_mut(bytes, usize::from(offset)).ok_or(EditError::Malformed),
    }
}

pub(super) fn set_ipv4_address(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    bits: Bits,
    field: fn(&mut Ipv4) -> &mut [u8; 4],
) -> Result<(), EditError> {
    let layer4 = pseudo_checksum(bytes, layout, key)?;
    let ip = layer3::<Ipv4>(bytes, layout)?;
    let field = field(ip);
    let address = bits.over_ipv4(*field);
    let change = ChecksumChange::words(field, &address);
    *field = address;
    ip.checksum.set(change.update(ip.checksum.get()));
    update_checksum(bytes, layer4, key, change);
    Ok(())
}

pub(super) fn set_ipv6_src(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    bits: Bits,
) -> Result<(), EditError> {
    set_ipv6_address(bytes, layout, key, bits, |ip| &mut ip.src, true)
}

pub(super) fn set_ipv6_dst(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    bits: Bits,
) -> Result<(), EditError> {
    let is_final = is_final_destination(bytes, layout)?;
    set_ipv6_address(bytes, layout, key, bits, |ip| &mut ip.dst, is_final)
}

fn set_ipv6_address(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    bits: Bits,
    field: fn(&mut Ipv6) -> &mut [u8; 16],
    in_pseudo_header: bool,
) -> Result<(), EditError> {
    let layer4 = pseudo_checksum(bytes, layout, key)?.filter(|_| in_pseudo_header);
    let field = field(layer3::<Ipv6>(bytes, layout)?);
    let address = bits.over_ipv6(*field);
    let change = ChecksumChange::words(field, &address);
    *field = address;
    update_checksum(bytes, layer4, key, change);
    Ok(())
}

/// Whether the destination address is the final one, which checksums cover.
fn is_final_destination(bytes: &mut [u8], layout: &Layout) -> Result<bool, EditError> {
    let next_header = layer3::<Ipv6>(bytes, layout)?.next_header;
    let payload = usize::from(layout.l3_offset) + size_of::<Ipv6>();
    Ok(!Extensions::walk(bytes, payload, next_header).routed)
}

/// No checksum covers the flow label.
pub(super) fn set_ipv6_label(
    bytes: &mut [u8],
    layout: &Layout,
    bits: Bits,
) -> Result<(), EditError> {
    let word = &mut layer3::<Ipv6>(bytes, layout)?.version_class_label;
    word.set(bits.over_u32(word.get()));
    Ok(())
}

/// Changes the DSCP or the ECN.
pub(super) fn set_tos(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    field: HeaderField,
    Bits { value, mask }: Bits,
) -> Result<(), EditError> {
    let shift = if field == HeaderField::IpDscp { DSCP_SHIFT } else { 0 };
    let bits = Bits { value: value << shift, mask: mask << shift };
    if key.eth_type == ETHERTYPE_IPV4 {
        let ip = layer3::<Ipv4>(bytes, layout)?;
        let old = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.tos = bits.over_u8(ip.tos);
        let new = u16::from_be_bytes([ip.version_ihl, ip.tos]);
        ip.checksum.set(ChecksumChange::word(old, new).update(ip.checksum.get()));
    } else {
        let ip = layer3::<Ipv6>(bytes, layout)?;
        ip.set_traffic_class(bits.over_u8(ip.traffic_class()));
    }
    Ok(())
}

pub(super) fn set_ttl(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    bits: Bits,
) -> Result<(), EditError> {
    change_ttl(bytes, layout, key, |ttl| Ok(bits.over_u8(ttl)))
}

pub(super) fn decrement_ttl(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
) -> Result<(), EditError> {
    change_ttl(bytes, layout, key, |ttl| match ttl {
        0 | 1 => Err(EditError::TtlExpired),
        _ => Ok(ttl - 1),
    })
}

#[inline]
fn change_ttl(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    change: impl Fn(u8) -> Result<u8, EditError>,
) -> Result<(), EditError> {
    if key.eth_type == ETHERTYPE_IPV4 {
        let ip = layer3::<Ipv4>(bytes, layout)?;
        let old = u16::from_be_bytes([ip.ttl, ip.protocol]);
        ip.ttl = change(ip.ttl)?;
        let new = u16::from_be_bytes([ip.ttl, ip.protocol]);
        ip.checksum.set(ChecksumChange::word(old, new).update(ip.checksum.get()));
    } else {
        let ip = layer3::<Ipv6>(bytes, layout)?;
        ip.hop_limit = change(ip.hop_limit)?;
    }
    Ok(())
}

pub(super) fn set_arp(
    bytes: &mut [u8],
    layout: &Layout,
    field: HeaderField,
    bits: Bits,
) -> Result<(), EditError> {
    let arp = layer3::<Arp>(bytes, layout)?;
    match field {
        HeaderField::ArpSpa => arp.spa = bits.over_ipv4(arp.spa),
        HeaderField::ArpTpa => arp.tpa = bits.over_ipv4(arp.tpa),
        HeaderField::ArpSha => arp.sha = bits.over_mac(arp.sha),
        HeaderField::ArpTha => arp.tha = bits.over_mac(arp.tha),
        // What a key can hold of the operation is what there is of it.
        _ => arp.operation.set(bits.over_u8(arp.known_operation()).into()),
    }
    Ok(())
}
