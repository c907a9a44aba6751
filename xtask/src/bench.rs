//! `cargo xtask bench`: what the steps of a packet's way execute, counted by callgrind.

use std::process::Command;

use anyhow::{Context as _, ensure};
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use proving_ground::binaries;
use proving_ground::skip::{Missing, program};
use serde_json::Value;

use crate::test::cargo;

/// What drives callgrind; it must be of the version of the crate in the workspace's manifest.
const RUNNER: &str = "gungraun-runner";
const RUNNER_VERSION: &str = "0.20.0";

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// One step's count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Count {
    /// `group function case`.
    pub(crate) name: String,
    pub(crate) instructions: u64,
}

/// Counts and prints.
pub(crate) fn run(_: &Arguments) -> anyhow::Result<()> {
    match counts()? {
        Ok(counts) => println!("{}", table(&counts)),
        Err(missing) => println!("SKIP {missing}"),
    }
    Ok(())
}

/// Runs the bench `instructions` of the top-level package.
pub(crate) fn counts() -> anyhow::Result<Result<Vec<Count>, Missing>> {
    if let Err(missing) = tools() {
        return Ok(Err(missing));
    }
    let mut bench = cargo();
    bench.args(["bench", "--quiet", "--package", "tollgate", "--bench", "instructions"]);
    bench.arg("--target-dir").arg(binaries::target_directory()?);
    bench.args(["--", "--output-format=json"]);
    let output = bench.output().context("cannot start cargo bench")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo bench ended with {}: {said}", output.status);
    parse(&String::from_utf8_lossy(&output.stdout)).map(Ok)
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

fn table(counts: &[Count]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["step", "instructions"]);
    for count in counts {
        table.add_row([count.name.clone(), count.instructions.to_string()]);
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
}
