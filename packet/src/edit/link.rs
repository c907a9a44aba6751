//! Edits of the Ethernet header and its tags.

use std::mem::offset_of;

use super::{Bits, EditError};
use crate::wire::{Ethernet, VlanTag, read_mut};
use crate::{HeaderBuf, HeaderField, Layout, MacAddr};

const VLAN_VID: u16 = 0x0fff;
const VLAN_PCP_SHIFT: u32 = 13;
const VLAN_PCP: u16 = 0x7 << VLAN_PCP_SHIFT;
const TPID_OFFSET: usize = offset_of!(Ethernet, ethertype);
const TAG_BYTES: u16 = size_of::<VlanTag>() as u16;

pub(super) fn set_address(
    bytes: &mut [u8],
    bits: Bits,
    field: fn(&mut Ethernet) -> &mut MacAddr,
) -> Result<(), EditError> {
    let address = field(ethernet(bytes)?);
    *address = bits.over_mac(*address);
    Ok(())
}

/// Changes the VLAN identifier or the priority of the outer tag.
pub(super) fn set_tci(
    bytes: &mut [u8],
    field: HeaderField,
    Bits { value, mask }: Bits,
) -> Result<(), EditError> {
    let shift = if field == HeaderField::VlanPcp { VLAN_PCP_SHIFT } else { 0 };
    let bits = Bits { value: value << shift, mask: mask << shift };
    let tag = outer_tag(bytes)?;
    tag.tci.set(bits.over_u16(tag.tci.get()));
    Ok(())
}

fn ethernet(bytes: &mut [u8]) -> Result<&mut Ethernet, EditError> {
    read_mut(bytes, 0).ok_or(EditError::Malformed)
}

fn outer_tag(bytes: &mut [u8]) -> Result<&mut VlanTag, EditError> {
    read_mut(bytes, size_of::<Ethernet>()).ok_or(EditError::Malformed)
}

pub(super) fn push_vlan(
    header: &mut HeaderBuf,
    layout: &mut Layout,
    tpid: u16,
) -> Result<i32, EditError> {
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

pub(super) fn pop_vlan(header: &mut HeaderBuf, layout: &mut Layout) -> Result<i32, EditError> {
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
