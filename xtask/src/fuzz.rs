//! `cargo xtask fuzz`: the fuzz properties of what reads bytes from outside, for as long as wanted.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::interrupt::Interrupt;
use crate::test::cargo;

/// The crates with a test target named `fuzz`: frames of guests, messages of controllers.
const CRATES: [&str; 2] = ["tollgate-packet", "tollgate-openflow"];
/// Cases per property and round. Each round has other ones; between rounds we look at the time.
const CASES_PER_ROUND: u32 = 20_000;

/// Arguments of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long; the round that is under way then is finished.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Runs rounds until the time is over or a property fails.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupt = Interrupt::install()?;
    run_tests(fuzz_tests().arg("--no-run"))?;
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < until {
        let outcome = run_tests(fuzz_tests().env("PROPTEST_CASES", CASES_PER_ROUND.to_string()));
        interrupt.check()?;
        outcome?;
        rounds += 1;
    }
    println!("{} cases of each property, no failure", rounds * u64::from(CASES_PER_ROUND));
    Ok(())
}

/// Optimised but with overflow checks and debug assertions: more cases, and none overlooked.
fn fuzz_tests() -> Command {
    let mut tests = cargo();
    tests.args(["test", "--quiet", "--test", "fuzz"]);
    tests.args(CRATES.iter().flat_map(|package| ["--package", package]));
    tests.args(["--config", "profile.dev.opt-level=2"]);
    tests
}

fn run_tests(tests: &mut Command) -> anyhow::Result<()> {
    let status = tests.status().with_context(|| format!("cannot start {tests:?}"))?;
    ensure!(status.success(), "a fuzz property failed ({status})");
    Ok(())
}
