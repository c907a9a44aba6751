//! The fields that actions read and write: whether a packet under way has them, where they are, and
//! what it depends on.

use tollgate_classifier::ExtraKey;
use tollgate_openflow::Field;
use tollgate_openflow::field::{
    ETH_TYPE_ARP, ETH_TYPE_IPV4, ETH_TYPE_IPV6, ETH_TYPE_RARP, IP_PROTO_ICMP, IP_PROTO_ICMPV6,
    IP_PROTO_SCTP, IP_PROTO_TCP, IP_PROTO_UDP, Prerequisite,
};
use tollgate_packet::key::{FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::{FlowKey, FlowMask};

use super::matching::header_field;

/// Types of ICMPv6 messages (RFC 4861).
const NEIGHBOUR_SOLICITATION: u16 = 135;
const NEIGHBOUR_ADVERTISEMENT: u16 = 136;

/// Bits of a packet that tell whether it has the fields of a prerequisite.
pub(super) fn telling_bits(prerequisite: Prerequisite) -> FlowMask {
    let none = FlowKey::ZERO;
    let layer3 = FlowKey { eth_type: u16::MAX, ..none };
    let layer4 = FlowKey { ip_proto: u8::MAX, ip_frag: FRAG_LATER, ..layer3 };
    FlowMask(match prerequisite {
        Prerequisite::None => none,
        Prerequisite::Vlan => FlowKey { vlan_tci: VLAN_PRESENT, ..none },
        Prerequisite::Ip | Prerequisite::Ipv4 | Prerequisite::Ipv6 | Prerequisite::Arp => layer3,
        Prerequisite::Tcp
        | Prerequisite::Udp
        | Prerequisite::Sctp
        | Prerequisite::Icmpv4
        | Prerequisite::Icmpv6 => layer4,
        Prerequisite::NeighbourDiscovery
        | Prerequisite::NeighbourSolicitation
        | Prerequisite::NeighbourAdvertisement => {
            FlowKey { l4_src: u16::MAX, l4_dst: u16::MAX, ..layer4 }
        }
    })
}

/// Whether a packet has the fields of a prerequisite.
pub(super) fn is_met(prerequisite: Prerequisite, key: &FlowKey) -> bool {
    let ipv4 = key.eth_type == ETH_TYPE_IPV4;
    let ipv6 = key.eth_type == ETH_TYPE_IPV6;
    let layer4 = |proto: u8| key.ip_proto == proto && key.ip_frag & FRAG_LATER == 0;
    let ip_with = |proto: u8| (ipv4 || ipv6) && layer4(proto);
    let icmpv6 = ipv6 && layer4(IP_PROTO_ICMPV6);
    let nd = |kind: u16| icmpv6 && key.l4_src == kind && key.l4_dst == 0;
    match prerequisite {
        Prerequisite::None => true,
        Prerequisite::Vlan => key.vlan_tci & VLAN_PRESENT != 0,
        Prerequisite::Ip => ipv4 || ipv6,
        Prerequisite::Ipv4 => ipv4,
        Prerequisite::Ipv6 => ipv6,
        Prerequisite::Arp => matches!(key.eth_type, ETH_TYPE_ARP | ETH_TYPE_RARP),
        Prerequisite::Tcp => ip_with(IP_PROTO_TCP),
        Prerequisite::Udp => ip_with(IP_PROTO_UDP),
        Prerequisite::Sctp => ip_with(IP_PROTO_SCTP),
        Prerequisite::Icmpv4 => ipv4 && layer4(IP_PROTO_ICMP),
        Prerequisite::Icmpv6 => icmpv6,
        Prerequisite::NeighbourDiscovery => {
            nd(NEIGHBOUR_SOLICITATION) || nd(NEIGHBOUR_ADVERTISEMENT)
        }
        Prerequisite::NeighbourSolicitation => nd(NEIGHBOUR_SOLICITATION),
        Prerequisite::NeighbourAdvertisement => nd(NEIGHBOUR_ADVERTISEMENT),
    }
}

/// What a packet must have for a field to be written to. An untagged packet has a VLAN id to match,
/// but none to set.
pub(super) fn needed_to_write(field: Field) -> Prerequisite {
    match field {
        Field::VlanVid => Prerequisite::Vlan,
        field => field.info().prerequisite,
    }
}

/// A key in which those bits of a packet's field are set that `bits` has; nothing for the fields
/// that the packet does not bring along.
pub(super) fn place(field: Field, bits: u128) -> FlowKey {
    let none = FlowKey::ZERO;
    match field {
        Field::InPort => FlowKey { in_port: bits as u32, ..none },
        Field::EthType => FlowKey { eth_type: bits as u16, ..none },
        // With the bit that says that there is a tag.
        Field::VlanVid => FlowKey { vlan_tci: bits as u16 & 0x1fff, ..none },
        Field::NwFrag => FlowKey { ip_frag: bits as u8, ..none },
        Field::IpProto => FlowKey { ip_proto: bits as u8, ..none },
        Field::TcpFlags => FlowKey { tcp_flags: bits as u16, ..none },
        field => header_field(field).map_or(none, |field| field.place(bits)),
    }
}

/// A field's value.
pub(super) fn read(field: Field, key: &FlowKey, extra: &ExtraKey) -> u128 {
    if let Some(register) = field.register() {
        return extra.regs.get(register).copied().unwrap_or_default().into();
    }
    match field {
        Field::Metadata => extra.metadata.into(),
        Field::InPort => key.in_port.into(),
        Field::EthType => key.eth_type.into(),
        Field::VlanVid => (key.vlan_tci & 0x1fff).into(),
        Field::NwFrag => key.ip_frag.into(),
        Field::IpProto => key.ip_proto.into(),
        Field::TcpFlags => key.tcp_flags.into(),
        field => header_field(field).map_or(0, |field| field.read(key)),
    }
}

/// Changes bits of a pipeline field. Says whether it is one.
pub(super) fn write_extra(field: Field, value: u128, mask: u128, extra: &mut ExtraKey) -> bool {
    if field == Field::Metadata {
        extra.metadata = (extra.metadata & !(mask as u64)) | (value & mask) as u64;
        return true;
    }
    let register = field.register().and_then(|register| extra.regs.get_mut(register));
    match register {
        Some(register) => {
            *register = (*register & !(mask as u32)) | (value & mask) as u32;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_placed_is_read_back() {
        let value = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210_u128;
        for field in Field::ALL {
            let mut extra = ExtraKey::ZERO;
            let full = match field {
                // The key has eight bits of it.
                Field::ArpOp => 0xff,
                field => field.full_mask(),
            };
            let is_extra = write_extra(*field, value, full, &mut extra);
            let key = place(*field, value & full);
            assert_eq!(read(*field, &key, &extra), value & full, "{field:?}");
            assert_eq!(is_extra, place(*field, full) == FlowKey::ZERO, "{field:?}");
        }
    }
}
