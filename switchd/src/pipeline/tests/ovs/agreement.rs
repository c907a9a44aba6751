//! The same flows and frames: the same frames leave by the same ports, controllers get the same
//! copies, and the same is counted.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::test_runner::{TestCaseError, TestError};
use tollgate_openflow::{FlowCommand, FlowMod};

use super::super::rules::PORTS;
use super::super::sim::{Sim, try_parsed};
use super::case::{Case, Step, any_case};
use super::excuses::excuse;
use super::flow_mods::essences;
use super::outcome::{Counts, Outcome};
use super::peer::{Caching, Ovs, hex};
use super::runner;

const CASES: u32 = 3000;

/// What happened in all cases of a run.
#[derive(Debug, Default)]
struct Totals {
    packets: usize,
    sent: usize,
    /// For the controller.
    copies: usize,
    excused: BTreeMap<&'static str, usize>,
}

impl Totals {
    /// What is compared is most of it, and does something.
    fn check(&self) {
        #[allow(clippy::print_stdout, reason = "what a longer run has found")]
        {
            println!("{self:#?}");
        }
        let excused: usize = self.excused.values().sum();
        assert!(self.packets > 4 * excused && self.sent > self.packets && self.copies > 0);
    }
}

struct Duel {
    ovs: Ovs,
    totals: Totals,
}

impl Duel {
    fn run(&mut self, case: &Case) -> Result<(), String> {
        self.ovs.clear();
        let before = Counts::of_ovs(&mut self.ovs, &Counts::default());
        let mut sim = Sim::new(PORTS);
        let flows = case.flows();
        for step in case.steps() {
            match step {
                Step::Add(lines) => self.add(&sim, &lines, case.by_ofctl)?,
                Step::DeleteStrict(flow) => {
                    self.change(&sim, FlowCommand::DeleteStrict, &[flow])?;
                }
                Step::Send(ofport, frame) => match excuse(&sim, &flows, ofport, &frame) {
                    Some(reason) => *self.totals.excused.entry(reason).or_default() += 1,
                    None => self.packet(&mut sim, ofport, &frame)?,
                },
            }
        }
        let (ours, theirs) = (Counts::of_sim(&sim), Counts::of_ovs(&mut self.ovs, &before));
        if ours != theirs {
            return Err(format!("counters differ\nhere:\n{ours}OVS:\n{theirs}"));
        }
        Ok(())
    }

    fn add(&mut self, sim: &Sim, lines: &[String], by_ofctl: bool) -> Result<(), String> {
        if by_ofctl {
            lines.iter().try_for_each(|line| {
                try_parsed(FlowCommand::Add, line).map(|flow_mod| sim.flow_mod(&flow_mod))
            })?;
            self.ovs.add_flows(&lines.join("\n"))?;
        } else {
            self.change(sim, FlowCommand::Add, lines)?;
        }
        let (ours, theirs) = (essences(&sim.flows()), essences(&self.ovs.flows()));
        if ours != theirs {
            return Err(format!("flows are stored differently\nhere: {ours:#?}\nOVS: {theirs:#?}"));
        }
        Ok(())
    }

    fn change(&mut self, sim: &Sim, command: FlowCommand, lines: &[String]) -> Result<(), String> {
        let flow_mods = lines.iter().map(|line| try_parsed(command, line));
        let flow_mods: Vec<FlowMod> = flow_mods.collect::<Result<_, _>>()?;
        let change = |flow_mod| sim.core.flow_mod(sim.bridge, flow_mod).map_err(|error| error.code);
        let ours: Vec<_> = flow_mods.iter().map(change).collect();
        sim.core.tell_pmds();
        let theirs = self.ovs.flow_mods(&flow_mods);
        let differing = lines.iter().zip(ours.iter().zip(&theirs)).find(|(_, (o, t))| o != t);
        match differing {
            None => Ok(()),
            Some((line, (ours, theirs))) => Err(format!("{line}\nhere: {ours:?}\nOVS: {theirs:?}")),
        }
    }

    fn packet(&mut self, sim: &mut Sim, ofport: u32, frame: &[u8]) -> Result<(), String> {
        let ours = Outcome::of_sim(sim, ofport, frame);
        let theirs = Outcome::of_ovs(&mut self.ovs, ofport, frame);
        self.totals.packets += 1;
        self.totals.sent += ours.ports.values().map(Vec::len).sum::<usize>();
        self.totals.copies += ours.controller.len();
        if ours == theirs {
            return Ok(());
        }
        Err(format!("into port {ofport}: {}\nhere:\n{ours}OVS:\n{theirs}", hex(frame)))
    }
}

#[test]
fn the_same_frames_leave_and_the_same_is_counted_as_in_ovs() {
    let Some(ovs) = Ovs::start(Caching::Off) else { return };
    let duel = RefCell::new(Duel { ovs, totals: Totals::default() });
    let outcome = runner(CASES)
        .run(&any_case(), |case| duel.borrow_mut().run(&case).map_err(TestCaseError::fail));
    let totals = duel.into_inner().totals;
    match outcome {
        Ok(()) => totals.check(),
        Err(TestError::Fail(why, case)) => panic!("{why}\n{case}"),
        Err(error) => panic!("{error}"),
    }
}
