//! `cargo xtask figures`: what protection promises, measured on the wire, by docs/measuring.md.
//!
//! Every experiment runs the same load on the same switch with the gate off and on, and on OVS-DPDK
//! where it is installed, in alternation in one invocation. Each writes a CSV with one line a run and
//! an SVG under `docs/figures`, and says of each target whether it is met.

mod adversary;
mod bench;
mod bursts;
mod caches;
mod ecn;
mod equal;
mod held;
mod idle;
mod isolation;
mod knobs;
mod overhead;
mod saturated;
mod shares;
mod sweep;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;

use crate::generator;
use crate::interrupt::Interrupt;
use crate::machine::{Cores, Quiet};
use crate::ovs::Ovs;
use crate::target::{self, Verdict};
use bench::{Bench, Plan};

/// Arguments of `cargo xtask figures`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Fewer and shorter runs: everything in under 20 minutes.
    #[arg(long)]
    quick: bool,
    /// Only these experiments; all if none is named.
    #[arg(value_enum)]
    experiments: Vec<Experiment>,
    /// Where CSV and SVG go.
    #[arg(long, default_value = "docs/figures")]
    out: PathBuf,
}

/// An experiment, by the name of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Experiment {
    /// A victim's round trips beside every kind of adversary.
    Isolation,
    /// The same beside one adversary of growing load, and of growing numbers of flows.
    Sweep,
    /// Two tenants at the same rate, of which one makes more work: what a frame of each costs.
    Equal,
    /// Throughput of three saturated tenants.
    Saturated,
    /// Three tenants that send in bursts: a shared core against fixed thirds of it.
    Bursts,
    /// Saturated tenants of different weights.
    Shares,
    /// The knobs of the coordinated refill, and the local one.
    Knobs,
    /// A sender that heeds ECN, by the debt at which marking turns into dropping.
    Ecn,
    /// A hundred idle ports: what they cost a turn.
    Idle,
    /// Every thread but the PMD held, while traffic runs.
    Held,
    /// What is not isolated: caches and memory.
    Caches,
    /// What protection costs: throughput and idle latency, by toggling the running switch.
    Overhead,
}

impl Experiment {
    const ALL: [Self; 12] = [
        Self::Isolation,
        Self::Sweep,
        Self::Equal,
        Self::Saturated,
        Self::Bursts,
        Self::Shares,
        Self::Knobs,
        Self::Ecn,
        Self::Held,
        Self::Caches,
        Self::Overhead,
        // Last: its ports stay.
        Self::Idle,
    ];

    fn run(self, bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
        match self {
            Self::Isolation => isolation::run(bench),
            Self::Sweep => sweep::run(bench),
            Self::Equal => equal::run(bench),
            Self::Saturated => saturated::run(bench),
            Self::Bursts => bursts::run(bench),
            Self::Shares => shares::run(bench),
            Self::Knobs => knobs::run(bench),
            Self::Ecn => ecn::run(bench),
            Self::Idle => idle::run(bench),
            Self::Held => held::run(bench),
            Self::Caches => caches::run(bench),
            Self::Overhead => overhead::run(bench),
        }
    }
}

/// Runs the experiments and prints the targets.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let cores = Cores::find()?;
    ensure!(cores.pmd != cores.peers, "two cores are needed: one polls, one sends");
    let interrupt = Interrupt::install()?;
    generator::build_release()?;
    let quiet = Quiet::begin();
    if let Err(missing) = Ovs::available() {
        println!("SKIP OVS-DPDK's part of every figure: {missing}");
    }
    let plan = if arguments.quick {
        Plan {
            repetitions: 3,
            warm_up: Duration::from_millis(400),
            measured: Duration::from_secs(1),
            toggles: 1000,
            held: Duration::from_secs(5),
        }
    } else {
        Plan {
            repetitions: 5,
            warm_up: Duration::from_millis(500),
            measured: Duration::from_millis(1500),
            toggles: 1300,
            held: Duration::from_secs(60),
        }
    };
    let experiments = if arguments.experiments.is_empty() {
        &Experiment::ALL[..]
    } else {
        &arguments.experiments
    };
    let mut bench = Bench::start(cores, interrupt, plan, arguments.out.clone())?;
    let mut verdicts = Vec::new();
    for experiment in experiments {
        verdicts.extend(experiment.run(&mut bench)?);
    }
    println!("\n{}", target::table(&verdicts));
    println!("OVS-DPDK: {}; {}", Ovs::settings(cores.pmd), quiet.describe());
    let missed = verdicts.iter().filter(|verdict| !verdict.met()).count();
    let targets = verdicts.iter().filter(|verdict| verdict.is_target()).count();
    println!("{missed} of {targets} targets missed");
    Ok(())
}
