//! A header copy to a key.

use gungraun::prelude::*;
use proving_ground::instructions::PACKETS;
use tollgate_datapath::bench::SENDER;
use tollgate_frame::Packet;
use tollgate_packet::parse::parse_into;

use crate::frames::{tcp_ipv6, udp_ipv4, udp_ipv4_in_vlan};

fn packets(frame: fn(u16) -> Vec<u8>) -> Vec<Packet> {
    let packet = |port| {
        let mut packet = Packet::new();
        packet.fill_from_frame(&frame(port));
        packet
    };
    (0..PACKETS as u16).map(packet).collect()
}

#[library_benchmark(setup = packets)]
#[bench::udp_over_ipv4(args = (udp_ipv4))]
#[bench::udp_over_ipv4_in_vlan(args = (udp_ipv4_in_vlan))]
#[bench::tcp_over_ipv6(args = (tcp_ipv6))]
fn headers(mut packets: Vec<Packet>) -> Vec<Packet> {
    for Packet { header, frame_len, key, layout, .. } in &mut packets {
        parse_into(header.bytes(), *frame_len, SENDER, key, layout);
    }
    packets
}

library_benchmark_group!(name = parse, benchmarks = [headers]);
