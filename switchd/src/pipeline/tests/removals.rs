//! Rules that go: when, why, and what controllers hear of it.

use tollgate_openflow::{ErrorCode, FlowCommand, FlowMod};

use super::frames::Frame;
use super::sim::{NOWHERE, Sim, parsed};
use crate::pipeline::bridge::{Overflow, TableLimits};
use crate::pipeline::events::{Event, FlowRemovedEvent, FlowRemovedReason};

fn removed(sim: &Sim) -> Vec<FlowRemovedEvent> {
    let removed = |event| match event {
        Event::FlowRemoved(removed) => Some(removed),
        _ => None,
    };
    sim.events().into_iter().filter_map(removed).collect()
}

fn priorities(sim: &Sim) -> Vec<u16> {
    let mut priorities: Vec<u16> = sim.flows().iter().map(|flow| flow.priority).collect();
    priorities.sort_unstable();
    priorities
}

#[test]
fn a_removal_is_reported_with_every_packet_of_the_rule_and_only_if_asked_for() {
    let mut sim = Sim::new(2);
    let frame = Frame::udp(0, 1).build();
    sim.add("cookie=0x5,priority=7,send_flow_rem,idle_timeout=9,actions=output:2");
    sim.add("table=3,priority=6,actions=drop");
    sim.send(1, &frame);
    sim.advance_ms(1500);
    // Cached, and counted by nobody yet.
    sim.send(1, &frame);
    sim.flow_mod(&FlowMod::new(FlowCommand::Delete));
    let [removed] = &removed(&sim)[..] else { panic!("one of the two rules asked for it") };
    assert_eq!((removed.cookie, removed.priority, removed.table_id), (5, 7, 0));
    assert_eq!(removed.reason, FlowRemovedReason::Delete);
    assert_eq!(removed.duration.as_millis(), 1500);
    assert_eq!((removed.packet_count, removed.byte_count), (2, 2 * frame.len() as u64));
    assert_eq!((removed.idle_timeout_s, removed.hard_timeout_s), (9, 0));
}

#[test]
fn a_rule_that_is_replaced_or_modified_was_not_removed() {
    let sim = Sim::new(2);
    sim.add("priority=7,send_flow_rem,actions=output:2");
    sim.add("priority=7,send_flow_rem,actions=output:1");
    sim.flow_mod(&parsed(FlowCommand::Modify, "actions=drop"));
    assert_eq!(removed(&sim), []);
}

#[test]
fn each_timeout_has_its_reason() {
    let mut sim = Sim::new(2);
    sim.add("priority=7,send_flow_rem,in_port=1,idle_timeout=5,hard_timeout=60,actions=output:2");
    sim.add("priority=6,send_flow_rem,hard_timeout=12,actions=output:1");
    sim.add("priority=5,send_flow_rem,idle_timeout=4,actions=drop");
    let mut reasons = Vec::new();
    for _ in 0..20 {
        sim.send(1, &Frame::udp(0, 1).build());
        sim.advance_ms(4000);
        sim.sweep();
        reasons.extend(removed(&sim).iter().map(|r| (r.priority, r.reason, r.packet_count)));
    }
    let (idle, hard) = (FlowRemovedReason::IdleTimeout, FlowRemovedReason::HardTimeout);
    assert_eq!(reasons, [(5, idle, 0), (6, hard, 0), (7, hard, 15)]);
}

fn full(overflow: Overflow) -> Sim {
    let sim = Sim::with_limits(2, TableLimits { rules: 3, overflow });
    sim.add("priority=1,actions=output:2");
    sim.add("priority=2,hard_timeout=60,in_port=2,actions=drop");
    sim.add("priority=3,send_flow_rem,idle_timeout=20,in_port=1,actions=output:2");
    sim
}

fn addition(sim: &Sim, flow: &str) -> Result<(), ErrorCode> {
    let refused = sim.core.flow_mod(sim.bridge, &parsed(FlowCommand::Add, flow));
    sim.core.tell_pmds();
    refused.map_err(|error| error.code)
}

#[test]
fn a_full_table_refuses_a_rule_and_takes_what_needs_no_room() {
    let sim = full(Overflow::Refuse);
    assert_eq!(addition(&sim, "priority=4,actions=drop"), Err(ErrorCode::OFPFMFC_TABLE_FULL));
    assert_eq!(priorities(&sim), [1, 2, 3]);
    assert_eq!(addition(&sim, "table=1,priority=4,actions=drop"), Ok(()));
    assert_eq!(addition(&sim, "priority=1,actions=drop"), Ok(()), "it replaces one");
    sim.flow_mod(&parsed(FlowCommand::DeleteStrict, "priority=2,in_port=2"));
    assert_eq!(addition(&sim, "priority=4,actions=drop"), Ok(()));
}

#[test]
fn a_full_table_may_evict_what_would_expire_soonest() {
    let mut sim = full(Overflow::Evict);
    let frame = Frame::udp(0, 1).build();
    sim.send(1, &frame);
    assert_eq!(addition(&sim, "priority=4,idle_timeout=90,actions=drop"), Ok(()));
    assert_eq!(priorities(&sim), [1, 2, 4], "3 had 20 seconds left, 2 had 60");
    let [removed] = &removed(&sim)[..] else { panic!("3 asked for it") };
    assert_eq!((removed.reason, removed.packet_count), (FlowRemovedReason::Eviction, 1));
    assert_eq!(sim.ports_reached(1, &frame), NOWHERE, "an evicted rule is used no more");
    assert_eq!(addition(&sim, "priority=5,actions=drop"), Ok(()));
    assert_eq!(addition(&sim, "priority=6,actions=drop"), Ok(()));
    assert_eq!(priorities(&sim), [1, 5, 6]);
    // What stays for good is never evicted.
    assert_eq!(addition(&sim, "priority=7,actions=drop"), Err(ErrorCode::OFPFMFC_TABLE_FULL));
    assert_eq!(priorities(&sim), [1, 5, 6]);
}

#[test]
fn packets_put_off_the_eviction_of_an_idle_rule() {
    let mut sim = full(Overflow::Evict);
    for _ in 0..5 {
        sim.advance_ms(10_000);
        sim.send(1, &Frame::udp(0, 1).build());
        sim.sweep();
    }
    // 2 has 10 seconds left, 3 has 20 again.
    assert_eq!(addition(&sim, "priority=4,actions=drop"), Ok(()));
    assert_eq!(priorities(&sim), [1, 3, 4]);
}

#[test]
fn a_bundle_is_carried_out_whole_or_not_at_all() {
    let mut sim = full(Overflow::Evict);
    let frame = Frame::udp(0, 1).build();
    sim.send(1, &frame);
    let before = sim.flows();
    let commands = |last: &str| {
        let mut commands = vec![
            parsed(FlowCommand::Modify, "actions=output:1"),
            parsed(FlowCommand::Add, "priority=8,send_flow_rem,actions=drop"),
            parsed(FlowCommand::Add, "priority=1,cookie=0x9,actions=drop"),
            parsed(FlowCommand::Delete, "in_port=2"),
            parsed(FlowCommand::Add, "table=200,priority=8,idle_timeout=3,actions=drop"),
        ];
        commands.push(parsed(FlowCommand::Add, last));
        commands
    };
    let refused = sim
        .core
        .bundle(sim.bridge, commands("priority=9,check_overlap,in_port=2,priority=8,actions=drop"));
    let (at, error) = refused.unwrap_err();
    assert_eq!((at, error.code), (5, ErrorCode::OFPFMFC_OVERLAP));
    sim.core.tell_pmds();
    assert_eq!(sim.flows(), before);
    assert_eq!(removed(&sim), []);
    assert_eq!(sim.ports_reached(1, &frame), [2]);
    assert_eq!(sim.walks, 1, "nothing changed for the cached decision");
    let malformed = FlowMod { table_id: 254, ..FlowMod::new(FlowCommand::Add) };
    let (at, error) = sim.core.bundle(sim.bridge, [malformed]).unwrap_err();
    assert_eq!((at, error.code), (0, ErrorCode::OFPFMFC_BAD_TABLE_ID));
    assert_eq!(sim.core.bundle(sim.bridge, commands("priority=9,actions=drop")), Ok(()));
    sim.core.tell_pmds();
    assert_eq!(priorities(&sim), [1, 8, 8, 9]);
    assert_eq!(sim.ports_reached(1, &frame), NOWHERE);
    // What a bundle that failed had taken out still goes by itself.
    sim.advance_ms(60_000);
    sim.sweep();
    assert_eq!(priorities(&sim), [1, 8, 9]);
}

#[test]
fn a_dump_in_pieces_is_a_dump() {
    let sim = Sim::new(2);
    for n in 0..50 {
        sim.add(&format!("table={},priority={n},actions=output:2", n % 3));
    }
    let whole = sim.flows();
    assert!(whole.is_sorted_by_key(|flow| (flow.table_id, std::cmp::Reverse(flow.priority))));
    let mut dump = sim.core.flow_dump(sim.bridge, &Default::default()).unwrap();
    let mut pieces = Vec::new();
    loop {
        let piece = dump.next_flows(7);
        pieces.extend(piece.iter().cloned());
        // A piece is full, across tables, as long as there are flows: each becomes a message.
        assert_eq!(piece.len(), 7.min(50 - (pieces.len() - piece.len())));
        if piece.is_empty() {
            break;
        }
    }
    assert_eq!(pieces, whole);
}
