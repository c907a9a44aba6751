//! Flow-mods together do what they do one by one.

use proptest::prelude::*;
use tollgate_openflow::multipart::FlowStats;
use tollgate_openflow::{FlowCommand, FlowMod};

use super::rules::{PORTS, any_place, any_wishes};
use super::sim::{Sim, parsed};
use crate::pipeline::limits::TABLES;

fn any_flow_mods() -> impl Strategy<Value = Vec<FlowMod>> {
    let command = prop_oneof![
        6 => Just(FlowCommand::Add),
        1 => Just(FlowCommand::Modify),
        1 => Just(FlowCommand::ModifyStrict),
        1 => Just(FlowCommand::Delete),
        1 => Just(FlowCommand::DeleteStrict),
    ];
    // Few places, so that rules are replaced and deleted.
    (
        prop::collection::vec(any_place(), 6),
        prop::collection::vec((command, 0..6_usize, any_wishes()), 0..20),
    )
        .prop_map(|(places, steps)| {
            let flow_mod = |(cookie, (command, at, wishes)): (usize, (_, usize, _))| FlowMod {
                cookie: cookie as u64,
                ..places[at].flow_mod(command, 10 + at as u16 / 3, &wishes)
            };
            steps.into_iter().enumerate().map(flow_mod).collect()
        })
}

fn listed(sim: &Sim) -> Vec<FlowStats> {
    let mut flows = sim.flows();
    flows.sort_by_cached_key(|flow| (flow.table_id, flow.priority, format!("{:?}", flow.matcher)));
    flows
}

proptest! {
    #[test]
    fn together_is_as_one_by_one(flow_mods in any_flow_mods()) {
        let [one_by_one, together, bundled] = [(); 3].map(|()| Sim::new(PORTS));
        flow_mods.iter().for_each(|flow_mod| one_by_one.flow_mod(flow_mod));
        let outcomes = together.core.flow_mods(together.bridge, &flow_mods);
        prop_assert!(outcomes.iter().all(Result::is_ok));
        prop_assert_eq!(bundled.core.bundle(bundled.bridge, flow_mods), Ok(()));
        prop_assert_eq!(listed(&together), listed(&one_by_one));
        prop_assert_eq!(listed(&bundled), listed(&one_by_one));
    }
}

#[test]
fn one_that_is_refused_leaves_the_others_alone() {
    let sim = Sim::new(2);
    let add = |flow: &str| parsed(FlowCommand::Add, &format!("{flow},actions=output:2"));
    let flow_mods = [
        add("ip,priority=1"),
        FlowMod { table_id: TABLES, ..FlowMod::new(FlowCommand::Add) },
        add("check_overlap,tcp,priority=1"),
        parsed(FlowCommand::Delete, "udp"),
        add("ip,priority=2"),
    ];
    let outcomes = sim.core.flow_mods(sim.bridge, &flow_mods);
    let fine: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, false, false, true, true]);
    assert_eq!(sim.flows().len(), 2);
}

#[test]
fn flow_mods_for_a_bridge_that_is_gone_are_all_refused() {
    let sim = Sim::new(0);
    sim.core.bridge_remove(sim.bridge).unwrap();
    let add = || parsed(FlowCommand::Add, "priority=1,actions=drop");
    let delete = parsed(FlowCommand::Delete, "");
    let outcomes = sim.core.flow_mods(sim.bridge, &[add(), delete, add()]);
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
}
