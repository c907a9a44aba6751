//! Edits of a [`FlowKey`], and which of its bits they depend on.

use super::{Edit, EditError, check, is_nd_with};
use crate::key::VLAN_PRESENT;
use crate::{FlowKey, FlowMask, HeaderField, MacAddr};

/// The same change to a key as [`apply`](super::apply) makes to a packet: what a lookup after the
/// edit sees.
///
/// Changing the type or code of an ICMPv6 packet does not make its payload one of neighbour
/// discovery, nor the other way round: it keeps the fields that it was parsed with.
///
/// # Errors
/// When the packet lacks what the edit needs, as far as the key tells: `apply` alone sees that a
/// header is malformed.
pub fn apply_to_key(edit: &Edit, key: &mut FlowKey) -> Result<(), EditError> {
    check(edit, key, vlan_tags(key))?;
    match *edit {
        Edit::Set { field, value, mask } => {
            if is_nd(field) && !is_nd_with(field, key.l4_src, key.l4_dst) {
                return Err(EditError::NoNdField);
            }
            let (value, mask) = (field.place(value & mask), field.place(mask));
            let places = value.words().iter().zip(mask.words());
            for (word, (value, mask)) in key.words_mut().iter_mut().zip(places) {
                *word = (*word & !mask) | value;
            }
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
    let none = FlowKey::ZERO;
    FlowMask(match *edit {
        Edit::Set { field, .. } => set_prerequisites(field),
        Edit::DecTtl => FlowKey { eth_type: u16::MAX, ip_ttl: u8::MAX, ..none },
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

fn set_prerequisites(field: HeaderField) -> FlowKey {
    let none = FlowKey::ZERO;
    let layer3 = FlowKey { eth_type: u16::MAX, ..none };
    let layer4 = FlowKey { ip_proto: u8::MAX, ip_frag: u8::MAX, ..layer3 };
    let message = FlowKey { l4_src: u16::MAX, l4_dst: u16::MAX, ..layer4 };
    match field {
        HeaderField::EthSrc | HeaderField::EthDst => none,
        HeaderField::VlanVid | HeaderField::VlanPcp => FlowKey { vlan_tci: VLAN_PRESENT, ..none },
        HeaderField::IpDscp
        | HeaderField::IpEcn
        | HeaderField::IpTtl
        | HeaderField::Ipv4Src
        | HeaderField::Ipv4Dst
        | HeaderField::Ipv6Src
        | HeaderField::Ipv6Dst
        | HeaderField::Ipv6Label
        | HeaderField::ArpOp
        | HeaderField::ArpSpa
        | HeaderField::ArpTpa
        | HeaderField::ArpSha
        | HeaderField::ArpTha => layer3,
        HeaderField::L4Src | HeaderField::L4Dst | HeaderField::IcmpType | HeaderField::IcmpCode => {
            layer4
        }
        // The field itself too: it is there unless it is zero.
        HeaderField::NdTarget => FlowKey { nd_target: [u8::MAX; 16], ..message },
        HeaderField::NdSll => FlowKey { arp_sha: MacAddr::BROADCAST, ..message },
        HeaderField::NdTll => FlowKey { arp_tha: MacAddr::BROADCAST, ..message },
    }
}

fn is_nd(field: HeaderField) -> bool {
    matches!(field, HeaderField::NdTarget | HeaderField::NdSll | HeaderField::NdTll)
}

fn vlan_tags(key: &FlowKey) -> u8 {
    match (key.vlan_tci & VLAN_PRESENT, key.inner_vlan_tci & VLAN_PRESENT) {
        (0, _) => 0,
        (_, 0) => 1,
        _ => 2,
    }
}
