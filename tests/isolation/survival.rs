//! Protection does not depend on the daemon's other threads, nor on sessions and ports that stay.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use proving_ground::lab::{LIMIT, count};
use proving_ground::process::eventually;
use proving_ground::require;
use proving_ground::skip::Missing;
use rustix::process::{Pid, geteuid};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;
use tollgate_guest::port::Resume;

use crate::books::Books;
use crate::scene::{BACKLOG, Scene, WINDOW_CYCLES, always, frame};
use crate::shares::within;

/// Less than the part of each second that the kernel leaves to real-time threads.
const HELD: Duration = Duration::from_millis(500);

/// Every thread of the daemon but the PMD gets nothing: traffic and shares are as before.
pub(crate) fn daemon_held() -> anyhow::Result<()> {
    require!(may_hold());
    let mut scene = Scene::new("")?;
    scene.saturating(&[("a", 8), ("b", 8)])?;
    scene.weigh("b", 3.0)?;
    scene.attach("receiver", 1024)?;
    scene.attach("sender", 1024)?;
    scene.lab.switch.add_flows(&["in_port=sender,actions=output:receiver"])?;
    scene.lab.deliver("sender", &frame())?;
    scene.load("sender", always(frame()), 16, false);
    let threads = threads(&scene, |name| !name.starts_with("pmd-"))?;
    // The core that this thread is pinned to.
    let mut core = CpuSet::new();
    core.set(1);
    for thread in &threads {
        sched_setaffinity(Some(*thread), &core)?;
    }
    let before = scene.window(WINDOW_CYCLES / 10).and_then(|_| scene.books())?;
    let (mut ran, mut taken, mut arrived) = (0, [0; 2], 0);
    for _ in 0..3 {
        // Neither ring has run dry when it begins.
        while !scene.refill()? {}
        scene.refill()?;
        let accepted = ["a", "b", "sender"].map(|name| scene.accepted(name));
        let received = scene.lab.port("receiver")?.rx_counters().frames;
        let began_ns = cpu_ns(&scene, &threads)?;
        hold(|| scene.refill().map(drop))?;
        ran += cpu_ns(&scene, &threads)? - began_ns;
        for (taken, (name, then)) in taken.iter_mut().zip(["a", "b"].into_iter().zip(accepted)) {
            *taken += scene.accepted(name) - then;
        }
        arrived += scene.lab.port("receiver")?.rx_counters().frames - received;
        // The kernel's allowance for real-time threads recovers.
        scene.window(WINDOW_CYCLES)?;
    }
    // What ran was the edge of the hold, not the daemon's work.
    ensure!(
        ran < 3 * HELD.as_nanos() as u64 / 50,
        "the daemon was not held: {ran} ns of {threads:?}"
    );
    ensure!(arrived > 0, "no frame arrived while the daemon was held");
    let share = taken[0] as f64 / taken.iter().sum::<u64>() as f64;
    ensure!(within(share, 0.25, 0.03), "{taken:?} frames of weights 1 to 3 while it was held");
    let grown: Books = scene.books()?.since(&before);
    let [a, b] = ["a", "b"].map(|name| grown.of(name).cycles as f64);
    ensure!(within(a / (a + b), 0.25, 0.01), "{a} to {b} cycles of three times the weight");
    scene.lab.switch.stop()
}

/// Real-time scheduling needs root, and somebody else's core another core.
pub(crate) fn may_hold() -> Result<(), Missing> {
    if !geteuid().is_root() {
        return Err(Missing("holding threads by a real-time one needs root".to_owned()));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Err(Missing(
            "the PMD needs a core of its own for this, and there is one".to_owned(),
        ));
    }
    Ok(())
}

/// The daemon's threads by name.
pub(crate) fn threads(scene: &Scene, wanted: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Pid>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/task", scene.lab.switch.pid()))? {
        let entry = entry?;
        if wanted(&fs::read_to_string(entry.path().join("comm"))?) {
            let id = entry.file_name().to_string_lossy().parse()?;
            threads.push(Pid::from_raw(id).context("thread 0")?);
        }
    }
    Ok(threads)
}

/// What threads of the daemon have run so far; one that has ended ran nothing.
pub(crate) fn cpu_ns(scene: &Scene, threads: &[Pid]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in threads {
        let id = thread.as_raw_nonzero();
        let path = format!("/proc/{}/task/{id}/schedstat", scene.lab.switch.pid());
        let Ok(text) = fs::read_to_string(path) else { continue };
        sum += text.split_whitespace().next().context("an empty schedstat")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// Does `work` over and over as a real-time thread, which leaves its core to nobody.
fn hold(mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    schedule(libc::SCHED_FIFO, 1)?;
    let begun = Instant::now();
    let mut worked = Ok(());
    while worked.is_ok() && begun.elapsed() < HELD {
        worked = work();
    }
    schedule(libc::SCHED_OTHER, 0)?;
    worked
}

/// Changes the calling thread's scheduling policy.
pub(crate) fn schedule(policy: i32, priority: i32) -> std::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: thread 0 is the calling one, and the parameters outlive the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Debt stays whatever a guest does with its session and rings, or an operator with the port: also
/// that of a tenant which only its port has named.
pub(crate) fn debt_survives() -> anyhow::Result<()> {
    let mut scene = Scene::new("")?;
    scene.saturating(&[("creditor", 64)])?;
    scene.sender("debtor", 500)?;
    // The debtor earns so little beside it that its debt stays for the length of a step.
    scene.weigh("creditor", 1000.0)?;
    let steps: [(&str, Step); 4] = [
        ("toggled its rings", toggle_rings),
        ("reset its device", reset),
        ("reconnected", reconnect),
        ("was plugged out and in", replug),
    ];
    for (what, step) in steps {
        let debt = indebt(&mut scene)?;
        step(&mut scene)?;
        let credit = settled(&mut scene)?.of("debtor").credit;
        ensure!(credit <= debt / 2, "the debtor {what}: {debt} became {credit}");
        // And so its work waits.
        ensure!(scene.lab.port("debtor")?.send(&frame(), 1), "the debtor has no room");
        let after = scene.window(WINDOW_CYCLES / 10)?.grown;
        ensure!(after.of("debtor").packets == 0, "served although it {what}: {after:?}");
        ensure!(after.idle == 0, "the core was idle, which forgives: {after:?}");
    }
    // What nobody has asked for by name is remembered for its debt only.
    scene.call("port_remove", json!({"bridge": "br0", "name": "debtor"}))?;
    scene.lab.ports.remove("debtor");
    ensure!(tenants(&mut scene)?.contains(&"debtor".to_owned()), "its debt is forgotten");
    scene.quiet("creditor");
    eventually("the end of the debt on an idle core", LIMIT, || {
        scene.attach("newcomer", 64)?;
        scene.call("port_remove", json!({"bridge": "br0", "name": "newcomer"}))?;
        scene.lab.ports.remove("newcomer");
        Ok((!tenants(&mut scene)?.contains(&"debtor".to_owned())).then_some(()))
    })?;
    scene.lab.switch.stop()
}

fn tenants(scene: &mut Scene) -> anyhow::Result<Vec<String>> {
    let list = scene.call("tenant_list", json!({}))?;
    let list = list.as_array().context("no list of tenants")?.iter();
    Ok(list.filter_map(|tenant| tenant["tenant"].as_str().map(str::to_owned)).collect())
}

/// Has the debtor served while nobody is gated, until it owes much; its credit then. Gated, it
/// could owe no more than a turn.
fn indebt(scene: &mut Scene) -> anyhow::Result<i64> {
    scene.protect(false)?;
    let mut taken_before = None;
    for _ in 0..100 {
        scene.window(WINDOW_CYCLES / 100)?;
        let taken = count(&scene.lab.counters("debtor")?, "rx_packets");
        let credit = scene.books()?.of("debtor").credit;
        // It owes enough, and nothing of its work is left that could be served later.
        let has_rested = taken_before.replace(taken) == Some(taken);
        if credit > -800_000 {
            for _ in 0..20 {
                scene.lab.port("debtor")?.send(&frame(), 1);
            }
        } else if has_rested {
            scene.protect(true)?;
            return Ok(credit);
        }
    }
    bail!("no debt to forgive: {:?}", scene.books()?)
}

/// What the debtor does.
type Step = fn(&mut Scene) -> anyhow::Result<()>;

fn toggle_rings(scene: &mut Scene) -> anyhow::Result<()> {
    let debtor = scene.lab.port("debtor")?;
    for enabled in [false, true] {
        for ring in 0..2 {
            debtor.enable_ring(ring, enabled)?;
        }
    }
    Ok(())
}

fn reset(scene: &mut Scene) -> anyhow::Result<()> {
    scene.lab.port("debtor")?.reset()?;
    scene.refill().map(drop)
}

fn reconnect(scene: &mut Scene) -> anyhow::Result<()> {
    scene.lab.port("debtor")?.disconnect();
    scene.refill()?;
    scene.lab.port("debtor")?.reconnect(Resume::Fresh)?;
    scene.refill()?;
    scene.lab.switch.wait_running("debtor", 2).map(drop)
}

fn replug(scene: &mut Scene) -> anyhow::Result<()> {
    scene.call("port_remove", json!({"bridge": "br0", "name": "debtor"}))?;
    scene.lab.ports.remove("debtor");
    scene.refill()?;
    scene.attach("debtor", BACKLOG / 128)
}

/// The books when the figures that a PMD publishes now and then are of now.
fn settled(scene: &mut Scene) -> anyhow::Result<Books> {
    scene.window(WINDOW_CYCLES / 20)?;
    scene.books()
}
