//! NORMAL: learning, moving, ageing, and which decisions go with it.

use super::frames::{Frame, mac};
use super::sim::{NOWHERE, Sim};
use crate::pipeline::limits::{FDB_AGEING_MS, SWEEP_INTERVAL_MS};

fn learning_switch(ports: u32) -> Sim {
    let sim = Sim::new(ports);
    sim.add("actions=NORMAL");
    sim
}

fn broadcast(src: u8) -> Vec<u8> {
    Frame { dst: [0xff; 6], ..Frame::udp(src, 0) }.build()
}

#[test]
fn an_unknown_destination_is_flooded_and_a_known_one_is_not() {
    let mut sim = learning_switch(4);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2, 3, 4]);
    assert_eq!(sim.ports_reached(2, &Frame::udp(2, 1).build()), [1]);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2]);
    assert_eq!(sim.ports_reached(1, &broadcast(1)), [2, 3, 4]);
}

#[test]
fn nothing_is_sent_back_where_it_came_from() {
    let mut sim = learning_switch(3);
    sim.send(1, &broadcast(1));
    sim.send(1, &broadcast(2));
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), NOWHERE);
    // To itself, in the very packet that teaches where it is.
    assert_eq!(sim.ports_reached(2, &Frame::udp(3, 3).build()), NOWHERE);
}

#[test]
fn vlans_are_learned_apart() {
    let mut sim = learning_switch(3);
    sim.send(2, &Frame::udp(2, 1).tagged(10).build());
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).tagged(10).build()), [2]);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).tagged(11).build()), [2, 3]);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2, 3]);
}

#[test]
fn bridge_protocols_stay_on_their_link() {
    let mut sim = learning_switch(3);
    let bpdu = Frame { dst: [0x01, 0x80, 0xc2, 0, 0, 0], ..Frame::udp(1, 0) };
    assert_eq!(sim.ports_reached(1, &bpdu.build()), NOWHERE);
    assert_eq!(sim.ports_reached(2, &Frame::udp(2, 1).build()), [1, 3], "it taught nothing");
}

#[test]
fn a_station_that_moves_is_followed_and_others_stay_cached() {
    let mut sim = learning_switch(3);
    sim.send(1, &broadcast(1));
    sim.send(2, &broadcast(2));
    let (to_1, to_2) = (Frame::udp(2, 1).build(), Frame::udp(1, 2).build());
    assert_eq!(sim.ports_reached(2, &to_1), [1]);
    assert_eq!(sim.ports_reached(1, &to_2), [2]);
    let unrelated = Frame::udp(5, 2).build();
    assert_eq!(sim.ports_reached(3, &unrelated), [2]);
    // Station 1 is now heard at port 3.
    sim.send(3, &broadcast(1));
    assert_eq!(sim.ports_reached(2, &to_1), [3]);
    let walks = sim.walks;
    assert_eq!(sim.ports_reached(3, &unrelated), [2]);
    assert_eq!(sim.walks, walks, "a decision about other stations was dropped");
    // And back by a packet whose decision had been cached at port 1 before.
    assert_eq!(sim.ports_reached(1, &to_2), [2]);
    assert_eq!(sim.ports_reached(2, &to_1), [1]);
}

#[test]
fn cached_packets_keep_a_station_and_silence_forgets_it() {
    let mut sim = learning_switch(3);
    sim.send(2, &broadcast(2));
    let from_2 = Frame::udp(2, 9).build();
    let rounds = 2 * FDB_AGEING_MS / (5 * SWEEP_INTERVAL_MS);
    for _ in 0..rounds {
        sim.send(2, &from_2);
        sim.advance_ms(5 * SWEEP_INTERVAL_MS);
        sim.sweep();
    }
    let walks = sim.walks;
    assert!(walks <= 3, "the packets that kept the station were cached ones: {walks}");
    let to_2 = Frame::udp(1, 2).build();
    assert_eq!(sim.ports_reached(1, &to_2), [2]);
    // Others go on sending to it; it stays silent.
    for _ in 0..rounds {
        sim.send(1, &to_2);
        sim.advance_ms(5 * SWEEP_INTERVAL_MS);
        sim.sweep();
    }
    assert_eq!(sim.ports_reached(1, &to_2), [2, 3]);
}

#[test]
fn a_port_that_leaves_takes_stations_and_decisions_and_one_that_comes_is_flooded_to() {
    let mut sim = learning_switch(3);
    sim.send(2, &broadcast(2));
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2]);
    assert_eq!(sim.ports_reached(1, &broadcast(1)), [2, 3]);
    sim.detach(2);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [3]);
    assert_eq!(sim.ports_reached(1, &broadcast(1)), [3]);
    sim.attach(2);
    assert_eq!(sim.ports_reached(1, &broadcast(1)), [2, 3]);
}

#[test]
fn learning_goes_by_the_addresses_as_rewritten() {
    let mut sim = Sim::new(3);
    sim.add("priority=9,in_port=1,actions=set_field:02:00:00:00:00:07->eth_src,NORMAL");
    sim.add("priority=1,actions=NORMAL");
    let sent = sim.send(1, &Frame::udp(1, 2).build());
    assert_eq!(sent.iter().map(|(ofport, _)| *ofport).collect::<Vec<_>>(), [2, 3]);
    assert!(sent.iter().all(|(_, bytes)| bytes[6..12] == mac(7)));
    assert_eq!(sim.ports_reached(2, &Frame::udp(2, 7).build()), [1]);
    assert_eq!(sim.ports_reached(3, &Frame::udp(3, 1).build()), [1, 2], "1 itself was not seen");
}

/// The first look-up of the walk was answered before the packet itself changed the answer.
#[test]
fn a_packet_that_teaches_where_its_destination_is_is_decided_anew_the_next_time() {
    let mut sim = Sim::new(3);
    sim.add("actions=normal,set_field:02:00:00:00:00:02->eth_src,normal");
    let frame = Frame::udp(1, 2).build();
    assert_eq!(sim.ports_reached(1, &frame), [2, 3]);
    assert_eq!(sim.ports_reached(1, &frame), NOWHERE);
    assert_eq!(sim.ports_reached(1, &frame), NOWHERE);
    assert_eq!(sim.walks, 2, "that one is good for all that follow");
}
