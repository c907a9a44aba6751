//! A switch that is measured: ours, or OVS-DPDK. Both are set up by the same words.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use proving_ground::Switch;
use proving_ground::switch::Options;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::machine::Cores;
use crate::ovs::Ovs;
use crate::threads;

/// What a switch spent on the packets of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Elapsed cycles but for turns that moved nothing, by packet.
    pub(crate) cycles_per_packet: f64,
    pub(crate) packets_per_burst: f64,
    /// Of the elapsed time, what was no turn that moved nothing.
    pub(crate) busy_percent: f64,
    /// Packets that no cached decision was there for.
    pub(crate) misses: f64,
    /// Of the packets, those.
    pub(crate) uncached: f64,
    /// Cycles of the PMD that were not idle, for each miss.
    pub(crate) cycles_per_miss: f64,
    /// CPU time of the threads that decide and look after flows beside the PMD.
    pub(crate) slow_path: Duration,
}

/// A switch with one PMD and one bridge.
pub(crate) trait Subject {
    fn name(&self) -> &'static str;
    /// The process that polls.
    fn pid(&self) -> u32;
    /// Adds a port that the switch listens on; where there are tenants, it is `tenant`'s.
    fn add_port(&mut self, port: &str, tenant: &str) -> anyhow::Result<()>;
    /// Adds a port that stands for a network card: what enters there is for others. A switch that
    /// makes no difference between cards and guests gets an ordinary port.
    fn add_uplink(&mut self, port: &str, tenant: &str) -> anyhow::Result<()> {
        self.add_port(port, tenant)
    }
    /// The socket of a port that was added.
    fn socket(&self, port: &str) -> anyhow::Result<PathBuf>;
    /// Replaces all flows, and forgets what is cached.
    fn set_flows(&mut self, flows: &[String]) -> anyhow::Result<()>;
    /// Packets are looked up in its exact-match cache, as by default, or among megaflows only.
    fn set_exact_match(&mut self, on: bool) -> anyhow::Result<()>;
    /// While held, no flow that is cached is given up, whatever the switch's own limits say.
    fn hold_flows(&mut self, on: bool) -> anyhow::Result<()>;
    /// Takes its core away until `resume`.
    fn pause(&mut self) -> anyhow::Result<()>;
    fn resume(&mut self) -> anyhow::Result<()>;
    /// From here on costs are counted.
    fn begin(&mut self) -> anyhow::Result<()>;
    /// The cost since `begin`.
    fn cost(&mut self) -> anyhow::Result<Cost>;
}

/// Ours.
#[derive(Debug)]
pub(crate) struct Tollgate {
    switch: Switch,
    sockets: BTreeMap<String, PathBuf>,
    begun: Counters,
    /// CPU time of the slow path then.
    slow_path_begun: Duration,
}

/// Threads that handle flows beside the PMD.
const SLOW_PATH: [&str; 2] = ["slow-path", "revalidator"];

impl Tollgate {
    pub(crate) fn start(cores: Cores) -> anyhow::Result<Self> {
        Self::start_with(cores, "")
    }

    /// The same with further sections of the configuration file.
    pub(crate) fn start_with(cores: Cores, sections: &str) -> anyhow::Result<Self> {
        let mut options = Options::on_core(cores.pmd);
        options.config.push_str(sections);
        let switch = Switch::start(options)?;
        switch.add_bridge("br0")?;
        let begun = Counters::default();
        Ok(Self { switch, sockets: BTreeMap::new(), begun, slow_path_begun: Duration::ZERO })
    }

    /// The daemon, for what only ours has.
    pub(crate) fn switch(&self) -> &Switch {
        &self.switch
    }
}

impl Subject for Tollgate {
    fn name(&self) -> &'static str {
        "Tollgate"
    }

    fn pid(&self) -> u32 {
        self.switch.pid()
    }

    fn add_port(&mut self, port: &str, tenant: &str) -> anyhow::Result<()> {
        self.sockets.insert(port.to_owned(), self.switch.add_port(port, tenant)?);
        Ok(())
    }

    fn add_uplink(&mut self, port: &str, tenant: &str) -> anyhow::Result<()> {
        let further = json!({"tenant": tenant, "mode": "listen", "uplink": true});
        self.sockets.insert(port.to_owned(), self.switch.add_port_with(port, further)?);
        Ok(())
    }

    fn socket(&self, port: &str) -> anyhow::Result<PathBuf> {
        self.sockets.get(port).cloned().with_context(|| format!("no port {port}"))
    }

    fn set_flows(&mut self, flows: &[String]) -> anyhow::Result<()> {
        self.switch.ofctl(&["del-flows", "br0"])?;
        let file = flow_file(flows)?;
        let path = file.path().to_str().context("a temporary path that is no text")?;
        self.switch.ofctl(&["add-flows", "br0", path]).map(drop)
    }

    fn set_exact_match(&mut self, on: bool) -> anyhow::Result<()> {
        self.switch.call("cache_set", json!({"exact_match": on})).map(drop)
    }

    fn hold_flows(&mut self, _on: bool) -> anyhow::Result<()> {
        // Its limits are configured, and hold as they are.
        Ok(())
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        self.switch.signal(Signal::STOP)
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.switch.signal(Signal::CONT)
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.begun = Counters::read(&self.switch)?;
        self.slow_path_begun = threads::cpu_time(self.switch.pid(), &SLOW_PATH)?;
        Ok(())
    }

    fn cost(&mut self) -> anyhow::Result<Cost> {
        let now = Counters::read(&self.switch)?;
        let busy = now.busy_cycles.saturating_sub(self.begun.busy_cycles) as f64;
        let packets = now.packets.saturating_sub(self.begun.packets) as f64;
        let bursts = now.bursts.saturating_sub(self.begun.bursts) as f64;
        let misses = now.misses.saturating_sub(self.begun.misses) as f64;
        let elapsed = now.elapsed_cycles.saturating_sub(self.begun.elapsed_cycles) as f64;
        let slow_path = threads::cpu_time(self.switch.pid(), &SLOW_PATH)?;
        Ok(Cost {
            cycles_per_packet: busy / packets,
            packets_per_burst: packets / bursts,
            busy_percent: 100.0 * busy / elapsed,
            misses,
            uncached: misses / packets,
            cycles_per_miss: busy / misses,
            slow_path: slow_path.saturating_sub(self.slow_path_begun),
        })
    }
}

/// One flow a line.
pub(crate) fn flow_file(flows: &[String]) -> anyhow::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    for flow in flows {
        writeln!(file, "{flow}")?;
    }
    file.flush()?;
    Ok(file)
}

/// The one PMD's running totals.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    elapsed_cycles: u64,
    busy_cycles: u64,
    packets: u64,
    /// Turns of a tenant: at most 32 packets each.
    bursts: u64,
    misses: u64,
}

impl Counters {
    fn read(switch: &Switch) -> anyhow::Result<Self> {
        let stats = switch.call("pmd_stats", json!({}))?;
        let pmd = stats["pmds"].get(0).with_context(|| format!("no PMD in {stats}"))?;
        let number = |key: &str| {
            pmd.get(key).and_then(Value::as_u64).with_context(|| format!("no {key} in {pmd}"))
        };
        Ok(Self {
            elapsed_cycles: number("elapsed_cycles")?,
            busy_cycles: number("elapsed_cycles")? - number("idle_cycles")?,
            packets: number("packets")?,
            bursts: number("tasks")?,
            misses: number("misses")?,
        })
    }
}

/// Theirs.
#[derive(Debug)]
pub(crate) struct OvsDpdk {
    ovs: Ovs,
    sockets: BTreeMap<String, PathBuf>,
    slow_path_begun: Duration,
}

impl OvsDpdk {
    pub(crate) fn start(cores: Cores) -> anyhow::Result<Self> {
        let ovs = Ovs::start(cores.pmd)?;
        Ok(Self { ovs, sockets: BTreeMap::new(), slow_path_begun: Duration::ZERO })
    }

    /// CPU time of the threads that look after flows; the PMD itself sets them up.
    fn slow_path(&self) -> anyhow::Result<Duration> {
        threads::cpu_time(self.ovs.pid(), &["handler", "revalidator"])
    }
}

impl Subject for OvsDpdk {
    fn name(&self) -> &'static str {
        "OVS-DPDK"
    }

    fn pid(&self) -> u32 {
        self.ovs.pid()
    }

    fn add_port(&mut self, port: &str, _tenant: &str) -> anyhow::Result<()> {
        self.sockets.insert(port.to_owned(), self.ovs.add_port(port)?);
        Ok(())
    }

    fn socket(&self, port: &str) -> anyhow::Result<PathBuf> {
        self.sockets.get(port).cloned().with_context(|| format!("no port {port}"))
    }

    fn set_flows(&mut self, flows: &[String]) -> anyhow::Result<()> {
        self.ovs.set_flows(flow_file(flows)?.path())
    }

    fn set_exact_match(&mut self, on: bool) -> anyhow::Result<()> {
        self.ovs.set_emc(on)
    }

    fn hold_flows(&mut self, on: bool) -> anyhow::Result<()> {
        self.ovs.hold_flows(on)
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        self.ovs.pause()
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.ovs.resume()
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.slow_path_begun = self.slow_path()?;
        self.ovs.clear_stats()
    }

    fn cost(&mut self) -> anyhow::Result<Cost> {
        let stats = self.ovs.stats()?;
        ensure!(stats.packets > 0.0, "OVS forwarded nothing");
        let busy_cycles = stats.cycles_per_packet * stats.packets;
        Ok(Cost {
            cycles_per_packet: stats.cycles_per_packet,
            packets_per_burst: stats.packets_per_batch,
            busy_percent: stats.busy_percent,
            misses: stats.misses,
            uncached: stats.misses / stats.packets,
            cycles_per_miss: busy_cycles / stats.misses,
            slow_path: self.slow_path()?.saturating_sub(self.slow_path_begun),
        })
    }
}
