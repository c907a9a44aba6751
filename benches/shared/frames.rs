//! Frames of a few kinds, and what they look like to the caches.

use etherparse::PacketBuilder;
use tollgate_datapath::bench::SENDER;
use tollgate_packet::FlowKey;
use tollgate_packet::parse::parse;

/// Of UDP over IPv4: one flow for each source port, in the smallest frame (60 bytes, without the
/// checksum of the wire).
pub(crate) fn udp_ipv4(port: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(SOURCE, DESTINATION)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(port, 9);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18]).expect("a vector takes every byte");
    frame
}

/// The same behind a VLAN tag.
pub(crate) fn udp_ipv4_in_vlan(port: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(SOURCE, DESTINATION)
        .single_vlan(etherparse::VlanId::try_new(7).expect("12 bits"))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(port, 9);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18]).expect("a vector takes every byte");
    frame
}

/// Of TCP over IPv6.
pub(crate) fn tcp_ipv6(port: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(SOURCE, DESTINATION)
        .ipv6([0xfd; 16], [0xfe; 16], 64)
        .tcp(port, 80, 1, 1000);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18]).expect("a vector takes every byte");
    frame
}

/// What is looked up for a frame from the sending port.
pub(crate) fn key(frame: &[u8]) -> FlowKey {
    parse(frame, frame.len() as u32, SENDER).key
}

const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
