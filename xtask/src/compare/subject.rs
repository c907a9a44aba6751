//! A switch that is measured: ours, or OVS-DPDK.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use proving_ground::Switch;
use proving_ground::switch::Options;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::machine::Cores;
use crate::ovs::Ovs;

/// The same flows for both, as a user writes them.
const FLOWS: [&str; 2] = ["in_port=v0,actions=output:v1", "in_port=v1,actions=output:v0"];

/// What a switch spent on the packets of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Elapsed cycles but for turns that moved nothing, by packet.
    pub(super) cycles_per_packet: f64,
    pub(super) packets_per_burst: f64,
}

/// A switch with two ports and a flow each way.
pub(super) trait Subject {
    fn name(&self) -> &'static str;
    /// The sockets of the sending and of the receiving guest.
    fn sockets(&self) -> [PathBuf; 2];
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
pub(super) struct Tollgate {
    switch: Switch,
    sockets: [PathBuf; 2],
    begun: Counters,
}

impl Tollgate {
    pub(super) fn start(cores: Cores) -> anyhow::Result<Self> {
        let switch = Switch::start(Options::on_core(cores.pmd))?;
        switch.add_bridge("br0")?;
        let sockets = [switch.add_port("v0", "v0")?, switch.add_port("v1", "v1")?];
        switch.add_flows(&FLOWS)?;
        Ok(Self { switch, sockets, begun: Counters::default() })
    }
}

impl Subject for Tollgate {
    fn name(&self) -> &'static str {
        "Tollgate"
    }

    fn sockets(&self) -> [PathBuf; 2] {
        self.sockets.clone()
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
        Ok(Cost { cycles_per_packet: busy / packets, packets_per_burst: packets / bursts })
    }
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
pub(super) struct OvsDpdk {
    ovs: Ovs,
    sockets: [PathBuf; 2],
}

impl OvsDpdk {
    pub(super) fn start(cores: Cores) -> anyhow::Result<Self> {
        let ovs = Ovs::start(cores.pmd)?;
        let sockets = [ovs.add_port("v0")?, ovs.add_port("v1")?];
        ovs.add_flows(&FLOWS)?;
        Ok(Self { ovs, sockets })
    }
}

impl Subject for OvsDpdk {
    fn name(&self) -> &'static str {
        "OVS-DPDK"
    }

    fn sockets(&self) -> [PathBuf; 2] {
        self.sockets.clone()
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
        // OVS at its best: every flow in its caches.
        let uncached = stats.failed_upcalls / stats.packets;
        ensure!(uncached < 0.001, "OVS could not install the flow ({uncached:.3} of the packets)");
        Ok(Cost {
            cycles_per_packet: stats.cycles_per_packet,
            packets_per_burst: stats.packets_per_batch,
        })
    }
}
