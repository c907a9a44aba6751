//! The thread that keeps caches and counters in step with the tables: it tells the PMDs what has
//! become stale when nobody waits for it, and sweeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::core::Core;
use super::limits::{ROUND_INTERVAL_MAX_MS, ROUND_INTERVAL_MS, SWEEP_INTERVAL_MS};

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
        std::thread::sleep(pause_after(now.elapsed()));
        std::thread::park_timeout(sweep_due.saturating_duration_since(Instant::now()));
    }
}

/// As long as the round took: while rules pour in, half of a core goes to decisions that they may
/// concern, and no more.
fn pause_after(round: Duration) -> Duration {
    let shortest = Duration::from_millis(ROUND_INTERVAL_MS);
    round.clamp(shortest, Duration::from_millis(ROUND_INTERVAL_MAX_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_round_is_followed_by_a_long_pause_but_not_a_very_long_one() {
        let ms = Duration::from_millis;
        assert_eq!(pause_after(ms(0)), ms(ROUND_INTERVAL_MS));
        assert_eq!(pause_after(ms(40)), ms(40));
        assert_eq!(pause_after(ms(5000)), ms(ROUND_INTERVAL_MAX_MS));
    }
}
