//! The machine that is measured on: kept quiet, and asked how it is.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::Context as _;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tollgate_accel::tsc;

use crate::spread::Spread;

const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Round trips of one core-to-core measurement: about 10 ms even when the cores are far apart.
const ROUND_TRIPS: u64 = 10_000;

/// Which cores a measurement uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cores {
    /// The PMD's, alone.
    pub(crate) pmd: usize,
    /// The generator's and everybody else's.
    pub(crate) peers: usize,
}

impl Cores {
    /// The first two cores that this process may use; the same one twice where there is only one.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let pmd = cores.next().context("no CPU to run on")?;
        Ok(Self { pmd, peers: cores.next().unwrap_or(pmd) })
    }
}

/// Autogroups off while this lives: with them, nice means nothing between login sessions.
#[derive(Debug)]
pub(crate) struct Quiet {
    restore: Option<String>,
}

impl Quiet {
    /// Does what it can: without root nothing changes.
    pub(crate) fn begin() -> Self {
        let before = fs::read_to_string(AUTOGROUP).ok();
        let changed = fs::write(AUTOGROUP, "0\n").is_ok();
        // Beside a generator that never sleeps, whoever is less important reads the counters when it is
        // all over.
        let _ = setpriority_process(None, -20);
        Self { restore: before.filter(|_| changed) }
    }

    /// What a reader of the figures should know.
    pub(crate) fn describe(&self) -> &'static str {
        if self.restore.is_some() {
            "autogroups off, PMD and generator at nice -20"
        } else {
            "autogroups and nice values as they were (not root)"
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.restore {
            // A setting that cannot be put back was not changed either.
            let _ = fs::write(AUTOGROUP, before);
        }
    }
}

/// Frequency of the cycle counter.
pub(crate) fn tsc_hz() -> anyhow::Result<f64> {
    static HZ: OnceLock<u64> = OnceLock::new();
    if let Some(hz) = HZ.get() {
        return Ok(*hz as f64);
    }
    let hz = tsc::calibrate_hz()?;
    Ok(*HZ.get_or_init(|| hz) as f64)
}

/// One-way latency between two cores in TSC cycles: on a virtual machine it flips between "near"
/// (about 110) and "far" (about 500), and with it every figure of two cores that share rings.
pub(crate) fn core_to_core_cycles(core: usize, peer: usize) -> Option<f64> {
    let line = AtomicU64::new(0);
    let trips = thread::scope(|scope| {
        scope.spawn(|| {
            pin(peer);
            for round in 0..ROUND_TRIPS {
                await_value(&line, 2 * round + 1);
                line.store(2 * round + 2, Ordering::Release);
            }
        });
        let measuring = scope.spawn(|| {
            pin(core);
            let mut trips = Vec::with_capacity(ROUND_TRIPS as usize);
            for round in 0..ROUND_TRIPS {
                let start = tsc::now();
                line.store(2 * round + 1, Ordering::Release);
                await_value(&line, 2 * round + 2);
                trips.push((tsc::now() - start) as f64);
            }
            trips
        });
        measuring.join().ok()
    })?;
    Some(Spread::of(trips)?.median / 2.0)
}

fn await_value(line: &AtomicU64, value: u64) {
    while line.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // Unpinned, the figure is worse than wrong only for its reader: it is shown, never judged.
    let _ = sched_setaffinity(None, &set);
}
