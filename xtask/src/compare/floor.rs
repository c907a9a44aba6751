//! The stripped loop of `benches/floor`, run between the rows: what no switch can be below.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use proving_ground::binaries;
use serde::Deserialize;
use serde_json::Value;

use super::bench::Sample;
use super::report::{FLOOR, OURS};
use super::row::Row;
use crate::machine::{self, Cores};
use crate::test::cargo;

/// It needs no more: there is no cache of flows to warm.
const MEASURED: Duration = Duration::from_millis(500);

/// The program, and where it runs.
#[derive(Debug)]
pub(super) struct Floor {
    program: PathBuf,
    cores: Cores,
}

/// What it prints for a frame size.
#[derive(Debug, Deserialize)]
struct Outcome {
    cycles_per_packet: f64,
    mpps: f64,
    busy_percent: f64,
}

impl Floor {
    /// Builds it.
    pub(super) fn build(cores: Cores) -> anyhow::Result<Self> {
        let mut build = cargo();
        build.args(["bench", "--quiet", "--no-run", "--package=tollgate", "--bench=floor"]);
        build.args(["--message-format=json-render-diagnostics"]);
        build.arg("--target-dir").arg(binaries::target_directory()?);
        build.stderr(Stdio::inherit());
        let output = build.output().context("cannot start cargo bench")?;
        ensure!(output.status.success(), "building the floor ended with {}", output.status);
        let program = executable(&String::from_utf8_lossy(&output.stdout))
            .context("cargo bench names no program for the floor")?;
        Ok(Self { program, cores })
    }

    /// Once with the row's frames; both switches must be stopped.
    pub(super) fn run(&self, row: &Row, pair: u32) -> anyhow::Result<Sample> {
        let Cores { pmd, peers } = self.cores;
        let core_to_core = machine::core_to_core_cycles(pmd, peers);
        let output = Command::new(&self.program)
            .args(["--json", "--cores", &format!("{pmd},{peers}")])
            .args(["--seconds", &MEASURED.as_secs_f64().to_string()])
            .arg(row.frame_bytes.to_string())
            .output()
            .context("cannot start the floor")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the floor ended with {}: {said}", output.status);
        let outcome: Outcome = serde_json::from_slice(&output.stdout)
            .context("the floor's output is not understood")?;
        Ok(Sample {
            row: row.name,
            pair,
            switch: FLOOR,
            generator: OURS,
            mpps: outcome.mpps,
            cycles_per_packet: outcome.cycles_per_packet,
            pmd_busy_percent: outcome.busy_percent,
            core_to_core_cycles: core_to_core.unwrap_or(f64::NAN),
            ..Sample::EMPTY
        })
    }
}

/// Where cargo has put the bench.
fn executable(messages: &str) -> Option<PathBuf> {
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.find_map(|message| {
        let named = message["target"]["name"] == "floor";
        message["executable"].as_str().filter(|_| named).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_artifact_named_floor() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"name":"tollgate_guest"},"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"switchd"},"executable":"/t/switchd"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"floor"},"executable":"/t/floor-1"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        assert_eq!(executable(&messages.join("\n")), Some(PathBuf::from("/t/floor-1")));
        assert_eq!(executable(messages[3]), None);
    }
}
