//! Packets from a network card: whoever they are for pays, and nobody else loses any.

use anyhow::{Context as _, ensure};
use etherparse::{IpEcn, PacketBuilder};
use proving_ground::lab::{count, mac, udp};
use serde_json::{Value, json};
use tollgate_guest::port::PortConfig;

use crate::scene::{Scene, WINDOW_CYCLES};

/// Frames of the flood for each one for the victim.
const FLOOD_FRAMES: usize = 63;
/// Where the guests' addresses end.
const NEIGHBOUR: u8 = 20;
const VICTIM: u8 = 21;

/// A flood from an uplink for a neighbour that is over its share: what is too much is the
/// neighbour's loss, or is marked as it was told to; the victim behind the same uplink loses nothing. And a
/// core on which nobody else waits drops nothing for being over a share.
pub(crate) fn uplink_flood() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.sender("busy", 8)?;
    uplink(&mut scene)?;
    for guest in ["neighbour", "victim"] {
        scene.attach(guest, 4096)?;
    }
    let copies = ["set_field:10.0.9.1->ip_dst,output:neighbour"; 8].join(",");
    let to = |guest: u8, actions: &str| {
        format!("ip,in_port=uplink,dl_dst=02:00:00:00:00:{guest:02x},actions={actions}")
    };
    let flows = [to(NEIGHBOUR, &copies), to(VICTIM, "output:victim")];
    scene.lab.switch.add_flows(&[&flows[0], &flows[1]])?;
    for guest in [NEIGHBOUR, VICTIM] {
        for _ in 0..2 {
            scene.lab.deliver("uplink", &udp(1, guest, 7, 20))?;
        }
    }
    scene.weigh("neighbour", 0.05)?;
    // A lead that carries over what a busy machine may hold the PMD up while it serves the victim.
    let lead = json!({"tenant": "victim", "weight": 8, "cap_cycles": 50_000_000});
    scene.call("tenant_set", lead)?;
    flood(&mut scene, false);
    scene.saturate("busy");

    let before = tally(&mut scene)?;
    scene.stretch(WINDOW_CYCLES / 4)?;
    let dropping = tally(&mut scene)?.since(&before);
    ensure!(dropping.dropped > 0, "a flood over its share is not dropped: {dropping:?}");
    ensure!(dropping.marked == 0, "it was not to be marked: {dropping:?}");
    dropping.check_victim()?;

    scene.call("tenant_set", json!({"tenant": "neighbour", "rx_overrun": "mark"}))?;
    scene.quiet("uplink");
    flood(&mut scene, true);
    // What waits in the uplink's ring cannot be marked.
    scene.stretch(WINDOW_CYCLES / 4)?;
    let before = tally(&mut scene)?;
    scene.stretch(WINDOW_CYCLES / 4)?;
    let marking = tally(&mut scene)?.since(&before);
    ensure!(marking.marked > 0, "a flood over its share is not marked: {marking:?}");
    ensure!(marking.dropped == 0, "what can be marked is not dropped: {marking:?}");
    marking.check_victim()?;

    scene.call("tenant_set", json!({"tenant": "neighbour", "rx_overrun": "drop"}))?;
    scene.quiet("busy");
    // What waits in its ring is served first.
    while scene.stretch(WINDOW_CYCLES / 20)?.of("busy").packets > 0 {}
    let before = tally(&mut scene)?;
    scene.stretch(WINDOW_CYCLES / 4)?;
    let alone = tally(&mut scene)?.since(&before);
    ensure!(alone.neighbour_cycles > 0, "the flood has ended: {alone:?}");
    ensure!(alone.dropped == 0 && alone.marked == 0, "nobody waited: {alone:?}");
    alone.check_victim()?;
    scene.lab.switch.stop()
}

fn uplink(scene: &mut Scene) -> anyhow::Result<()> {
    let further = json!({"tenant": "wire", "mode": "listen", "uplink": true});
    let socket = scene.lab.switch.add_port_with("uplink", further)?;
    let config = PortConfig {
        // Short: what waits here when the load changes has to pass first.
        ring_size: 256,
        tx_frame_bytes: 256,
        rx_buffer_bytes: 256,
        ..PortConfig::new("uplink", socket)
    };
    let port = tollgate_guest::port::Port::attach(config)?;
    scene.lab.ports.insert("uplink".to_owned(), port);
    scene.lab.switch.wait_running("uplink", 2).map(drop)
}

/// Loads the uplink: a few frames for the victim among many for the neighbour.
fn flood(scene: &mut Scene, ecn_capable: bool) {
    let frame = |to: u8| if ecn_capable { ect(to) } else { udp(1, to, 7, 20) };
    let (flood, victim) = (frame(NEIGHBOUR), udp(1, VICTIM, 7, 20));
    let mut nth = 0;
    let frames = move || {
        nth += 1;
        if nth % (FLOOD_FRAMES + 1) == 0 { victim.clone() } else { flood.clone() }
    };
    scene.load("uplink", Box::new(frames), 256, false);
}

/// A frame whose sender heeds marks.
fn ect(to: u8) -> Vec<u8> {
    let header = etherparse::Ipv4Header {
        ecn: IpEcn::Ect0,
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, to],
        time_to_live: 64,
        ..Default::default()
    };
    let builder = PacketBuilder::ethernet2(mac(1), mac(to))
        .ip(etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default()))
        .udp(1000, 7);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[7; 20]).unwrap_or_default();
    frame
}

/// What has become of the uplink's packets.
#[derive(Debug, Default)]
struct Tally {
    taken: u64,
    dropped: u64,
    marked: u64,
    neighbour_cycles: u64,
    victim_cycles: u64,
    victim_dropped: u64,
    victim_got: u64,
}

fn tally(scene: &mut Scene) -> anyhow::Result<Tally> {
    let stats = scene.call("pmd_stats", json!({}))?;
    let tenant = |name: &str| &stats["pmds"][0]["tenant_details"][name];
    let over_share = |name: &str| {
        let reasons = ["tenant_over_share", "tenant_over_share_early"];
        reasons.map(|reason| count(&tenant(name)["drops"], reason)).iter().sum::<u64>()
    };
    let ports = scene.call("port_list", json!({}))?;
    let port = |name: &str| -> anyhow::Result<Value> {
        let ports = ports.as_array().context("no list of ports")?;
        ports.iter().find(|port| port["name"] == name).cloned().context("no such port")
    };
    let victim = port("victim")?;
    Ok(Tally {
        taken: count(&port("uplink")?, "rx_packets"),
        dropped: over_share("neighbour"),
        marked: count(tenant("neighbour"), "marks"),
        neighbour_cycles: count(tenant("neighbour"), "cycles"),
        victim_cycles: count(tenant("victim"), "cycles"),
        victim_dropped: over_share("victim"),
        victim_got: count(&victim, "tx_packets"),
    })
}

impl Tally {
    fn since(&self, before: &Self) -> Self {
        Self {
            taken: self.taken - before.taken,
            dropped: self.dropped - before.dropped,
            marked: self.marked - before.marked,
            neighbour_cycles: self.neighbour_cycles - before.neighbour_cycles,
            victim_cycles: self.victim_cycles - before.victim_cycles,
            victim_dropped: self.victim_dropped - before.victim_dropped,
            victim_got: self.victim_got - before.victim_got,
        }
    }

    /// None of the victim's was dropped, and it got about its part of all that was taken from the
    /// uplink (a frame for which the ring has no room is not offered again, so not exactly).
    fn check_victim(&self) -> anyhow::Result<()> {
        let meant = self.taken / (FLOOD_FRAMES as u64 + 1);
        ensure!(meant > 5, "too little came in to tell: {self:?}");
        ensure!(self.victim_dropped == 0, "the victim's packets were dropped: {self:?}");
        ensure!(self.victim_got > meant / 2, "of some {meant} packets for the victim: {self:?}");
        Ok(())
    }
}
