//! The pipeline beside a real Open vSwitch.
//!
//! Flows are text, so that both parsers judge them; each side gets the same flows and frames, and
//! must give the same frames out of the same ports and the same counts. A case that differs is
//! made small and printed as commands that repeat it.
//!
//! CI runs the same cases each time, so that a rare difference does not fail somebody else's
//! change; with `OVS_CASES=N`, N other ones.

mod agreement;
mod captured;
mod case;
mod excuses;
mod fields;
mod flow_mods;
mod flows;
mod megaflows;
mod outcome;
mod peer;
mod refusals;
mod wild;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Runs a test's usual number of cases, always the same, or as many new ones as asked for.
fn runner(usual: u32) -> TestRunner {
    let explore = std::env::var("OVS_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config {
        cases: explore.unwrap_or(usual),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    match explore {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    }
}
