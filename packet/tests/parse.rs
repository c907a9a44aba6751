//! The parser against frames of known content, against another parser, and against damage.

mod common;

use common::{Frame, PORT, TCP, UDP, frame};
use etherparse::icmpv6::{Icmpv6PayloadSlice, NdpOptionReadError, NdpOptionSlice};
use etherparse::{Icmpv6Slice, LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_packet::key::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::limits::HEADER_COPY_BYTES;
use tollgate_packet::parse::{ETH_TYPE_NONE, parse};
use tollgate_packet::{FlowKey, Layout, MacAddr, Parsed};

fn parse_whole(bytes: &[u8]) -> Parsed {
    parse(bytes, bytes.len() as u32, PORT)
}

/// What etherparse makes of a frame, where both parsers follow the same rules.
fn key_by_etherparse(bytes: &[u8]) -> Option<FlowKey> {
    let packet = SlicedPacket::from_ethernet(bytes).ok()?;
    let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link else { return None };
    let mut key = FlowKey {
        in_port: u32::from(PORT.0),
        eth_dst: MacAddr(ethernet.destination()),
        eth_src: MacAddr(ethernet.source()),
        eth_type: ethernet.ether_type().0,
        ..FlowKey::default()
    };
    for (number, extension) in packet.link_exts.iter().enumerate() {
        let LinkExtSlice::Vlan(tag) = extension else { return None };
        let pcp = u16::from(tag.priority_code_point().value());
        let tci = pcp << 13 | VLAN_PRESENT | tag.vlan_identifier().value();
        let tpid = std::mem::replace(&mut key.eth_type, tag.ether_type().0);
        match number {
            0 => (key.vlan_tpid, key.vlan_tci) = (tpid, tci),
            1 => (key.inner_vlan_tpid, key.inner_vlan_tci) = (tpid, tci),
            _ => return None,
        }
        // Not a TPID of 802.1Q, but one to etherparse.
        if tpid == 0x9100 {
            return None;
        }
    }
    // It does not read SNAP and RARP.
    if key.eth_type < 0x600 || key.eth_type == 0x8035 {
        return None;
    }
    match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header().to_header();
            key.ip_tos = header.dscp.value() << 2 | header.ecn.value();
            (key.ip_ttl, key.ip_proto) = (header.time_to_live, header.protocol.0);
            key.ip_src[..4].copy_from_slice(&header.source);
            key.ip_dst[..4].copy_from_slice(&header.destination);
            key.ip_frag = u8::from(header.is_fragmenting_payload());
            // The other parser walks over AH in IPv4, and does not read first fragments.
            if header.protocol.0 == 51 || header.is_fragmenting_payload() {
                return None;
            }
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header().to_header();
            (key.ip_tos, key.ip_ttl) = (header.traffic_class, header.hop_limit);
            key.ipv6_label = header.flow_label.value();
            (key.ip_src, key.ip_dst) = (header.source, header.destination);
            key.ip_proto = ip.payload().ip_number.0;
            // A length of zero may mean a jumbogram to it, and first fragments are not read.
            if header.payload_length == 0 || ip.payload().fragmented {
                return None;
            }
        }
        Some(NetSlice::Arp(arp)) => {
            let arp = arp.to_packet();
            let arp: etherparse::ArpEthIpv4Packet = arp.try_into().ok()?;
            key.ip_proto = u8::try_from(arp.operation.0).unwrap_or(0);
            key.arp_sha = MacAddr(arp.sender_mac);
            key.arp_tha = MacAddr(arp.target_mac);
            key.ip_src[..4].copy_from_slice(&arp.sender_ipv4);
            key.ip_dst[..4].copy_from_slice(&arp.target_ipv4);
        }
        None => {}
    }
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            (key.l4_src, key.l4_dst) = (tcp.source_port(), tcp.destination_port());
            let flags = &tcp.header_slice()[12..14];
            key.tcp_flags = u16::from_be_bytes([flags[0] & 0xf, flags[1]]);
        }
        Some(TransportSlice::Udp(udp)) => {
            (key.l4_src, key.l4_dst) = (udp.source_port(), udp.destination_port());
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            (key.l4_src, key.l4_dst) = (icmp.type_u8().into(), icmp.code_u8().into());
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            (key.l4_src, key.l4_dst) = (icmp.type_u8().into(), icmp.code_u8().into());
            nd_by_etherparse(icmp, &mut key)?;
        }
        Some(TransportSlice::Igmp(_)) | None => {}
    }
    // It does not know SCTP, nor ICMP over the wrong IP.
    let odd = matches!((key.eth_type, key.ip_proto), (_, 132) | (0x800, 58) | (0x86dd, 1));
    (!odd).then_some(key)
}

fn nd_by_etherparse(icmp: &Icmpv6Slice<'_>, key: &mut FlowKey) -> Option<()> {
    let (target, options) = match icmp.payload_slice() {
        Ok(Icmpv6PayloadSlice::NeighborSolicitation(message)) => {
            (message.target_address(), message.options_iterator())
        }
        Ok(Icmpv6PayloadSlice::NeighborAdvertisement(message)) => {
            (message.target_address(), message.options_iterator())
        }
        _ => return Some(()),
    };
    for option in options {
        let (place, address) = match option {
            Ok(NdpOptionSlice::SourceLinkLayerAddress(option)) => {
                (&mut key.arp_sha, MacAddr(option.link_layer_address().try_into().ok()?))
            }
            Ok(NdpOptionSlice::TargetLinkLayerAddress(option)) => {
                (&mut key.arp_tha, MacAddr(option.link_layer_address().try_into().ok()?))
            }
            Ok(_) => continue,
            Err(NdpOptionReadError::ZeroLength { .. })
            | Err(NdpOptionReadError::UnexpectedEndOfSlice { .. }) => break,
            // It looks into other options too.
            Err(_) => return None,
        };
        // An address twice is a rule of ours.
        if *place != MacAddr::default() {
            return None;
        }
        *place = address;
    }
    key.nd_target = target.octets();
    Some(())
}

/// Whether every field of `part` is either zero or as in `whole`.
fn is_part_of(part: &FlowKey, whole: &FlowKey) -> bool {
    part.words().iter().zip(whole.words()).all(|(part, whole)| {
        let (part, whole) = (part.to_be_bytes(), whole.to_be_bytes());
        part.iter().zip(whole).all(|(part, whole)| *part == 0 || *part == whole)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_well_formed_frame_has_the_key_it_was_made_for(frame in frame()) {
        let Frame { bytes, key, l3_offset, l4_offset, .. } = &frame;
        let parsed = parse_whole(bytes);
        prop_assert_eq!(parsed.key, *key);
        let has_l3 = matches!(key.eth_type, 0x0800 | 0x0806 | 0x8035 | 0x86dd);
        let vlan_tags = u8::from(key.vlan_tpid != 0) + u8::from(key.inner_vlan_tpid != 0);
        let layout = Layout {
            l3_offset: if has_l3 { *l3_offset as u16 } else { 0 },
            l4_offset: *l4_offset as u16,
            vlan_tags,
        };
        prop_assert_eq!(parsed.layout, layout);
        // The other parser, which is more easily confused, gets something to say.
        let is_snap = bytes[l3_offset - 8..].starts_with(&[0xaa, 0xaa]);
        let is_plain = frame.is_ipv4() || *l4_offset == l3_offset + 40;
        if is_plain && matches!(key.ip_proto, TCP | UDP) && key.ip_frag == 0 && !is_snap {
            prop_assert_eq!(key_by_etherparse(bytes), Some(*key));
        }
    }

    #[test]
    fn a_damaged_frame_that_another_parser_accepts_has_the_same_key(
        frame in frame(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        kept in any::<prop::sample::Index>(),
        cut in prop::bool::weighted(0.3),
    ) {
        let mut bytes = frame.bytes;
        for (index, value) in damage {
            bytes[index.index(60.min(frame.end))] = value;
        }
        if cut {
            bytes.truncate(kept.index(bytes.len()));
        }
        if let Some(key) = key_by_etherparse(&bytes) {
            prop_assert_eq!(parse_whole(&bytes).key, key);
        }
    }

    #[test]
    fn a_truncated_frame_has_fewer_fields_and_no_other_ones(
        frame in frame(),
        kept in any::<prop::sample::Index>(),
    ) {
        let kept = kept.index(frame.bytes.len());
        let mut key = frame.key;
        let part = parse_whole(&frame.bytes[..kept]).key;
        // The EtherType becomes what is left when a tag or SNAP is cut off.
        if part.eth_type != key.eth_type {
            let link_only = FlowKey { eth_type: part.eth_type, ..FlowKey::default() };
            let expected = [0, ETH_TYPE_NONE, 0x8100, 0x88a8];
            prop_assert!(expected.contains(&part.eth_type));
            let known = FlowKey { eth_dst: part.eth_dst, eth_src: part.eth_src, ..link_only };
            let tags = FlowKey { vlan_tci: part.vlan_tci, vlan_tpid: part.vlan_tpid, ..known };
            let inner = (part.inner_vlan_tci, part.inner_vlan_tpid);
            let tags = FlowKey { inner_vlan_tci: inner.0, inner_vlan_tpid: inner.1, ..tags };
            prop_assert_eq!(part, FlowKey { in_port: part.in_port, ..tags });
            key.eth_type = part.eth_type;
        }
        prop_assert!(is_part_of(&part, &key), "{part:?}");
    }

    #[test]
    fn what_lies_beyond_the_header_copy_is_not_missed_unless_it_is_a_header(frame in frame()) {
        let copy = &frame.bytes[..HEADER_COPY_BYTES.min(frame.bytes.len())];
        let mut parsed = parse(copy, frame.bytes.len() as u32, PORT);
        // Options belong to the header of neighbour discovery.
        let header_end = if frame.is_nd() { frame.end } else { frame.l4_offset + 20 };
        if header_end <= HEADER_COPY_BYTES {
            prop_assert_eq!(parsed, parse_whole(&frame.bytes));
        } else {
            // That an address comes twice is not known if the second is not read.
            if frame.is_nd() && frame.key.nd_target == [0; 16] {
                parsed.key.nd_target = [0; 16];
                (parsed.key.arp_sha, parsed.key.arp_tha) = Default::default();
            }
            prop_assert!(is_part_of(&parsed.key, &frame.key));
        }
    }

    /// CLS-04 (CVE-2020-35498): bytes beyond the IP length do not count, however many.
    #[test]
    fn padding_does_not_matter(frame in frame(), padding in vec(any::<u8>(), 0..300)) {
        if frame.is_ipv4() || frame.is_ipv6() {
            let mut padded = frame.bytes[..frame.end].to_vec();
            let unpadded = parse_whole(&padded);
            padded.extend(padding);
            prop_assert_eq!(parse_whole(&padded), unpadded);
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_the_layout_lies_inside(
        bytes in vec(any::<u8>(), 0..256),
        frame_len in 0..300u32,
    ) {
        let Parsed { layout, .. } = parse(&bytes, frame_len, PORT);
        let readable = bytes.len().min(frame_len as usize);
        prop_assert!(usize::from(layout.l3_offset) <= readable);
        prop_assert!(usize::from(layout.l4_offset) <= readable);
    }
}

fn ipv4_tcp() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0]);
    frame
}

/// CLS-05: each lie leaves layer 3, or layer 4, unread.
#[test]
fn lying_lengths_leave_the_fields_behind_them_zero() {
    let honest = ipv4_tcp();
    assert_eq!(parse_whole(&honest).key.l4_dst, 81);
    let with = |offset: usize, value: u8| {
        let mut frame = honest.clone();
        frame[offset] = value;
        parse_whole(&frame)
    };
    // IHL below 5, header longer than the packet, total length below the header and above the
    // frame.
    for lie in [with(14, 0x44), with(14, 0x4f), with(17, 19), with(17, 41), with(16, 1)] {
        assert_eq!(lie.layout, Layout::default());
        assert_eq!((lie.key.eth_type, lie.key.ip_proto, lie.key.ip_src), (0x800, 0, [0; 16]));
    }
    // TCP header length below 5 words and beyond the packet; packet shorter than a TCP header.
    for lie in [with(46, 0x40), with(46, 0x60), with(17, 39)] {
        assert_eq!((lie.layout.l3_offset, lie.layout.l4_offset), (14, 0));
        assert_eq!((lie.key.ip_proto, lie.key.l4_dst, lie.key.tcp_flags), (6, 0, 0));
    }
}

fn ipv6_udp() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 60, 64]);
    frame.extend([1; 32]);
    frame.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    frame.extend([0, 53, 0, 54, 0, 8, 1, 1]);
    frame
}

/// CLS-05: the same for IPv6.
#[test]
fn lying_ipv6_lengths_leave_the_fields_behind_them_zero() {
    let with = |offset: usize, value: u8| {
        let mut frame = ipv6_udp();
        frame[offset] = value;
        parse_whole(&frame)
    };
    assert_eq!(with(18, 0).key.l4_dst, 54);
    // Payload beyond the frame.
    assert_eq!(with(19, 17).layout, Layout::default());
    assert_eq!(with(19, 17).key.ip_src, [0; 16]);
    // Payload that ends in the extension header; an extension header that ends beyond the payload.
    for lie in [with(19, 7), with(55, 2), with(55, 255)] {
        assert_eq!((lie.layout.l3_offset, lie.layout.l4_offset), (14, 0));
        assert_eq!((lie.key.ip_proto, lie.key.l4_dst, lie.key.ip_ttl), (0, 0, 64));
    }
    // Payload that ends in the UDP header, with the rest of it as padding.
    let lie = with(19, 15);
    assert_eq!((lie.key.ip_proto, lie.key.l4_dst, lie.layout.l4_offset), (17, 0, 0));
}

/// CLS-05: a chain of extension headers costs a bounded walk and yields no protocol.
#[test]
fn long_extension_chains_are_given_up() {
    let chain = |headers: usize| {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0x50, 0, 0]);
        frame.extend((headers as u16 * 8 + 8).to_be_bytes());
        frame.extend([60, 9]);
        frame.extend([1; 32]);
        for left in (0..headers).rev() {
            frame.extend([if left == 0 { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame.extend([0, 53, 0, 54, 0, 8, 1, 1]);
        parse_whole(&frame)
    };
    assert_eq!((chain(8).key.ip_proto, chain(8).key.l4_dst), (17, 54));
    assert_eq!((chain(9).key.ip_proto, chain(9).key.l4_dst), (0, 0));
    // What was read before the chain stays.
    assert_eq!((chain(9).key.ip_tos, chain(9).key.ip_ttl), (5, 9));
    assert_eq!(chain(9).layout.l3_offset, 14);
}

/// As in OVS: nothing is known of a packet whose chain cannot be walked, though it began with a
/// fragment header.
#[test]
fn what_an_ipv6_fragment_is_and_that_it_counts_as_none_if_its_chain_cannot_be_walked() {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 44, 64]);
    frame.extend([1; 32]);
    frame.extend([60, 0, 0, 1, 0, 0, 0, 7]);
    frame.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    let key = parse_whole(&frame).key;
    assert_eq!((key.ip_proto, key.ip_frag), (17, FRAG_ANY));
    // Its reserved bits suffice to make it a fragment.
    for (flags, ip_frag) in [(0, 0), (2, FRAG_ANY), (8, FRAG_ANY | FRAG_LATER)] {
        frame[57] = flags;
        assert_eq!(parse_whole(&frame).key.ip_frag, ip_frag);
    }
    frame[57] = 1;
    frame[63] = 1;
    let key = parse_whole(&frame).key;
    assert_eq!((key.ip_proto, key.ip_frag), (0, 0));
}

/// CLS-05: a third tag is payload.
#[test]
fn a_third_tag_is_an_ethertype() {
    let mut frame = vec![2; 12];
    for tci in 1..=3 {
        frame.extend([0x81, 0x00, 0, tci]);
    }
    frame.extend(&ipv4_tcp()[12..]);
    let Parsed { key, layout } = parse_whole(&frame);
    assert_eq!((key.vlan_tci, key.inner_vlan_tci), (VLAN_PRESENT | 1, VLAN_PRESENT | 2));
    assert_eq!((key.eth_type, key.ip_proto), (0x8100, 0));
    assert_eq!(layout, Layout { vlan_tags: 2, ..Layout::default() });
}

#[test]
fn an_802_3_frame_without_snap_has_no_ethertype() {
    let mut frame = vec![2; 12];
    frame.extend([0, 40, 0x42, 0x42, 3, 0, 0, 0]);
    frame.extend([0; 40]);
    assert_eq!(parse_whole(&frame).key.eth_type, ETH_TYPE_NONE);
    // SNAP, with the OUI of Ethernet (RFC 1042), another OUI, and a protocol that is a length.
    let snap = |oui: u8, protocol: u8| {
        let mut frame = frame.clone();
        frame[14..22].copy_from_slice(&[0xaa, 0xaa, 3, 0, 0, oui, protocol, 0]);
        parse_whole(&frame).key.eth_type
    };
    assert_eq!([snap(0, 8), snap(0xf8, 8), snap(0, 5)], [0x0800, ETH_TYPE_NONE, ETH_TYPE_NONE]);
}

#[test]
fn a_later_fragment_has_no_ports() {
    let mut frame = ipv4_tcp();
    frame[21] = 1;
    let Parsed { key, layout } = parse_whole(&frame);
    assert_eq!((key.ip_frag & FRAG_LATER, key.l4_dst), (FRAG_LATER, 0));
    assert_eq!((key.ip_proto, layout.l4_offset), (6, 0));
}
