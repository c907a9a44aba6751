//! The pipeline's clock: milliseconds since it was made, by the cycle counter that PMDs stamp their
//! packets with.

use std::fmt;

/// A clock; 0 stands for "never".
pub(super) struct Clock {
    now_tsc: Box<dyn Fn() -> u64 + Send + Sync>,
    base_tsc: u64,
    tsc_hz: u64,
    cycles_per_ms: u64,
}

impl Clock {
    /// A clock that reads `now_tsc`, which runs at `tsc_hz`.
    pub(super) fn new(tsc_hz: u64, now_tsc: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let base_tsc = now_tsc();
        Self { now_tsc: Box::new(now_tsc), base_tsc, tsc_hz, cycles_per_ms: (tsc_hz / 1000).max(1) }
    }

    pub(super) fn tsc_hz(&self) -> u64 {
        self.tsc_hz
    }

    pub(super) fn now_tsc(&self) -> u64 {
        (self.now_tsc)()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.ms_of_tsc((self.now_tsc)())
    }

    /// When the counter read `tsc`; 0 for a reading of 0.
    pub(super) fn ms_of_tsc(&self, tsc: u64) -> u64 {
        match tsc {
            0 => 0,
            _ => 1 + tsc.saturating_sub(self.base_tsc) / self.cycles_per_ms,
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("cycles_per_ms", &self.cycles_per_ms).finish_non_exhaustive()
    }
}
