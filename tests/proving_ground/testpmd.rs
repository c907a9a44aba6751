//! DPDK's `dpdk-testpmd` with `net_virtio_user` ports: real guests without a VM.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::geteuid;

use crate::process::Supervised;
use crate::skip::{Missing, hugepages, program};

/// EAL takes up to half a second; connecting to a switch on a busy machine some more.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The longest a testpmd command may take; `stop` waits for the forwarding core.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// Memory that testpmd takes, in MB and as 2 MB pages.
const MEMORY_MB: u64 = 256;

const PROMPT: &str = "testpmd> ";

/// Who makes a port's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The switch listens, testpmd connects.
    Connects,
    /// testpmd listens, the switch connects.
    Listens,
}

/// One `net_virtio_user` port.
#[derive(Debug, Clone)]
pub struct Port {
    /// The vhost-user socket.
    pub socket: PathBuf,
    /// Who makes it.
    pub role: Role,
    /// The guest's address.
    pub mac: String,
}

/// How testpmd is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The ports, in testpmd's numbering.
    pub ports: Vec<Port>,
    /// Driver arguments of every port, such as `mrg_rxbuf=0,queues=2`.
    pub driver: String,
    /// Queue pairs of every port that testpmd polls.
    pub queue_pairs: u16,
    /// Hugepage memory instead of ordinary pages.
    pub hugepages: bool,
    /// The CPU that testpmd's threads share.
    pub core: usize,
    /// Further arguments of testpmd itself, such as `--forward-mode=flowgen`.
    pub arguments: Vec<String>,
}

/// Packets and bytes that one port of testpmd counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

/// A running, interactive testpmd.
#[derive(Debug)]
pub struct Testpmd {
    process: Supervised,
    prompts_seen: usize,
}

impl Testpmd {
    /// Whether testpmd can run as asked.
    pub fn available(with_hugepages: bool) -> Result<(), Missing> {
        program("dpdk-testpmd", "dpdk-dev")?;
        if !geteuid().is_root() {
            return Err(Missing("dpdk-testpmd wants root".to_owned()));
        }
        if with_hugepages { hugepages(MEMORY_MB / 2) } else { Ok(()) }
    }

    /// Starts testpmd and waits for its prompt; forwarding is not started yet. `directory` takes its
    /// output.
    pub fn start(options: &Options, directory: &Path) -> anyhow::Result<Self> {
        let mut command = command(options)?;
        let process = Supervised::spawn("testpmd", &mut command, &directory.join("testpmd.log"))?;
        let mut testpmd = Self { process, prompts_seen: 0 };
        testpmd.await_prompt(START_LIMIT)?;
        Ok(testpmd)
    }

    /// Types a command and returns what it printed.
    pub fn command(&mut self, text: &str) -> anyhow::Result<String> {
        let before = self.process.output().len();
        let stdin = self.process.stdin().context("testpmd has no input")?;
        stdin.write_all(format!("{text}\n").as_bytes())?;
        self.await_prompt(COMMAND_LIMIT)?;
        let output = self.process.output();
        Ok(output.get(before..).unwrap_or_default().to_owned())
    }

    /// What a port has counted since testpmd began.
    pub fn port_stats(&mut self, port: usize) -> anyhow::Result<PortStats> {
        let text = self.command(&format!("show port stats {port}"))?;
        let number = |key: &str| -> anyhow::Result<u64> {
            let after = text.split(key).nth(1).with_context(|| format!("no {key} in {text}"))?;
            Ok(after.split_whitespace().next().unwrap_or_default().parse()?)
        };
        Ok(PortStats {
            rx_packets: number("RX-packets:")?,
            tx_packets: number("TX-packets:")?,
            rx_bytes: number("RX-bytes:")?,
            tx_bytes: number("TX-bytes:")?,
        })
    }

    /// Ends testpmd in good order, as an operator would.
    pub fn quit(mut self) -> anyhow::Result<()> {
        let stdin = self.process.stdin().context("testpmd has no input")?;
        stdin.write_all(b"quit\n")?;
        match self.process.wait(COMMAND_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("testpmd ended with {status}:\n{}", self.process.output()),
            None => bail!("testpmd does not quit:\n{}", self.process.output()),
        }
    }

    fn await_prompt(&mut self, limit: Duration) -> anyhow::Result<()> {
        let seen = self.prompts_seen;
        self.prompts_seen = self.process.wait_until("prompt", limit, |output| {
            let prompts = output.matches(PROMPT).count();
            (prompts > seen).then_some(prompts)
        })?;
        Ok(())
    }
}

fn command(options: &Options) -> anyhow::Result<Command> {
    // Pinned before EAL starts, or its control threads go to the switch's core.
    let mut command = Command::new("taskset");
    command.args(["-c", &options.core.to_string()]);
    // testpmd prints into a file here: line by line, or its answers would come after the next prompt.
    command.args(["stdbuf", "-oL"]);
    command.arg(program("dpdk-testpmd", "dpdk-dev")?);
    // testpmd wants two lcores (prompt and forwarding): both on the one CPU.
    command.arg("--lcores").arg(format!("0@{core},1@{core}", core = options.core));
    command.args(["--no-pci", "--no-telemetry", "-m", &MEMORY_MB.to_string()]);
    if options.hugepages {
        // vhost-user passes at most eight memory regions: one file for all segments.
        command.args(["--in-memory", "--single-file-segments"]);
    } else {
        command.args(["--no-huge", "--no-shconf"]);
    }
    for (number, port) in options.ports.iter().enumerate() {
        command.arg("--vdev").arg(device(number, port, &options.driver));
    }
    let queues = options.queue_pairs.to_string();
    command.args(["--", "-i", "--txd=256", "--rxd=256", "--total-num-mbufs=8192"]);
    command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
    command.args(&options.arguments);
    Ok(command)
}

fn device(number: usize, port: &Port, driver: &str) -> String {
    let server = if port.role == Role::Listens { ",server=1" } else { "" };
    let driver = if driver.is_empty() { String::new() } else { format!(",{driver}") };
    let path = port.socket.display();
    format!(
        "net_virtio_user{number},path={path},mac={mac},queue_size=256{server}{driver}",
        mac = port.mac
    )
}
