//! A switch with tenants under load, and its books over a stretch of that load.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::setpriority_process;
use serde_json::{Value, json};
use tollgate_guest::generator::pin_to_core;
use tollgate_guest::port::PortConfig;

use proving_ground::Switch;
use proving_ground::lab::{Lab, count, udp};
use proving_ground::rpc::Client;
use proving_ground::switch::Options;

use crate::books::Books;

/// Cycles of load that a share is taken over: some ten thousand turns.
pub(crate) const WINDOW_CYCLES: u64 = 500_000_000;

/// Entries of a saturating sender's ring: so many frames wait that it does not run dry while the
/// thread that refills it is kept from running for some milliseconds.
pub(crate) const BACKLOG: u16 = 32768;

/// A ring that had fewer frames left than this when it was refilled may have run dry.
const BACKLOG_MIN: usize = 1000;

/// Windows begun before giving up.
const ATTEMPTS: usize = 50;

/// Far beyond anything but a hang.
const WINDOW_LIMIT: Duration = Duration::from_secs(100);

/// What a sender sends, one frame after the other.
pub(crate) type Frames = Box<dyn FnMut() -> Vec<u8>>;

/// A sender that the scene keeps busy.
struct Load {
    port: String,
    frames: Frames,
    /// Frames that are offered at most when the ring is looked at.
    burst: usize,
    /// A window in which this sender may have run dry does not count.
    saturates: bool,
    accepted: u64,
}

/// What a window has shown.
#[derive(Debug)]
pub(crate) struct Window {
    /// What the books have grown by.
    pub(crate) grown: Books,
    /// Frames that the switch has taken from each port.
    pub(crate) taken: BTreeMap<String, u64>,
}

impl Window {
    /// A sender's part of the frames of all.
    pub(crate) fn packet_share(&self, sender: &str) -> f64 {
        let all: u64 = self.taken.values().sum();
        self.taken.get(sender).copied().unwrap_or_default() as f64 / all as f64
    }
}

/// A lab whose senders are refilled whenever it is looked at.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    rpc: Client,
    loads: Vec<Load>,
}

impl Scene {
    /// A switch with a port `sink` that has no guest: what is sent there is all work and no delivery,
    /// so that only the PMD decides how many frames it takes.
    pub(crate) fn new(config: &str) -> anyhow::Result<Self> {
        let mut options = Options::default();
        options.config.push_str(config);
        let switch = Switch::start(options)?;
        switch.add_bridge("br0")?;
        switch.add_port("sink", "sink")?;
        // PMD and sender would otherwise take turns on one core while the other is free. Not before
        // the daemon's start, for it would inherit this. Where there is only one core, it is shared;
        // without root, the priority stays as it is.
        let _ = pin_to_core(1);
        let _ = setpriority_process(None, -20);
        let rpc = switch.rpc()?;
        Ok(Self { lab: Lab { switch, ports: BTreeMap::new() }, rpc, loads: Vec::new() })
    }

    /// One RPC on the scene's own connection.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.rpc.call(method, params)
    }

    /// Gates tenants in debt, or not, from now on.
    pub(crate) fn protect(&mut self, enabled: bool) -> anyhow::Result<()> {
        self.call("protection_set", json!({"enabled": enabled})).map(drop)
    }

    /// Sets a tenant's weight.
    pub(crate) fn weigh(&mut self, tenant: &str, weight: f64) -> anyhow::Result<()> {
        self.call("tenant_set", json!({"tenant": tenant, "weight": weight})).map(drop)
    }

    /// Adds a port for frames of up to 256 bytes, whose tenant has its name.
    pub(crate) fn attach(&mut self, name: &str, ring_size: u16) -> anyhow::Result<()> {
        self.lab.attach(name, |config| PortConfig {
            ring_size,
            tx_frame_bytes: 256,
            rx_buffer_bytes: 256,
            ..config
        })
    }

    /// Adds a sender whose every frame is rewritten and sent `copies` times to nobody. The switch must
    /// be without load: its slow path gets little time then.
    pub(crate) fn sender(&mut self, name: &str, copies: usize) -> anyhow::Result<()> {
        self.attach(name, BACKLOG)?;
        let flow = format!("ip,in_port={name},actions={}", copies_to_sink(copies));
        self.lab.switch.add_flows(&[&flow])?;
        for _ in 0..2 {
            self.lab.deliver(name, &frame())?;
        }
        Ok(())
    }

    /// Keeps a sender's ring full from now on.
    pub(crate) fn saturate(&mut self, name: &str) {
        self.load(name, always(frame()), usize::from(BACKLOG), true);
    }

    /// Adds senders, each with the copies of its frames, and keeps their rings full from now on.
    pub(crate) fn saturating(&mut self, senders: &[(&str, usize)]) -> anyhow::Result<()> {
        for (name, copies) in senders {
            self.sender(name, *copies)?;
        }
        senders.iter().for_each(|(name, _)| self.saturate(name));
        Ok(())
    }

    /// Keeps a port's ring filled with at most `burst` frames each time the scene is looked at; a
    /// window in which one that `saturates` ran dry is begun anew.
    pub(crate) fn load(&mut self, port: &str, frames: Frames, burst: usize, saturates: bool) {
        let port = port.to_owned();
        self.loads.push(Load { port, frames, burst, saturates, accepted: 0 });
    }

    /// Ends a sender's load; what is in its ring stays.
    pub(crate) fn quiet(&mut self, port: &str) {
        self.loads.retain(|load| load.port != port);
    }

    /// Refills every sender's ring; false when one that should last may have run dry.
    pub(crate) fn refill(&mut self) -> anyhow::Result<bool> {
        let mut lasted = true;
        for load in &mut self.loads {
            let port = self.lab.ports.get_mut(&load.port).context("no such guest")?;
            let mut sent = 0;
            while sent < load.burst && port.send(&(load.frames)(), 1) {
                sent += 1;
            }
            load.accepted += sent as u64;
            lasted &= !load.saturates || sent < usize::from(BACKLOG) - BACKLOG_MIN;
        }
        // Whoever has room for frames gets it back.
        for port in self.lab.ports.values_mut().filter(|port| port.config().drain) {
            port.receive(|_| ())?;
        }
        Ok(lasted)
    }

    /// The books of the one PMD as they are now.
    pub(crate) fn books(&mut self) -> anyhow::Result<Books> {
        Books::read(&self.call("pmd_stats", json!({}))?)
    }

    /// Frames that the switch has taken from each port.
    fn taken(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let ports = self.call("port_list", json!({}))?;
        let ports = ports.as_array().context("no list of ports")?.iter();
        let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
        Ok(ports.map(|port| (name(port), count(port, "rx_packets"))).collect())
    }

    /// Frames that a loaded sender's ring has had room for.
    pub(crate) fn accepted(&self, port: &str) -> u64 {
        self.loads.iter().find(|load| load.port == port).map_or(0, |load| load.accepted)
    }

    /// Refills and seldom asks for anything until the tenants' accounts have grown by `cycles`.
    pub(crate) fn stretch(&mut self, cycles: u64) -> anyhow::Result<Books> {
        let (before, begun) = (self.books()?, Instant::now());
        loop {
            for _ in 0..50 {
                self.refill()?;
            }
            let grown = self.books()?.since(&before);
            if grown.busy() >= cycles {
                return Ok(grown);
            }
            ensure!(begun.elapsed() < WINDOW_LIMIT, "the PMD does not get on: {grown:?}");
        }
    }

    /// Keeps the senders busy until the tenants' accounts have grown by `cycles`.
    pub(crate) fn window(&mut self, cycles: u64) -> anyhow::Result<Window> {
        for _ in 0..ATTEMPTS {
            self.refill()?;
            if !self.refill()? {
                continue;
            }
            let (before, taken_before) = (self.books()?, self.taken()?);
            let begun = Instant::now();
            while self.refill()? {
                let grown = self.books()?.since(&before);
                if grown.busy() < cycles {
                    ensure!(begun.elapsed() < WINDOW_LIMIT, "the PMD does not get on: {grown:?}");
                    continue;
                }
                let mut taken = self.taken()?;
                if !self.refill()? {
                    break;
                }
                for (port, packets) in &mut taken {
                    *packets -= taken_before.get(port).copied().unwrap_or_default();
                }
                return Ok(Window { grown, taken });
            }
        }
        bail!("the senders ran dry in each of {ATTEMPTS} windows: this machine is too busy to tell")
    }
}

/// What most senders send.
pub(crate) fn frame() -> Vec<u8> {
    udp(1, 2, 7, 20)
}

/// The same frame again and again.
pub(crate) fn always(frame: Vec<u8>) -> Frames {
    Box::new(move || frame.clone())
}

/// Frames that go round a list.
pub(crate) fn in_turn(frames: Vec<Vec<u8>>) -> Frames {
    let mut frames = VecDeque::from(frames);
    Box::new(move || {
        frames.rotate_left(1);
        frames.back().cloned().unwrap_or_default()
    })
}

/// Actions that rewrite and send so many times.
pub(crate) fn copies_to_sink(copies: usize) -> String {
    let copy = |copy| format!("set_field:10.0.9.{}->ip_dst,output:sink", copy % 250 + 1);
    (0..copies).map(copy).collect::<Vec<_>>().join(",")
}
