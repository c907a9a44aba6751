//! The virtual clock and one tenant's credit on it, in the manner of start-time fair queueing
//! (Goyal, Vin, Cheng, SIGCOMM 1996).
//!
//! Cycles are kept with 32 fraction bits ("scaled"). Virtual time is scaled cycles per thousandth
//! of weight: when x cycles are charged it moves on by x / (sum of active weights), and a tenant of
//! weight w earns w times what the clock moved. A tenant is settled only when it is looked at, so
//! that a charge costs the same however many tenants there are.

use crate::config::SchedulerConfig;

const FRACTION_BITS: u32 = 32;

/// A reading of the virtual clock. 128 bits wide: a core of 4 GHz for a tenant of weight 0.001
/// moves it by less than 2^64 a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct VirtualTime(u128);

impl VirtualTime {
    #[cfg(test)]
    pub(crate) const fn from_raw(raw: u128) -> Self {
        Self(raw)
    }
}

/// The two ends of what a credit may be, scaled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    cap: i64,
    floor: i64,
}

impl Bounds {
    /// From a validated configuration: both ends are below 2^62 when scaled.
    pub(crate) fn new(config: &SchedulerConfig) -> Self {
        let scale = |cycles: u64| i64::try_from(u128::from(cycles) << FRACTION_BITS);
        Self {
            cap: scale(config.cap_cycles).unwrap_or(i64::MAX),
            floor: scale(config.floor_cycles).unwrap_or(i64::MAX),
        }
    }

    /// A step of the clock that lifts even the lightest tenant from the floor to the cap.
    fn full_step(self) -> u128 {
        u128::from(self.cap.unsigned_abs()) + u128::from(self.floor.unsigned_abs()) + 1
    }
}

/// The clock and the weights that share in what it issues.
#[derive(Clone, Debug)]
pub(crate) struct VirtualClock {
    now: VirtualTime,
    active_weight: u64,
    /// Scaled cycles that were charged and did not divide evenly; part of the next issue.
    remainder: u64,
    full_step: u128,
}

impl VirtualClock {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let full_step = bounds.full_step();
        Self { now: VirtualTime(0), active_weight: 0, remainder: 0, full_step }
    }

    pub(crate) fn now(&self) -> VirtualTime {
        self.now
    }

    pub(crate) fn join(&mut self, weight: u32) {
        self.active_weight += u64::from(weight);
    }

    pub(crate) fn leave(&mut self, weight: u32) {
        self.active_weight -= u64::from(weight);
    }

    /// Issues what was charged to the active weights, but never moves past `ceiling`: beyond it a
    /// tenant with work would earn more than it may hold and be the only one to lose by that. To
    /// stop the clock instead takes the same from all, so the differences between them stand.
    #[inline]
    pub(crate) fn issue(&mut self, cycles: u64, ceiling: Option<VirtualTime>) {
        if self.active_weight == 0 {
            return;
        }
        let scaled = (u128::from(cycles) << FRACTION_BITS) + u128::from(self.remainder);
        let step = match u64::try_from(scaled) {
            // The common case, without a 128-bit division.
            Ok(scaled) => {
                self.remainder = scaled % self.active_weight;
                u128::from(scaled / self.active_weight)
            }
            Err(_) => {
                let weight = u128::from(self.active_weight);
                self.remainder = (scaled % weight) as u64;
                scaled / weight
            }
        };
        let target = VirtualTime(self.now.0 + step.min(self.full_step));
        self.advance_to(ceiling.map_or(target, |ceiling| target.min(ceiling)));
    }

    /// Moves the clock on to `target`; it never goes back.
    pub(crate) fn advance_to(&mut self, target: VirtualTime) {
        self.now = self.now.max(target);
    }

    /// Moves the clock so far that every tenant is at its cap.
    pub(crate) fn fill_all(&mut self) {
        self.now.0 += self.full_step;
    }

    #[cfg(test)]
    pub(crate) fn active_weight(&self) -> u64 {
        self.active_weight
    }

    #[cfg(test)]
    pub(crate) fn issued_scaled(&self) -> (u128, u64) {
        (self.now.0 * u128::from(self.active_weight), self.remainder)
    }
}

/// What a tenant may spend, as of the last time it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    scaled: i64,
    settled_at: VirtualTime,
}

impl Credit {
    pub(crate) fn full(now: VirtualTime, bounds: Bounds) -> Self {
        Self { scaled: bounds.cap, settled_at: now }
    }

    /// Takes in what the clock issued since the last look, up to the cap.
    #[inline]
    pub(crate) fn settle(&mut self, weight: u32, now: VirtualTime, bounds: Bounds) {
        let step = now.0.saturating_sub(self.settled_at.0).min(bounds.full_step());
        let earned = step * u128::from(weight);
        let room = u128::from(bounds.cap.abs_diff(self.scaled));
        // Below the room, which is below 2^63, the conversion is exact.
        self.scaled = if earned < room { self.scaled + earned as i64 } else { bounds.cap };
        self.settled_at = now;
    }

    /// Takes cycles off a settled credit, down to the floor.
    #[inline]
    pub(crate) fn spend(&mut self, cycles: u64, bounds: Bounds) {
        let spent = u128::from(cycles) << FRACTION_BITS;
        let room = u128::from(self.scaled.abs_diff(-bounds.floor));
        self.scaled = if spent < room { self.scaled - spent as i64 } else { -bounds.floor };
    }

    pub(crate) fn is_funded(&self) -> bool {
        self.scaled > 0
    }

    pub(crate) fn is_full(&self, bounds: Bounds) -> bool {
        self.scaled >= bounds.cap
    }

    /// The earliest virtual time at which a tenant of this weight has credit: its debt by weight.
    pub(crate) fn funded_at(&self, weight: u32) -> VirtualTime {
        if self.is_funded() {
            return self.settled_at;
        }
        let steps = self.scaled.unsigned_abs() / u64::from(weight.max(1)) + 1;
        VirtualTime(self.settled_at.0 + u128::from(steps))
    }

    /// The latest virtual time at which a tenant of this weight is not above the cap.
    #[inline]
    pub(crate) fn full_at(&self, weight: u32, bounds: Bounds) -> VirtualTime {
        let steps = bounds.cap.abs_diff(self.scaled) / u64::from(weight.max(1));
        VirtualTime(self.settled_at.0 + u128::from(steps))
    }

    /// Whole cycles, rounded up: positive exactly when funded.
    pub(crate) fn cycles(&self) -> i64 {
        let below_one = (1i64 << FRACTION_BITS) - 1;
        self.scaled.saturating_add(below_one) >> FRACTION_BITS
    }

    #[cfg(test)]
    pub(crate) fn scaled(&self) -> i64 {
        self.scaled
    }
}
