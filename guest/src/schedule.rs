//! When frames are due.

/// Fractional bits of an interval: a rate is exact within a few parts in 10^8.
const FRACTION_BITS: u32 = 16;

/// A steady schedule in TSC cycles, or none.
///
/// Frame k is due at `first + ceil(k * interval)`, computed anew each time in whole numbers, so that
/// no rounding adds up and "how many are due" never disagrees with "when is this one due".
///
/// A schedule that comes and goes has a clock of its own, which stands still in the pauses: frames
/// are due by that clock, so none is due in a pause and none is made up for after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Schedule {
    first: u64,
    /// In cycles, with [`FRACTION_BITS`]; 0 for flat out.
    interval: u64,
    taken: u64,
    pauses: Option<Pauses>,
}

/// So long on, then so long off, from the first frame on, for ever.
#[derive(Clone, Copy, Debug)]
struct Pauses {
    on_cycles: u64,
    off_cycles: u64,
}

impl Pauses {
    /// The time at which the clock that stands still shows `on_time`.
    fn stretch(self, on_time: u64) -> u64 {
        let Self { on_cycles, off_cycles } = self;
        on_time + on_time.checked_div(on_cycles).unwrap_or(0) * off_cycles
    }

    /// What that clock shows last at `since` or before.
    fn compress(self, since: u64) -> u64 {
        let Self { on_cycles, off_cycles } = self;
        let period = on_cycles + off_cycles;
        let whole = since.checked_div(period).unwrap_or(0);
        whole * on_cycles + (since - whole * period).min(on_cycles.saturating_sub(1))
    }
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

    /// With pauses of `off_cycles` after every `on_cycles`.
    pub(crate) fn with_pauses(self, on_cycles: u64, off_cycles: u64) -> Self {
        Self { pauses: Some(Pauses { on_cycles: on_cycles.max(1), off_cycles }), ..self }
    }

    /// Whether `now` is in a pause, or before the start.
    #[inline]
    pub(crate) fn pauses_at(&self, now: u64) -> bool {
        self.pauses.is_some_and(|pauses| {
            let period = pauses.on_cycles + pauses.off_cycles;
            now.checked_sub(self.first).is_none_or(|since| since % period >= pauses.on_cycles)
        })
    }

    /// Sets when frame 0 is due.
    pub(crate) fn start(&mut self, first: u64) {
        self.first = first;
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.interval > 0
    }

    /// Cycles from one frame to the next, or from one burst to the next, rounded down; 0 flat out.
    pub(crate) fn period_cycles(&self) -> u64 {
        let frames = self.interval >> FRACTION_BITS;
        self.pauses.map_or(frames, |pauses| pauses.on_cycles + pauses.off_cycles)
    }

    /// When the next frame is due.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        let since = self.taken.wrapping_mul(self.interval).div_ceil(1 << FRACTION_BITS);
        self.first + self.pauses.map_or(since, |pauses| pauses.stretch(since))
    }

    /// How many frames are due at `now` or before, of all. 0 when not paced.
    pub(crate) fn due_by(&self, now: u64) -> u64 {
        match now.checked_sub(self.first) {
            Some(since) => {
                let since = self.pauses.map_or(since, |pauses| pauses.compress(since));
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

    proptest! {
        #[test]
        fn frames_are_due_as_without_pauses_but_for_those(
            rate in 1e3f64..1e8,
            on_cycles in 1u64..1 << 24,
            off_cycles in 0u64..1 << 24,
            taken in 0u64..1 << 20,
        ) {
            let plain = Schedule::new(rate, 2_445_430_000);
            let mut schedule = plain.with_pauses(on_cycles, off_cycles);
            schedule.start(1000);
            schedule.take(taken);
            let due = schedule.due();
            prop_assert!(!schedule.pauses_at(due));
            prop_assert!(schedule.backlog(due) >= 1);
            prop_assert_eq!(schedule.backlog(due - 1), 0);
            // By hand: whole stretches of time on, each with its pause.
            let mut without = plain;
            without.take(taken);
            let on_time = without.due();
            let expected = 1000 + on_time + on_time / on_cycles * off_cycles;
            prop_assert_eq!(due, expected);
        }
    }

    #[test]
    fn a_pause_is_neither_sent_in_nor_made_up_for() {
        // A frame every 100 cycles; on for 250, off for 1000.
        let mut schedule = Schedule::new(10_000.0, 1_000_000).with_pauses(250, 1000);
        schedule.start(0);
        assert_eq!((schedule.backlog(249), schedule.backlog(1249)), (3, 3));
        schedule.take(3);
        assert_eq!(schedule.due(), 1300, "300 of time on is 50 into the second stretch");
        assert_eq!((schedule.backlog(2499), schedule.backlog(2500)), (2, 3));
        let paused = [0, 249, 250, 1249, 1250].map(|now| schedule.pauses_at(now));
        assert_eq!(paused, [false, false, true, true, false]);
        assert!(!Schedule::new(0.0, 1_000_000).pauses_at(7));
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
