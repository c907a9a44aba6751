//! A load generator that is not ours, by the contract of docs/measuring.md: then a ratio does not hang
//! on what our own does well or badly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use proving_ground::process::Supervised;
use serde::Deserialize;
use tempfile::TempDir;

use super::bench::{Plan, Seen};
use super::row::{Kind, Row};

/// How long it may take to start and to end.
const SLACK: Duration = Duration::from_secs(30);

/// What it calls the only pair.
const PAIR: &str = "pair0";

/// A program that keeps the contract.
#[derive(Debug, Clone)]
pub(super) struct Other {
    program: PathBuf,
}

/// It at work.
#[derive(Debug)]
pub(super) struct Running {
    process: Supervised,
    limit: Duration,
    _directory: TempDir,
}

#[derive(Debug, Deserialize)]
struct Report {
    pairs: BTreeMap<String, PairReport>,
    loop_us: Option<Times>,
}

#[derive(Debug, Deserialize)]
struct PairReport {
    sent: u64,
    received: u64,
    misdelivered: u64,
    rx_mpps: f64,
    latency_us: Option<Times>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Times {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Other {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        ensure!(program.is_file(), "--generator {program:?}: there is no such program");
        // Also when it is given without a directory.
        Ok(Self { program: program.canonicalize()? })
    }

    pub(super) fn start(
        &self,
        row: &Row,
        sockets: &[PathBuf; 2],
        core: usize,
        plan: Plan,
    ) -> anyhow::Result<Running> {
        // nice replaces itself by the program.
        let mut command = Command::new("nice");
        command.args(["-n", "-20"]).arg(&self.program).args(arguments(row, sockets, core, plan));
        let directory = tempfile::tempdir()?;
        let output = directory.path().join("report");
        let process = Supervised::spawn("the other generator", &mut command, &output)?;
        let limit = plan.warm_up + plan.measured + SLACK;
        Ok(Running { process, limit, _directory: directory })
    }
}

fn arguments(row: &Row, sockets: &[PathBuf; 2], core: usize, plan: Plan) -> Vec<String> {
    let [from, to] = sockets;
    let mut pair = format!("{PAIR},from=a,to=b,size={}", row.frame_bytes);
    let mut key = |key: String| {
        pair.push(',');
        pair.push_str(&key);
    };
    if row.kind == Kind::RoundTrips {
        key("mode=rpc".to_owned());
    }
    if row.rate() > 0 {
        key(format!("rate={}", row.rate()));
    }
    row.pair_keys().into_iter().for_each(key);
    vec![
        "--core".to_owned(),
        core.to_string(),
        "--warmup".to_owned(),
        plan.warm_up.as_secs_f64().to_string(),
        "--seconds".to_owned(),
        plan.measured.as_secs_f64().to_string(),
        "--port".to_owned(),
        format!("a,path={}", from.display()),
        "--port".to_owned(),
        format!("b,path={}", to.display()),
        "--pair".to_owned(),
        pair,
    ]
}

impl Running {
    /// Waits until the measured time begins.
    pub(super) fn await_measuring(&mut self) -> anyhow::Result<()> {
        let limit = self.limit;
        self.process.wait_until("line with \"measuring\"", limit, |output| {
            output.contains("measuring").then_some(())
        })
    }

    pub(super) fn finish(mut self) -> anyhow::Result<Seen> {
        let status = self.process.wait(self.limit)?.context("the other generator does not end")?;
        let output = self.process.output();
        ensure!(status.success(), "the other generator ended with {status}: {output}");
        read(&output).with_context(|| format!("the other generator's report: {output}"))
    }
}

/// Reads the report, which begins with the first line that begins with a brace.
fn read(output: &str) -> anyhow::Result<Seen> {
    let mut begin = 0;
    for line in output.split_inclusive('\n') {
        if line.starts_with('{') {
            break;
        }
        begin += line.len();
    }
    let report = output.get(begin..).filter(|rest| !rest.is_empty()).context("no JSON object")?;
    let mut documents = serde_json::Deserializer::from_str(report).into_iter::<Report>();
    let report = documents.next().context("no JSON object")??;
    let pair = report.pairs.get(PAIR).with_context(|| format!("no pair {PAIR}"))?;
    ensure!(pair.misdelivered == 0, "{} frames came out elsewhere", pair.misdelivered);
    let time = |times: Option<Times>, of: fn(Times) -> f64| times.map_or(f64::NAN, of);
    Ok(Seen {
        mpps: pair.rx_mpps,
        busy_percent: f64::NAN,
        completed_percent: 100.0 * pair.received as f64 / pair.sent as f64,
        p50_us: time(pair.latency_us, |times| times.p50),
        p99_us: time(pair.latency_us, |times| times.p99),
        loop_p99_us: time(report.loop_us, |times| times.p99),
        loop_max_us: time(report.loop_us, |times| times.max),
    })
}

#[cfg(test)]
mod tests {
    use super::super::row::chosen;
    use super::*;

    #[test]
    fn the_contract_is_what_the_manual_says() -> anyhow::Result<()> {
        let manual = include_str!("../../../docs/measuring.md");
        let plan =
            Plan { pairs: 1, warm_up: Duration::from_secs(1), measured: Duration::from_secs(2) };
        let sockets = [PathBuf::from("/run/v0"), PathBuf::from("/run/v1")];
        let line = |row: &str| -> anyhow::Result<String> {
            let rows = chosen(&[row.to_owned()])?;
            let row = rows.first().context("no row")?;
            Ok(arguments(row, &sockets, 1, plan).join(" "))
        };
        let plain = "--core 1 --warmup 1 --seconds 2 --port a,path=/run/v0 --port b,path=/run/v1 \
                     --pair pair0,from=a,to=b,size=1496";
        assert_eq!(line("size-1500")?, plain);
        assert!(manual.contains(&plain.replace(" --port a", " \\\n      --port a")), "{plain}");
        let keys = ["flows=1000,order=rand", "mode=rpc,rate=10000"];
        for (row, keys) in ["flows-1k", "trips"].iter().zip(keys) {
            assert!(line(row)?.ends_with(&format!("size=60,{keys}")), "{}", line(row)?);
            let keys = keys.replace("flows=1000", "flows=N");
            assert!(keys.split(',').all(|key| manual.contains(key)), "{keys}");
        }
        Ok(())
    }

    #[test]
    fn a_report_is_found_behind_other_output() -> anyhow::Result<()> {
        let report = "{\"pairs\": {\"pair0\": {\"sent\": 200, \"received\": 100, \"misdelivered\": 0,\n\
                      \"rx_mpps\": 7.5, \"latency_us\": {\"p50\": 1.0, \"p99\": 2.0, \"max\": 3.0}}}}";
        let seen = read(&format!("EAL: hello\ngen: measuring\n{report}\nbye\n"))?;
        assert_eq!((seen.mpps, seen.completed_percent, seen.p99_us), (7.5, 50.0, 2.0));
        assert!(seen.loop_p99_us.is_nan());
        assert!(read("no report\n").is_err());
        assert!(read(&report.replace("\"misdelivered\": 0", "\"misdelivered\": 1")).is_err());
        Ok(())
    }
}
