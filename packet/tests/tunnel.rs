//! Tunnels: an outer header is the one that the RFCs describe, by etherparse and by what a Linux
//! VXLAN device sent, and nothing that is not one passes for one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::expect_used, clippy::panic)]

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tollgate_packet::checksum::{ChecksumChange, PartialSum, internet_checksum};
use tollgate_packet::parse::parse;
use tollgate_packet::tunnel::{
    Addresses, DecapError, Encap, EncapConfig, EncapError, Family, Kind, OUTER_MAX_BYTES, Outer,
    Packet, Vni, ZeroChecksum,
};
use tollgate_packet::{MacAddr, PortIndex};

/// A UDP packet of ECT(0) in an Ethernet frame.
const INNER: &str = "02000000002202000000001108004502001e00000000401166cb0a0000010a000002123456780\
                     00a00006869";

/// [`INNER`] as Linux 6 sent it through a VXLAN device with `ttl 64 tos inherit df set noudpcsum`,
/// captured from the Ethernet pair below with its checksum offload off.
const LINUX_IPV4: &str = "02000000000b02000000000a0800450200502250400040119447c0000201c0000202
    881f12b5003c0000080000001234560002000000002202000000001108004502001e00000000401166cb0a000001
    0a00000212345678000a00006869";

/// The same over IPv6, where Linux sends a checksum by default.
const LINUX_IPV6: &str = "02000000000b02000000000a86dd60200000003c114020010db8000000000000000000
    00000120010db8000000000000000000000002881f12b6003cbba408000000123456000200000000220200000000
    1108004502001e00000000401166cb0a0000010a00000212345678000a00006869";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn v4() -> Addresses {
    Addresses::Ipv4 { src: [192, 0, 2, 1], dst: [192, 0, 2, 2] }
}

fn v6() -> Addresses {
    let address = |last| {
        let mut address = [0; 16];
        (address[0], address[1], address[2], address[3]) = (0x20, 0x01, 0x0d, 0xb8);
        address[15] = last;
        address
    };
    Addresses::Ipv6 { src: address(1), dst: address(2) }
}

fn config(kind: Kind, addresses: Addresses) -> EncapConfig {
    EncapConfig {
        kind,
        eth_dst: MacAddr([2, 0, 0, 0, 0, 0x0b]),
        eth_src: MacAddr([2, 0, 0, 0, 0, 0x0a]),
        addresses,
        dst_port: kind.default_port(),
        ttl: 64,
        dscp: None,
        dont_fragment: true,
        checksum: addresses.family() == Family::Ipv6,
    }
}

fn packet(inner: &[u8]) -> Packet {
    Packet {
        vni: Vni::new(0x12_3456).unwrap(),
        inner_len: inner.len() as u32,
        inner_tos: None,
        flow_hash: 0xdead_beef,
        ipv4_id: 0,
        inner_sum: PartialSum::of(inner),
    }
}

fn encapsulate(config: &EncapConfig, packet: &Packet, inner: &[u8]) -> Vec<u8> {
    let encap = Encap::new(config);
    let mut bytes = vec![0xee; encap.header_bytes()];
    encap.write(packet, &mut bytes).unwrap();
    bytes.extend(inner);
    bytes
}

fn read(bytes: &[u8], kind: Kind, zero: ZeroChecksum) -> Result<Outer, DecapError> {
    let len = bytes.len() as u32;
    Outer::read(bytes, len, &parse(bytes, len, PortIndex(1)), kind, zero)
}

/// With the checksum looked at.
fn receive(bytes: &[u8], kind: Kind) -> Result<Outer, DecapError> {
    let outer = read(bytes, kind, ZeroChecksum::Refused)?;
    let at = usize::from(outer.inner_offset);
    outer.verify(PartialSum::of(&bytes[at..at + outer.inner_len as usize]))?;
    Ok(outer)
}

fn refix_ipv4_checksum(bytes: &mut [u8]) {
    bytes[24..26].fill(0);
    let sum = internet_checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn config_strategy() -> impl Strategy<Value = EncapConfig> {
    let addresses = prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| Addresses::Ipv4 { src, dst }),
        any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| Addresses::Ipv6 { src, dst }),
    ];
    let kind = prop_oneof![Just(Kind::Vxlan), Just(Kind::Geneve)];
    (
        kind,
        addresses,
        any::<[u8; 12]>(),
        1..=u16::MAX,
        any::<u8>(),
        any::<[bool; 2]>(),
        prop::option::of(0..64_u8),
    )
        .prop_map(|(kind, addresses, macs, dst_port, ttl, [dont_fragment, checksum], dscp)| {
            let (dst, src) = macs.split_at(6);
            EncapConfig {
                kind,
                eth_dst: MacAddr(dst.try_into().unwrap()),
                eth_src: MacAddr(src.try_into().unwrap()),
                addresses,
                dst_port,
                ttl,
                dscp,
                dont_fragment,
                checksum,
            }
        })
}

fn packet_strategy() -> impl Strategy<Value = (Packet, Vec<u8>)> {
    let inner = vec(any::<u8>(), 14..300);
    (inner, 0..1_u32 << 24, prop::option::of(any::<u8>()), any::<u32>(), any::<u16>()).prop_map(
        |(inner, vni, inner_tos, flow_hash, ipv4_id)| {
            let vni = Vni::new(vni).unwrap();
            let sum = PartialSum::of(&inner);
            let inner_len = inner.len() as u32;
            (Packet { vni, inner_len, inner_tos, flow_hash, ipv4_id, inner_sum: sum }, inner)
        },
    )
}

/// What etherparse says of the outer headers.
fn assert_by_etherparse(config: &EncapConfig, packet: &Packet, bytes: &[u8], inner: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(bytes).unwrap();
    let link = sliced.link.unwrap().to_header().unwrap().ethernet2().unwrap();
    assert_eq!((MacAddr(link.destination), MacAddr(link.source)), (config.eth_dst, config.eth_src));
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP") };
    let tos = match config.dscp {
        Some(dscp) => dscp << 2 | packet.inner_tos.unwrap_or(0) & 3,
        None => packet.inner_tos.unwrap_or(0),
    };
    let sum = match (sliced.net.unwrap(), config.addresses) {
        (NetSlice::Ipv4(ip), Addresses::Ipv4 { src, dst }) => {
            let ip = ip.header().to_header();
            assert_eq!((ip.source, ip.destination, ip.time_to_live), (src, dst, config.ttl));
            assert_eq!(ip.dscp.value() << 2 | ip.ecn.value(), tos);
            assert_eq!(
                (ip.dont_fragment, ip.identification),
                (config.dont_fragment, packet.ipv4_id)
            );
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(usize::from(ip.total_len), bytes.len() - 14);
            udp.to_header().calc_checksum_ipv4(&ip, udp.payload()).unwrap()
        }
        (NetSlice::Ipv6(ip), Addresses::Ipv6 { src, dst }) => {
            let ip = ip.header().to_header();
            assert_eq!((ip.source, ip.destination, ip.hop_limit), (src, dst, config.ttl));
            assert_eq!((ip.traffic_class, ip.flow_label.value()), (tos, 0));
            assert_eq!(usize::from(ip.payload_length), bytes.len() - 54);
            udp.to_header().calc_checksum_ipv6(&ip, udp.payload()).unwrap()
        }
        other => panic!("the wrong IP: {other:?}"),
    };
    assert_eq!(udp.checksum(), if config.checksum { sum } else { 0 });
    assert_eq!(udp.destination_port(), config.dst_port);
    assert_eq!(u32::from(udp.source_port()), 49152 + (packet.flow_hash >> 18));
    assert_eq!(usize::from(udp.length()), 16 + inner.len());
    let vni = (packet.vni.get() << 8).to_be_bytes();
    let first = match config.kind {
        Kind::Vxlan => [0x08, 0, 0, 0],
        Kind::Geneve => [0, 0, 0x65, 0x58],
    };
    assert_eq!(udp.payload(), [&first, &vni, inner].concat());
}

proptest! {
    #[test]
    fn an_outer_header_is_what_etherparse_reads_and_leads_back_to_the_frame(
        config in config_strategy(),
        (packet, inner) in packet_strategy(),
        padding in 0..20_usize,
    ) {
        let mut bytes = encapsulate(&config, &packet, &inner);
        assert_by_etherparse(&config, &packet, &bytes, &inner);
        bytes.resize(bytes.len() + padding, 0xaa);
        let outer = read(&bytes, config.kind, ZeroChecksum::Accepted).unwrap();
        prop_assert_eq!(outer.vni, packet.vni);
        prop_assert_eq!(usize::from(outer.inner_offset), config.addresses.family().outer_bytes());
        prop_assert_eq!(outer.inner_len as usize, inner.len());
        prop_assert_eq!(outer.ttl, config.ttl);
        prop_assert_eq!(outer.has_checksum(), config.checksum);
        prop_assert_eq!(outer.verify(packet.inner_sum), Ok(()));
        match config.addresses {
            Addresses::Ipv4 { src, dst } => {
                prop_assert_eq!(&outer.src[..4], &src);
                prop_assert_eq!(&outer.dst[..4], &dst);
            }
            Addresses::Ipv6 { src, dst } => prop_assert_eq!((outer.src, outer.dst), (src, dst)),
        }
    }

    /// The sum covers everything from the addresses on, but not the hop limit.
    #[test]
    fn a_flipped_bit_under_a_checksum_is_seen(
        (packet, inner) in packet_strategy(),
        at in any::<Index>(),
        bit in 0..8_u8,
        kind in prop_oneof![Just(Kind::Vxlan), Just(Kind::Geneve)],
    ) {
        let mut bytes = encapsulate(&config(kind, v6()), &packet, &inner);
        prop_assert!(receive(&bytes, kind).is_ok());
        let at = 22 + at.index(bytes.len() - 22);
        bytes[at] ^= 1 << bit;
        prop_assert!(receive(&bytes, kind).is_err(), "byte {}", at);
        let mut bytes = encapsulate(&config(kind, v4()), &packet, &inner);
        let at = 14 + (at - 22) % 20;
        bytes[at] ^= 1 << bit;
        prop_assert!(receive(&bytes, kind).is_err(), "IPv4 byte {}", at);
    }

    /// What is accepted lies inside the packet, whatever the bytes.
    #[test]
    fn nothing_that_is_accepted_lies_outside_the_packet(
        config in config_strategy(),
        (packet, inner) in packet_strategy(),
        damage in vec((any::<Index>(), any::<u8>()), 0..6),
        cut in any::<Index>(),
        copy in 0..200_usize,
    ) {
        let mut bytes = encapsulate(&config, &packet, &inner);
        for (at, value) in damage {
            let at = at.index(bytes.len().min(80));
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let len = bytes.len() as u32;
        let header = &bytes[..copy.min(bytes.len())];
        let parsed = parse(header, len, PortIndex(0));
        if let Ok(outer) =
            Outer::read(header, len, &parsed, config.kind, ZeroChecksum::Accepted)
        {
            prop_assert!(u32::from(outer.inner_offset) + outer.inner_len <= len);
            prop_assert!(outer.inner_len >= 14);
        }
    }
}

#[test]
fn a_linux_vxlan_device_sends_the_same_bytes() {
    let (inner, vni) = (hex(INNER), Vni::new(0x12_3456).unwrap());
    for (addresses, captured) in [(v4(), LINUX_IPV4), (v6(), LINUX_IPV6)] {
        let mut captured = hex(captured);
        assert_eq!(receive(&captured, Kind::Vxlan).map(|outer| outer.vni), Ok(vni));
        let udp_at = captured.len() - inner.len() - 16;
        let word = |bytes: &[u8], at| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let mut config = config(Kind::Vxlan, addresses);
        config.dst_port = word(&captured, udp_at + 2);
        let ipv4_id = word(&captured, 18);
        let packet = Packet { inner_tos: Some(2), ipv4_id, ..packet(&inner) };
        let ours = encapsulate(&config, &packet, &inner);
        // Linux takes source ports from the range for local sockets.
        let change = ChecksumChange::word(word(&captured, udp_at), word(&ours, udp_at));
        let checksum = change.update_udp(word(&captured, udp_at + 6));
        captured[udp_at..udp_at + 2].copy_from_slice(&ours[udp_at..udp_at + 2]);
        captured[udp_at + 6..udp_at + 8].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(ours, captured);
    }
}

#[test]
fn a_frame_that_no_ip_packet_holds_and_a_buffer_too_small_are_refused() {
    for (addresses, longest) in [(v4(), 65535 - 36), (v6(), 65535 - 16)] {
        let encap = Encap::new(&config(Kind::Vxlan, addresses));
        let mut out = [0x5a; OUTER_MAX_BYTES];
        let packet = |inner_len| Packet { inner_len, ..packet(&[]) };
        for inner_len in [longest + 1, u32::MAX] {
            let refused = encap.write(&packet(inner_len), &mut out);
            assert_eq!(refused, Err(EncapError::TooLong { inner_len }));
        }
        let needed = encap.header_bytes();
        let refused = encap.write(&packet(64), &mut out[..needed - 1]);
        assert_eq!(refused, Err(EncapError::NoRoom { needed }));
        assert_eq!(out, [0x5a; OUTER_MAX_BYTES]);
        assert_eq!(encap.write(&packet(longest), &mut out), Ok(()));
    }
}

/// One wrong thing at a time, each with its own reason.
#[test]
fn every_reason_to_drop_is_told_apart() {
    use DecapError as E;
    let inner = hex(INNER);
    let check = |kind, damage: &dyn Fn(&mut Vec<u8>), expected| {
        let mut bytes = encapsulate(&config(kind, v4()), &packet(&inner), &inner);
        damage(&mut bytes);
        refix_ipv4_checksum(&mut bytes);
        assert_eq!(receive(&bytes, kind).map(|_| ()), expected);
    };
    let vxlan = |damage: &dyn Fn(&mut Vec<u8>), expected| check(Kind::Vxlan, damage, expected);
    let geneve = |damage: &dyn Fn(&mut Vec<u8>), expected| check(Kind::Geneve, damage, expected);

    vxlan(&|_| (), Ok(()));
    vxlan(&|b| b[23] = 6, Err(E::NotUdp));
    vxlan(&|b| b[20] = 0x20, Err(E::Fragment));
    vxlan(&|b| b[21] = 1, Err(E::Fragment));
    vxlan(&|b| b[38..40].copy_from_slice(&[0xff, 0xff]), Err(E::UdpLength));
    vxlan(&|b| b[38..40].copy_from_slice(&[0, 15]), Err(E::Truncated));
    // Behind a datagram that ends too early is padding, not a header.
    vxlan(&|b| b[38..43].copy_from_slice(&[0, 15, 0, 0, 0]), Err(E::Truncated));
    vxlan(&|b| b[38..40].copy_from_slice(&[0, 16 + 13]), Err(E::InnerTooShort));
    vxlan(&|b| b[38..40].copy_from_slice(&[0, 16 + 14]), Ok(()));
    vxlan(&|b| b[40..42].copy_from_slice(&[0x12, 0x34]), Err(E::UdpChecksum));
    vxlan(&|b| b[42] = 0xf7, Err(E::VxlanFlags));
    vxlan(&|b| b[42..46].fill(0xff), Ok(()));

    geneve(&|_| (), Ok(()));
    geneve(&|b| b[42] = 0x40, Err(E::GeneveVersion));
    geneve(&|b| b[43] = 0x80, Err(E::GeneveControl));
    geneve(&|b| b[43] = 0x40, Err(E::GeneveCritical));
    geneve(&|b| b[43] = 0x3f, Ok(()));
    geneve(&|b| b[45] = 0x59, Err(E::GeneveProtocol));
    geneve(&|b| b[42] = 63, Err(E::Truncated));

    let mut bytes = encapsulate(&config(Kind::Vxlan, v4()), &packet(&inner), &inner);
    bytes[24] ^= 1;
    assert_eq!(receive(&bytes, Kind::Vxlan), Err(E::Ipv4Checksum));
    let unsummed = EncapConfig { checksum: false, ..config(Kind::Vxlan, v6()) };
    let bytes = encapsulate(&unsummed, &packet(&inner), &inner);
    assert_eq!(receive(&bytes, Kind::Vxlan), Err(E::UdpChecksumMissing));
    assert!(read(&bytes, Kind::Vxlan, ZeroChecksum::Accepted).is_ok());
    let bytes = encapsulate(&config(Kind::Vxlan, v4()), &packet(&inner), &inner);
    let parsed = parse(&bytes, bytes.len() as u32, PortIndex(0));
    for cut in 0..50 {
        let read = Outer::read(&bytes[..cut], 1500, &parsed, Kind::Vxlan, ZeroChecksum::Refused);
        assert_eq!(read, Err(E::Truncated), "a copy of {cut} bytes");
    }
}

#[test]
fn geneve_options_that_need_not_be_understood_are_skipped() {
    let inner = hex(INNER);
    for words in 0..=63_usize {
        let option = vec![0; words * 4];
        let inside = [&option[..], &inner].concat();
        let mut bytes = encapsulate(&config(Kind::Geneve, v6()), &packet(&inside), &inside);
        // The checksum covers the length of the options as well.
        let (at, old) = (54 + 6, u16::from_be_bytes([bytes[60], bytes[61]]));
        bytes[62] = words as u8;
        let change = ChecksumChange::word(0, (words as u16) << 8);
        bytes[at..at + 2].copy_from_slice(&change.update_udp(old).to_be_bytes());
        let outer = receive(&bytes, Kind::Geneve).unwrap();
        assert_eq!(&bytes[usize::from(outer.inner_offset)..], inner, "{words} words");
    }
}

/// One of these identifiers makes the sum come out as zero, which would say that there is none.
#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let inner = hex(INNER);
    let mut ones = 0;
    for vni in (0..1 << 16).map(|high| Vni::new(high << 8).unwrap()) {
        let packet = Packet { vni, ..packet(&inner) };
        let bytes = encapsulate(&config(Kind::Vxlan, v6()), &packet, &inner);
        assert_ne!(bytes[60..62], [0, 0]);
        ones += u32::from(bytes[60..62] == [0xff, 0xff]);
        assert!(receive(&bytes, Kind::Vxlan).is_ok());
    }
    assert_ne!(ones, 0);
}
