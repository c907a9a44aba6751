//! `cargo xtask test`: what must hold before a change lands.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use proving_ground::binaries;
use proving_ground::skip::{self, SKIP_LIST};
use tempfile::NamedTempFile;

use crate::bench;

/// The features of the packages that are tested beside switchd's own.
const DPDK_FEATURES: &str = "tollgate-nic/dpdk,tollgate-datapath/dpdk,tollgate-switchd/dpdk";

/// Lints of the crates that a build without libdpdk leaves out.
const DPDK_LINTS: [&str; 12] = [
    "clippy",
    "--package=tollgate-dpdk-sys",
    "--package=tollgate-nic",
    "--package=tollgate-datapath",
    "--package=tollgate-switchd",
    "--features",
    DPDK_FEATURES,
    "--all-targets",
    "--quiet",
    "--",
    "-D",
    "warnings",
];

/// Benches that are built by their names only.
const BENCH_LINTS: [&str; 8] = [
    "clippy",
    "--package=tollgate",
    "--bench=instructions",
    "--bench=floor",
    "--quiet",
    "--",
    "-D",
    "warnings",
];

/// Arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Runs the tests only: no format check, no lints, no instruction counts.
    #[arg(long)]
    tests_only: bool,
    /// Handed to the test runner (nextest if it is installed, else `cargo test`).
    #[arg(last = true)]
    runner: Vec<OsString>,
}

/// Runs the checks in the order in which they are cheapest to fail.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if !arguments.tests_only {
        step("format", cargo().args(["fmt", "--all", "--check"]))?;
        step(
            "lints",
            cargo().args(["clippy", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        )?;
        step("lints of benches by name", cargo().args(BENCH_LINTS))?;
    }
    // The workspace's default members are everything that builds anywhere; the rest needs libdpdk.
    let dpdk = skip::libdpdk();
    if let Err(missing) = &dpdk {
        skip::skip(missing);
    } else if !arguments.tests_only {
        step("lints with libdpdk", cargo().args(DPDK_LINTS))?;
    }
    if !arguments.tests_only {
        bench::check()?;
    }
    // The programs that the tests start, built once rather than by each test's process.
    step("programs", binaries::build(false)?.arg("--quiet"))?;
    let programs = binaries::target_directory()?.join("debug");
    // nextest runs no documentation tests; its closing line comes last, for whoever counts tests.
    step("documentation tests", cargo().args(["test", "--doc", "--quiet"]))?;
    let mut runner = cargo();
    if has_nextest() {
        runner.args(["nextest", "run"]);
    } else {
        // One test after the other: without nextest's groups a polling thread would have company.
        runner.args(["test", "--all-targets"]);
        runner.env("RUST_TEST_THREADS", "1");
    }
    if dpdk.is_ok() {
        runner.args(["--workspace", "--features", DPDK_FEATURES]);
    }
    let skipped = NamedTempFile::new()?;
    runner.args(&arguments.runner).env("TOLLGATE_BIN_DIR", programs);
    runner.env(SKIP_LIST, skipped.path());
    let outcome = step("tests", &mut runner);
    print_skips(skipped.path())?;
    outcome
}

/// The reasons for which tests were skipped, and how many each.
fn print_skips(list: &Path) -> anyhow::Result<()> {
    let mut reasons = BTreeMap::new();
    for line in fs::read_to_string(list)?.lines() {
        *reasons.entry(line.to_owned()).or_insert(0) += 1;
    }
    for (reason, tests) in reasons {
        println!("{reason} ({tests} tests)");
    }
    Ok(())
}

fn step(what: &str, command: &mut Command) -> anyhow::Result<()> {
    println!("== {what}: {}", shown(command));
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{what} failed ({status})");
    Ok(())
}

fn shown(command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy());
    format!("cargo {}", words.collect::<Vec<_>>().join(" "))
}

fn has_nextest() -> bool {
    let mut probe = cargo();
    probe.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// The cargo that runs us, at the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    cargo
}
