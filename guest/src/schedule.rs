//! When frames are due.

/// Fractional bits of an interval: a rate is exact within a few parts in 10^8.
const FRACTION_BITS: u32 = 16;

/// A steady schedule in TSC cycles, or none.
///
/// Frame k is due at `first + ceil(k * interval)`, computed anew each time in whole numbers, so that
/// no rounding adds up and "how many are due" never disagrees with "when is this one due".
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Schedule {
    first: u64,
    /// In cycles, with [`FRACTION_BITS`]; 0 for flat out.
    interval: u64,
    taken: u64,
}

impl Schedule {
    /// `rate_pps` frames per second on a clock of `tsc_hz`; flat out for 0.
    pub(crate) fn new(rate_pps: f64, tsc_hz: u64) -> Self {
        let interval = if rate_pps > 0.0 {
            let cycles = tsc_hz as f64 / rate_pps * f64::from(1u32 << FRACTION_BITS);
            (cycles.round() as u64).max(1)
        } else {
            0
        };
        Self { interval, ..Self::default() }
    }

    /// Sets when frame 0 is due.
    pub(crate) fn start(&mut self, first: u64) {
        self.first = first;
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.interval > 0
    }

    /// Cycles between two frames, rounded down; 0 flat out.
    pub(crate) fn interval_cycles(&self) -> u64 {
        self.interval >> FRACTION_BITS
    }

    /// When the next frame is due.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        let since = self.taken.wrapping_mul(self.interval);
        self.first + since.div_ceil(1 << FRACTION_BITS)
    }

    /// How many frames are due at `now` or before, of all. 0 when not paced.
    pub(crate) fn due_by(&self, now: u64) -> u64 {
        match now.checked_sub(self.first) {
            Some(since) => {
                (since << FRACTION_BITS).checked_div(self.interval).map_or(0, |last| last + 1)
            }
            None => 0,
        }
    }

    /// How many of those were not taken yet.
    #[inline]
    pub(crate) fn backlog(&self, now: u64) -> u64 {
        self.due_by(now).saturating_sub(self.taken)
    }

    /// Takes frames off the schedule: sent, or given up.
    #[inline]
    pub(crate) fn take(&mut self, frames: u64) {
        self.taken += frames;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn when_and_how_many_agree_at_every_cycle(
            rate in 0.5f64..3e9,
            first in 0u64..1 << 50,
            taken in 0u64..1 << 30,
        ) {
            let mut schedule = Schedule::new(rate, 2_445_430_000);
            schedule.start(first);
            // Ten hours of schedule at most.
            let taken = taken.min((rate * 36_000.0) as u64);
            schedule.take(taken);
            let due = schedule.due();
            prop_assert!(schedule.backlog(due) >= 1);
            prop_assert_eq!(schedule.backlog(due - 1), 0);
            // The rate is what was asked for.
            let exact = first as f64 + taken as f64 * 2_445_430_000.0 / rate;
            prop_assert!((due as f64 - exact).abs() <= 2.0 + taken as f64 / 65536.0);
        }
    }

    #[test]
    fn nothing_is_due_before_the_start_and_flat_out_has_no_schedule() {
        let mut schedule = Schedule::new(1000.0, 1_000_000);
        schedule.start(5000);
        assert_eq!((schedule.backlog(4999), schedule.backlog(5000)), (0, 1));
        assert_eq!(schedule.backlog(7999), 3);
        schedule.take(3);
        assert_eq!((schedule.backlog(7999), schedule.due()), (0, 8000));
        let flat_out = Schedule::new(0.0, 1_000_000);
        assert_eq!((flat_out.is_paced(), flat_out.due_by(1 << 40)), (false, 0));
    }
}
