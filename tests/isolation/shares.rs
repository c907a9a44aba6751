//! The books close, and weights decide who gets a busy core.

use anyhow::{bail, ensure};
use serde_json::json;

use crate::scene::{Scene, WINDOW_CYCLES, always, frame};

pub(crate) fn within(got: f64, wanted: f64, tolerance: f64) -> bool {
    (got - wanted).abs() <= tolerance
}

/// Cheap frames, dear ones, drops and copies from saturating senders and a quiet one.
pub(crate) fn closure() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.saturating(&[("cheap", 1), ("dear", 64)])?;
    scene.sender("quiet", 4)?;
    scene.load("quiet", always(frame()), 1, false);
    let grown = scene.window(WINDOW_CYCLES)?.grown;
    let booked = grown.busy() + grown.idle + grown.system + grown.stolen;
    let ratio = booked as f64 / grown.elapsed as f64;
    ensure!(within(ratio, 1.0, 0.01), "{ratio:.4} of the elapsed cycles are booked: {grown:?}");
    ensure!(grown.of("quiet").cycles > 0, "the load was not mixed: {grown:?}");
    scene.lab.switch.stop()
}

/// By cycles, and not by our own books alone: packets of equal cost show the same.
pub(crate) fn share() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    let names = ["a", "b", "c", "d"];
    let rows: [&[f64]; 4] = [&[1.0, 1.0], &[1.0, 3.0], &[1.0, 1.71], &[1.0, 2.0, 4.0, 8.0]];
    for name in names {
        scene.sender(name, 4)?;
    }
    let mut senders = 0;
    for weights in rows {
        for name in names.iter().take(weights.len()).skip(senders) {
            scene.saturate(name);
        }
        senders = weights.len();
        for (name, weight) in names.iter().zip(weights) {
            scene.weigh(name, *weight)?;
        }
        let window = scene.window(2 * WINDOW_CYCLES)?;
        for (name, weight) in names.iter().zip(weights) {
            let wanted = weight / weights.iter().sum::<f64>();
            let cycles = window.grown.share(name);
            ensure!(
                within(cycles, wanted, 0.01),
                "{weights:?}: {name} has {cycles:.4}: {window:?}"
            );
            let packets = window.packet_share(name);
            ensure!(
                within(packets, wanted, 0.01),
                "{weights:?}: {packets:.4} of the packets are {name}'s: {window:?}"
            );
        }
    }
    scene.lab.switch.stop()
}

/// One whose frames cost a multiple gets no more of the core than the other.
pub(crate) fn share_is_of_cycles_not_of_turns() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.saturating(&[("cheap", 1), ("dear", 16)])?;
    scene.protect(false)?;
    let off = scene.window(WINDOW_CYCLES)?;
    let packets = off.packet_share("cheap");
    ensure!(within(packets, 0.5, 0.03), "turn by turn each gets as many frames: {off:?}");
    ensure!(off.grown.share("cheap") < 0.4, "and the dear tenant more of the core: {off:?}");
    scene.protect(true)?;
    let on = scene.window(WINDOW_CYCLES)?.grown;
    ensure!(within(on.share("cheap"), 0.5, 0.01), "protected, each gets its share: {on:?}");
    scene.lab.switch.stop()
}

/// Shares hold under a local refill whoever had it before. Under a coordinator, a tenant has its part
/// among all that are registered, and what those without work leave is divided turn by turn.
pub(crate) fn share_under_either_refill() -> anyhow::Result<()> {
    const BOOST: f64 = 0.9;
    let mut scene = Scene::new("")?;
    scene.saturating(&[("a", 4), ("b", 4)])?;
    scene.weigh("b", 3.0)?;
    for idle_weight in [1.0, 4.0] {
        // Long periods, and a cap that carries over them: the coordinator has no core to itself here.
        let coordinated = json!({
            "refill": "coordinator", "period_us": 1000, "boost": BOOST, "cap_cycles": 50_000_000
        });
        scene.call("scheduler_set", coordinated)?;
        // A tenant that never has work.
        scene.weigh("sink", idle_weight)?;
        let mut seen = Err(String::new());
        // A coordinator that was kept from its core for longer than the cap makes up for nothing.
        for _ in 0..5 {
            scene.window(WINDOW_CYCLES)?;
            let grown = scene.window(2 * WINDOW_CYCLES)?.grown;
            let busy = grown.busy() as f64 / grown.elapsed as f64;
            let granted = |weight: f64| BOOST * weight / (4.0 + idle_weight) / busy;
            let slack = (1.0 - granted(4.0)) / 2.0;
            let wanted = granted(1.0) + slack;
            if within(grown.share("a"), wanted, 0.04) {
                seen = Ok(());
                break;
            }
            seen = Err(format!("{wanted:.3} of the core are a's: {grown:?}"));
        }
        if let Err(seen) = seen {
            bail!("beside an idle weight of {idle_weight}, {seen}");
        }
        scene.call("scheduler_set", json!({"refill": "local", "cap_cycles": 20_000}))?;
        let grown = scene.window(WINDOW_CYCLES)?.grown;
        ensure!(within(grown.share("a"), 0.25, 0.01), "local, weights hold: {grown:?}");
    }
    scene.lab.switch.stop()
}
