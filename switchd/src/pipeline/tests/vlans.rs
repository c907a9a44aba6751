//! Tags pushed, changed and popped along the tables.

use super::frames::Frame;
use super::sim::Sent;
use super::sim::{NOWHERE, Sim};

fn access_and_trunk() -> Sim {
    let sim = Sim::new(3);
    // Port 1 is an access port of VLAN 10, port 3 a trunk.
    sim.add("table=0,priority=10,in_port=1,vlan_tci=0,actions=push_vlan:0x8100,set_field:4106->vlan_vid,goto_table:1");
    sim.add("table=0,priority=10,in_port=3,actions=goto_table:1");
    sim.add("table=1,priority=10,dl_vlan=10,in_port=3,actions=pop_vlan,goto_table:2");
    sim.add("table=1,priority=9,dl_vlan=10,actions=output:3");
    sim.add("table=2,priority=10,vlan_tci=0,actions=output:1");
    sim.add("table=2,priority=9,actions=output:2");
    sim
}

fn expect(sent: Vec<Sent>, expected: &[(u32, Vec<u8>)]) {
    assert_eq!(sent, expected);
}

#[test]
fn an_access_port_meets_a_trunk() {
    let mut sim = access_and_trunk();
    let plain = Frame::udp(1, 2);
    let tagged = plain.clone().tagged(10);
    // The frames are padded to 64 bytes before the tag comes or goes.
    let mut pushed = plain.build();
    pushed.splice(12..12, [0x81, 0, 0, 10]);
    let mut popped = tagged.build();
    popped.drain(12..16);
    for _ in 0..2 {
        expect(sim.send(1, &plain.build()), &[(3, pushed.clone())]);
        expect(sim.send(3, &tagged.build()), &[(1, popped.clone())]);
    }
    assert_eq!(sim.walks, 2);
    expect(sim.send(3, &plain.clone().tagged(11).build()), &[]);
    expect(sim.send(1, &tagged.build()), &[]);
    expect(sim.send(3, &plain.build()), &[]);
}

#[test]
fn the_inner_tag_is_what_a_later_table_sees() {
    let mut sim = access_and_trunk();
    let double = Frame::udp(1, 2).tagged(20).tagged(10);
    assert_eq!(sim.ports_reached(3, &double.build()), [2]);
}

#[test]
fn a_frame_that_cannot_take_another_tag_is_not_sent_with_the_wrong_one() {
    let mut sim = Sim::new(2);
    sim.add("actions=push_vlan:0x8100,set_field:4106->vlan_vid,output:2");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).tagged(5).build()), [2]);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).tagged(5).tagged(6).build()), NOWHERE);
}

#[test]
fn edits_between_outputs_concern_only_what_follows() {
    let mut sim = Sim::new(3);
    sim.add("actions=output:2,push_vlan:0x8100,set_field:4097->vlan_vid,output:3");
    let frame = Frame::udp(1, 2).build();
    let sent = sim.send(1, &frame);
    assert_eq!(sent[0], (2, frame.clone()));
    assert_eq!((sent[1].0, &sent[1].1[12..16]), (3, &[0x81, 0, 0, 1][..]));
    assert_eq!(sent.len(), 2);
}

#[test]
fn the_action_set_runs_at_the_end_on_the_packet_as_it_is_then() {
    let mut sim = Sim::new(3);
    sim.add(
        "table=0,actions=write_actions(output:2,set_field:02:00:00:00:00:09->eth_dst),goto_table:1",
    );
    sim.add("table=1,actions=output:3,set_field:02:00:00:00:00:08->eth_src");
    let frame = Frame::udp(1, 2).build();
    let sent = sim.send(1, &frame);
    assert_eq!(sent[0], (3, frame.clone()));
    assert_eq!(sent[1].0, 2);
    assert_eq!(sent[1].1[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8]);
}

#[test]
fn an_expired_packet_goes_no_further() {
    let mut sim = Sim::new(3);
    sim.add("ip,actions=output:2,dec_ttl,output:3");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2, 3]);
    let mut old = Frame::udp(1, 2).build();
    old[14 + 8] = 1;
    assert_eq!(sim.ports_reached(1, &old), [2]);
}

/// A frame of VLAN 0 and priority 0 says no more than one without a tag.
#[test]
fn normal_forwards_a_null_tag_as_none_and_what_follows_has_it_again() {
    let mut sim = Sim::new(3);
    sim.add("in_port=1,actions=normal,output:3");
    let plain = Frame::udp(1, 0xff);
    let tagged = plain.clone().tagged(0).build();
    let mut popped = tagged.clone();
    popped.drain(12..16);
    expect(sim.send(1, &tagged), &[(2, popped.clone()), (3, popped), (3, tagged.clone())]);
    // With a priority it says something.
    let urgent = plain.tagged(0xe000).build();
    expect(sim.send(1, &urgent), &[(2, urgent.clone()), (3, urgent.clone()), (3, urgent.clone())]);
}

#[test]
fn normal_does_not_forward_a_frame_whose_tag_is_cut_off() {
    let mut sim = Sim::new(2);
    sim.add("actions=normal");
    let frame = Frame::udp(1, 2).tagged(5).build();
    assert_eq!(sim.ports_reached(1, &frame[..16]), NOWHERE);
    assert_eq!(sim.ports_reached(1, &frame[..18]), [2]);
}

/// An action set pops before it sets.
#[test]
fn a_vlan_for_a_packet_without_a_tag_gives_it_one() {
    let mut sim = Sim::new(2);
    sim.add("dl_vlan=5,actions=write_actions(set_field:4103->vlan_vid,pop_vlan,output:2)");
    let frame = |vid| Frame::udp(1, 2).tagged(vid).build();
    expect(sim.send(1, &frame(5)), &[(2, frame(7))]);
}
