//! Counters of rules and tables equal the packets that were sent, cached ones included.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate_openflow::{FlowCommand, FlowMod};

use super::frames::{Frame, any_frame};
use super::rules::{PORTS, Place, Wishes, any_place, any_wishes};
use super::sim::{NOWHERE, Sim, key_of, parsed};
use crate::pipeline::limits::{ADDITIONS_COMPARED, MEGAFLOW_IDLE_MS};

/// Of the rules that are there from the beginning.
const FIRST_PRIORITY: u16 = 200;

#[derive(Clone, Debug)]
enum Step {
    Send(prop::sample::Index),
    /// Changes what a rule does; its counters stay.
    Modify(prop::sample::Index, Wishes),
    /// Adds rules of other priorities, which may take packets from decisions or not.
    Add(Vec<(prop::sample::Index, Wishes)>),
    Collect,
    Sweep(u64),
    Evict(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        12 => index().prop_map(Step::Send),
        2 => (index(), any_wishes()).prop_map(|(at, wishes)| Step::Modify(at, wishes)),
        1 => prop::collection::vec((index(), any_wishes()), 1..2 * ADDITIONS_COMPARED)
            .prop_map(Step::Add),
        1 => Just(Step::Collect),
        1 => prop_oneof![Just(500), Just(MEGAFLOW_IDLE_MS)].prop_map(Step::Sweep),
        2 => (1..4_usize).prop_map(Step::Evict),
    ]
}

/// Packets and bytes.
type Count = (u64, u64);

#[derive(Default)]
struct Expected {
    rules: HashMap<u16, Count>,
    lookups: HashMap<u8, u64>,
    matches: HashMap<u8, u64>,
}

impl Expected {
    fn send(&mut self, sim: &mut Sim, ofport: u32, bytes: &[u8]) {
        for visit in sim.fresh_walk(ofport, &key_of(ofport, bytes)).visits {
            *self.lookups.entry(visit.table).or_default() += 1;
            if let Some(rule) = visit.rule {
                *self.matches.entry(visit.table).or_default() += 1;
                let count = self.rules.entry(rule.priority).or_default();
                *count = (count.0 + 1, count.1 + bytes.len() as u64);
            }
        }
        sim.send(ofport, bytes);
    }

    fn check(&self, sim: &Sim) -> Result<(), TestCaseError> {
        for flow in sim.flows() {
            let expected = self.rules.get(&flow.priority).copied().unwrap_or_default();
            prop_assert_eq!((flow.packet_count, flow.byte_count), expected);
        }
        for table in sim.core.table_stats(sim.bridge).unwrap() {
            let of = |counts: &HashMap<u8, u64>| counts.get(&table.table_id).copied().unwrap_or(0);
            prop_assert_eq!(table.lookup_count, of(&self.lookups));
            prop_assert_eq!(table.matched_count, of(&self.matches));
        }
        Ok(())
    }
}

/// The same places again, at priorities below and above the first ones.
fn add(sim: &Sim, places: &[Place], rules: &[(prop::sample::Index, Wishes)], high: bool) {
    for (at, wishes) in rules {
        let base = if high { FIRST_PRIORITY + 100 } else { FIRST_PRIORITY - 100 };
        let priority = base + at.index(places.len()) as u16;
        let flow_mod = at.get(places).flow_mod(FlowCommand::Add, priority, wishes);
        sim.core.flow_mod(sim.bridge, &flow_mod).unwrap();
    }
    sim.core.tell_pmds();
}

fn modify(sim: &Sim, places: &[Place], at: prop::sample::Index, wishes: &Wishes) {
    let priority = at.index(places.len()) as u16 + FIRST_PRIORITY;
    sim.flow_mod(&at.get(places).flow_mod(FlowCommand::ModifyStrict, priority, wishes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_counted_once_by_every_rule_that_it_met(
        rules in prop::collection::vec((any_place(), any_wishes()), 1..16),
        frames in prop::collection::vec((1..=PORTS, any_frame()), 2..10),
        steps in prop::collection::vec(any_step(), 5..60),
    ) {
        let mut sim = Sim::new(PORTS);
        let places: Vec<Place> = rules.iter().map(|(place, _)| place.clone()).collect();
        for (priority, (place, wishes)) in (FIRST_PRIORITY..).zip(&rules) {
            sim.flow_mod(&place.flow_mod(FlowCommand::Add, priority, wishes));
        }
        let mut expected = Expected::default();
        let mut high = false;
        for step in &steps {
            match step {
                Step::Send(at) => {
                    let (ofport, frame) = at.get(&frames);
                    expected.send(&mut sim, *ofport, &frame.build());
                }
                Step::Add(rules) => {
                    high = !high;
                    add(&sim, &places, rules, high);
                }
                Step::Modify(at, wishes) => modify(&sim, &places, *at, wishes),
                Step::Collect => expected.check(&sim)?,
                Step::Sweep(ms) => { sim.advance_ms(*ms); sim.sweep(); }
                Step::Evict(count) => { sim.pmd.evict(*count); sim.take_home(); }
            }
        }
        expected.check(&sim)?;
        // Every decision that nobody holds is forgotten, and nothing is lost with it.
        sim.advance_ms(MEGAFLOW_IDLE_MS);
        sim.sweep();
        sim.core.collect();
        prop_assert_eq!(sim.core.shadow().len(), 0);
        expected.check(&sim)?;
    }
}

#[test]
fn an_addition_keeps_the_counters_of_the_rule_that_it_replaces_unless_told_to_reset() {
    let mut sim = Sim::new(2);
    let frame = Frame::udp(0, 1).build();
    sim.add("priority=7,actions=output:2");
    (0..3).for_each(|_| {
        sim.send(1, &frame);
    });
    let packets = |sim: &Sim| sim.flows().iter().map(|flow| flow.packet_count).sum::<u64>();
    sim.add("priority=7,actions=drop");
    sim.send(1, &frame);
    assert_eq!(packets(&sim), 4);
    sim.add("priority=7,reset_counts,actions=output:2");
    assert_eq!(packets(&sim), 0);
    sim.send(1, &frame);
    sim.flow_mod(&parsed(FlowCommand::Modify, "reset_counts,actions=drop"));
    assert_eq!(packets(&sim), 0);
}

#[test]
fn an_idle_rule_goes_when_cached_packets_stop_and_not_before() {
    let mut sim = Sim::new(2);
    let frame = Frame::udp(0, 1).build();
    sim.add("priority=7,idle_timeout=5,actions=output:2");
    sim.add("priority=6,hard_timeout=12,actions=drop");
    for _ in 0..4 {
        sim.send(1, &frame);
        sim.advance_ms(4000);
        sim.sweep();
    }
    assert_eq!(sim.walks, 1, "the packets that kept the rule were cached ones");
    let priorities = |sim: &Sim| sim.flows().iter().map(|flow| flow.priority).collect::<Vec<_>>();
    assert_eq!(priorities(&sim), [7], "the hard timeout does not ask for packets");
    sim.advance_ms(1000);
    sim.sweep();
    assert_eq!(priorities(&sim), [0_u16; 0]);
    assert_eq!(sim.ports_reached(1, &frame), NOWHERE);
}

#[test]
fn a_rule_is_not_idle_because_its_counts_are_reset() {
    let mut sim = Sim::new(2);
    sim.add("priority=7,idle_timeout=5,actions=output:2");
    sim.advance_ms(4000);
    sim.send(1, &Frame::udp(0, 1).build());
    sim.sweep();
    sim.advance_ms(2000);
    sim.flow_mod(&parsed(FlowCommand::Modify, "reset_counts,actions=drop"));
    sim.sweep();
    assert_eq!(sim.flows().len(), 1, "its last packet was two seconds ago");
    sim.advance_ms(3000);
    sim.sweep();
    assert_eq!(sim.flows().len(), 0);
}

#[test]
fn a_new_rule_is_not_idle_since_the_beginning_of_time() {
    let sim = Sim::new(2);
    sim.advance_ms(60_000);
    sim.add("priority=7,idle_timeout=5,actions=output:2");
    sim.sweep();
    assert_eq!(sim.flows().len(), 1);
    sim.advance_ms(5000);
    sim.sweep();
    assert_eq!(sim.flows().len(), 0);
}

/// An answer may wait in a gated tenant's lane long after its decision was evicted.
#[test]
fn a_packet_that_is_sent_after_its_decision_was_evicted_is_counted() {
    let sim = Sim::new(2);
    sim.add("priority=7,actions=output:2");
    let frame = Frame::udp(0, 1).build();
    let answer = sim.answer(1, &key_of(1, &frame));
    sim.core.evicted(&answer.verdict.megaflow);
    sim.sweep();
    sim.core.collect();
    answer.verdict.megaflow.stats.add(1, 64, 1);
    drop(answer);
    assert_eq!(sim.flows().first().map(|flow| (flow.packet_count, flow.byte_count)), Some((1, 64)));
    assert_eq!(sim.core.shadow().len(), 0);
}

#[test]
fn a_replaced_rule_does_not_expire_its_successor() {
    let sim = Sim::new(2);
    sim.add("priority=7,hard_timeout=5,actions=output:2");
    sim.add("priority=7,actions=output:2");
    sim.advance_ms(10_000);
    sim.sweep();
    assert_eq!(sim.flows().len(), 1);
    let forever = FlowMod::new(FlowCommand::Delete);
    sim.flow_mod(&forever);
    assert_eq!(sim.flows().len(), 0);
}
