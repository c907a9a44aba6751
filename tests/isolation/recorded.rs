//! What the scheduler of a running switch is told and says is what the simulator's says.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::latency::one_by_one;
use crate::scene::{Scene, frame};

/// Events of a recording, and the victim's frames meanwhile: each wakes it and gives it a turn, which is
/// charged and ends, so that it is full by then.
const EVENTS: usize = 10_000;
const FRAMES: usize = EVENTS / 4;

/// Recordings begun before giving up.
const ATTEMPTS: usize = 50;

/// Turns of each kind, and of each tenant, that a recording must have.
const TURNS_MIN: usize = 20;

/// Two saturating tenants of different weights and one that sends frame after frame, recorded until the
/// recording is full; `ofctl pmd trace check` says that it replays, and where it does not once an event
/// is another.
pub(crate) fn trace_replays() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.attach("victim", 256)?;
    scene.attach("receiver", 256)?;
    scene.lab.switch.add_flows(&["in_port=victim,actions=output:receiver"])?;
    scene.lab.deliver("victim", &frame())?;
    scene.saturating(&[("a", 4), ("b", 16)])?;
    scene.weigh("b", 3.0)?;
    scene.weigh("victim", 4.0)?;
    let mut trace = record(&mut scene)?;
    let path = scene.lab.switch.run_dir().join("trace.json");
    let file = path.to_str().context("no such path")?.to_owned();
    std::fs::write(&path, trace.to_string())?;
    let said = scene.lab.switch.ofctl(&["pmd", "trace", "check", &file])?;
    ensure!(said.contains("the replay agrees on all "), "{said}");

    let events = trace["recording"]["events"].as_array_mut().context("no events")?;
    let turns = events.iter().enumerate().filter(|(_, event)| is_turn(event, ""));
    let at = turns.map(|(at, _)| at).nth(TURNS_MIN).context("no turns")?;
    let event = events[at].as_str().context("no event")?;
    events[at] = event.replace(" budget ", " budget 1").into();
    std::fs::write(&path, trace.to_string())?;
    let Err(said) = scene.lab.switch.ofctl(&["pmd", "trace", "check", &file]) else {
        bail!("an altered trace is said to replay");
    };
    let said = said.to_string();
    ensure!(said.contains(&format!("first at event {at}\n")), "{said}");
    ensure!(said.contains(&format!("event {at}: recorded ")), "{said}");
    scene.lab.switch.stop()
}

/// Records under load until all are seen at work, funded and in debt: what the machine does besides
/// decides how soon.
fn record(scene: &mut Scene) -> anyhow::Result<Value> {
    for _ in 0..ATTEMPTS {
        scene.call("pmd_trace_start", json!({"pmd": 0, "events": EVENTS}))?;
        one_by_one(scene, FRAMES)?;
        let trace = scene.call("pmd_trace_read", json!({"pmd": 0}))?;
        let names = trace["tenants"].as_object().context("no tenants")?;
        let number = |name: &str| names.iter().find(|(_, tenant)| *tenant == name);
        let turns = |name: &str| {
            let of = number(name).map(|(number, _)| format!(" turn {number} budget "));
            of.map_or(0, |of| count(&trace, &of))
        };
        let seen = ["a", "b", "victim"].map(turns);
        let kinds = [" funded credit ", " slack credit "].map(|kind| count(&trace, kind));
        let enough = seen.iter().chain(&kinds).all(|turns| *turns >= TURNS_MIN);
        if enough && trace["recording"]["ended"] == "full" {
            return Ok(trace);
        }
    }
    bail!("none of {ATTEMPTS} recordings was full of all tenants: this machine is too busy to tell")
}

/// Turns in a trace whose text has this in it.
fn count(trace: &Value, part: &str) -> usize {
    let events = trace["recording"]["events"].as_array();
    events.map_or(0, |events| events.iter().filter(|event| is_turn(event, part)).count())
}

fn is_turn(event: &Value, part: &str) -> bool {
    event.as_str().is_some_and(|event| event.contains(" turn ") && event.contains(part))
}
