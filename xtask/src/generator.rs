//! Our own guest and load generator, as a child process with its report read back.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use proving_ground::binaries;
use proving_ground::process::Supervised;
use serde::Deserialize;
use tempfile::TempDir;

/// How long frames under way are waited for at the end, and attaching at the start.
const SLACK: Duration = Duration::from_secs(30);

/// What a pair of guests does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As many frames as the ring takes, one way.
    FlatOut,
    /// So many frames a second, one way.
    Stream(u32),
    /// As many frames as a window allows that ECN marks and losses make smaller, one way.
    Dctcp,
    /// So many round trips a second, one at a time.
    RoundTrips(u32),
}

/// One direction of traffic between two guests.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) name: String,
    /// The sender's and the receiver's port.
    pub(crate) ports: [String; 2],
    /// Their sockets.
    pub(crate) sockets: [PathBuf; 2],
    pub(crate) mode: Mode,
    /// On the ring: without the wire's checksum.
    pub(crate) frame_bytes: usize,
    /// Further keys of the pair, `key=value,...`, as `tollgate-guest --help` explains them.
    pub(crate) keys: String,
    /// Further keys of both ports.
    pub(crate) port_keys: &'static str,
}

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) pairs: Vec<Pair>,
    /// Ports that receive and belong to no pair, with their sockets and further keys.
    pub(crate) listeners: Vec<(String, PathBuf, &'static str)>,
    /// Traffic before the measured time.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// Length of the intervals that are reported one by one.
    pub(crate) interval: Duration,
    /// The generator's CPU.
    pub(crate) core: usize,
}

/// A generator at work.
#[derive(Debug)]
pub(crate) struct Running {
    process: Supervised,
    limit: Duration,
    _directory: TempDir,
}

/// What a phase measured; the generator's own report has more.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) interval_seconds: f64,
    pub(crate) tsc_hz: u64,
    /// When the measured time began.
    pub(crate) start_tsc: u64,
    /// How late the generator's one thread may have seen a frame.
    pub(crate) loop_us: Option<Quantiles>,
    generator: LoopOutcome,
    pairs: Vec<PairOutcome>,
}

/// What else the generator's thread did.
#[derive(Debug, Clone, Copy, Deserialize)]
struct LoopOutcome {
    /// Time in rounds that moved something. Near 100, it is the limit.
    busy_percent: f64,
}

/// What became of one pair's frames.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PairOutcome {
    name: String,
    pub(crate) completed_percent: f64,
    pub(crate) corrupted: u64,
    pub(crate) misdelivered: u64,
    /// Sent and never received.
    pub(crate) lost: u64,
    /// Received with ECN's congestion mark, by a sender that heeds it.
    pub(crate) marked: u64,
    pub(crate) tx_mpps: f64,
    pub(crate) rx_mpps: f64,
    /// From the intended time of sending to arrival (of the reply).
    pub(crate) latency_us: Option<Quantiles>,
    /// The same without those that met a stall of the generator's own thread.
    pub(crate) undisturbed_us: Option<Quantiles>,
    pub(crate) intervals: Vec<Interval>,
}

impl PairOutcome {
    /// The median over the intervals of each interval's quantile. A virtual machine loses its cores
    /// for milliseconds, several times a second; that is in the quantiles of the whole, whatever the
    /// switch does, but not in those of the typical interval.
    pub(crate) fn typical_us(&self, quantile: fn(&Quantiles) -> f64) -> Option<f64> {
        let of_intervals =
            self.intervals.iter().filter_map(|interval| interval.latency_us.as_ref());
        let mut values: Vec<f64> = of_intervals.map(quantile).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }
}

/// One interval of one pair.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Interval {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) latency_us: Option<Quantiles>,
}

/// Of a distribution of times, in microseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
}

impl Load {
    /// Starts the generator; it attaches, warms up and measures by itself.
    pub(crate) fn start(&self) -> anyhow::Result<Running> {
        let mut command = binaries::command_at_nice("tollgate-guest", Some(-20))?;
        command.args(["--format", "json", "--core", &self.core.to_string()]);
        for (flag, time) in [
            ("--warmup", self.warm_up),
            ("--seconds", self.measured),
            ("--interval", self.interval),
        ] {
            command.arg(flag).arg(time.as_secs_f64().to_string());
        }
        for (port, socket, keys) in &self.listeners {
            command.arg("--port").arg(format!("{port},path={}{}", socket.display(), comma(keys)));
        }
        for pair in &self.pairs {
            for (port, socket) in pair.ports.iter().zip(&pair.sockets) {
                let keys = comma(pair.port_keys);
                command.arg("--port").arg(format!("{port},path={}{keys}", socket.display()));
            }
            command.arg("--pair").arg(pair.argument());
        }
        let directory = tempfile::tempdir()?;
        let output = directory.path().join("report.json");
        let process = Supervised::spawn("tollgate-guest", &mut command, &output)?;
        let limit = self.warm_up + self.measured + SLACK;
        Ok(Running { process, limit, _directory: directory })
    }
}

impl Pair {
    /// A pair without ports and further keys.
    pub(crate) fn new(name: &str, mode: Mode, frame_bytes: usize) -> Self {
        Self {
            name: name.to_owned(),
            ports: Default::default(),
            sockets: Default::default(),
            mode,
            frame_bytes,
            keys: String::new(),
            port_keys: "",
        }
    }

    fn argument(&self) -> String {
        let [from, to] = &self.ports;
        let mode = match self.mode {
            Mode::FlatOut => "mode=stream".to_owned(),
            Mode::Stream(rate) => format!("mode=stream,rate={rate}"),
            Mode::Dctcp => "mode=dctcp".to_owned(),
            Mode::RoundTrips(rate) => format!("mode=rpc,rate={rate}"),
        };
        let keys = comma(&self.keys);
        format!("{},from={from},to={to},size={},{mode}{keys}", self.name, self.frame_bytes)
    }
}

fn comma(keys: &str) -> String {
    if keys.is_empty() { String::new() } else { format!(",{keys}") }
}

impl Running {
    /// Whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.process.wait(Duration::ZERO)?.is_none())
    }

    /// Waits for the generator's end and reads its report.
    pub(crate) fn finish(mut self) -> anyhow::Result<Outcome> {
        let status = self.process.wait(self.limit)?.context("tollgate-guest does not end")?;
        let output = self.process.output();
        // 1 says that frames came back other than the pair expects, as mirrored ones do; whoever
        // reads the report decides what is wrong.
        ensure!(
            matches!(status.code(), Some(0 | 1)),
            "tollgate-guest ended with {status}: {output}"
        );
        let reports: Vec<Outcome> = serde_json::from_str(&output)
            .with_context(|| format!("tollgate-guest's report cannot be read: {output}"))?;
        reports.into_iter().next().context("tollgate-guest reported nothing")
    }
}

impl Outcome {
    /// What one pair saw.
    pub(crate) fn pair(&self, name: &str) -> anyhow::Result<&PairOutcome> {
        let found = self.pairs.iter().find(|pair| pair.name == name);
        found.with_context(|| format!("no pair {name} in the generator's report"))
    }

    /// Of the measured time, what the generator's thread spent in rounds that moved something.
    pub(crate) fn busy_percent(&self) -> f64 {
        self.generator.busy_percent
    }

    /// 99th percentile of the generator's loop.
    pub(crate) fn loop_p99_us(&self) -> f64 {
        self.loop_us.map_or(f64::NAN, |times| times.p99)
    }
}

/// Builds the programs in release mode, with cargo's own progress on the terminal, and makes them
/// the ones that are run.
pub(crate) fn build_release() -> anyhow::Result<()> {
    let status = binaries::build(true)?.status().context("cannot start cargo")?;
    ensure!(status.success(), "the build failed");
    binaries::use_directory(binaries::target_directory()?.join("release"))
}
