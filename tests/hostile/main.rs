//! One bad guest beside good ones, on the real daemon: the bad one loses its queue or connection, the
//! operator reads why, the good ones notice nothing. The rings themselves are put to the test in the
//! `vhost` crate, entry by entry of the catalogue; here it is the switch around them.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod guest;

use std::time::Duration;

use anyhow::ensure;
use guest::RawGuest;
use proving_ground::Switch;
use proving_ground::process::eventually;
use proving_ground::switch::Options;
use serde_json::Value;
use tollgate_guest::port::{Port, PortConfig};

/// Far beyond anything but a hang.
const LIMIT: Duration = Duration::from_secs(20);

/// A switch with two good guests that are connected, and a port for a bad one.
struct Scene {
    switch: Switch,
    good: [Port; 2],
    bad_socket: std::path::PathBuf,
}

impl Scene {
    fn new() -> anyhow::Result<Self> {
        let switch = Switch::start(Options::default())?;
        switch.add_bridge("br0")?;
        let attach = |name: &str| -> anyhow::Result<Port> {
            let socket = switch.add_port(name, name)?;
            let port = Port::attach(PortConfig::new(name, socket))?;
            switch.wait_running(name, 2)?;
            Ok(port)
        };
        let good = [attach("good1")?, attach("good2")?];
        let bad_socket = switch.add_port("bad", "bad")?;
        switch.add_flows(&[
            "in_port=good1,actions=output:good2",
            "in_port=bad,actions=output:good2",
        ])?;
        Ok(Self { switch, good, bad_socket })
    }

    /// A frame of the first good guest reaches the second.
    fn good_ones_talk(&mut self) -> anyhow::Result<()> {
        let [from, to] = &mut self.good;
        ensure!(from.send(&[0x5a; 100], 1), "no room for a frame");
        eventually("a frame between the good guests", LIMIT, || {
            let mut arrived = false;
            to.receive(|frame| arrived |= frame == [0x5a; 100])?;
            Ok(arrived.then_some(()))
        })
    }

    /// Waits until `port_list` says of the bad port what `wanted` looks for.
    fn bad_port(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        eventually(what, LIMIT, || {
            let port = self.switch.port("bad")?;
            Ok(wanted(&port).then_some(port))
        })
    }
}

/// Breaks a ring's rules; the queue must be quarantined for `reason`.
fn breaks_its_ring(offend: impl FnOnce(&mut RawGuest), reason: &str) -> anyhow::Result<()> {
    let mut scene = Scene::new()?;
    let mut bad = RawGuest::attach(&scene.bad_socket)?;
    bad.transmit(&[1; 64]);
    scene.bad_port("a frame of the bad guest", |port| port["rx_packets"] == 1)?;
    offend(&mut bad);
    let port = scene.bad_port("quarantine", |port| port["state"] == "quarantined")?;
    ensure!(port["error"].as_str().is_some_and(|error| error.contains(reason)), "{port}");
    bad.transmit(&[2; 64]);
    scene.good_ones_talk()?;
    ensure!(scene.switch.port("bad")?["rx_packets"] == 1, "a quarantined queue was read");
    // A guest that starts anew is taken back.
    drop(bad);
    scene.bad_port("the bad guest's end", |port| port["connected"] == false)?;
    let mut reformed = RawGuest::attach(&scene.bad_socket)?;
    reformed.transmit(&[3; 64]);
    scene.bad_port("a frame of the reformed guest", |port| port["rx_packets"] == 2)?;
    Ok(())
}

#[test]
fn vq_04_a_head_beyond_the_ring_quarantines_the_queue_and_port_list_says_why() -> anyhow::Result<()>
{
    breaks_its_ring(|bad| bad.driver().offer(999), "beyond the ring")
}

#[test]
fn vq_05_an_avail_index_that_jumps_quarantines_the_queue_and_port_list_says_why()
-> anyhow::Result<()> {
    breaks_its_ring(|bad| bad.driver().set_avail_index(5000), "avail index moved")
}

#[test]
fn vu_06_an_unknown_request_ends_that_connection_only() -> anyhow::Result<()> {
    let mut scene = Scene::new()?;
    let bad = RawGuest::attach(&scene.bad_socket)?;
    bad.send_raw(9999, &[0; 8]);
    let port = scene.bad_port("the end of the connection", |port| port["connected"] == false)?;
    ensure!(port["error"].as_str().is_some_and(|error| !error.is_empty()), "{port}");
    scene.good_ones_talk()?;
    let mut reformed = RawGuest::attach(&scene.bad_socket)?;
    reformed.transmit(&[3; 64]);
    scene.bad_port("a frame of the reformed guest", |port| port["rx_packets"] == 1)?;
    Ok(())
}

#[test]
fn vu_07_half_a_message_and_silence_hold_nobody_up() -> anyhow::Result<()> {
    let mut scene = Scene::new()?;
    let silent = guest::half_a_header(&scene.bad_socket)?;
    scene.good_ones_talk()?;
    // The port is that connection's until it ends; the switch goes on, and so does management.
    ensure!(scene.switch.port("good1")?["state"] == "running");
    drop(silent);
    let mut next = RawGuest::attach(&scene.bad_socket)?;
    next.transmit(&[3; 64]);
    scene.bad_port("a frame of the next guest", |port| port["rx_packets"] == 1)?;
    Ok(())
}

#[test]
fn vu_18_a_guest_that_vanishes_in_full_flow_leaves_the_port_free() -> anyhow::Result<()> {
    let mut scene = Scene::new()?;
    for round in 1..=20_u64 {
        let mut bad = RawGuest::attach(&scene.bad_socket)?;
        for _ in 0..32 {
            bad.transmit(&[7; 64]);
        }
        // Its rings and memory go while the PMD reads them.
        drop(bad);
        scene.bad_port("the guest's end", |port| {
            port["connected"] == false && port["sessions"].as_u64() >= Some(round)
        })?;
    }
    scene.good_ones_talk()?;
    let port = scene.switch.port("bad")?;
    ensure!(port["rx_packets"].as_u64() <= Some(20 * 32), "{port}");
    Ok(())
}
