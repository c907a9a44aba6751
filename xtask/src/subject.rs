//! A switch that is measured: ours, or OVS-DPDK. Both are set up by the same words.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use proving_ground::Switch;
use proving_ground::switch::Options;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::machine::Cores;
use crate::ovs::Ovs;

/// What a switch spent on the packets of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Elapsed cycles but for turns that moved nothing, by packet.
    pub(crate) cycles_per_packet: f64,
    pub(crate) packets_per_burst: f64,
    /// Of the packets, those whose flow the switch failed to cache.
    pub(crate) uncached: f64,
}

/// A switch with one PMD and one bridge.
pub(crate) trait Subject {
    fn name(&self) -> &'static str;
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
}

impl Tollgate {
    pub(crate) fn start(cores: Cores) -> anyhow::Result<Self> {
        let switch = Switch::start(Options::on_core(cores.pmd))?;
        switch.add_bridge("br0")?;
        Ok(Self { switch, sockets: BTreeMap::new(), begun: Counters::default() })
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

    fn pause(&mut self) -> anyhow::Result<()> {
        self.switch.signal(Signal::STOP)
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.switch.signal(Signal::CONT)
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.begun = Counters::read(&self.switch)?;
        Ok(())
    }

    fn cost(&mut self) -> anyhow::Result<Cost> {
        let now = Counters::read(&self.switch)?;
        let busy = now.busy_cycles.saturating_sub(self.begun.busy_cycles) as f64;
        let packets = now.packets.saturating_sub(self.begun.packets) as f64;
        let bursts = now.bursts.saturating_sub(self.begun.bursts) as f64;
        Ok(Cost {
            cycles_per_packet: busy / packets,
            packets_per_burst: packets / bursts,
            uncached: 0.0,
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
    busy_cycles: u64,
    packets: u64,
    /// Turns of a tenant: at most 32 packets each.
    bursts: u64,
}

impl Counters {
    fn read(switch: &Switch) -> anyhow::Result<Self> {
        let stats = switch.call("pmd_stats", json!({}))?;
        let pmd = stats["pmds"].get(0).with_context(|| format!("no PMD in {stats}"))?;
        let number = |key: &str| {
            pmd.get(key).and_then(Value::as_u64).with_context(|| format!("no {key} in {pmd}"))
        };
        Ok(Self {
            busy_cycles: number("elapsed_cycles")? - number("idle_cycles")?,
            packets: number("packets")?,
            bursts: number("tasks")?,
        })
    }
}

/// Theirs.
#[derive(Debug)]
pub(crate) struct OvsDpdk {
    ovs: Ovs,
    sockets: BTreeMap<String, PathBuf>,
}

impl OvsDpdk {
    pub(crate) fn start(cores: Cores) -> anyhow::Result<Self> {
        Ok(Self { ovs: Ovs::start(cores.pmd)?, sockets: BTreeMap::new() })
    }
}

impl Subject for OvsDpdk {
    fn name(&self) -> &'static str {
        "OVS-DPDK"
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

    fn pause(&mut self) -> anyhow::Result<()> {
        self.ovs.pause()
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.ovs.resume()
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.ovs.clear_stats()
    }

    fn cost(&mut self) -> anyhow::Result<Cost> {
        let stats = self.ovs.stats()?;
        ensure!(stats.packets > 0.0, "OVS forwarded nothing");
        Ok(Cost {
            cycles_per_packet: stats.cycles_per_packet,
            packets_per_burst: stats.packets_per_batch,
            uncached: stats.failed_upcalls / stats.packets,
        })
    }
}
