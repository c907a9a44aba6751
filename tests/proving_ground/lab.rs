//! A switch with attached guests, and the question that every forwarding test asks: a frame goes in
//! here; what comes out where?

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Switch;
use crate::process::eventually;
use crate::switch::Options;
use anyhow::{Context as _, ensure};
use etherparse::PacketBuilder;
use serde_json::{Value, json};
use tollgate_guest::port::{Port, PortConfig};

/// Far beyond anything but a hang.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Frames by the port that they came out of; ports that got none are left out.
pub type Arrivals = BTreeMap<String, Vec<Vec<u8>>>;

/// A switch, `br0`, and one attached guest for each port, each a tenant of its own.
#[derive(Debug)]
pub struct Lab {
    /// The daemon.
    pub switch: Switch,
    /// The guests by the names of their ports.
    pub ports: BTreeMap<String, Port>,
}

impl Lab {
    /// One port and guest for each name.
    pub fn new(names: &[&str]) -> anyhow::Result<Self> {
        let switch = Switch::start(Options::default())?;
        switch.add_bridge("br0")?;
        let mut lab = Self { switch, ports: BTreeMap::new() };
        for name in names {
            lab.attach(name, |config| config)?;
        }
        Ok(lab)
    }

    /// Adds a port and attaches a guest that `shape` may change.
    pub fn attach(
        &mut self,
        name: &str,
        shape: impl FnOnce(PortConfig) -> PortConfig,
    ) -> anyhow::Result<()> {
        let socket = self.switch.add_port(name, name)?;
        let mut config = PortConfig::new(name, socket);
        config.ring_size = 256;
        self.ports.insert(name.to_owned(), Port::attach(shape(config))?);
        self.switch.wait_running(name, 2)?;
        Ok(())
    }

    /// The guest on a port.
    pub fn port(&mut self, name: &str) -> anyhow::Result<&mut Port> {
        self.ports.get_mut(name).with_context(|| format!("no guest {name}"))
    }

    /// Sends one frame, waits until the switch has dealt with it, and says what came out where.
    pub fn deliver(&mut self, from: &str, frame: &[u8]) -> anyhow::Result<Arrivals> {
        ensure!(self.port(from)?.send(frame, 1), "{from} has no room for a frame");
        self.settle()?;
        self.collect()
    }

    /// Waits until every frame that the guests have sent was read by the switch and is accounted for,
    /// with nothing left in a queue. No sleep decides: the switch's own counters do.
    pub fn settle(&self) -> anyhow::Result<()> {
        eventually("quiet switch", LIMIT, || {
            let listed = self.switch.call("port_list", json!({}))?;
            let quiet = self.ports.iter().all(|(name, guest)| {
                let entry = entry(&listed, name);
                count(entry, "rx_packets") == guest.tx_counters().frames
                    && balance(entry) == 0
                    && count(entry, "queued") == 0
            });
            Ok(quiet.then_some(()))
        })?;
        // Frames are counted before their rings are published; both are over with the turn.
        let before = self.heartbeats()?;
        eventually("turn of every PMD", LIMIT, || {
            let now = self.heartbeats()?;
            let turned = before.iter().zip(&now).all(|(before, now)| now - before >= 2);
            Ok(turned.then_some(()))
        })
    }

    /// Turns of each PMD's poll loop so far.
    fn heartbeats(&self) -> anyhow::Result<Vec<u64>> {
        let stats = self.switch.call("pmd_stats", json!({}))?;
        let pmds = stats["pmds"].as_array().context("no PMDs")?;
        Ok(pmds.iter().map(|pmd| count(pmd, "heartbeat")).collect())
    }

    /// Takes whatever has arrived at any guest.
    pub fn collect(&mut self) -> anyhow::Result<Arrivals> {
        let mut arrivals = Arrivals::new();
        for (name, guest) in &mut self.ports {
            let mut frames = Vec::new();
            while guest.receive(|frame| frames.push(frame.to_vec()))? > 0 {}
            if !frames.is_empty() {
                arrivals.insert(name.clone(), frames);
            }
        }
        Ok(arrivals)
    }

    /// The `port_list` entry of one port.
    pub fn counters(&self, name: &str) -> anyhow::Result<Value> {
        self.switch.port(name)
    }
}

/// One port of a `port_list` result.
fn entry<'list>(listed: &'list Value, name: &str) -> &'list Value {
    let ports = listed.as_array().map_or(&[][..], Vec::as_slice);
    ports.iter().find(|port| port["name"] == name).unwrap_or(&Value::Null)
}

/// A counter of a port; zero if it is not there.
pub fn count(port: &Value, key: &str) -> u64 {
    port[key].as_u64().unwrap_or_default()
}

/// All drops of a port's frames.
pub fn drops(port: &Value) -> u64 {
    let reasons = port["drops"].as_object();
    reasons.map_or(0, |reasons| reasons.values().filter_map(Value::as_u64).sum())
}

/// What entered through a port less what became of it: rx + clones + injected - forwarded - drops -
/// queued - consumed.
pub fn balance(port: &Value) -> i128 {
    let sum = |keys: &[&str]| keys.iter().map(|key| i128::from(count(port, key))).sum::<i128>();
    sum(&["rx_packets", "clones", "injected"])
        - sum(&["forwarded", "queued", "consumed"])
        - i128::from(drops(port))
}

/// An Ethernet address by its last byte.
pub fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

/// A UDP frame from guest `from` to guest `to` with `payload` bytes that differ from one another.
pub fn udp(from: u8, to: u8, port: u16, payload: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(mac(from), mac(to))
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .udp(1000, port);
    let payload: Vec<u8> = (0..payload).map(|at| (at % 251) as u8).collect();
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    // Writing to a vector fails only for a payload beyond IPv4's 64 KiB, which no test has.
    builder.write(&mut frame, &payload).unwrap_or_default();
    frame
}
