//! `cargo xtask bench`: what the steps of a packet's way execute, counted by callgrind and compared
//! with what is stored.

mod expected;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use proving_ground::binaries;
use proving_ground::instructions::PACKETS;
use proving_ground::skip::{self, Missing, program};
use serde_json::Value;

use crate::test::cargo;
use expected::{Compared, Expected};

/// What drives callgrind; it must be of the version of the crate in the workspace's manifest.
const RUNNER: &str = "gungraun-runner";
const RUNNER_VERSION: &str = "0.20.0";

/// Where the expectations are, from the workspace's root.
const EXPECTED: &str = "benches/instructions/expected.toml";

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Writes what was counted into benches/instructions/expected.toml, rather than comparing with it.
    #[arg(long)]
    bless: bool,
}

/// One step's count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Count {
    /// `group function case`.
    pub(crate) name: String,
    pub(crate) instructions: u64,
}

/// Counts, and compares or blesses.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(counts) = counts_or_skip()? else { return Ok(()) };
    if !arguments.bless {
        return compare(&counts);
    }
    println!("{}", table(&counts));
    Expected::of(rustc_version()?, &counts).write(&expected_path())?;
    println!("Written to {EXPECTED}.");
    Ok(())
}

/// As without arguments, for `cargo xtask test`.
pub(crate) fn check() -> anyhow::Result<()> {
    println!("== instruction counts: cargo xtask bench");
    counts_or_skip()?.map_or(Ok(()), |counts| compare(&counts))
}

/// Fails when a count is not the expected one.
fn compare(counts: &[Count]) -> anyhow::Result<()> {
    let expected = Expected::read(&expected_path())?;
    let compared = expected.compare(&rustc_version()?, counts);
    println!("{}", comparison(&compared));
    if let Some(note) = &compared.note {
        println!("NOTE {note}");
    }
    let failures: Vec<_> = compared.failures().map(|row| format!("  {row}\n")).collect();
    if failures.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of {} counts are not as expected (within {} %):\n{}\
         If that is meant: `cargo xtask bench --bless` writes the counts into {EXPECTED}; the commit says why.",
        failures.len(),
        compared.rows.len(),
        compared.tolerance_percent,
        failures.concat()
    )
}

fn counts_or_skip() -> anyhow::Result<Option<Vec<Count>>> {
    match counts()? {
        Ok(counts) => Ok(Some(counts)),
        Err(missing) => {
            ensure!(
                !skip::peers_are_required(),
                "REQUIRE_PEERS=1, and nothing was counted: {missing}"
            );
            println!("SKIP {missing}");
            Ok(None)
        }
    }
}

/// Runs the bench `instructions` of the top-level package.
pub(crate) fn counts() -> anyhow::Result<Result<Vec<Count>, Missing>> {
    if let Err(missing) = tools() {
        return Ok(Err(missing));
    }
    let mut bench = cargo();
    bench.args(["bench", "--quiet", "--package", "tollgate", "--bench", "instructions"]);
    bench.arg("--target-dir").arg(binaries::target_directory()?);
    // Counts do not depend on where things lie, and containers often forbid to fix that.
    bench.args(["--", "--output-format=json", "--allow-aslr=yes"]);
    let output = bench.output().context("cannot start cargo bench")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo bench ended with {}: {said}", output.status);
    let counts = parse(&String::from_utf8_lossy(&output.stdout))?;
    ensure!(!counts.is_empty(), "cargo bench counted nothing: {said}");
    Ok(Ok(counts))
}

/// Whether valgrind and the runner are here.
fn tools() -> Result<(), Missing> {
    program("valgrind", "valgrind")?;
    let found = Command::new(RUNNER).arg("--version").output();
    let version = found.map(|found| String::from_utf8_lossy(&found.stdout).trim().to_owned());
    if version.is_ok_and(|version| version == format!("{RUNNER} {RUNNER_VERSION}")) {
        return Ok(());
    }
    Err(Missing(format!(
        "{RUNNER} {RUNNER_VERSION} is not installed (cargo install {RUNNER} --version {RUNNER_VERSION} --locked)"
    )))
}

fn expected_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(EXPECTED)
}

/// Of the compiler that cargo starts.
fn rustc_version() -> anyhow::Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().context("cannot start rustc")?;
    ensure!(output.status.success(), "rustc --version ended with {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// One JSON object for each case.
fn parse(text: &str) -> anyhow::Result<Vec<Count>> {
    let cases = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    cases
        .map(|case| {
            let case = case.context("the bench's output is no JSON")?;
            let word = |key: &str| case[key].as_str().unwrap_or_default();
            let name = format!("{} {} {}", word("group"), word("function_name"), word("id"));
            let values = &case["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"];
            let instructions =
                values["new"].as_u64().with_context(|| format!("no count of {name} in {case}"))?;
            Ok(Count { name, instructions })
        })
        .collect()
}

/// Every case deals with [`PACKETS`].
fn per_packet(instructions: u64) -> String {
    format!("{:.1}", instructions as f64 / PACKETS as f64)
}

fn table(counts: &[Count]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["step", "instructions", "per packet"]);
    for Count { name, instructions } in counts {
        table.add_row([name.clone(), instructions.to_string(), per_packet(*instructions)]);
    }
    table
}

fn comparison(compared: &Compared) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["step", "expected", "got", "per packet", "change"]);
    let shown = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    for row in &compared.rows {
        table.add_row([
            row.name.clone(),
            shown(row.expected),
            shown(row.got),
            row.got.map_or("-".to_owned(), per_packet),
            row.change_percent().map_or("-".to_owned(), |change| format!("{change:+.1} %")),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_name_and_its_count() {
        let case = |id: &str, count: u64| {
            let metrics = format!(r#"{{"Ir":{{"values":{{"new":{count},"old":7}}}}}}"#);
            format!(
                r#"{{"group":"turn","function_name":"bursts","id":"{id}","profiles":[{{"data":{{"total":{{"metrics":{metrics}}}}}}}]}}"#
            )
        };
        let counts = parse(&[case("a", 41), case("b", 42)].join("\n")).unwrap();
        let names: Vec<_> = counts.iter().map(|count| count.name.as_str()).collect();
        assert_eq!(names, ["turn bursts a", "turn bursts b"]);
        assert_eq!((counts[0].instructions, counts[1].instructions), (41, 42));
        assert!(parse("{}").is_err());
        assert!(parse("error").is_err());
    }

    #[test]
    fn the_runner_is_of_the_version_that_the_benches_are_built_with() {
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("gungraun = \"={RUNNER_VERSION}\"")));
    }

    #[test]
    fn the_stored_expectations_can_be_read() {
        Expected::read(&expected_path()).unwrap();
    }
}
