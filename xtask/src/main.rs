//! Developer commands: `cargo xtask demo | test | fuzz | bench | compare | figures`.
#![allow(clippy::print_stdout)]

mod bench;
mod chart;
mod compare;
mod cycles;
mod demo;
mod durations;
mod figures;
mod fuzz;
mod generator;
mod interrupt;
mod machine;
mod ovs;
mod raw;
mod rules;
mod spread;
mod subject;
mod target;
mod test;
mod threads;

use clap::{Parser, Subcommand};

/// Tollgate's developer commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Shows what the switch is for: a victim and an adversary on one core, protection off and on.
    Demo(demo::Arguments),
    /// Checks format, lints and instruction counts, then runs all tests; peers that are missing are skipped (REQUIRE_PEERS=1: fail).
    Test(test::Arguments),
    /// Throws random and damaged frames and messages at what reads them.
    Fuzz(fuzz::Arguments),
    /// Counts the instructions of a packet's way by callgrind, and compares; SKIP where valgrind is missing.
    Bench(bench::Arguments),
    /// Measures throughput, cycles and latency beside OVS-DPDK, alternating in one run, under docs/compare.
    Compare(compare::Arguments),
    /// Measures what protection promises, with figures and targets, under docs/figures.
    Figures(figures::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().verb {
        Verb::Demo(arguments) => demo::run(&arguments),
        Verb::Test(arguments) => test::run(&arguments),
        Verb::Fuzz(arguments) => fuzz::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Compare(arguments) => compare::run(&arguments),
        Verb::Figures(arguments) => figures::run(&arguments),
    }
}
