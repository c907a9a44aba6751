//! Edits of TCP, UDP, SCTP, ICMP and ICMPv6 headers, and of neighbour discovery.

use std::mem::offset_of;

use zerocopy::byteorder::big_endian::U16;

use super::network::layer3;
use super::{Bits, EditError, is_nd_with};
use crate::checksum::{ChecksumChange, update_crc32c};
use crate::key::FRAG_LATER;
use crate::nd::Neighbour;
use crate::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Icmp, Ipv4, Ipv6, PROTO_ICMPV6, PROTO_SCTP, PROTO_TCP,
    PROTO_UDP, Sctp, Tcp, Udp, read, read_mut,
};
use crate::{FlowKey, HeaderField, Layout};

/// Where the checksum over the pseudo-header lies, if the packet has one.
pub(super) fn pseudo_checksum(
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

/// Takes `change` into the checksum at `offset`.
pub(super) fn update_checksum(
    bytes: &mut [u8],
    offset: Option<usize>,
    key: &FlowKey,
    change: ChecksumChange,
) {
    if let Some(checksum) = offset.and_then(|offset| read_mut::<U16>(bytes, offset)) {
        checksum.set(match key.ip_proto {
            PROTO_UDP => change.update_udp(checksum.get()),
            _ => change.update(checksum.get()),
        });
    }
}

/// Where the layer 4 header starts.
fn layer4(layout: &Layout) -> Result<usize, EditError> {
    match layout.l4_offset {
        0 => Err(EditError::Malformed),
        offset => Ok(usize::from(offset)),
    }
}

/// Where the packet ends, by the length in its IP header.
fn packet_end(bytes: &mut [u8], layout: &Layout, key: &FlowKey) -> Result<usize, EditError> {
    let packet_bytes = if key.eth_type == ETHERTYPE_IPV4 {
        usize::from(layer3::<Ipv4>(bytes, layout)?.total_len.get())
    } else {
        size_of::<Ipv6>() + usize::from(layer3::<Ipv6>(bytes, layout)?.payload_len.get())
    };
    Ok(usize::from(layout.l3_offset) + packet_bytes)
}

/// Changes the port at `field` bytes from the start of a TCP, UDP or SCTP header.
pub(super) fn set_port(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    field: usize,
    bits: Bits,
) -> Result<(), EditError> {
    if key.ip_proto == PROTO_SCTP {
        return set_sctp_port(bytes, layout, key, field, bits);
    }
    let checksum = pseudo_checksum(bytes, layout, key)?.ok_or(EditError::Malformed)?;
    let field = layer4(layout)? + field;
    let field = read_mut::<U16>(bytes, field).ok_or(EditError::Malformed)?;
    let port = bits.over_u16(field.get());
    let change = ChecksumChange::word(field.get(), port);
    field.set(port);
    update_checksum(bytes, Some(checksum), key, change);
    Ok(())
}

fn set_sctp_port(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    field: usize,
    bits: Bits,
) -> Result<(), EditError> {
    let end = packet_end(bytes, layout, key)?;
    let offset = layer4(layout)?;
    let ports_end = offset + size_of::<[U16; 2]>();
    let bytes_after = end.checked_sub(ports_end).ok_or(EditError::Malformed)?;
    let sctp = read_mut::<Sctp>(bytes, offset).ok_or(EditError::Malformed)?;
    let crc = u32::from_le_bytes(sctp.checksum);
    let old = sctp.ports;
    if let Some(port) = read_mut::<U16>(&mut sctp.ports, field) {
        port.set(bits.over_u16(port.get()));
    }
    sctp.checksum = update_crc32c(crc, old, sctp.ports, bytes_after as u32).to_le_bytes();
    Ok(())
}

/// Changes the type or code of an ICMP or ICMPv6 message.
#[inline]
pub(super) fn set_icmp(
    bytes: &mut [u8],
    layout: &Layout,
    change: impl Fn(&mut Icmp),
) -> Result<(), EditError> {
    let icmp = read_mut::<Icmp>(bytes, layer4(layout)?).ok_or(EditError::Malformed)?;
    let old = u16::from_be_bytes([icmp.kind, icmp.code]);
    change(icmp);
    let new = u16::from_be_bytes([icmp.kind, icmp.code]);
    icmp.checksum.set(ChecksumChange::word(old, new).update(icmp.checksum.get()));
    Ok(())
}

/// Changes a field of a neighbour solicitation or advertisement.
pub(super) fn set_nd(
    bytes: &mut [u8],
    layout: &Layout,
    key: &FlowKey,
    field: HeaderField,
    bits: Bits,
) -> Result<(), EditError> {
    let start = layer4(layout)?;
    let end = packet_end(bytes, layout, key)?.min(bytes.len());
    let message = bytes.get_mut(start..end).ok_or(EditError::Malformed)?;
    let icmp = read::<Icmp>(message, 0).ok_or(EditError::Malformed)?;
    if !is_nd_with(field, icmp.kind.into(), icmp.code.into()) {
        return Err(EditError::NoNdField);
    }
    let found = Neighbour::read(message);
    let change = match field {
        HeaderField::NdTarget => {
            found.target.map(|target| replace(message, target.offset, bits.over_ipv6(target.value)))
        }
        HeaderField::NdSll => found
            .source_address
            .map(|address| replace(message, address.offset, bits.over_mac(address.value).0)),
        _ => found
            .target_address
            .map(|address| replace(message, address.offset, bits.over_mac(address.value).0)),
    };
    let change = change.flatten().ok_or(EditError::NoNdField)?;
    if let Some(icmp) = read_mut::<Icmp>(message, 0) {
        icmp.checksum.set(change.update(icmp.checksum.get()));
    }
    Ok(())
}

/// Puts `new` at an even offset.
fn replace<const N: usize>(
    message: &mut [u8],
    offset: usize,
    new: [u8; N],
) -> Option<ChecksumChange> {
    let field = message.get_mut(offset..)?.first_chunk_mut::<N>()?;
    let change = ChecksumChange::words(field, &new);
    *field = new;
    Some(change)
}
