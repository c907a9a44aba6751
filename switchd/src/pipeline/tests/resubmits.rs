//! Registers, moves and resubmits: what one table tells another.

use super::frames::Frame;
use super::sim::{NOWHERE, Sim, key_of};
use tollgate_frame::DropReason;
use tollgate_packet::MacAddr;

#[test]
fn a_resubmit_goes_on_after_it() {
    let mut sim = Sim::new(4);
    sim.add("actions=resubmit(,2),resubmit(,7),output:3");
    sim.add("table=2,actions=set_field:02:00:00:00:00:99->eth_dst,output:2");
    sim.add("table=2,priority=9,dl_dst=02:00:00:00:00:99,actions=drop");
    let sent = sim.send(1, &Frame::udp(1, 2).build());
    assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [2, 3]);
    // What it changed stays changed; a table without rules is none of its business.
    assert!(sent.iter().all(|(_, bytes)| bytes[..6] == [2, 0, 0, 0, 0, 0x99]));
}

#[test]
fn a_resubmit_may_pretend_another_port_and_only_for_the_lookup() {
    let mut sim = Sim::new(4);
    sim.add("priority=1,in_port=1,actions=resubmit:4");
    sim.add("priority=2,in_port=4,actions=IN_PORT,output:4,output:1,output:2");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [1, 4, 2]);
    assert_eq!(sim.ports_reached(4, &Frame::udp(1, 2).build()), [4, 1, 2]);
    // A decision made through another port's rule goes with that rule.
    sim.add("priority=3,in_port=4,actions=output:2");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2]);
}

#[test]
fn registers_and_metadata_are_matched_and_moved_between_tables() {
    let mut sim = Sim::new(4);
    sim.add(
        "actions=set_field:0x10->reg1,move:NXM_NX_REG1[4..7]->OXM_OF_METADATA[8..11],resubmit(,1)",
    );
    sim.add("table=1,metadata=0x100,actions=set_field:0x2/0x3->reg2,resubmit(,2)");
    sim.add("table=2,priority=5,reg2=0x2/0x7,reg1=0x10,actions=output:2");
    sim.add("table=2,priority=4,actions=output:3");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [2]);
    // Nothing of the packet was looked at.
    let walked = sim.fresh_walk(1, &key_of(1, &Frame::udp(1, 2).build()));
    assert_eq!(walked.matcher.mask().0.eth_type, 0);
    sim.add("table=1,priority=40000,metadata=0x100,reg1=0x10/0xf0,actions=output:4");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [4]);
}

/// A move makes a decision depend on the bits that are moved, and on no others.
#[test]
fn a_move_from_the_packet_looks_at_its_source_bits() {
    let mut sim = Sim::new(4);
    sim.add("ip,actions=move:NXM_OF_IP_DST[0..7]->NXM_NX_REG0[0..7],resubmit(,1)");
    sim.add("table=1,reg0=0x1,actions=output:2");
    sim.add("table=1,priority=1,actions=output:3");
    let walked = sim.fresh_walk(1, &key_of(1, &Frame::udp(0, 1).build()));
    let mask = walked.matcher.mask().0;
    assert_eq!(mask.ip_dst[..4], [0, 0, 0, 0xff]);
    assert_eq!((mask.ip_src, mask.eth_dst), ([0; 16], MacAddr([0; 6])));
    assert_eq!(sim.ports_reached(1, &Frame::udp(0, 1).build()), [2]);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [3]);
}

#[test]
fn a_load_into_the_packet_leaves_its_other_bits() {
    let mut sim = Sim::new(2);
    sim.add("ip,actions=load:0xff->NXM_OF_IP_DST[8..15],load:7->NXM_NX_IP_TTL[],move:NXM_OF_ETH_SRC[0..7]->NXM_OF_ETH_DST[40..47],output:2");
    let frame = Frame::udp(1, 2).build();
    let sent = sim.send(1, &frame);
    let [(2, bytes)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(bytes[14 + 16..14 + 20], [10, 0, 0xff, 0]);
    assert_eq!((bytes[14 + 8], bytes[0]), (7, 1));
    assert_eq!(bytes[1..12], frame[1..12]);
}

#[test]
fn what_a_packet_lacks_is_neither_moved_nor_set() {
    let mut sim = Sim::new(3);
    // An action set runs on packets that the match does not know.
    sim.add("actions=write_actions(output:2)");
    sim.add("priority=40000,tcp,actions=write_actions(set_field:9->tcp_dst,output:2)");
    let udp = Frame::udp(1, 2).build();
    let sent = sim.send(1, &udp);
    assert_eq!(sent, [(2, udp)]);
}

#[test]
fn the_ingress_port_can_be_set_to_send_back() {
    let mut sim = Sim::new(3);
    sim.add("priority=5,in_port=1,actions=load:0->OXM_OF_IN_PORT[],output:1,output:2");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [1, 2]);
}

#[test]
fn endless_resubmits_end_and_nothing_is_sent() {
    let mut sim = Sim::new(3);
    sim.add("priority=5,in_port=1,actions=output:2,resubmit(,0)");
    sim.add("priority=5,in_port=2,actions=output:1,resubmit(,1),resubmit(,1)");
    // Each of 254 tables asks the next one twice: far more look-ups than there may be.
    for table in 1..253 {
        let next = table + 1;
        sim.add(&format!("table={table},actions=resubmit(,{next}),resubmit(,{next})"));
    }
    for ofport in [1, 2] {
        let frame = Frame::udp(1, 2).build();
        let walked = sim.fresh_walk(ofport, &key_of(ofport, &frame));
        assert_eq!(walked.drop_reason, DropReason::TooManySteps);
        assert_eq!(sim.ports_reached(ofport, &frame), NOWHERE);
    }
    // 64 deep is deep enough.
    sim.add("priority=5,in_port=3,actions=resubmit(3,100)");
    for n in 0..63_u32 {
        sim.add(&format!(
            "table=100,priority={},reg0={n},actions=load:{}->NXM_NX_REG0[],resubmit(,100)",
            40_000 + n,
            n + 1
        ));
    }
    sim.add("table=100,priority=50000,reg0=63,actions=output:1");
    assert_eq!(sim.ports_reached(3, &Frame::udp(1, 2).build()), [1]);
    sim.add("table=100,priority=50000,reg0=63,actions=load:64->NXM_NX_REG0[],resubmit(,100)");
    sim.add("table=100,priority=50001,reg0=64,actions=load:65->NXM_NX_REG0[],resubmit(,100)");
    sim.add("table=100,priority=50002,reg0=65,actions=output:1");
    assert_eq!(sim.ports_reached(3, &Frame::udp(1, 2).build()), NOWHERE);
}

#[test]
fn an_action_set_resubmits_if_it_has_no_output() {
    let mut sim = Sim::new(3);
    sim.add("in_port=1,actions=write_actions(resubmit(,5)),goto_table:1");
    sim.add("in_port=2,actions=write_actions(resubmit(,5),output:3),goto_table:1");
    sim.add("table=1,actions=write_actions(set_field:02:00:00:00:00:99->eth_src)");
    sim.add("table=5,dl_src=02:00:00:00:00:99,actions=output:3,IN_PORT");
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [3, 1]);
    assert_eq!(sim.ports_reached(2, &Frame::udp(1, 2).build()), [3]);
}
