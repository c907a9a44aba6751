//! The smallest frame with given fields, for traces of packets that nobody has sent.

use tollgate_openflow::field::{
    ETH_TYPE_ARP, ETH_TYPE_IPV4, ETH_TYPE_IPV6, IP_PROTO_ICMP, IP_PROTO_ICMPV6, IP_PROTO_SCTP,
    IP_PROTO_TCP, IP_PROTO_UDP,
};
use tollgate_packet::checksum::internet_checksum;
use tollgate_packet::key::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::{FlowKey, MacAddr};

const TPID: u16 = 0x8100;
const ETH_TYPE_RARP: u16 = 0x8035;
/// Smallest value of the type field that is a type and not a length (IEEE 802.3-2018, 3.2.6).
const ETH_TYPE_MIN: u16 = 0x0600;

/// A frame that is parsed to `key`, as far as there is one.
pub(super) fn compose(key: &FlowKey) -> Vec<u8> {
    let mut frame = [key.eth_dst.0, key.eth_src.0].concat();
    for (tpid, tci) in [(key.vlan_tpid, key.vlan_tci), (key.inner_vlan_tpid, key.inner_vlan_tci)] {
        if tci & VLAN_PRESENT != 0 {
            put(&mut frame, if tpid == 0 { TPID } else { tpid });
            put(&mut frame, tci & !VLAN_PRESENT);
        }
    }
    if key.eth_type < ETH_TYPE_MIN {
        // Without a type: a length, and the header of an unknown protocol (IEEE 802.2).
        put(&mut frame, 3);
        frame.extend([0x42, 0x42, 3]);
        return frame;
    }
    put(&mut frame, key.eth_type);
    match key.eth_type {
        ETH_TYPE_IPV4 => frame.extend(ipv4(key)),
        ETH_TYPE_IPV6 => frame.extend(ipv6(key)),
        ETH_TYPE_ARP | ETH_TYPE_RARP => frame.extend(arp(key)),
        _ => {}
    }
    frame
}

fn put(bytes: &mut Vec<u8>, number: u16) {
    bytes.extend(number.to_be_bytes());
}

fn ipv4(key: &FlowKey) -> Vec<u8> {
    let body = layer4(key, &[key.ipv4_src(), key.ipv4_dst()].concat());
    let mut packet = vec![0x45, key.ip_tos];
    put(&mut packet, 20 + body.len() as u16);
    put(&mut packet, 0);
    put(&mut packet, fragment(key, 0x2000, 0));
    packet.extend([key.ip_ttl, key.ip_proto, 0, 0]);
    packet.extend(key.ipv4_src());
    packet.extend(key.ipv4_dst());
    let checksum = internet_checksum(&packet);
    packet.splice(10..12, checksum.to_be_bytes());
    packet.extend(body);
    packet
}

fn ipv6(key: &FlowKey) -> Vec<u8> {
    const FRAGMENT_HEADER: u8 = 44;
    let body = layer4(key, &[key.ip_src, key.ip_dst].concat());
    let is_fragment = key.ip_frag & FRAG_ANY != 0;
    let first = 0x6000_0000 | u32::from(key.ip_tos) << 20 | key.ipv6_label & 0xf_ffff;
    let mut packet = first.to_be_bytes().to_vec();
    put(&mut packet, body.len() as u16 + if is_fragment { 8 } else { 0 });
    packet.push(if is_fragment { FRAGMENT_HEADER } else { key.ip_proto });
    packet.push(key.ip_ttl);
    packet.extend([key.ip_src, key.ip_dst].concat());
    if is_fragment {
        packet.extend([key.ip_proto, 0]);
        put(&mut packet, fragment(key, 1, 3));
        packet.extend([0; 4]);
    }
    packet.extend(body);
    packet
}

/// The word with the offset and the bit that says that more follow, for a packet in two pieces.
fn fragment(key: &FlowKey, more: u16, offset_shift: u16) -> u16 {
    match key.ip_frag {
        frag if frag & FRAG_LATER != 0 => 1 << offset_shift,
        frag if frag & FRAG_ANY != 0 => more,
        _ => 0,
    }
}

/// The header after IP's; `addresses` are part of what its checksum covers. (SCTP's is left zero.)
fn layer4(key: &FlowKey, addresses: &[u8]) -> Vec<u8> {
    if key.ip_frag & FRAG_LATER != 0 {
        return Vec::new();
    }
    let mut header = Vec::new();
    let (kind, code) = (key.l4_src as u8, key.l4_dst as u8);
    let checksum_at = match key.ip_proto {
        IP_PROTO_TCP => {
            put(&mut header, key.l4_src);
            put(&mut header, key.l4_dst);
            header.extend([0; 8]);
            put(&mut header, 5 << 12 | key.tcp_flags & 0x0fff);
            header.extend([0; 6]);
            16
        }
        IP_PROTO_UDP => {
            put(&mut header, key.l4_src);
            put(&mut header, key.l4_dst);
            put(&mut header, 8);
            header.extend([0; 2]);
            6
        }
        IP_PROTO_SCTP => {
            put(&mut header, key.l4_src);
            put(&mut header, key.l4_dst);
            header.extend([0; 8]);
            return header;
        }
        IP_PROTO_ICMP if key.eth_type == ETH_TYPE_IPV4 => {
            header.extend([kind, code, 0, 0, 0, 0, 0, 0]);
            2
        }
        IP_PROTO_ICMPV6 if key.eth_type == ETH_TYPE_IPV6 => {
            header.extend([kind, code, 0, 0, 0, 0, 0, 0]);
            header.extend(neighbour_discovery(key));
            2
        }
        _ => return header,
    };
    let checksum = match key.ip_proto {
        IP_PROTO_ICMP => internet_checksum(&header),
        protocol => {
            let mut covered = addresses.to_vec();
            put(&mut covered, 0);
            put(&mut covered, header.len() as u16);
            put(&mut covered, protocol.into());
            covered.extend(&header);
            match internet_checksum(&covered) {
                0 => u16::MAX,
                checksum => checksum,
            }
        }
    };
    header.splice(checksum_at..checksum_at + 2, checksum.to_be_bytes());
    header
}

/// What follows the first eight bytes of a solicitation or an advertisement (RFC 4861, 4.3, 4.4).
fn neighbour_discovery(key: &FlowKey) -> Vec<u8> {
    let (is_solicitation, is_advertisement) = (key.l4_src == 135, key.l4_src == 136);
    if key.l4_dst != 0 || !(is_solicitation || is_advertisement) {
        return Vec::new();
    }
    let mut body = key.nd_target.to_vec();
    let mut option = |kind: u8, address: MacAddr| {
        if address.0 != [0; 6] {
            body.extend([kind, 1]);
            body.extend(address.0);
        }
    };
    if is_solicitation {
        option(1, key.arp_sha);
    } else {
        option(2, key.arp_tha);
    }
    body
}

fn arp(key: &FlowKey) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, key.ip_proto];
    packet.extend(key.arp_sha.0);
    packet.extend(key.ipv4_src());
    packet.extend(key.arp_tha.0);
    packet.extend(key.ipv4_dst());
    packet
}
