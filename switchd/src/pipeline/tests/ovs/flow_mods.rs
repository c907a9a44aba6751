//! The same flow-mods leave the same rules.

use std::cell::RefCell;

use proptest::prelude::*;
use tollgate_openflow::multipart::FlowStats;
use tollgate_openflow::{FlowCommand, FlowFlags, FlowMod, Match};

use super::super::rules::{PORTS, Place, Wishes, any_place, any_wishes};
use super::super::sim::Sim;
use super::peer::{Caching, Ovs};
use super::runner;
use crate::pipeline::{compile, matching};

/// A rule in a form that does not depend on who prints it.
fn essence(flow: &FlowStats) -> String {
    let matcher = matching::compile(&flow.matcher).unwrap();
    let program = compile::compile(flow.table_id, &flow.matcher, &flow.instructions).unwrap();
    let FlowStats { table_id, priority, cookie, idle_timeout_s, hard_timeout_s, .. } = flow;
    format!(
        "{table_id} {priority} {cookie} {idle_timeout_s} {hard_timeout_s} {matcher:?} {program:?}"
    )
}

pub(super) fn essences(flows: &[FlowStats]) -> Vec<String> {
    let mut essences: Vec<_> = flows.iter().map(essence).collect();
    essences.sort();
    essences
}

fn any_command() -> impl Strategy<Value = FlowCommand> {
    prop_oneof![
        8 => Just(FlowCommand::Add),
        2 => Just(FlowCommand::Modify),
        2 => Just(FlowCommand::ModifyStrict),
        1 => Just(FlowCommand::Delete),
        2 => Just(FlowCommand::DeleteStrict),
    ]
}

#[derive(Clone, Debug)]
struct Change {
    command: FlowCommand,
    place: prop::sample::Index,
    /// A wider match than the place's: for loose commands.
    fields_kept: usize,
    wishes: Wishes,
    priority: u16,
    cookie: u64,
    cookie_mask: u64,
    out_port: u32,
    flags: FlowFlags,
}

fn any_change() -> impl Strategy<Value = Change> {
    let out_port = prop_oneof![3 => Just(tollgate_openflow::port::OFPP_ANY), 1 => 1..=PORTS];
    let flags = prop_oneof![
        3 => Just(FlowFlags::default()),
        1 => Just(FlowFlags::CHECK_OVERLAP),
        1 => Just(FlowFlags::RESET_COUNTS),
    ];
    (
        (any_command(), any::<prop::sample::Index>(), 0..6_usize, any_wishes()),
        (1..4_u16, 0..4_u64, prop_oneof![3 => Just(0_u64), 1 => Just(1)], out_port, flags),
    )
        .prop_map(
            |(
                (command, place, fields_kept, wishes),
                (priority, cookie, cookie_mask, out_port, flags),
            )| {
                Change {
                    command,
                    place,
                    fields_kept,
                    wishes,
                    priority,
                    cookie,
                    cookie_mask,
                    out_port,
                    flags,
                }
            },
        )
}

impl Change {
    fn flow_mod(&self, places: &[Place]) -> FlowMod {
        let mut place = self.place.get(places).clone();
        if matches!(self.command, FlowCommand::Modify | FlowCommand::Delete) {
            let kept = place.matcher.iter().take(self.fields_kept).copied();
            place.matcher = Match::from_fields(kept).unwrap_or_else(|_| Match::any());
        }
        if self.command.is_delete() {
            // OVS checks even the actions of a deletion, which have no meaning.
            return FlowMod {
                cookie: self.cookie,
                cookie_mask: self.cookie_mask,
                out_port: self.out_port,
                table_id: place.table,
                priority: self.priority,
                matcher: place.matcher,
                ..FlowMod::new(self.command)
            };
        }
        FlowMod {
            cookie: self.cookie,
            cookie_mask: self.cookie_mask,
            out_port: self.out_port,
            flags: self.flags,
            ..place.flow_mod(self.command, self.priority, &self.wishes)
        }
    }
}

#[test]
fn flow_mods_leave_the_same_rules_as_in_ovs() {
    let Some(ovs) = Ovs::start(Caching::Off) else { return };
    let ovs = RefCell::new(ovs);
    let places = prop::collection::vec(any_place(), 1..6);
    let changes = prop::collection::vec(any_change(), 1..30);
    let mut runner = runner(200);
    let outcome = runner.run(&(places, changes), |(places, changes)| {
        let mut ovs = ovs.borrow_mut();
        ovs.clear();
        let sim = Sim::new(PORTS);
        for change in &changes {
            let flow_mod = change.flow_mod(&places);
            let ours = sim.core.flow_mod(sim.bridge, &flow_mod).map_err(|error| error.code);
            let theirs = ovs.flow_mods(std::slice::from_ref(&flow_mod));
            prop_assert_eq!(vec![ours], theirs, "{:?}", flow_mod);
            prop_assert_eq!(essences(&sim.flows()), essences(&ovs.flows()), "after {:?}", flow_mod);
        }
        Ok(())
    });
    outcome.unwrap();
}
