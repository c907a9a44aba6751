//! A cached decision is the decision of a fresh walk, for every packet that it covers.

use proptest::prelude::*;
use tollgate_openflow::FlowCommand;
use tollgate_packet::key::VLAN_PRESENT;
use tollgate_packet::{FlowKey, MacAddr};

use super::frames::{Frame, Layer3, any_frame};
use super::rules::{PORTS, Place, Wishes, any_place, any_wishes};
use super::sim::{Sim, index_of, key_of, run};
use crate::pipeline::fdb::Station;

/// Frame bytes whose every bit is flipped: two tags, an IPv6 and a TCP header end before.
const FLIPPED_BYTES: usize = 80;

fn switch(rules: &[(Place, Wishes)], stations: &[(u8, u16, u32)]) -> Sim {
    let sim = Sim::new(PORTS);
    for (priority, (place, wishes)) in (1..).zip(rules) {
        sim.flow_mod(&place.flow_mod(FlowCommand::Add, priority, wishes));
    }
    let state = sim.core.read();
    let mut fdb = state.bridge(sim.bridge).unwrap().fdb();
    for (n, vlan, ofport) in stations {
        fdb.learn(Station { vlan: *vlan, mac: MacAddr(super::frames::mac(*n)) }, *ofport, 0);
    }
    drop(fdb);
    drop(state);
    sim
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// What walks of these frames and of their neighbours within the megaflow must agree on.
fn check(
    sim: &Sim,
    ofport: u32,
    frame: &Frame,
    picks: &[prop::sample::Index],
) -> Result<(), TestCaseError> {
    let bytes = frame.build();
    let key = key_of(ofport, &bytes);
    let decision = sim.fresh_walk(ofport, &key);
    prop_assert!(decision.matcher.matches(&key));
    prop_assert_eq!(decision.matcher.mask().0.in_port, u32::MAX);
    let covered = |bytes: &[u8]| decision.matcher.matches(&key_of(ofport, bytes));
    let agrees = |bytes: &[u8]| {
        let fresh = sim.fresh_walk(ofport, &key_of(ofport, bytes));
        prop_assert_eq!(fresh.drop_reason, decision.drop_reason);
        prop_assert_eq!(&fresh.punts, &decision.punts);
        prop_assert_eq!(
            run(&fresh.ops, bytes, index_of(ofport)),
            run(&decision.ops, bytes, index_of(ofport))
        );
        Ok(())
    };
    let mut free = Vec::new();
    for bit in 0..FLIPPED_BYTES.min(bytes.len()) * 8 {
        let mut neighbour = bytes.clone();
        flip(&mut neighbour, bit);
        if covered(&neighbour) {
            free.push(bit);
            agrees(&neighbour)?;
        }
    }
    // Several free bits at once.
    for chunk in picks.chunks(6).filter(|_| !free.is_empty()) {
        let mut neighbour = bytes.clone();
        chunk.iter().for_each(|pick| flip(&mut neighbour, *pick.get(&free)));
        if covered(&neighbour) {
            agrees(&neighbour)?;
        }
    }
    check_keys(sim, ofport, &key, picks)
}

/// The same for bits of the key, whether or not some frame has it.
fn check_keys(
    sim: &Sim,
    ofport: u32,
    key: &FlowKey,
    picks: &[prop::sample::Index],
) -> Result<(), TestCaseError> {
    let decision = sim.fresh_walk(ofport, key);
    let free: Vec<usize> = (32..tollgate_packet::FLOW_WORDS * 64)
        .filter(|bit| decision.matcher.mask().words()[bit / 64] >> (bit % 64) & 1 == 0)
        .collect();
    for chunk in picks.chunks(8) {
        let mut neighbour = *key;
        for pick in chunk {
            let bit = *pick.get(&free);
            neighbour.words_mut()[bit / 64] ^= 1 << (bit % 64);
        }
        let fresh = sim.fresh_walk(ofport, &neighbour);
        prop_assert_eq!(&fresh.ops, &decision.ops);
        prop_assert_eq!(fresh.drop_reason, decision.drop_reason);
        prop_assert_eq!(&fresh.dependencies, &decision.dependencies);
        prop_assert_eq!(&fresh.punts, &decision.punts);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn packets_outside_the_mask_bits_are_decided_alike(
        rules in prop::collection::vec((any_place(), any_wishes()), 1..25),
        stations in prop::collection::vec((0..4_u8, 0..3_u16, 1..=PORTS), 0..6),
        frames in prop::collection::vec((1..=PORTS, any_frame()), 1..6),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 240),
    ) {
        let sim = switch(&rules, &stations);
        for (ofport, frame) in &frames {
            check(&sim, *ofport, frame, &picks)?;
        }
    }
}

/// The masks are earned: what no rule asks about stays open.
#[test]
fn a_mask_holds_no_more_than_was_asked() {
    let sim = Sim::new(2);
    sim.add("priority=10,ip,nw_dst=10.0.1.0/24,actions=set_field:10.9.9.9->ip_dst,goto_table:1");
    sim.add("table=1,priority=5,ip,nw_dst=10.9.9.9,actions=output:2");
    let walked = sim.fresh_walk(1, &key_of(1, &Frame::udp(0, 2).build()));
    let mask = walked.matcher.mask().0;
    // The address that table 1 looks at was written by table 0: no bit beyond its /24.
    assert_eq!(mask.ip_dst[..4], [0xff, 0xff, 0xff, 0]);
    assert_eq!((mask.eth_type, mask.ip_src, mask.l4_dst), (0xffff, [0; 16], 0));
    assert_eq!((mask.eth_src, mask.eth_dst), (MacAddr([0; 6]), MacAddr([0; 6])));
}

/// Rules for single hosts of a network and for their ports, and a packet to another host.
#[test]
fn exact_destinations_in_one_subnet_do_not_pull_ports_into_the_mask() {
    let sim = Sim::new(2);
    for host in 1..64 {
        sim.add(&format!("priority=10,tcp,nw_dst=10.0.1.{host},tp_dst=80,actions=output:2"));
        sim.add(&format!("priority=10,udp,nw_dst=10.0.1.{host},tp_src=53,actions=output:2"));
    }
    sim.add("priority=5,ip,nw_dst=10.0.0.0/16,actions=output:1");
    let mut frame = Frame::udp(0, 1);
    let Layer3::Ipv4 { dst, .. } = &mut frame.layer3 else { unreachable!() };
    *dst = [10, 0, 1, 200];
    let mask = sim.fresh_walk(1, &key_of(1, &frame.build())).matcher.mask().0;
    assert_eq!((mask.l4_src, mask.l4_dst, mask.ip_proto), (0, 0, 0));
    // The prefix that it shares with the 63, and a bit.
    assert_eq!(mask.ip_dst[..4], [0xff, 0xff, 0xff, 0x80]);
}

/// That a frame has no tag is one bit of it, so that every tagged frame shares one decision.
#[test]
fn no_tag_is_one_bit() {
    let sim = Sim::new(2);
    sim.add("vlan_tci=0,actions=output:2");
    let walked = sim.fresh_walk(1, &key_of(1, &Frame::udp(0, 2).tagged(7).build()));
    assert_eq!(walked.matcher.mask().0.vlan_tci, VLAN_PRESENT);
}
