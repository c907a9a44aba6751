//! What protection, idle ports and onlookers cost.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::books::Books;
use crate::scene::{Scene, WINDOW_CYCLES};

/// Ports that have a guest and no traffic.
const IDLE_PORTS: u32 = 100;

/// A hundred guests that are attached and silent hardly lengthen a turn.
pub(crate) fn idle_ports() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    // Frames that are copied twice: dropped ones cost so little that the sender cannot keep up.
    scene.saturating(&[("busy", 2)])?;
    let none = scene.window(WINDOW_CYCLES / 5)?.grown;
    scene.quiet("busy");
    for number in 0..IDLE_PORTS {
        scene.attach(&format!("idle{number}"), 64)?;
    }
    scene.saturate("busy");
    // Silence must have lasted for the looks to become rare.
    scene.window(WINDOW_CYCLES)?;
    let many = scene.window(WINDOW_CYCLES / 5)?.grown;
    let looks = many.ring_looks as f64 / many.heartbeat as f64;
    ensure!(looks <= f64::from(IDLE_PORTS) / 5.0, "{looks:.1} looks in a turn: {many:?}");
    let per_turn = |books: &Books| books.system as f64 / books.heartbeat as f64;
    let (few, all) = (per_turn(&none), per_turn(&many));
    // The debug build's turns are ten times as long and its looks dear: it makes some in each turn.
    // A look at every ring in every turn would cost it 40 times as much.
    let most = if cfg!(debug_assertions) { 8.0 } else { 1.5 };
    ensure!(all <= most * few, "{few:.0} cycles of a turn became {all:.0}: {many:?}");
    for (name, tenant) in many.tenants.iter().filter(|(name, _)| name.starts_with("idle")) {
        ensure!(tenant.cycles == 0, "{name} was charged for silence: {tenant:?}");
    }
    scene.lab.switch.stop()
}

/// The same load costs about as much with protection as without, by pairs of windows.
pub(crate) fn overhead() -> anyhow::Result<()> {
    /// Each half; their order changes from pair to pair.
    const PAIRS: usize = 15;
    /// In the debug build too, whose packets are an order dearer, a turn is some packets then.
    const CONFIG: &str = "[scheduler]\nquantum_cycles = 200000\n";

    let mut scene = Scene::new(CONFIG)?;
    scene.saturating(&[("a", 2), ("b", 2)])?;
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        let mut cost = [0.0; 2];
        for half in 0..2 {
            let on = (pair + half) % 2 == 1;
            scene.protect(on)?;
            let window = scene.window(WINDOW_CYCLES / 5)?;
            let packets: u64 = window.taken.values().sum();
            let cycles = window.grown.busy() + window.grown.system;
            *cost.get_mut(usize::from(on)).context("two halves")? = cycles as f64 / packets as f64;
        }
        ratios.push(cost[1] / cost[0]);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[PAIRS / 2];
    ensure!(median <= 1.15, "a packet costs {median:.3} times with protection: {ratios:.3?}");
    scene.lab.switch.stop()
}

/// Looking at the figures all the time costs tenants nothing, and memory neither.
pub(crate) fn stats_harmless() -> anyhow::Result<()> {
    /// As an onlooker at 1 kHz has made in a second.
    const LOOKS: usize = 1000;
    /// Pages of 4 KiB: an allocator's own slack.
    const PAGES: u64 = 512;

    let mut scene = Scene::new("")?;
    scene.saturating(&[("busy", 8)])?;
    scene.sender("silent", 1)?;
    // Every thread of the daemon that answers gets its own part of the heap.
    look(&mut scene, 3 * LOOKS)?;
    let pages = resident_pages(&scene)?;
    let quiet = scene.stretch(WINDOW_CYCLES)?;
    let before = scene.books()?;
    look(&mut scene, LOOKS)?;
    let watched = scene.books()?.since(&before);
    let more = resident_pages(&scene)?.saturating_sub(pages);
    ensure!(more <= PAGES, "{LOOKS} looks have left {more} pages");
    ensure!(watched.of("silent").cycles == 0, "a tenant paid for the looks: {watched:?}");
    let [busy, unwatched] = [&watched, &quiet].map(|books| books.of("busy"));
    ensure!(busy.packets >= LOOKS as u64, "forwarding has stopped: {watched:?}");
    let dearer = busy.cycles_per_packet() / unwatched.cycles_per_packet();
    ensure!(dearer <= 1.3, "a packet costs {dearer:.2} times while watched: {watched:?}");
    let system = |books: &Books| books.system as f64 / books.heartbeat as f64;
    let dearer = system(&watched) / system(&quiet);
    ensure!(dearer <= 1.5, "a turn costs {dearer:.2} times while watched: {watched:?}");
    scene.lab.switch.stop()
}

fn look(scene: &mut Scene, times: usize) -> anyhow::Result<()> {
    for _ in 0..times {
        scene.refill()?;
        scene.call("pmd_stats", json!({}))?;
        scene.call("port_list", json!({}))?;
    }
    Ok(())
}

fn resident_pages(scene: &Scene) -> anyhow::Result<u64> {
    let statm = fs::read_to_string(format!("/proc/{}/statm", scene.lab.switch.pid()))?;
    let resident = statm.split_whitespace().nth(1).context("no resident pages")?;
    Ok(resident.parse()?)
}
