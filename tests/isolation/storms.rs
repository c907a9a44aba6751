//! Whoever makes work pays for it: storms, slow receivers, broken rings.

use anyhow::ensure;
use proving_ground::lab::{LIMIT, count, udp};
use proving_ground::process::eventually;
use tollgate_guest::port::PortConfig;

use crate::guest::RawGuest;
use crate::scene::{Frames, Scene, WINDOW_CYCLES, Window, always, copies_to_sink, frame, in_turn};
use crate::shares::within;

/// How much dearer a victim's packet may become beside a storm: caches are shared, and in the debug
/// build's short tasks as well; work on another's behalf would cost it a multiple.
const DEARER: f64 = 1.5;

/// Entries of an adversary's ring.
const RING: u16 = 4096;

/// An adversary: its flows and what it sends.
struct Storm {
    name: &'static str,
    flows: Vec<String>,
    frames: Frames,
    /// Each of its packets goes to the slow path.
    misses: bool,
}

fn storms() -> Vec<Storm> {
    let storm = |name, flows, frames| Storm { name, flows, frames, misses: false };
    let one = |name, actions: String| {
        storm(name, vec![format!("ip,in_port={name},actions={actions}")], always(frame()))
    };
    let mut masks = vec!["priority=1,in_port=masks,actions=output:sink".to_owned()];
    masks.extend((9..=32).map(|bits| {
        format!(
            "priority={bits},ip,in_port=masks,ip_dst=10.255.{bits}.0/{bits},actions=output:sink"
        )
    }));
    let spread = (0..=255).map(|to| udp(1, to, 7, 20)).collect();
    let mut chain = vec!["ip,in_port=chain,actions=resubmit(,1)".to_owned()];
    chain.extend((1..60).map(|table| {
        let next = table + 1;
        format!("table={table},ip,actions=set_field:10.0.0.{table}->ip_dst,resubmit(,{next})")
    }));
    chain.push("table=60,actions=output:sink".to_owned());
    // The move makes every bit of the address part of what was decided on.
    let seen = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]";
    let new_flows = vec![format!("ip,in_port=misses,actions={seen},output:sink")];
    vec![
        one("drops", "drop".to_owned()),
        one("copies", copies_to_sink(64)),
        storm("masks", masks, in_turn(spread)),
        storm("chain", chain, always(frame())),
        Storm { name: "misses", flows: new_flows, frames: new_addresses(), misses: true },
    ]
}

/// Each frame from another address.
fn new_addresses() -> Frames {
    let mut address: u32 = 0;
    Box::new(move || {
        address = address.wrapping_add(1);
        let mut frame = frame();
        // The IPv4 source address; nobody looks at the checksum.
        if let Some(place) = frame.get_mut(26..30) {
            place.copy_from_slice(&(0x0b00_0000 + address).to_be_bytes());
        }
        frame
    })
}

/// The adversary's account grows, the victim's packets cost what they cost, and it keeps its share.
pub(crate) fn storms_paid_by_sender() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.saturating(&[("victim", 8)])?;
    let alone = scene.window(WINDOW_CYCLES)?;
    for Storm { name, flows, frames, misses } in storms() {
        scene.attach(name, RING)?;
        let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
        scene.lab.switch.add_flows(&flows)?;
        scene.load(name, frames, RING.into(), false);
        // The storm has broken.
        scene.window(WINDOW_CYCLES / 10)?;
        let storm = scene.window(WINDOW_CYCLES)?;
        let taken = storm.taken.get(name).copied().unwrap_or_default();
        ensure!(taken >= 200, "{name}: {taken} packets are no storm: {storm:?}");
        ensure!(!misses || storm.grown.misses >= taken / 2, "{name}: too few misses: {storm:?}");
        unharmed("victim", &alone, &storm, 0.5, name)?;
        let paid = storm.grown.of(name).cycles;
        ensure!(paid / taken >= 200, "{name}: {taken} packets for {paid} cycles: {storm:?}");
        scene.quiet(name);
        dry(&mut scene, name)?;
    }
    scene.lab.switch.stop()
}

/// The victim's packets cost no more than alone, it has its share, and no more goes to `system`.
fn unharmed(
    victim: &str,
    alone: &Window,
    beside: &Window,
    share: f64,
    what: &str,
) -> anyhow::Result<()> {
    let cost = |window: &Window| window.grown.of(victim).cycles_per_packet();
    let dearer = cost(beside) / cost(alone);
    ensure!(dearer <= DEARER, "{what}: a packet costs the victim {dearer:.2} times: {beside:?}");
    let got = beside.grown.share(victim);
    ensure!(got >= share - 0.01, "{what}: the victim has {got:.4}: {beside:?}");
    let system = |window: &Window| window.grown.system as f64 / window.grown.heartbeat as f64;
    let more = system(beside) / system(alone);
    ensure!(more <= 3.0, "{what}: a turn costs `system` {more:.2} times: {beside:?}");
    Ok(())
}

/// Waits until the switch has taken all that a guest has sent.
fn dry(scene: &mut Scene, port: &str) -> anyhow::Result<()> {
    eventually("an empty ring", LIMIT, || {
        scene.refill()?;
        let taken = count(&scene.lab.counters(port)?, "rx_packets");
        Ok((taken == scene.lab.port(port)?.tx_counters().frames).then_some(()))
    })
}

/// Receivers that take nothing, or only in crumbs: those and whoever sends to them pay, and others have
/// theirs.
pub(crate) fn slow_guest() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.saturating(&[("neighbour", 8)])?;
    let alone = scene.window(WINDOW_CYCLES)?;
    scene.lab.attach("stuck", |config| PortConfig { drain: false, ring_size: 64, ..config })?;
    scene.lab.attach("crumbs", |config| PortConfig { rx_buffer_bytes: 8, ..config })?;
    for (sender, receiver) in [("to_stuck", "stuck"), ("to_crumbs", "crumbs")] {
        scene.attach(sender, RING)?;
        let outputs = vec![format!("output:{receiver}"); 32].join(",");
        scene.lab.switch.add_flows(&[&format!("in_port={sender},actions={outputs}")])?;
        scene.load(sender, always(udp(1, 2, 7, 180)), RING.into(), false);
    }
    let beside = scene.window(2 * WINDOW_CYCLES)?;
    for sender in ["to_stuck", "to_crumbs"] {
        let dropped = &scene.lab.counters(sender)?["drops"]["tx_ring_full"];
        ensure!(dropped.as_u64() > Some(0), "{sender}'s receiver is not slow: {dropped}");
    }
    // Who receives in crumbs pays for them, as the fourth tenant, and for no more than its share.
    unharmed("neighbour", &alone, &beside, 1.0 / 4.0, "slow guests")?;
    let crumbs = beside.grown.share("crumbs");
    ensure!(crumbs > 0.0 && crumbs <= 0.26, "crumbs cost their receiver {crumbs:.4}: {beside:?}");
    scene.lab.switch.stop()
}

/// A ring that breaks the rules is quarantined; meanwhile and afterwards shares are what they were.
pub(crate) fn hostile_ring() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.saturating(&[("a", 4), ("b", 4)])?;
    scene.weigh("b", 3.0)?;
    let socket = scene.lab.switch.add_port("bad", "bad")?;
    scene.lab.switch.add_flows(&["in_port=bad,actions=output:sink"])?;
    let offences: [fn(&mut RawGuest); 2] =
        [|bad| bad.driver().offer(999), |bad| bad.driver().set_avail_index(5000)];
    for offend in offences {
        let mut bad = RawGuest::attach(&socket)?;
        scene.refill()?;
        bad.transmit(&[1; 64]);
        offend(&mut bad);
        let window = scene.window(WINDOW_CYCLES)?;
        let port = scene.lab.counters("bad")?;
        ensure!(port["state"] == "quarantined", "{port}");
        let [a, b] = ["a", "b"].map(|name| window.grown.of(name).cycles as f64);
        ensure!(within(a / (a + b), 0.25, 0.01), "{a} to {b} of three times the weight");
        drop(bad);
        eventually("the bad guest's end", LIMIT, || {
            scene.refill()?;
            Ok((scene.lab.counters("bad")?["connected"] == false).then_some(()))
        })?;
    }
    scene.lab.switch.stop()
}
