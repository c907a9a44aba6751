//! The switch, its two tenants, their flows: everything that a phase runs on.

use std::time::Duration;

use proving_ground::Switch;
use proving_ground::switch::Options;
use serde_json::json;

use crate::cycles::Cycles;
use crate::generator::{Load, Mode, Pair, Running};
use crate::machine::Cores;

/// Round trips that the victim intends to make each second: few enough that even an unprotected
/// victim completes them, for a latency of requests that were never made says nothing.
const VICTIM_RATE: u32 = 4_000;

/// The victim's frame on the ring: the smallest.
const VICTIM_FRAME_BYTES: usize = 60;

/// The adversary's frame on the ring: a full Ethernet frame.
const ADVERSARY_FRAME_BYTES: usize = 1400;

/// How often the adversary's flow rewrites and copies each frame.
const MIRRORS: u32 = 8;

/// Names of the two tenants.
pub(super) const VICTIM: &str = "victim";
pub(super) const ADVERSARY: &str = "adversary";

/// The ports, the victim's first, with their tenants.
const PORTS: [(&str, &str); 4] =
    [("v0", VICTIM), ("v1", VICTIM), ("a0", ADVERSARY), ("a1", ADVERSARY)];

/// What the raw figures are broken down into.
const INTERVAL: Duration = Duration::from_millis(50);

/// A running switch with both pairs' ports.
#[derive(Debug)]
pub(super) struct Scene {
    switch: Switch,
    cores: Cores,
}

impl Scene {
    /// Starts the switch in a private run directory and sets it up as a user would: ports and
    /// weights over JSON-RPC, flows with `ofctl`.
    pub(super) fn set_up(cores: Cores, victim_weight: f64) -> anyhow::Result<Self> {
        let switch = Switch::start(Options::on_core(cores.pmd))?;
        switch.add_bridge("br0")?;
        for (port, tenant) in PORTS {
            switch.add_port(port, tenant)?;
        }
        for (tenant, weight) in [(VICTIM, victim_weight), (ADVERSARY, 1.0)] {
            switch.call("tenant_set", json!({"tenant": tenant, "weight": weight}))?;
        }
        switch.add_flows(&["in_port=v0,actions=output:v1", "in_port=v1,actions=output:v0"])?;
        switch.add_flows(&[&expensive_flow()])?;
        Ok(Self { switch, cores })
    }

    /// Says what was set up, in the commands' own words.
    pub(super) fn describe(&self) {
        println!(
            "switchd: PMD on core {}, run directory {}",
            self.cores.pmd,
            self.switch.run_dir().display()
        );
        println!("victim:    {VICTIM_RATE} round trips/s v0 <-> v1, one in flight, 64 B frames");
        println!(
            "adversary: {ADVERSARY_FRAME_BYTES} B frames into a0 flat out, through this flow:"
        );
        println!("  ofctl add-flow br0 '{}'\n", expensive_flow());
    }

    pub(super) fn set_protection(&self, enabled: bool) -> anyhow::Result<()> {
        self.switch.call("protection_set", json!({"enabled": enabled})).map(drop)
    }

    /// Attaches the guests and starts their traffic.
    pub(super) fn load(
        &self,
        with_adversary: bool,
        warm_up: Duration,
        measured: Duration,
    ) -> anyhow::Result<Running> {
        let mut pairs = vec![self.pair(VICTIM, ["v0", "v1"], Mode::RoundTrips(VICTIM_RATE))];
        if with_adversary {
            pairs.push(self.pair(ADVERSARY, ["a0", "a1"], Mode::FlatOut));
        }
        let core = self.cores.peers;
        let listeners = Vec::new();
        Load { pairs, listeners, warm_up, measured, interval: INTERVAL, core }.start()
    }

    /// Waits until the guests' rings run; their traffic begins then.
    pub(super) fn wait_attached(&self, with_adversary: bool) -> anyhow::Result<()> {
        let ports = if with_adversary { &PORTS[..] } else { &PORTS[..2] };
        ports.iter().try_for_each(|(port, _)| self.switch.wait_running(port, 2).map(drop))
    }

    fn pair(&self, name: &str, ports: [&str; 2], mode: Mode) -> Pair {
        let frame_bytes =
            if mode == Mode::FlatOut { ADVERSARY_FRAME_BYTES } else { VICTIM_FRAME_BYTES };
        let sockets = ports.map(|port| self.switch.run_dir().join("vhost").join(port));
        let ports = ports.map(str::to_owned);
        Pair { ports, sockets, ..Pair::new(name, mode, frame_bytes) }
    }

    /// Every account of the PMD, as it is now.
    pub(super) fn cycles(&self) -> anyhow::Result<Cycles> {
        Cycles::read(&self.switch.call("pmd_stats", json!({}))?)
    }
}

/// An honest expensive flow: every frame leaves eight times, each copy with an address of its own, as
/// a tenant with a mirror or a small multicast group would ask for.
fn expensive_flow() -> String {
    let copies = (1..=MIRRORS).map(|copy| format!("set_field:10.0.9.{copy}->ip_dst,output:a1"));
    let copies: Vec<_> = copies.collect();
    format!("ip,in_port=a0,actions={}", copies.join(","))
}
