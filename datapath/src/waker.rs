//! How the slow-path thread rests, and how PMDs end its rest.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

use crate::limits::{MISSES_PER_NAP, NAP_MAX, NAP_MIN, NAP_ROUSED_EVERY_CYCLES, QUIET_LANE_CYCLES};

/// It looks for misses, or is about to.
const AWAKE: u8 = 0;
/// It looks again soon by itself.
const NAPPING: u8 = 1;
/// It looks again only when it is woken, or late.
const SLEEPING: u8 = 2;

/// Wakes the slow-path thread from a PMD: one futex call. That call costs the PMD some ten thousand
/// cycles where it is an interrupt to another virtual CPU, so a thread that has just had misses does
/// not sleep but naps, which only the first miss after a silence of its tenant interrupts.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    state: AtomicU8,
    sleeper: OnceLock<Thread>,
}

impl Waker {
    /// PMD side, after something was queued; never blocks. Says whether a rest has ended by it.
    pub(crate) fn wake(&self, ends_naps: bool) -> bool {
        // Pairs with the fence in `rest`: either the sleeper sees the miss, or we see it at rest.
        fence(Ordering::SeqCst);
        let state = self.state.load(Ordering::Relaxed);
        if state == AWAKE || state == NAPPING && !ends_naps {
            return false;
        }
        let is_first = self.state.swap(AWAKE, Ordering::AcqRel) != AWAKE;
        if let Some(thread) = self.sleeper.get().filter(|_| is_first) {
            thread.unpark();
        }
        is_first
    }

    /// Waits a moment, without being woken for every miss.
    pub(crate) fn nap(&self, timeout: Duration, has_work: impl FnOnce() -> bool) {
        self.rest(NAPPING, timeout, has_work);
    }

    pub(crate) fn sleep(&self, timeout: Duration, has_work: impl FnOnce() -> bool) {
        self.rest(SLEEPING, timeout, has_work);
    }

    fn rest(&self, state: u8, timeout: Duration, has_work: impl FnOnce() -> bool) {
        self.sleeper.get_or_init(std::thread::current);
        self.state.store(state, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            std::thread::park_timeout(timeout);
        }
        self.state.store(AWAKE, Ordering::Relaxed);
    }
}

/// A PMD's decisions whether a miss ends a nap: the first of a tenant after a silence does, but not
/// many of them in a row.
#[derive(Debug, Default)]
pub(crate) struct Rousing {
    next_tsc: u64,
}

impl Rousing {
    /// Wakes the slow path for a miss of a lane that has had its one before at `before_tsc`.
    pub(crate) fn wake(&mut self, waker: &Waker, before_tsc: u64, now_tsc: u64) {
        let is_quiet = now_tsc.saturating_sub(before_tsc) >= QUIET_LANE_CYCLES;
        if waker.wake(is_quiet && now_tsc >= self.next_tsc) {
            self.next_tsc = now_tsc.saturating_add(NAP_ROUSED_EVERY_CYCLES);
        }
    }
}

/// How long the slow path naps: as long as some misses take to come, so that resting, which costs
/// as much as some walks, is not most of what a miss costs.
#[derive(Debug)]
pub(crate) struct Naps {
    next: Duration,
    /// Misses taken since the last nap.
    taken: usize,
}

impl Default for Naps {
    fn default() -> Self {
        Self { next: NAP_MIN, taken: 0 }
    }
}

impl Naps {
    /// A miss was taken.
    pub(crate) fn took(&mut self) {
        self.taken += 1;
    }

    /// How long to nap now.
    pub(crate) fn next(&mut self) -> Duration {
        let taken = std::mem::take(&mut self.taken);
        if taken < MISSES_PER_NAP {
            self.next = (self.next * 2).min(NAP_MAX);
        } else if taken >= 2 * MISSES_PER_NAP {
            self.next = (self.next / 2).max(NAP_MIN);
        }
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waker whose thread is in `state`, as far as PMDs can see.
    fn waker_in(state: u8) -> Waker {
        let waker = Waker::default();
        waker.state.store(state, Ordering::Relaxed);
        waker
    }

    #[test]
    fn a_sleeper_is_woken_once_and_a_nap_is_ended_only_on_purpose() {
        for (state, ends_naps, woken) in [
            (AWAKE, true, false),
            (NAPPING, false, false),
            (NAPPING, true, true),
            (SLEEPING, false, true),
        ] {
            let waker = waker_in(state);
            assert_eq!(waker.wake(ends_naps), woken, "{state} {ends_naps}");
            assert!(!waker.wake(true) || !woken, "the second finds it awake");
        }
    }

    /// A tenant with few new flows is not kept waiting by one with many, and none can make a PMD wake
    /// the slow path for every miss.
    #[test]
    fn the_first_miss_after_a_silence_ends_a_nap_and_others_do_not() {
        let mut rousing = Rousing::default();
        let waker = waker_in(NAPPING);
        let mut now_tsc = 10 * QUIET_LANE_CYCLES;
        let mut ends = |before_tsc, now_tsc| {
            waker.state.store(NAPPING, Ordering::Relaxed);
            rousing.wake(&waker, before_tsc, now_tsc);
            waker.state.load(Ordering::Relaxed) == AWAKE
        };
        assert!(!ends(now_tsc - QUIET_LANE_CYCLES + 1, now_tsc));
        assert!(ends(now_tsc - QUIET_LANE_CYCLES, now_tsc));
        assert!(!ends(0, now_tsc + 1), "it was roused just now");
        now_tsc += NAP_ROUSED_EVERY_CYCLES;
        assert!(ends(0, now_tsc));
    }

    #[test]
    fn naps_are_as_long_as_it_takes_to_have_some_misses_and_no_longer_than_the_bound() {
        let nap_at = |misses_per_us: f64| {
            let mut naps = Naps::default();
            let mut nap = NAP_MIN;
            for _ in 0..20 {
                let misses = (nap.as_micros() as f64 * misses_per_us) as usize;
                (0..misses).for_each(|_| naps.took());
                nap = naps.next();
            }
            nap
        };
        assert_eq!(nap_at(0.0), NAP_MAX);
        assert_eq!(nap_at(0.001), NAP_MAX);
        assert_eq!(nap_at(10.0), NAP_MIN);
        let some = nap_at(0.1);
        let few = Duration::from_micros(10 * MISSES_PER_NAP as u64);
        assert!(some >= few && some <= 2 * few, "{some:?}");
    }
}
