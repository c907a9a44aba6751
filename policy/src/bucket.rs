//! A token bucket on the cycle counter: how many flows a tenant may set up.

use crate::limits::{
    SETUP_BURST_MIN, SETUP_BURST_PER_SECOND, SETUPS_PER_SECOND_MAX, SETUPS_PER_SECOND_MIN,
};

/// So many set-ups a second, and a burst of an eighth of a second's worth. Nothing is rounded: over
/// any time no more are let through than burst + rate x time, and no fewer when more are asked for.
#[derive(Clone, Copy, Debug)]
pub struct SetupBucket {
    per_second: u64,
    tsc_hz: u64,
    /// Set-ups times `tsc_hz`: a cycle adds `per_second`, a set-up takes `tsc_hz`.
    level: u128,
    seen_cycles: u64,
}

impl SetupBucket {
    /// A full bucket for a rate that is within its limits, or else the nearest limit.
    #[must_use]
    pub fn new(per_second: u64, tsc_hz: u64) -> Self {
        let per_second = per_second.clamp(SETUPS_PER_SECOND_MIN, SETUPS_PER_SECOND_MAX);
        let mut bucket = Self { per_second, tsc_hz: tsc_hz.max(1), level: 0, seen_cycles: 0 };
        bucket.level = bucket.capacity();
        bucket
    }

    /// Most set-ups that are let through at once.
    #[must_use]
    pub fn burst(&self) -> u64 {
        (self.per_second / SETUP_BURST_PER_SECOND).max(SETUP_BURST_MIN)
    }

    fn capacity(&self) -> u128 {
        u128::from(self.burst()) * u128::from(self.tsc_hz)
    }

    /// Changes the rate from now on; what has been used stays used, as far as the new burst goes.
    pub fn set_rate(&mut self, per_second: u64, now_cycles: u64) {
        self.fill(now_cycles);
        let used = self.capacity() - self.level;
        self.per_second = per_second.clamp(SETUPS_PER_SECOND_MIN, SETUPS_PER_SECOND_MAX);
        self.level = self.capacity().saturating_sub(used);
    }

    /// Whether one more set-up is within the rate now; if so it is counted. A clock that steps back
    /// adds nothing.
    #[inline]
    pub fn take(&mut self, now_cycles: u64) -> bool {
        self.fill(now_cycles);
        let one = u128::from(self.tsc_hz);
        let granted = self.level >= one;
        if granted {
            self.level -= one;
        }
        granted
    }

    fn fill(&mut self, now_cycles: u64) {
        let elapsed = now_cycles.saturating_sub(self.seen_cycles);
        self.seen_cycles = self.seen_cycles.max(now_cycles);
        let earned = u128::from(elapsed) * u128::from(self.per_second);
        self.level = (self.level + earned).min(self.capacity());
    }
}
