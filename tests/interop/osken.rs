//! os-ken's OpenFlow 1.3 switch test cases, played by us: its own runner wants a second OpenFlow
//! switch as tester, here guests send and receive.
//!
//! `passing.txt` lists the cases that pass, and may only grow: a listed case that fails is a
//! failure, and so is a case that passes without being listed (`UPDATE_OSKEN=1` lists it).
//!
//! What is not listed needs MPLS, PBB, tunnels, groups, extension header flags or DSCP bands, or sets
//! a field that OVS does not set either (eth_type, ip_proto); and eight cases set SCTP ports of packets
//! whose checksum os-ken computes over a Python object's text: a wrong one stays wrong, but not in
//! the way that they expect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use proving_ground::controller::{Controller, MULTIPART_REPLY, PACKET_IN};
use proving_ground::require;
use proving_ground::skip::{Missing, python_with};
use serde_json::{Value, json};

use proving_ground::lab::Lab;

/// Ports of the switch under test, numbered 1 to 3 as the cases expect. Packets enter by the first
/// and leave by the second.
const PORTS: [&str; 3] = ["port1", "port2", "port3"];

/// How long a meter's rate is measured.
const MEASURE: Duration = Duration::from_millis(1500);
/// Frames sent at once before that, in seconds of the meter's rate: os-ken gives meters no burst, and
/// a switch may choose one of up to a second.
const DRAIN_SECONDS: f64 = 1.2;
/// Measurements of which one must be right.
const ATTEMPTS: usize = 3;
/// What os-ken allows between the measured rate and the meter's.
const RATE_TOLERANCE: f64 = 0.10;

#[test]
#[allow(clippy::print_stdout)]
fn cases_that_passed_still_pass() -> anyhow::Result<()> {
    let python = require!(python_with("os_ken", "os-ken"));
    let cases = require!(cases(&python));
    ensure!(cases.len() > 900, "only {} cases were found", cases.len());
    let mut bench = Bench::new()?;
    let mut passing = BTreeSet::new();
    let mut failures = BTreeMap::new();
    for case in &cases {
        match bench.play(case) {
            Ok(()) => drop(passing.insert(case.name.clone())),
            Err(reason) => drop(failures.insert(case.name.clone(), format!("{reason:#}"))),
        }
    }
    bench.lab.switch.stop()?;
    println!("{} of {} cases pass", passing.len(), cases.len());
    judge(&passing, &failures)
}

/// Compares with the committed list.
#[allow(clippy::print_stdout)]
fn judge(passing: &BTreeSet<String>, failures: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/osken/passing.txt");
    let listed: BTreeSet<String> =
        fs::read_to_string(&file).unwrap_or_default().lines().map(str::to_owned).collect();
    let broken: Vec<_> = failures.iter().filter(|(name, _)| listed.contains(*name)).collect();
    ensure!(broken.is_empty(), "{} cases passed once: {broken:#?}", broken.len());
    if std::env::var_os("UPDATE_OSKEN").is_some() {
        failures.iter().for_each(|(name, reason)| println!("{name}\n    {reason}"));
        let lines: Vec<_> = passing.union(&listed).map(String::as_str).collect();
        return Ok(fs::write(&file, lines.join("\n") + "\n")?);
    }
    let new: Vec<_> = passing.difference(&listed).collect();
    ensure!(new.is_empty(), "these pass and are not listed (UPDATE_OSKEN=1): {new:#?}");
    Ok(())
}

/// One case: what is set up, and packets with their expected fate.
struct Case {
    name: String,
    setup: Vec<Vec<u8>>,
    tests: Vec<Test>,
}

struct Test {
    packet: Vec<u8>,
    fate: Fate,
}

enum Fate {
    /// These bytes leave by the second port.
    Egress(Vec<u8>),
    /// These bytes go to the controller.
    PacketIn(Vec<u8>),
    /// One of the tables looks it up and none matches.
    TableMiss(Vec<usize>),
    /// Of packets sent at a rate (a second), about so many a second leave by the second port.
    Throughput { sent: f64, passed: f64 },
}

/// All cases, as the installed package has them.
fn cases(python: &Path) -> Result<Vec<Case>, Missing> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/osken/export_cases.py");
    let output = Command::new(python).arg(script).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| Missing(format!("{python:?} does not start: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Missing(format!("os-ken's cases cannot be read: {said}")));
    }
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let parsed = lines.map(|line| Case::parse(&serde_json::from_slice(line)?));
    parsed
        .collect::<anyhow::Result<_>>()
        .map_err(|error| Missing(format!("os-ken's cases cannot be read: {error:#}")))
}

impl Case {
    fn parse(case: &Value) -> anyhow::Result<Self> {
        let text = |key: &str| case[key].as_str().with_context(|| format!("no {key} in {case}"));
        let list = |key: &str| case[key].as_array().with_context(|| format!("no {key} in {case}"));
        Ok(Self {
            name: format!("{} {}", text("file")?, text("case")?.replace('\n', " ")),
            setup: list("setup")?.iter().map(bytes).collect::<anyhow::Result<_>>()?,
            tests: list("tests")?.iter().map(Test::parse).collect::<anyhow::Result<_>>()?,
        })
    }
}

impl Test {
    fn parse(test: &Value) -> anyhow::Result<Self> {
        let packet = bytes(&test["packet"])?;
        let fate = match test["expect"].as_str() {
            Some("egress") => Fate::Egress(bytes(&test["bytes"])?),
            Some("packet_in") => Fate::PacketIn(bytes(&test["bytes"])?),
            Some("table_miss") => {
                let tables = test["tables"].as_array().context("no tables")?;
                Fate::TableMiss(tables.iter().flat_map(Value::as_u64).map(|t| t as usize).collect())
            }
            Some("throughput") => {
                let flow = &test["flows"][0];
                let bits = packet.len() as f64 * 8.0;
                let by_bits = flow["kilobits_per_second"].as_f64().map(|kbps| kbps * 1024.0 / bits);
                let passed = flow["packets_per_second"].as_f64().or(by_bits);
                Fate::Throughput {
                    sent: test["packets_per_second"].as_f64().context("no packets_per_second")?,
                    passed: passed.context("no rate")?,
                }
            }
            other => bail!("unknown expectation {other:?}"),
        };
        Ok(Self { packet, fate })
    }
}

fn bytes(hex: &Value) -> anyhow::Result<Vec<u8>> {
    let hex = hex.as_str().context("not text")?;
    let pairs = (0..hex.len()).step_by(2).map(|at| hex.get(at..at + 2).unwrap_or_default());
    pairs.map(|pair| Ok(u8::from_str_radix(pair, 16)?)).collect()
}

/// A switch with three guests and a controller.
struct Bench {
    lab: Lab,
    controller: Controller,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let lab = Lab::new(&PORTS)?;
        let socket: PathBuf = lab.switch.run_dir().join("br0.controller");
        let target = format!("punix:{}", socket.display());
        lab.switch.call("controller_set", json!({"bridge": "br0", "targets": [target]}))?;
        let controller = Controller::connect(&socket)?;
        Ok(Self { lab, controller })
    }

    fn play(&mut self, case: &Case) -> anyhow::Result<()> {
        self.clear()?;
        for message in &case.setup {
            self.controller.send(message)?;
        }
        self.controller.barrier().context("setup")?;
        for test in &case.tests {
            self.check(test)?;
        }
        Ok(())
    }

    /// No flow, meter or group is left of the case before. A switch without groups need not know
    /// how to delete them.
    fn clear(&mut self) -> anyhow::Result<()> {
        let mut flow_mod = vec![4, 14, 0, 56, 0, 0, 0, 0];
        flow_mod.extend([0; 16]);
        // Table ALL, command DELETE, no timeouts, priority 0, no buffer, any port, any group.
        flow_mod.extend([0xff, 3, 0, 0, 0, 0, 0, 0]);
        flow_mod.extend([0xff; 12]);
        flow_mod.extend([0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0]);
        self.controller.send(&flow_mod)?;
        self.controller.send(&[4, 29, 0, 16, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xff, 0xff, 0xff])?;
        self.controller.barrier().context("clearing the tables")?;
        self.lab.collect().map(drop)
    }

    fn check(&mut self, test: &Test) -> anyhow::Result<()> {
        match &test.fate {
            Fate::Egress(expected) => {
                let arrivals = self.lab.deliver(PORTS[0], &test.packet)?;
                let frames = arrivals.get(PORTS[1]).map_or(&[][..], Vec::as_slice);
                ensure!(frames == [expected.clone()], "{arrivals:02x?}\nnot {expected:02x?}");
            }
            Fate::PacketIn(expected) => {
                self.lab.deliver(PORTS[0], &test.packet)?;
                let heard = self.controller.barrier()?;
                let packet_ins = heard.iter().filter(|message| message.kind() == PACKET_IN);
                let packets: Vec<_> =
                    packet_ins.map(|message| packet_in_data(message.body())).collect();
                ensure!(packets == [Some(&expected[..])], "{packets:02x?}\nnot {expected:02x?}");
            }
            Fate::TableMiss(tables) => {
                let before = self.table_counts()?;
                self.lab.deliver(PORTS[0], &test.packet)?;
                let after = self.table_counts()?;
                let count = |counts: &[(u64, u64)], table: usize| counts.get(table).copied();
                let pairs = tables.iter().map(|t| count(&before, *t).zip(count(&after, *t)));
                let pairs: Vec<_> = pairs.flatten().collect();
                ensure!(pairs.iter().any(|(a, b)| a.0 < b.0), "no table of {tables:?} was asked");
                ensure!(pairs.iter().all(|(a, b)| a.1 == b.1), "a table of {tables:?} matched");
            }
            Fate::Throughput { sent, passed } => {
                // A machine that stands still for a tenth of the time is no fault of the meter's; a
                // wrong meter is wrong each time.
                let mut attempts =
                    (0..ATTEMPTS).map(|_| self.measure(&test.packet, *sent, *passed));
                attempts
                    .find(Result::is_ok)
                    .unwrap_or_else(|| self.measure(&test.packet, *sent, *passed))?;
            }
        }
        Ok(())
    }

    /// Look-ups and matches of each table, by the tables' statistics (OpenFlow 1.3.5, A.3.5.3).
    fn table_counts(&mut self) -> anyhow::Result<Vec<(u64, u64)>> {
        self.controller.send(&[4, 18, 0, 16, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0])?;
        let replies = self.controller.barrier()?;
        let tables = replies.iter().filter(|message| message.kind() == MULTIPART_REPLY);
        let entries =
            tables.flat_map(|message| message.body().get(8..).unwrap_or_default().chunks(24));
        let number = |entry: &[u8], at: usize| {
            let bytes = entry.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_be_bytes).context("a short table entry")
        };
        entries.map(|entry| Ok((number(entry, 8)?, number(entry, 16)?))).collect()
    }

    /// Empties the meter's bucket, then sends at a steady rate and counts. A machine that is too busy to
    /// send faster than the meter must see all of it pass.
    fn measure(&mut self, packet: &[u8], rate: f64, passed: f64) -> anyhow::Result<()> {
        // Answers the switch's echo requests, which it may not have to wait for too long.
        self.controller.barrier()?;
        let (mut drained, mut drained_frames) = (0.0, 0);
        while drained < passed * DRAIN_SECONDS {
            drained += f64::from(u8::from(self.lab.port(PORTS[0])?.send(packet, 1)));
            self.take(&mut drained_frames)?;
        }
        self.lab.settle()?;
        self.lab.collect()?;
        let began = Instant::now();
        let (mut sent, mut arrived) = (0_u32, 0_u32);
        while began.elapsed() < MEASURE {
            let due = began.elapsed().as_secs_f64() * rate;
            while f64::from(sent) < due && self.lab.port(PORTS[0])?.send(packet, 1) {
                sent += 1;
            }
            self.take(&mut arrived)?;
            std::thread::sleep(Duration::from_micros(500));
        }
        let seconds = began.elapsed().as_secs_f64();
        self.lab.settle()?;
        self.take(&mut arrived)?;
        let [sent, arrived] = [sent, arrived].map(|frames| f64::from(frames) / seconds);
        let expected = passed.min(sent);
        let error = (arrived - expected).abs() / expected;
        ensure!(error <= RATE_TOLERANCE, "{arrived:.0} of {sent:.0} packets/s, not {passed:.0}");
        Ok(())
    }

    /// Takes all that has arrived at the second port: what is left in its ring would be in the way.
    fn take(&mut self, frames: &mut u32) -> anyhow::Result<()> {
        while self.lab.port(PORTS[1])?.receive(|_| *frames += 1)? > 0 {}
        Ok(())
    }
}

/// The frame in a packet-in's body: after the fixed part, the match (padded to 8 bytes) and two
/// bytes of padding (OpenFlow 1.3.5, 7.4.1). `None` for the reasons "no match" and "invalid TTL",
/// which os-ken does not take for a controller action.
fn packet_in_data(body: &[u8]) -> Option<&[u8]> {
    const ACTION: u8 = 1;
    let [.., reason, _table] = *body.first_chunk::<8>()?;
    let [_, _, high, low] = *body.get(16..20)?.first_chunk::<4>()?;
    let matched = usize::from(u16::from_be_bytes([high, low])).next_multiple_of(8);
    (reason == ACTION).then(|| body.get(16 + matched + 2..)).flatten()
}
