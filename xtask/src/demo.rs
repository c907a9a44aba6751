//! `cargo xtask demo`: what the switch is for, in under a minute.
//!
//! A victim pair makes 2 000 round trips a second, one at a time, each timed from the moment it was
//! meant to go out. An adversary pair on the same core sends large frames flat out, through a flow
//! that rewrites and mirrors each of them eight times. Three phases: the victim alone; both, protection off;
//! both, protection on. Between the last two nothing differs but that one switch.

mod report;
mod scene;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cycles::Cycles;
use crate::generator::{self, Outcome};
use crate::interrupt::Interrupt;
use crate::machine::{Cores, Quiet};
use scene::Scene;

/// Unmeasured time at the start of each phase: caches fill, the adversary's queue builds up.
const WARM_UP: Duration = Duration::from_secs(1);

/// Arguments of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Measured seconds of each of the three phases.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// The victim's weight; the adversary's is 1.
    #[arg(long, default_value_t = 1.0)]
    victim_weight: f64,
    /// Where the raw figures go: one line per interval and phase.
    #[arg(long, default_value = "target/demo.csv")]
    csv: PathBuf,
}

/// One of the three phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Alone,
    Unprotected,
    Protected,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Alone, Self::Unprotected, Self::Protected];

    fn name(self) -> &'static str {
        match self {
            Self::Alone => "victim alone",
            Self::Unprotected => "adversary, protection off",
            Self::Protected => "adversary, protection on",
        }
    }

    fn has_adversary(self) -> bool {
        self != Self::Alone
    }

    fn is_protected(self) -> bool {
        self != Self::Unprotected
    }
}

/// What a phase showed.
#[derive(Debug)]
pub(crate) struct PhaseResult {
    phase: Phase,
    outcome: Outcome,
    cycles: Cycles,
}

/// Runs the demo.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(arguments.seconds >= 1.0, "--seconds must be at least 1");
    generator::build_release()?;
    let interrupt = Interrupt::install()?;
    let cores = Cores::find()?;
    let quiet = Quiet::begin();
    let scene = Scene::set_up(cores, arguments.victim_weight)?;
    scene.describe();

    let measured = Duration::from_secs_f64(arguments.seconds);
    let bar = progress_bar((WARM_UP + measured) * Phase::ALL.len() as u32)?;
    let mut results = Vec::new();
    for (done, phase) in (0..).zip(Phase::ALL) {
        bar.set_message(phase.name());
        let before = (WARM_UP + measured) * done;
        let shown = |passed: Duration| bar.set_position((before + passed).as_millis() as u64);
        results.push(run_phase(&scene, phase, measured, &interrupt, shown)?);
    }
    bar.finish_and_clear();

    report::print(&results, quiet.describe())?;
    report::write_csv(&results, &arguments.csv)?;
    report::print_next(&arguments.csv);
    Ok(())
}

fn progress_bar(total: Duration) -> anyhow::Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg:26} [{bar:40}] {percent:>3}%")?;
    Ok(ProgressBar::new(total.as_millis() as u64).with_style(style.progress_chars("=> ")))
}

fn run_phase(
    scene: &Scene,
    phase: Phase,
    measured: Duration,
    interrupt: &Interrupt,
    progress: impl Fn(Duration),
) -> anyhow::Result<PhaseResult> {
    scene.set_protection(phase.is_protected())?;
    let running = scene.load(phase.has_adversary(), WARM_UP, measured)?;
    scene.wait_attached(phase.has_adversary())?;
    interrupt.sleep(WARM_UP, &progress)?;
    let before = scene.cycles()?;
    // Read before the generator ends, so that only time under load is in the shares.
    interrupt.sleep(measured.mul_f64(0.95), |passed| progress(WARM_UP + passed))?;
    let cycles = scene.cycles()?.since(&before);
    let outcome = running.finish()?;
    let victim = outcome.pair(scene::VICTIM)?;
    ensure!(
        victim.corrupted + victim.misdelivered == 0,
        "the victim's frames were harmed: {victim:?}"
    );
    Ok(PhaseResult { phase, outcome, cycles })
}
