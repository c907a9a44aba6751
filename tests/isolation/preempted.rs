//! What others take of a PMD's core is nobody's: fault 14 of earlier implementations, on a switch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use proving_ground::require;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;

use crate::scene::{Scene, WINDOW_CYCLES};
use crate::shares::within;
use crate::survival::{cpu_ns, may_hold, schedule, threads};

/// How long a PMD's core is taken away at a time, and left alone in between: together less than the
/// part of each second that the kernel leaves to real-time threads.
const TAKEN: Duration = Duration::from_millis(4);
const LEFT: Duration = Duration::from_millis(12);

/// A real-time thread takes the PMD's core again and again. By the kernel's books the PMD's thread ran
/// for as long as its own books say that it was not stolen from; and shares are those of the weights.
pub(crate) fn preemption_is_nobodys() -> anyhow::Result<()> {
    require!(may_hold());
    let mut scene = Scene::new("")?;
    scene.saturating(&[("a", 4), ("b", 4)])?;
    scene.weigh("b", 3.0)?;
    let pmd = threads(&scene, |name| name.starts_with("pmd-"))?;
    let tsc_hz = scene.call("pmd_stats", json!({}))?["tsc_hz"].as_u64().context("no tsc_hz")?;
    let mut seen = String::new();
    // A window ends when the figures say so, which are read a little later than the kernel's.
    for _ in 0..5 {
        let hog = Hog::start()?;
        let (ran_before, before) = (cpu_ns(&scene, &pmd)?, scene.books()?);
        scene.window(4 * WINDOW_CYCLES)?;
        let (ran_ns, grown) = (cpu_ns(&scene, &pmd)? - ran_before, scene.books()?.since(&before));
        let taken_ns = hog.end();
        let cycles = |ns: u64| (u128::from(ns) * u128::from(tsc_hz) / 1_000_000_000) as f64;
        let (ran, taken) = (cycles(ran_ns), cycles(taken_ns));
        let own = (grown.elapsed - grown.stolen) as f64;
        seen = format!("ran {ran}, taken {taken}, by the books: {grown:?}");
        let enough = taken > 0.05 * grown.elapsed as f64;
        let stolen = grown.stolen as f64;
        if enough && within(own / ran, 1.0, 0.03) && stolen > 0.8 * taken {
            let [a, b] = ["a", "b"].map(|name| grown.of(name).cycles as f64);
            ensure!(within(a / (a + b), 0.25, 0.02), "{a} to {b} cycles of three times the weight");
            return scene.lab.switch.stop();
        }
    }
    bail!("what was taken of the core is not what the books call stolen: {seen}")
}

/// A real-time thread on the PMD's core.
struct Hog {
    ends: Arc<AtomicBool>,
    taken_ns: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

impl Hog {
    fn start() -> anyhow::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let taken_ns = Arc::new(AtomicU64::new(0));
        let (ready, is_ready) = mpsc::channel();
        let (stop, taken) = (Arc::clone(&ends), Arc::clone(&taken_ns));
        let thread = thread::spawn(move || {
            let mut core = CpuSet::new();
            core.set(0);
            let placed = sched_setaffinity(None::<Pid>, &core).map_err(Into::into);
            let placed = placed.and_then(|()| schedule(libc::SCHED_FIFO, 1));
            let failed = placed.is_err();
            let _ = ready.send(placed);
            while !failed && !stop.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < TAKEN {}
                taken.fetch_add(TAKEN.as_nanos() as u64, Ordering::Relaxed);
                thread::sleep(LEFT);
            }
        });
        is_ready.recv()?.context("a real-time thread on the PMD's core")?;
        Ok(Self { ends, taken_ns, thread })
    }

    /// Ends it; how long it had the core.
    fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.taken_ns.load(Ordering::Relaxed)
    }
}
