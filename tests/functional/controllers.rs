//! What controllers hear of and send, through the real daemon; and that traffic does not wait for
//! them.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use proving_ground::controller::{Controller, PACKET_IN};
use proving_ground::lab::{LIMIT, Lab, count, udp};
use proving_ground::process::eventually;
use serde_json::{Value, json};

const PORT_STATUS: u8 = 12;
/// `OFPPS_LINK_DOWN`.
const LINK_DOWN: u32 = 1;

/// Has `br0` listen for controllers, and is one.
fn controller(lab: &Lab) -> anyhow::Result<Controller> {
    let path: PathBuf = lab.switch.run_dir().join("controllers");
    let target = format!("punix:{}", path.display());
    lab.switch.call("controller_set", json!({"bridge": "br0", "targets": [target]}))?;
    Controller::connect(&path)
}

/// What the switch says about its only controller.
fn summary(lab: &Lab) -> anyhow::Result<Value> {
    let listed = lab.switch.call("controller_get", json!({"bridge": "br0"}))?;
    listed.get(0).cloned().context("no controller")
}

/// The last state of a link that a PORT_STATUS has told of.
fn link_down(message: &[u8]) -> Option<bool> {
    // The reason and padding; number, address, name and configuration of the port.
    let state = message.get(8 + 8 + 4 + 4 + 6 + 2 + 16 + 4..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*state) & LINK_DOWN != 0)
}

#[test]
fn a_controller_hears_of_guests_that_come_and_go() -> anyhow::Result<()> {
    let mut lab = Lab::new(&[])?;
    let mut controller = controller(&lab)?;
    controller.barrier()?;
    let mut hear = |down: bool| {
        eventually("word of the link", LIMIT, || {
            let heard = controller.barrier()?;
            let links = heard.iter().filter(|message| message.kind() == PORT_STATUS);
            let last = links.filter_map(|message| link_down(&message.0)).next_back();
            Ok((last == Some(down)).then_some(()))
        })
    };
    lab.attach("vm1", |config| config)?;
    hear(false)?;
    lab.ports.remove("vm1");
    hear(true)?;
    lab.switch.stop()
}

#[test]
fn a_controller_that_does_not_read_slows_no_traffic() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    let mut silent = controller(&lab)?;
    silent.barrier()?;
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm2,CONTROLLER:65535"])?;
    let frame = udp(1, 2, 7, 1400);
    let (bursts, burst) = (50, 16);
    for _ in 0..bursts {
        for _ in 0..burst {
            ensure!(lab.port("vm1")?.send(&frame, 1), "no room for a frame");
        }
        let mut arrived = Vec::new();
        eventually("burst at vm2", LIMIT, || {
            arrived.extend(lab.collect()?.remove("vm2").unwrap_or_default());
            Ok((arrived.len() >= burst).then_some(()))
        })?;
        ensure!(arrived == vec![frame.clone(); burst], "other frames arrived: {}", arrived.len());
    }
    lab.settle()?;
    let summary = summary(&lab)?;
    let lost = count(&summary, "packet_ins_lost");
    ensure!(lost > 0, "the controller had room for everything: {summary}");
    if summary["connected"] == true {
        // It was told no more than there was room for, and what it was told is whole.
        let kept = silent.barrier()?;
        let packets: Vec<_> = kept.iter().filter(|message| message.kind() == PACKET_IN).collect();
        ensure!(!packets.is_empty() && packets.len() as u64 + lost <= bursts * burst as u64);
        ensure!(packets.iter().all(|message| message.0.ends_with(&frame)));
    }
    lab.switch.stop()
}
