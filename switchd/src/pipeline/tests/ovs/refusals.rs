//! Flows whose actions need what their match does not say are refused alike, with the same code.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::TestError;
use tollgate_openflow::{ErrorCode, FlowCommand, FlowMod, Message};

use super::super::rules::PORTS;
use super::super::sim::{Sim, parsed};
use super::flows::{Flow, any_flow};
use super::peer::{Caching, Ovs};
use super::runner;

const CASES: u32 = 300;

/// The match of one flow with the instructions of another.
fn crossed(matches: &Flow, acts: &Flow) -> FlowMod {
    let parsed = |flow: &Flow| parsed(FlowCommand::Add, &flow.text(1));
    FlowMod { matcher: parsed(matches).matcher, ..parsed(acts) }
}

/// As a switch gets it: what cannot be decoded is refused by the decoder.
fn offer(sim: &Sim, flow_mod: &FlowMod) -> Result<(), ErrorCode> {
    let bytes = Message::FlowMod(Box::new(flow_mod.clone())).encode(1);
    match Message::decode(&bytes).map_err(|error| error.code)? {
        (_, Message::FlowMod(flow_mod)) => {
            sim.core.flow_mod(sim.bridge, &flow_mod).map_err(|error| error.code)
        }
        (_, other) => panic!("{other:?}"),
    }
}

/// Of two faults, either may be named: actions that need more than the match says, and too many tags.
fn is_either(outcome: Result<(), ErrorCode>) -> bool {
    let either = [ErrorCode::OFPBAC_MATCH_INCONSISTENT, ErrorCode::OFPBAC_BAD_TAG];
    outcome.is_err_and(|code| either.contains(&code))
}

#[test]
fn what_does_not_go_together_is_refused_as_in_ovs() {
    let Some(ovs) = Ovs::start(Caching::Off) else { return };
    let ovs = RefCell::new(ovs);
    let outcome =
        runner(CASES).run(&prop::collection::vec((any_flow(), any_flow()), 1..20), |pairs| {
            let mut ovs = ovs.borrow_mut();
            ovs.clear();
            let sim = Sim::new(PORTS);
            let flow_mods: Vec<FlowMod> = pairs.iter().map(|(a, b)| crossed(a, b)).collect();
            let ours: Vec<_> = flow_mods.iter().map(|flow_mod| offer(&sim, flow_mod)).collect();
            let theirs = ovs.flow_mods(&flow_mods);
            for ((a, b), (ours, theirs)) in pairs.iter().zip(ours.iter().zip(&theirs)) {
                if is_either(*ours) && is_either(*theirs) {
                    continue;
                }
                prop_assert_eq!(ours, theirs, "match of {}\nactions of {}", a.text(1), b.text(1));
            }
            Ok(())
        });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => panic!("{why}"),
        Err(error) => panic!("{error}"),
    }
}
