//! After any change, every decision that is still cached is what a fresh walk decides.

use std::sync::Arc;

use proptest::prelude::*;
use tollgate_datapath::Megaflow;
use tollgate_openflow::meter::{MeterBand, MeterBandKind, MeterCommand, MeterMod, OFPMF_PKTPS};
use tollgate_openflow::port::{OFPPC_NO_FWD, OFPPC_NO_RECV};
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::{FlowCommand, Instruction, Instructions, Match};
use tollgate_packet::{FLOW_WORDS, FlowKey};

use super::frames::{Frame, any_frame};
use super::rules::{PORTS, Place, Wishes, any_place, any_wishes};
use super::sim::{Sim, index_of, key_of, ofport_of, parsed};
use crate::pipeline::limits::{ADDITIONS_COMPARED, FDB_AGEING_MS, MEGAFLOW_IDLE_MS};

#[derive(Clone, Debug)]
enum Step {
    /// A packet of the pool enters.
    Send(prop::sample::Index),
    /// A command about a place of the pool.
    Change(Command),
    /// Many commands at once, and packets in between whose decisions arrive late.
    Burst(Vec<(Command, prop::sample::Index)>),
    /// The only port that comes and goes is the last.
    AttachOrDetach,
    /// PORT_MOD.
    Configure(u32, u32),
    /// METER_MOD of one of the two meters.
    Meter(MeterCommand, u32),
    Sweep(u64),
    Evict(usize),
}

type Command = (FlowCommand, prop::sample::Index, Wishes);

/// Rules at places of these numbers pass the meters of these numbers, while they are there.
const METERS: std::ops::RangeInclusive<u32> = 1..=2;

fn any_step() -> impl Strategy<Value = Step> {
    let command = prop_oneof![
        6 => Just(FlowCommand::Add),
        1 => Just(FlowCommand::Modify),
        1 => Just(FlowCommand::ModifyStrict),
        1 => Just(FlowCommand::Delete),
        2 => Just(FlowCommand::DeleteStrict),
    ];
    let meter_command = prop_oneof![
        2 => Just(MeterCommand::Add),
        2 => Just(MeterCommand::Modify),
        1 => Just(MeterCommand::Delete),
    ];
    let index = any::<prop::sample::Index>;
    let command = (command, index(), any_wishes()).boxed();
    // More than are compared one by one.
    let burst = prop::collection::vec((command.clone(), index()), 1..3 * ADDITIONS_COMPARED);
    prop_oneof![
        12 => index().prop_map(Step::Send),
        6 => command.prop_map(Step::Change),
        2 => burst.prop_map(Step::Burst),
        1 => Just(Step::AttachOrDetach),
        1 => (1..=PORTS, prop::sample::select(&[0, OFPPC_NO_FWD, OFPPC_NO_RECV][..]))
            .prop_map(|(ofport, config)| Step::Configure(ofport, config)),
        1 => (meter_command, METERS).prop_map(|(command, id)| Step::Meter(command, id)),
        1 => prop_oneof![Just(500), Just(MEGAFLOW_IDLE_MS), Just(FDB_AGEING_MS)].prop_map(Step::Sweep),
        1 => (1..4_usize).prop_map(Step::Evict),
    ]
}

struct World {
    sim: Sim,
    last_port_attached: bool,
    /// Every packet that was sent.
    seen: Vec<(u32, FlowKey)>,
}

impl World {
    fn take(&mut self, step: &Step, frames: &[(u32, Frame)], places: &[Place]) {
        match step {
            Step::Send(at) => {
                let (ofport, frame) = at.get(frames);
                if *ofport < PORTS || self.last_port_attached {
                    let bytes = frame.build();
                    self.seen.push((*ofport, key_of(*ofport, &bytes)));
                    self.sim.send(*ofport, &bytes);
                }
            }
            Step::Change(command) => {
                self.change(command, places);
                self.sim.core.tell_pmds();
            }
            Step::Burst(commands) => {
                let mut late = Vec::new();
                for (command, at) in commands {
                    self.change(command, places);
                    let (ofport, frame) = at.get(frames);
                    let key = key_of(*ofport, &frame.build());
                    if *ofport < PORTS || self.last_port_attached {
                        self.seen.push((*ofport, key));
                        late.push(self.sim.answer(*ofport, &key).verdict);
                    }
                }
                self.sim.core.tell_pmds();
                // As a PMD does: what was decided for one packet only is not cached.
                let cached = late.into_iter().filter(|verdict| verdict.install);
                cached.for_each(|verdict| self.sim.pmd.install(verdict.megaflow));
                self.sim.take_home();
            }
            Step::AttachOrDetach => {
                if self.last_port_attached {
                    self.sim.detach(PORTS);
                } else {
                    self.sim.attach(PORTS);
                }
                self.last_port_attached = !self.last_port_attached;
            }
            Step::Configure(ofport, config) => {
                let request = PortMod {
                    port_no: *ofport,
                    hw_addr: [0; 6],
                    config: *config,
                    mask: OFPPC_NO_FWD | OFPPC_NO_RECV,
                    advertise: 0,
                };
                // The last port may be gone.
                let _ = self.sim.core.port_mod(self.sim.bridge, &request);
                self.sim.core.tell_pmds();
            }
            Step::Meter(command, meter_id) => {
                let kind = MeterBandKind::Drop;
                let bands = vec![MeterBand { kind, rate: 10, burst_size: 10 }];
                let flags = OFPMF_PKTPS;
                let request = MeterMod { command: *command, flags, meter_id: *meter_id, bands };
                // It may be there already, or not.
                let _ = self.sim.core.meter_mod(self.sim.bridge, &request);
                self.sim.core.tell_pmds();
            }
            Step::Sweep(ms) => {
                self.sim.advance_ms(*ms);
                self.sim.sweep();
            }
            Step::Evict(count) => {
                self.sim.pmd.evict(*count);
                self.sim.take_home();
            }
        }
    }

    fn change(&self, (command, at, wishes): &Command, places: &[Place]) {
        // Every place has a priority of its own: between equals OpenFlow leaves it open.
        let priority = at.index(places.len()) as u16 + 1;
        let mut flow_mod = at.get(places).flow_mod(*command, priority, wishes);
        let meter = u32::from(priority);
        let state = self.sim.core.read();
        let has_meter = state.bridge(self.sim.bridge).unwrap().meters.get(meter).is_some();
        drop(state);
        if METERS.contains(&meter) && has_meter {
            let instructions = flow_mod.instructions.iter().cloned();
            let metered = instructions.chain([Instruction::Meter(meter)]).collect();
            flow_mod.instructions = Instructions::new(metered).unwrap();
        }
        self.sim.core.flow_mod(self.sim.bridge, &flow_mod).unwrap();
    }

    /// Every packet seen so far is decided by what is cached as by a fresh walk.
    fn check(&self) -> Result<(), TestCaseError> {
        for megaflow in self.sim.pmd.megaflows() {
            let covered = self.seen.iter().filter(|(_, key)| megaflow.matcher.matches(key));
            for (ofport, key) in covered {
                prop_assert_eq!(u32::from(index_of(*ofport).0), key.in_port);
                self.agree(*ofport, key, &megaflow)?;
            }
        }
        Ok(())
    }

    /// So is every packet that differs in bits that no decision looked at.
    fn check_neighbours(&self, picks: &[prop::sample::Index]) -> Result<(), TestCaseError> {
        for megaflow in self.sim.pmd.megaflows() {
            let mask = megaflow.matcher.mask().words();
            let free: Vec<usize> =
                (0..FLOW_WORDS * 64).filter(|bit| mask[bit / 64] >> (bit % 64) & 1 == 0).collect();
            let ofport = ofport_of(megaflow.matcher.key().in_port);
            for chunk in picks.chunks(5) {
                let mut key = *megaflow.matcher.key();
                for pick in chunk {
                    let bit = *pick.get(&free);
                    key.words_mut()[bit / 64] ^= 1 << (bit % 64);
                }
                self.agree(ofport, &key, &megaflow)?;
            }
        }
        Ok(())
    }

    fn agree(&self, ofport: u32, key: &FlowKey, megaflow: &Megaflow) -> Result<(), TestCaseError> {
        let gone = ofport == PORTS && !self.last_port_attached;
        prop_assert!(!gone, "a decision of a port that is gone is still cached");
        let fresh = self.sim.fresh_walk(ofport, key);
        prop_assert_eq!(&*fresh.ops, &*megaflow.ops);
        prop_assert_eq!(fresh.drop_reason, megaflow.drop_reason);
        let meters = fresh.meters.iter().zip(&megaflow.meters);
        prop_assert!(meters.into_iter().all(|(fresh, cached)| Arc::ptr_eq(fresh, cached)));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_stays_cached_is_what_a_fresh_walk_decides(
        places in prop::collection::vec(any_place(), 4..40),
        frames in prop::collection::vec((1..=PORTS, any_frame()), 2..10),
        steps in prop::collection::vec(any_step(), 5..60),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 40),
    ) {
        let mut world = World { sim: Sim::new(PORTS), last_port_attached: true, seen: Vec::new() };
        for step in &steps {
            world.take(step, &frames, &places);
            world.check()?;
            if matches!(step, Step::Burst(_) | Step::Change(_) | Step::Meter(..)) {
                world.check_neighbours(&picks)?;
            }
        }
    }
}

/// What a change does not concern stays cached.
#[test]
fn a_change_drops_only_what_it_concerns() {
    let mut sim = Sim::new(3);
    sim.add("priority=10,in_port=1,actions=output:3");
    sim.add("priority=10,in_port=2,actions=output:3");
    sim.send(1, &Frame::udp(0, 1).build());
    sim.send(2, &Frame::udp(1, 0).build());
    assert_eq!(sim.pmd.megaflows().len(), 2);
    // Lower priority than what was found: nothing changes for anybody.
    sim.add("priority=5,actions=drop");
    assert_eq!(sim.pmd.megaflows().len(), 2);
    // Another port's packets, and a match that the cached packets cannot have.
    sim.add("priority=20,in_port=1,actions=output:2");
    sim.add("priority=20,in_port=3,actions=output:2");
    let left: Vec<_> = sim.pmd.megaflows().iter().map(|m| m.matcher.key().in_port).collect();
    assert_eq!(left, [u32::from(index_of(2).0)]);
    assert_eq!(sim.ports_reached(1, &Frame::udp(0, 1).build()), [2]);
}

/// Later tables are asked about the packet as they saw it, not as it came.
#[test]
fn a_change_in_a_later_table_is_held_against_the_packet_as_edited() {
    let mut sim = Sim::new(3);
    sim.add("priority=10,ip,actions=set_field:10.9.9.9->ip_dst,write_metadata:0x5,goto_table:1");
    sim.add("table=1,priority=1,actions=output:2");
    let frame = Frame::udp(0, 1).build();
    let goes_to = |sim: &mut Sim| sim.ports_reached(1, &frame);
    let cached = |sim: &Sim| sim.pmd.megaflows().len();
    assert_eq!(goes_to(&mut sim), [2]);
    // What the packet was when it came, and other metadata: no concern of this decision.
    sim.add("table=1,priority=5,ip,nw_dst=10.0.0.1,actions=drop");
    sim.add("table=1,priority=5,metadata=0x4,actions=drop");
    sim.add("table=2,priority=5,actions=drop");
    assert_eq!(cached(&sim), 1);
    assert_eq!(goes_to(&mut sim), [2]);
    sim.add("table=1,priority=6,ip,nw_dst=10.9.9.9,actions=output:3");
    assert_eq!(cached(&sim), 0);
    assert_eq!(goes_to(&mut sim), [3]);
    sim.add("table=1,priority=7,metadata=0x1/0x3,actions=output:2,output:3");
    assert_eq!(goes_to(&mut sim), [2, 3]);
}

/// A decision that was made before a change and arrives after it is not cached.
#[test]
fn a_walk_under_older_tables_never_lands() {
    let sim = Sim::new(2);
    sim.add("priority=10,actions=output:2");
    let frame = Frame::udp(0, 1).build();
    let answer = sim.answer(1, &key_of(1, &frame));
    sim.add("priority=20,actions=drop");
    assert!(answer.entry.is_some_and(|entry| sim.core.repeat(entry).is_none()));
    sim.pmd.install(answer.verdict.megaflow);
    assert!(sim.pmd.megaflows().is_empty());
}

/// Followers get the leader's answer while nothing has changed.
#[test]
fn a_follower_repeats_the_answer_of_its_leader() {
    let sim = Sim::new(2);
    sim.add("priority=10,actions=output:2");
    let frame = Frame::udp(0, 1).build();
    let answer = sim.answer(1, &key_of(1, &frame));
    let repeated = sim.core.repeat(answer.entry.unwrap()).unwrap();
    assert!(std::sync::Arc::ptr_eq(&repeated.megaflow, &answer.verdict.megaflow));
    assert!(!repeated.install);
    sim.flow_mod(&tollgate_openflow::FlowMod {
        matcher: Match::any(),
        ..tollgate_openflow::FlowMod::new(FlowCommand::Delete)
    });
    assert!(sim.core.repeat(answer.entry.unwrap()).is_none());
}

/// However many rules come, decisions that they do not change stay cached, and their packets count
/// for the rules that would be found now.
#[test]
fn a_flood_of_rules_costs_established_flows_nothing() {
    let mut sim = Sim::new(3);
    sim.add("priority=10,in_port=1,actions=output:3");
    sim.add("priority=10,in_port=2,actions=output:3");
    let (from_1, from_2) = (Frame::udp(0, 1).build(), Frame::udp(1, 0).build());
    sim.send(1, &from_1);
    sim.send(2, &from_2);
    let rules = 4 * ADDITIONS_COMPARED;
    for n in 0..rules {
        let rule = format!("priority=20,in_port=1,eth_type=0x{:x},actions=output:2", 0x6000 + n);
        sim.core.flow_mod(sim.bridge, &parsed(FlowCommand::Add, &rule)).unwrap();
    }
    // Found instead of the rule that the decision was made by, and it says the same.
    sim.core
        .flow_mod(sim.bridge, &parsed(FlowCommand::Add, "priority=30,in_port=2,actions=output:3"))
        .unwrap();
    sim.core.tell_pmds();
    assert_eq!(sim.ports_reached(2, &from_2), [3]);
    assert_eq!(sim.walks, 2, "the decision was dropped");
    assert_eq!(sim.pmd.megaflows().len(), 1, "the Ethernet type matters now to packets of port 1");
    let packets = |priority: u16| {
        let flows = sim.flows().into_iter().filter(|flow| flow.priority == priority);
        flows.map(|flow| flow.packet_count).collect::<Vec<_>>()
    };
    assert_eq!((packets(30), packets(10)), (vec![1], vec![1, 1]));
    assert_eq!(packets(20).len(), rules);
}
