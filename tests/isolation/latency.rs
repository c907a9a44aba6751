//! How long a tenant with little to do waits beside tenants with much, and what sleep is worth.

use std::time::Instant;

use anyhow::ensure;
use proving_ground::lab::LIMIT;

use crate::books::Books;
use crate::scene::{Scene, WINDOW_CYCLES, always, copies_to_sink, frame};
use crate::shares::within;

/// Adversaries. Turn by turn, a victim waits for a task of each.
const ADVERSARIES: u16 = 16;

/// Copies of an adversary's every frame: in a debug build dearer than a quantum, in any build dear.
const DEAR_COPIES: usize = 16;

/// How often it is tried again on a machine that takes the core away.
const QUIET_ATTEMPTS: usize = 5;

/// Waits are within what the histograms of tasks and turns promise; without protection they are not.
pub(crate) fn tail() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.attach("victim", 256)?;
    scene.attach("receiver", 256)?;
    scene.lab.switch.add_flows(&["in_port=victim,actions=output:receiver"])?;
    // One frame at a time is less than half of the core.
    scene.weigh("victim", ADVERSARIES.into())?;
    for number in 0..ADVERSARIES {
        let name = format!("adversary{number}");
        scene.attach(&name, 1024)?;
        let flow = format!("ip,in_port={name},actions={}", copies_to_sink(DEAR_COPIES));
        scene.lab.switch.add_flows(&[&flow])?;
        scene.lab.deliver(&name, &frame())?;
        scene.load(&name, always(frame()), 1024, false);
    }
    scene.protect(false)?;
    let off = one_by_one(&mut scene, 100)?.of("victim").waits;
    scene.protect(true)?;
    let (mut on, mut bound) = (Books::default(), 0);
    for _ in 0..QUIET_ATTEMPTS {
        on = one_by_one(&mut scene, 400)?;
        bound = on.wait_bound();
        // Who waits for a core that others have taken waits for nobody's task.
        let is_quiet = on.stolen * 10 < on.elapsed;
        if is_quiet || on.of("victim").waits.share_above(bound) <= 0.01 {
            break;
        }
    }
    let waits = on.of("victim").waits;
    ensure!(waits.count() >= 200, "the victim was not funded: {on:?}");
    ensure!(waits.share_above(bound) <= 0.01, "waits go beyond {bound}: {on:?}");
    ensure!(off.share_above(bound) > 0.5, "nothing to protect from: over {bound}: {off:?}");
    scene.lab.switch.stop()
}

/// What the books grow by while the victim sends so many frames, each when the one before has arrived.
pub(crate) fn one_by_one(scene: &mut Scene, frames: usize) -> anyhow::Result<Books> {
    scene.refill()?;
    let before = scene.books()?;
    for sent in 0..frames {
        if sent % 16 == 0 {
            scene.refill()?;
        }
        ensure!(scene.lab.port("victim")?.send(&frame(), 1), "the victim's ring is full");
        let begun = Instant::now();
        while scene.lab.port("receiver")?.receive(|_| ())? == 0 {
            ensure!(begun.elapsed() < LIMIT, "frame {sent} has not arrived");
        }
    }
    Ok(scene.books()?.since(&before))
}

/// A tenant that wakes after a long sleep has no claim beyond its cap to what others had meanwhile, and
/// they have none against it.
pub(crate) fn waking_tenant() -> anyhow::Result<()> {
    /// What `switchd` does unless told otherwise.
    const CAP_CYCLES: i64 = 20_000;

    let mut scene = Scene::new("")?;
    scene.saturating(&[("busy", 4), ("sleeper", 4)])?;
    for _ in 0..3 {
        // Its ring fills up while nobody looks at it, so that it wakes with all of its work at once.
        let bases = scene.lab.port("sleeper")?.stop()?;
        scene.quiet("sleeper");
        let alone = scene.window(2 * WINDOW_CYCLES)?.grown;
        ensure!(alone.share("busy") > 0.99, "there is nobody else: {alone:?}");
        ensure!(alone.of("sleeper").credit <= CAP_CYCLES, "more than its cap: {alone:?}");
        scene.load("sleeper", always(frame()), usize::MAX, true);
        scene.refill()?;
        let before = scene.books()?;
        scene.lab.port("sleeper")?.start(&bases)?;
        let after = scene.window(WINDOW_CYCLES)?.grown;
        // What came between was the time to answer, in which both were served or only the busy one.
        let since_waking = scene.books()?.since(&before);
        let gain = since_waking.share("sleeper");
        ensure!(gain <= 0.51, "the sleeper has {gain:.4} since it woke: {since_waking:?}");
        let share = after.share("sleeper");
        ensure!(within(share, 0.5, 0.01), "the sleeper has {share:.4}: {after:?}");
    }
    scene.lab.switch.stop()
}
