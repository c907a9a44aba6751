//! DPDK's virtio driver as two guests that forward whatever the switch brings them.
//!
//! testpmd sends one burst out of each port, and from then on sends every frame that arrives at one
//! port out of the other: the frames go round and round through the switch.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use proving_ground::process::eventually;
use proving_ground::testpmd::{Options, Port, Role, Testpmd};
use proving_ground::{Switch, require};
use serde_json::{Value, json};

use crate::switch;

/// So many frames must have come back to each guest port: many times round a ring of 256.
const FRAMES: u64 = 5000;

/// Entries of a guest's ring.
const RING_SIZE: u64 = 256;

/// VIRTIO_F_RING_PACKED, which has no name in a switch that does not know it.
const RING_PACKED: &str = "bit_34";

struct Case {
    hugepages: bool,
    role: Role,
    driver: &'static str,
    queue_pairs: u16,
    arguments: &'static [&'static str],
    negotiated: &'static [&'static str],
    not_negotiated: &'static [&'static str],
}

/// What the plain case is: ordinary memory, testpmd connects, the driver's defaults.
const PLAIN: Case = Case {
    hugepages: false,
    role: Role::Connects,
    driver: "",
    queue_pairs: 1,
    arguments: &[],
    negotiated: &["version_1", "mrg_rxbuf", "in_order"],
    not_negotiated: &[RING_PACKED],
};

#[test]
fn forwards_on_ordinary_pages() -> anyhow::Result<()> {
    forwards(&PLAIN)
}

#[test]
fn forwards_on_hugepages() -> anyhow::Result<()> {
    forwards(&Case { hugepages: true, ..PLAIN })
}

#[test]
fn forwards_when_the_switch_connects() -> anyhow::Result<()> {
    forwards(&Case { role: Role::Listens, ..PLAIN })
}

#[test]
fn forwards_without_mergeable_buffers() -> anyhow::Result<()> {
    forwards(&Case {
        driver: "mrg_rxbuf=0",
        negotiated: &["version_1", "in_order"],
        not_negotiated: &["mrg_rxbuf"],
        ..PLAIN
    })
}

#[test]
fn forwards_without_in_order() -> anyhow::Result<()> {
    forwards(&Case {
        driver: "in_order=0",
        negotiated: &["version_1", "mrg_rxbuf"],
        not_negotiated: &["in_order"],
        ..PLAIN
    })
}

#[test]
fn forwards_without_either() -> anyhow::Result<()> {
    forwards(&Case {
        driver: "mrg_rxbuf=0,in_order=0",
        negotiated: &["version_1"],
        not_negotiated: &["mrg_rxbuf", "in_order"],
        ..PLAIN
    })
}

#[test]
fn forwards_with_the_vectorized_driver() -> anyhow::Result<()> {
    forwards(&Case {
        driver: "mrg_rxbuf=0,in_order=1,vectorized=1",
        negotiated: &["version_1", "in_order"],
        ..PLAIN
    })
}

#[test]
fn a_guest_that_would_like_packed_rings_gets_split_ones() -> anyhow::Result<()> {
    forwards(&Case { driver: "packed_vq=1", ..PLAIN })
}

#[test]
fn forwards_over_two_queue_pairs() -> anyhow::Result<()> {
    forwards(&Case { driver: "queues=2", queue_pairs: 2, negotiated: &["mq"], ..PLAIN })
}

#[test]
fn frames_of_several_segments_arrive_in_several_buffers() -> anyhow::Result<()> {
    // 1500 bytes in three segments one way, in three buffers of 512 bytes the other.
    let arguments = &[
        "--txpkts=60,700,740",
        "--mbuf-size=640",
        "--tx-offloads=0x8000",
        "--rx-offloads=0x2000",
        "--enable-scatter",
    ];
    forwards(&Case { arguments, ..PLAIN })
}

fn forwards(case: &Case) -> anyhow::Result<()> {
    require!(Testpmd::available(case.hugepages));
    let switch = switch()?;
    let sockets = [add_port(&switch, "vm1", case)?, add_port(&switch, "vm2", case)?];
    switch.add_flows(&["in_port=vm1,actions=output:vm2", "in_port=vm2,actions=output:vm1"])?;

    let mut testpmd = Testpmd::start(&options(case, sockets), switch.run_dir())?;
    for port in ["vm1", "vm2"] {
        let listed = switch.wait_running(port, 2 * usize::from(case.queue_pairs))?;
        check_features(&listed, case)?;
    }
    testpmd.command("start tx_first")?;
    eventually("frames going round", Duration::from_secs(30), || {
        let received = [testpmd.port_stats(0)?.rx_packets, testpmd.port_stats(1)?.rx_packets];
        Ok((received.iter().min() >= Some(&FRAMES)).then_some(()))
    })?;
    testpmd.command("stop")?;
    check_counters(&switch, &mut testpmd)?;

    testpmd.quit()?;
    eventually("goodbye", Duration::from_secs(10), || {
        Ok((switch.port("vm1")?["connected"] == false).then_some(()))
    })?;
    switch.stop()
}

fn add_port(switch: &Switch, name: &str, case: &Case) -> anyhow::Result<PathBuf> {
    let mode = if case.role == Role::Listens { "connect" } else { "listen" };
    switch.add_port_with(name, json!({"mode": mode, "queue_pairs": case.queue_pairs}))
}

fn options(case: &Case, sockets: [PathBuf; 2]) -> Options {
    let ports = sockets.into_iter().zip(["02:00:00:00:00:01", "02:00:00:00:00:02"]);
    Options {
        ports: ports
            .map(|(socket, mac)| Port { socket, role: case.role, mac: mac.to_owned() })
            .collect(),
        driver: case.driver.to_owned(),
        queue_pairs: case.queue_pairs,
        hugepages: case.hugepages,
        core: 1,
        arguments: case.arguments.iter().map(|argument| (*argument).to_owned()).collect(),
    }
}

fn check_features(port: &Value, case: &Case) -> anyhow::Result<()> {
    let features = port["features"].to_string();
    for name in case.negotiated {
        ensure!(features.contains(name), "{name} was not negotiated: {features}");
    }
    for name in case.not_negotiated {
        ensure!(!features.contains(name), "{name} was negotiated: {features}");
    }
    Ok(())
}

/// The guest's and the switch's counters tell the same story once all is quiet.
fn check_counters(switch: &Switch, testpmd: &mut Testpmd) -> anyhow::Result<()> {
    let guests = [testpmd.port_stats(0)?, testpmd.port_stats(1)?];
    for (port, guest) in ["vm1", "vm2"].into_iter().zip(guests) {
        eventually("the guest's last frames", Duration::from_secs(5), || {
            let count = |key: &str| switch.port(port).map(|port| port[key].as_u64());
            Ok((count("rx_packets")? == Some(guest.tx_packets)
                && count("rx_bytes")? == Some(guest.tx_bytes))
            .then_some(()))
        })?;
        // What was sent to the guest it has taken, but for what waits in its ring since "stop".
        let sent = switch.port(port)?["tx_packets"].as_u64().unwrap_or_default();
        let waiting = sent.checked_sub(guest.rx_packets);
        ensure!(
            waiting.is_some_and(|waiting| waiting <= 2 * RING_SIZE),
            "{port}: {sent} sent to a guest that received {}",
            guest.rx_packets
        );
    }
    Ok(())
}
