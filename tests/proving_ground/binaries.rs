//! Where the workspace's own programs are; built when they are not there yet.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, anyhow};
use rustix::process::geteuid;

use crate::process::run;
use crate::skip;

/// The programs that the proving ground runs, by their package.
const PACKAGES: [&str; 3] = ["tollgate-switchd", "tollgate-ofctl", "tollgate-guest"];

static DIRECTORY: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// Makes [`directory`] answer `path` from now on.
///
/// # Errors
/// It has been asked for before.
pub fn use_directory(path: PathBuf) -> anyhow::Result<()> {
    DIRECTORY.set(Ok(path)).map_err(|_| anyhow!("programs have been run already"))
}

/// The directory with `switchd`, `ofctl` and `tollgate-guest`: `TOLLGATE_BIN_DIR` if set, else the
/// one that this program was built into, where cargo is asked once to bring them up to date (an
/// integration test of one package does not build another's programs).
pub fn directory() -> anyhow::Result<&'static Path> {
    DIRECTORY
        .get_or_init(|| locate().map_err(|error| format!("{error:#}")))
        .as_deref()
        .map_err(|error| anyhow!("{error}"))
}

/// One of the programs, as a command to add arguments to.
pub fn command(name: &str) -> anyhow::Result<Command> {
    Ok(Command::new(directory()?.join(name)))
}

/// The same at a nice value; one below zero needs root, and without it the value is left alone. `nice`
/// replaces itself by the program, so that the process id is the program's.
pub fn command_at_nice(name: &str, nice: Option<i32>) -> anyhow::Result<Command> {
    let Some(nice) = nice.filter(|nice| *nice >= 0 || geteuid().is_root()) else {
        return command(name);
    };
    let mut command = Command::new("nice");
    command.args(["-n", &nice.to_string()]).arg(directory()?.join(name));
    Ok(command)
}

/// The cargo target directory, for what the proving ground keeps between runs.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let profile = profile_directory()?;
    Ok(profile.parent().context("the profile directory has no parent")?.to_owned())
}

fn locate() -> anyhow::Result<PathBuf> {
    if let Some(directory) = env::var_os("TOLLGATE_BIN_DIR") {
        return Ok(directory.into());
    }
    let directory = profile_directory()?;
    let mut cargo = build(directory.ends_with("release"))?;
    run(cargo.arg("--quiet")).context("building the switch")?;
    Ok(directory)
}

/// The cargo command that builds the programs into the target directory that this program is in.
pub fn build(release: bool) -> anyhow::Result<Command> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--bins", "--target-dir"]).arg(target_directory()?);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    if release {
        cargo.arg("--release");
    }
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    // What is measured is built as most have it.
    if !release && skip::libdpdk().is_ok() {
        cargo.args(["--features", "tollgate-switchd/dpdk"]);
    }
    Ok(cargo)
}

/// `target/debug` or `target/release`, from where this program runs: directly there, or in `deps`.
fn profile_directory() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("where does this program run from")?;
    program
        .ancestors()
        .find(|directory| directory.ends_with("debug") || directory.ends_with("release"))
        .map(Path::to_owned)
        .ok_or_else(|| anyhow!("{program:?} is not in a cargo target directory"))
}
