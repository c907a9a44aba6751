//! A private OVS-DPDK: database, switch daemon, one PMD, vhost-user ports that it listens on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use proving_ground::process::{Supervised, eventually, run};
use proving_ground::skip::{Missing, hugepages, program};
use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Debian's alternative may still point at the daemon without DPDK, so it is named.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// Memory for OVS's packet buffers: with less its pool is halved until it fits.
const MEMORY_MB: u64 = 1024;

/// More than any row has.
const FLOW_LIMIT: u64 = 2_000_000;

/// A switch that is stopped while the other is measured keeps its flows.
const MAX_IDLE_MS: u64 = 3_600_000;

/// How long the daemon may take to carry out a command: it purges a million flows in some seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

const START_LIMIT: Duration = Duration::from_secs(30);

/// What `pmd-stats-show` says of the one PMD.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PmdStats {
    pub(crate) packets: f64,
    /// Busy cycles per packet, as OVS counts them: iterations that moved nothing are left out.
    pub(crate) cycles_per_packet: f64,
    pub(crate) packets_per_batch: f64,
    /// Of the elapsed cycles, those of iterations that moved something.
    pub(crate) busy_percent: f64,
    /// Packets that the tables had to be walked for, whether their flow was then cached or not.
    pub(crate) misses: f64,
}

/// A running OVS-DPDK; both daemons end with this.
#[derive(Debug)]
pub(crate) struct Ovs {
    // In the order in which they must end.
    vswitchd: Supervised,
    _database: Supervised,
    directory: TempDir,
    /// The revalidators are paused.
    holds_flows: bool,
}

impl Ovs {
    /// Whether OVS-DPDK can run here.
    pub(crate) fn available() -> Result<(), Missing> {
        for name in ["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-appctl", "ovs-ofctl"] {
            program(name, "openvswitch-switch-dpdk")?;
        }
        if !Path::new(VSWITCHD).exists() {
            return Err(Missing(format!(
                "{VSWITCHD} is not there (Debian: openvswitch-switch-dpdk)"
            )));
        }
        if !geteuid().is_root() {
            return Err(Missing("OVS-DPDK wants root".to_owned()));
        }
        hugepages(MEMORY_MB / 2)
    }

    /// Starts both daemons, with the PMD on `core`, and the bridge `br0`.
    pub(crate) fn start(core: usize) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("tollgate-ovs-").tempdir()?;
        let path = directory.path();
        run(tool(path, "ovsdb-tool").arg("create").arg(path.join("conf.db")).arg(SCHEMA))?;
        let mut database = tool(path, "ovsdb-server");
        database.arg(path.join("conf.db"));
        database.arg(format!("--remote=punix:{}", path.join("db.sock").display()));
        database.arg(format!("--unixctl={}", path.join("ovsdb.ctl").display()));
        let mut database =
            Supervised::spawn("ovsdb-server", &mut database, &path.join("ovsdb.log"))?;
        database.wait_until("database socket", START_LIMIT, |_| {
            path.join("db.sock").exists().then_some(())
        })?;
        configure(path, core)?;

        // nice replaces itself by the daemon; every thread of it inherits the value.
        let mut daemon = tool(path, "nice");
        daemon.args(["-n", "-20", VSWITCHD]);
        daemon.arg(format!("unix:{}", path.join("db.sock").display()));
        daemon.arg(format!("--unixctl={}", path.join("vswitchd.ctl").display()));
        let mut vswitchd =
            Supervised::spawn("ovs-vswitchd", &mut daemon, &path.join("vswitchd.log"))?;
        vswitchd.wait_until("control socket", START_LIMIT, |_| {
            path.join("vswitchd.ctl").exists().then_some(())
        })?;
        let ovs = Self { vswitchd, _database: database, directory, holds_flows: false };
        ovs.vsctl(&[
            "add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure",
            "protocols=OpenFlow13",
        ])?;
        let dpdk = ovs.vsctl(&["get Open_vSwitch . dpdk_initialized"])?;
        ensure!(dpdk.trim() == "true", "OVS has no DPDK:\n{}", ovs.vswitchd.output());
        Ok(ovs)
    }

    /// The exact settings, for whoever reads the figures.
    pub(crate) fn settings(core: usize) -> String {
        format!(
            "one PMD on core {core}, {MEMORY_MB} MB, EMC by default (1/100), SMC off, dpdkvhostuser \
             ports, max-idle {MAX_IDLE_MS} ms, flow-limit {FLOW_LIMIT} from the start, \
             min-revalidate-pps 0"
        )
    }

    /// Adds a port that OVS listens on; returns the path of its socket.
    pub(crate) fn add_port(&self, name: &str) -> anyhow::Result<PathBuf> {
        self.vsctl(&[&format!("add-port br0 {name} -- set Interface {name} type=dpdkvhostuser")])?;
        let socket = self.directory.path().join(name);
        eventually("OVS's vhost-user socket", START_LIMIT, || Ok(socket.exists().then_some(())))?;
        Ok(socket)
    }

    /// Replaces all flows by those of a file in ovs-ofctl's grammar, and forgets what is cached: not
    /// by `dpctl/del-flows`, after which OVS cannot install the same flows again.
    pub(crate) fn set_flows(&self, file: &Path) -> anyhow::Result<()> {
        let bridge = format!("unix:{}", self.directory.path().join("br0.mgmt").display());
        for arguments in [&["del-flows", &bridge][..], &["--bundle", "add-flows", &bridge]] {
            let mut ofctl = tool(self.directory.path(), "ovs-ofctl");
            ofctl.args(["-O", "OpenFlow13"]).args(arguments);
            if arguments.len() > 2 {
                ofctl.arg(file);
            }
            run(&mut ofctl)?;
        }
        // Purged flows are counted on for a while; over the limit none is installed.
        self.appctl(&["revalidator/purge"])?;
        self.raise_flow_limit()
    }

    /// The limit begins at 10000 and grows by a thousand a round of the revalidators, so that what
    /// is measured would depend on the daemon's age.
    fn raise_flow_limit(&self) -> anyhow::Result<()> {
        self.appctl(&["upcall/set-flow-limit", &FLOW_LIMIT.to_string()]).map(drop)
    }

    /// Stops the revalidators, which otherwise lower the flow limit while they need more than a
    /// second for a round, and then give up flows.
    pub(crate) fn hold_flows(&mut self, on: bool) -> anyhow::Result<()> {
        // One that is asked for again never answers.
        if on == self.holds_flows {
            return Ok(());
        }
        if on {
            self.raise_flow_limit()?;
        }
        self.appctl(&[if on { "revalidator/pause" } else { "revalidator/resume" }])?;
        self.holds_flows = on;
        Ok(())
    }

    /// Its exact-match cache, by default or off; the signature cache is off by default.
    pub(crate) fn set_emc(&self, on: bool) -> anyhow::Result<()> {
        let probability = if on { 100 } else { 0 };
        let emc = format!("other_config:emc-insert-inv-prob={probability}");
        self.vsctl(&["set Open_vSwitch .", &emc, "other_config:smc-enable=false"]).map(drop)
    }

    /// The switch daemon's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.vswitchd.id()
    }

    /// Forgets the PMD's statistics so far.
    pub(crate) fn clear_stats(&self) -> anyhow::Result<()> {
        self.appctl(&["dpif-netdev/pmd-stats-clear"]).map(drop)
    }

    /// The PMD's statistics since they were cleared.
    pub(crate) fn stats(&self) -> anyhow::Result<PmdStats> {
        parse_stats(&self.appctl(&["dpif-netdev/pmd-stats-show"])?)
    }

    /// Takes the daemon's cores away; its rings and caches stay as they are.
    pub(crate) fn pause(&mut self) -> anyhow::Result<()> {
        Ok(self.vswitchd.signal(Signal::STOP)?)
    }

    /// Gives the cores back.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        Ok(self.vswitchd.signal(Signal::CONT)?)
    }

    fn vsctl(&self, words: &[&str]) -> anyhow::Result<String> {
        vsctl(self.directory.path(), words)
    }

    fn appctl(&self, command: &[&str]) -> anyhow::Result<String> {
        let mut appctl = tool(self.directory.path(), "ovs-appctl");
        appctl.arg(format!("--timeout={}", ANSWER_LIMIT.as_secs()));
        run(appctl.arg("-t").arg(self.directory.path().join("vswitchd.ctl")).args(command))
    }
}

/// What must be in the database before the switch daemon starts.
fn configure(directory: &Path, core: usize) -> anyhow::Result<()> {
    let mask = format!("{:#x}", 1_u64 << core);
    // --no-pci: only virtual devices. --in-memory: no files left in hugetlbfs. The limit keeps OVS
    // from taking every hugepage. IOVA by virtual address: by physical one it ran out of memory.
    let settings = [
        "--no-wait init -- set Open_vSwitch .".to_owned(),
        "other_config:dpdk-init=true".to_owned(),
        format!("other_config:dpdk-socket-mem={MEMORY_MB}"),
        format!("other_config:dpdk-socket-limit={MEMORY_MB}"),
        format!("other_config:pmd-cpu-mask={mask}"),
        "other_config:vhost-sock-dir=.".to_owned(),
        format!("other_config:flow-limit={FLOW_LIMIT}"),
        format!("other_config:max-idle={MAX_IDLE_MS}"),
        // By default flows of few packets are given up rather than checked when ports change.
        "other_config:min-revalidate-pps=0".to_owned(),
    ];
    let words: Vec<&str> = settings.iter().map(String::as_str).collect();
    vsctl(directory, &words)?;
    let mut extra = vsctl_command(directory);
    extra.args(["--no-wait", "set", "Open_vSwitch", "."]);
    extra.arg("other_config:dpdk-extra=\"--no-pci --in-memory --no-telemetry --iova-mode=va\"");
    run(&mut extra).map(drop)
}

/// ovs-vsctl with words that contain no spaces of their own.
fn vsctl(directory: &Path, words: &[&str]) -> anyhow::Result<String> {
    let mut command = vsctl_command(directory);
    run(command.args(words.iter().flat_map(|words| words.split_whitespace())))
}

fn vsctl_command(directory: &Path) -> Command {
    let mut command = tool(directory, "ovs-vsctl");
    command.arg("--timeout=30");
    command.arg(format!("--db=unix:{}", directory.join("db.sock").display()));
    command
}

/// One of OVS's programs, with every directory of its own in ours.
fn tool(directory: &Path, name: &str) -> Command {
    let mut command = Command::new(name);
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, directory);
    }
    command
}

/// Reads the PMD's block; the main thread's has the same keys and comes after it or before.
fn parse_stats(text: &str) -> anyhow::Result<PmdStats> {
    let block = text
        .split("pmd thread")
        .nth(1)
        .and_then(|block| block.split("main thread").next())
        .with_context(|| format!("no PMD in {text}"))?;
    let number = |key: &str| -> Option<f64> {
        let line = block.lines().find_map(|line| line.trim().strip_prefix(key))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    // The line per packet is missing when there were none.
    Ok(PmdStats {
        packets: number("packets received").with_context(|| format!("no packets in {text}"))?,
        cycles_per_packet: number("avg processing cycles per packet").unwrap_or(f64::NAN),
        packets_per_batch: number("avg. packets per output batch").unwrap_or(f64::NAN),
        busy_percent: 100.0 - idle_percent(block).unwrap_or(f64::NAN),
        misses: ["miss with success upcall", "miss with failed upcall"]
            .into_iter()
            .filter_map(number)
            .sum(),
    })
}

fn idle_percent(block: &str) -> Option<f64> {
    let line = block.lines().find(|line| line.trim().starts_with("idle cycles"))?;
    line.split_once('(')?.1.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_stats;

    #[test]
    fn the_pmds_own_block_is_read() {
        let text = "pmd thread numa_id 0 core_id 0:\n  packets received: 4200\n  packet recirculations: 0\n  \
                    avg. datapath passes per packet: 1.00\n  emc hits: 0\n  miss with success upcall: 4\n  miss with failed upcall: 3\n  \
                    avg. packets per output batch: 31.90\n  idle cycles: 10 (1.00%)\n  \
                    processing cycles: 990 (99.00%)\n  avg cycles per packet: 300.00 (1/2)\n  \
                    avg processing cycles per packet: 293.10 (1/2)\nmain thread:\n  packets received: 7\n";
        let stats = parse_stats(text).unwrap();
        assert_eq!(
            (stats.packets, stats.cycles_per_packet, stats.packets_per_batch),
            (4200.0, 293.10, 31.90)
        );
        assert_eq!((stats.busy_percent, stats.misses), (99.0, 7.0));
    }
}
