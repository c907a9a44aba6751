//! Ports come, stop, reset and go while others carry on.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{bail, ensure};
use proving_ground::process::eventually;
use serde_json::json;
use tollgate_guest::port::Resume;

use proving_ground::lab::{LIMIT, Lab, udp};

/// A frame from vm1 reaches vm2.
fn carries(lab: &mut Lab) -> anyhow::Result<()> {
    let frame = udp(1, 2, 7, 60);
    let got = lab.deliver("vm1", &frame)?;
    ensure!(
        got.get("vm2").is_some_and(|frames| frames.contains(&frame)),
        "nothing came: {got:02x?}"
    );
    Ok(())
}

fn lab() -> anyhow::Result<Lab> {
    let lab = Lab::new(&["vm1", "vm2"])?;
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm2", "in_port=vm2,actions=output:vm1"])?;
    Ok(lab)
}

#[test]
fn a_stopped_ring_is_left_alone_and_goes_on_where_it_was() -> anyhow::Result<()> {
    let mut lab = lab()?;
    carries(&mut lab)?;
    let bases = lab.port("vm2")?.stop()?;
    let used = lab.port("vm2")?.rx_counters().frames;
    let frame = udp(1, 2, 7, 60);
    for _ in 0..50 {
        ensure!(lab.port("vm1")?.send(&frame, 1), "vm1 has no room");
    }
    lab.settle()?;
    ensure!(lab.collect()?.is_empty(), "a stopped ring was filled");
    ensure!(lab.port("vm2")?.rx_counters().frames == used, "a stopped ring was used");
    lab.port("vm2")?.start(&bases)?;
    carries(&mut lab)?;
    lab.switch.stop()
}

#[test]
fn a_disabled_ring_drops_with_its_reason() -> anyhow::Result<()> {
    let mut lab = lab()?;
    carries(&mut lab)?;
    lab.port("vm2")?.enable_ring(0, false)?;
    ensure!(lab.deliver("vm1", &udp(1, 2, 7, 60))?.is_empty(), "a disabled ring was filled");
    let drops = &lab.counters("vm1")?["drops"];
    ensure!(drops["tx_no_queue"] == 1, "{drops}");
    lab.port("vm2")?.enable_ring(0, true)?;
    carries(&mut lab)?;
    lab.switch.stop()
}

#[test]
fn a_driver_that_is_loaded_again_starts_anew() -> anyhow::Result<()> {
    let mut lab = lab()?;
    for _ in 0..3 {
        carries(&mut lab)?;
        lab.port("vm1")?.reset()?;
        lab.port("vm2")?.reset()?;
    }
    carries(&mut lab)?;
    lab.switch.stop()
}

#[test]
fn a_guest_that_vanishes_is_noticed_and_may_return() -> anyhow::Result<()> {
    let mut lab = lab()?;
    carries(&mut lab)?;
    lab.port("vm2")?.disconnect();
    eventually("disconnection", LIMIT, || {
        Ok((lab.switch.port("vm2")?["connected"] == false).then_some(()))
    })?;
    let frame = udp(1, 2, 7, 60);
    ensure!(lab.deliver("vm1", &frame)?.is_empty(), "a guest that left got a frame");
    lab.port("vm2")?.reconnect(Resume::Fresh)?;
    lab.switch.wait_running("vm2", 2)?;
    carries(&mut lab)?;
    lab.switch.stop()
}

#[test]
fn a_removed_port_is_gone_and_its_name_is_free_again() -> anyhow::Result<()> {
    let mut lab = lab()?;
    carries(&mut lab)?;
    let removal = json!({"bridge": "br0", "name": "vm2"});
    lab.switch.call("port_remove", removal.clone())?;
    ensure!(!lab.switch.run_dir().join("vhost/vm2").exists(), "the port's socket is still there");
    let Err(error) = lab.switch.call("port_remove", removal) else {
        bail!("a port was removed twice")
    };
    ensure!(format!("{error:#}").contains("vm2"), "the message names nothing: {error:#}");
    lab.ports.remove("vm2");
    ensure!(lab.deliver("vm1", &udp(1, 2, 7, 60))?.is_empty(), "a removed port got a frame");
    lab.attach("vm2", |config| config)?;
    carries(&mut lab)?;
    lab.switch.stop()
}

#[test]
fn each_port_has_one_guest_at_a_time() -> anyhow::Result<()> {
    let mut lab = lab()?;
    let socket = lab.port("vm2")?.config().path.clone();
    // Refused, closed, or left waiting: a second guest gets no answer while the first is there.
    if let Ok(mut second) = UnixStream::connect(socket) {
        second.set_read_timeout(Some(Duration::from_millis(300)))?;
        // GET_FEATURES (vhost-user 1.0): request 1, version 1, no payload.
        second.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])?;
        let answered = second.read(&mut [0; 20]).unwrap_or_default();
        ensure!(answered == 0, "two guests share a port");
    }
    carries(&mut lab)?;
    lab.switch.stop()
}
