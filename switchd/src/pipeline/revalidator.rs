//! The thread that keeps caches and counters in step with the tables: it tells the PMDs what has
//! become stale when nobody waits for it, and sweeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::core::Core;
use super::limits::{ROUND_INTERVAL_MS, SWEEP_INTERVAL_MS};

/// Runs until `stopping`; unparking the thread makes it tell the PMDs soon.
pub(super) fn run(core: &Arc<Core>, stopping: &AtomicBool) {
    let interval = Duration::from_millis(SWEEP_INTERVAL_MS);
    let mut sweep_due = Instant::now() + interval;
    while !stopping.load(Ordering::Acquire) {
        let now = Instant::now();
        if now >= sweep_due {
            core.sweep();
            sweep_due = now + interval;
        }
        core.tell_pmds();
        std::thread::sleep(Duration::from_millis(ROUND_INTERVAL_MS));
        std::thread::park_timeout(sweep_due.saturating_duration_since(Instant::now()));
    }
}
