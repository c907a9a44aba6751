//! The virtual clock and one tenant's credit on it, in the manner of start-time fair queueing
//! (Goyal, Vin, Cheng, SIGCOMM 1996).
//!
//! Cycles are kept with 32 fraction bits ("scaled"). Virtual time is scaled cycles per thousandth
//! of weight: a tenant of weight w earns w times what the clock moved. It is settled only when it
//! is looked at, so that moving the clock costs the same however many tenants there are.

use crate::limits::CREDIT_CYCLES_MAX;

const FRACTION_BITS: u32 = 32;

/// Far beyond any clock (2^56 seconds), far below where 128 bits end.
const VIRTUAL_TIME_MAX: u128 = 1 << 120;

/// A reading of the virtual clock. 128 bits wide: a core of 4 GHz for a tenant of weight 0.001
/// moves it by less than 2^64 a second.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct VirtualTime(u128);

impl VirtualTime {
    /// A place in a queue in which time plays no part.
    pub(crate) const fn nth(count: u64) -> Self {
        Self(count as u128)
    }

    /// Whether a clock that started at zero can have come so far, and can go on.
    pub(crate) fn is_plausible(self) -> bool {
        self.0 <= VIRTUAL_TIME_MAX
    }

    #[cfg(test)]
    pub(crate) const fn from_raw(raw: u128) -> Self {
        Self(raw)
    }
}

/// As a text: few programs read 128 bits out of a JSON number.
impl From<VirtualTime> for String {
    fn from(VirtualTime(raw): VirtualTime) -> Self {
        raw.to_string()
    }
}

impl TryFrom<String> for VirtualTime {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
            .map(Self)
            .map_err(|_| "a virtual time is a whole number below 2^128, as a text")
    }
}

/// The two ends of what a credit may be, scaled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    cap: i64,
    floor: i64,
}

impl Bounds {
    /// From validated knobs: both ends are at most 2^62 when scaled.
    pub(crate) fn new(cap_cycles: u64, floor_cycles: u64) -> Self {
        let scale = |cycles: u64| (cycles.min(CREDIT_CYCLES_MAX) << FRACTION_BITS) as i64;
        Self { cap: scale(cap_cycles), floor: scale(floor_cycles) }
    }

    /// Cap and floor as they were set.
    pub(crate) fn cycles(self) -> (u64, u64) {
        let cycles = |scaled: i64| scaled.unsigned_abs() >> FRACTION_BITS;
        (cycles(self.cap), cycles(self.floor))
    }

    /// A step of the clock that lifts even the lightest tenant from the floor to the cap.
    fn full_step(self) -> u128 {
        u128::from(self.cap.unsigned_abs()) + u128::from(self.floor.unsigned_abs())
    }
}

/// The clock, and the weights of the tenants that have work.
#[derive(Clone, Debug, Default)]
pub(crate) struct VirtualClock {
    now: VirtualTime,
    /// The furthest tag of a tenant in debt that has no work.
    furthest: VirtualTime,
    busy_weight: u64,
    /// Scaled cycles that were charged and did not divide evenly; part of the next issue.
    remainder: u64,
}

impl VirtualClock {
    pub(crate) fn now(&self) -> VirtualTime {
        self.now
    }

    /// What is to be written down: its reading, the furthest tag, and the remainder.
    pub(crate) fn parts(&self) -> (VirtualTime, VirtualTime, u64) {
        // The weights are those of the tenants.
        let Self { now, furthest, busy_weight: _, remainder } = *self;
        (now, furthest, remainder)
    }

    /// Goes on from what was written down.
    pub(crate) fn resume(&mut self, now: VirtualTime, furthest: VirtualTime, remainder: u64) {
        (self.now, self.furthest, self.remainder) = (now, furthest, remainder);
    }

    /// A tenant of this weight has work.
    pub(crate) fn join(&mut self, weight: u32) {
        self.busy_weight += u64::from(weight);
    }

    /// A tenant of this weight has none any more.
    pub(crate) fn leave(&mut self, weight: u32) {
        self.busy_weight -= u64::from(weight);
    }

    /// Issues what was charged to the tenants with work by weight, but does not pass `ceiling`.
    #[inline]
    pub(crate) fn issue(&mut self, cycles: u64, ceiling: VirtualTime) {
        if self.busy_weight == 0 || self.now >= ceiling {
            return;
        }
        let scaled = (u128::from(cycles) << FRACTION_BITS) + u128::from(self.remainder);
        let step = match u64::try_from(scaled) {
            // The common case, without a 128-bit division.
            Ok(scaled) => {
                self.remainder = scaled % self.busy_weight;
                u128::from(scaled / self.busy_weight)
            }
            Err(_) => {
                let weight = u128::from(self.busy_weight);
                self.remainder = (scaled % weight) as u64;
                scaled / weight
            }
        };
        self.now = VirtualTime(self.now.0 + step).min(ceiling);
    }

    /// Moves the clock on to `target`; it never goes back.
    pub(crate) fn advance_to(&mut self, target: VirtualTime) {
        self.now = self.now.max(target);
    }

    /// A tenant in debt of this tag has no work now.
    #[inline]
    pub(crate) fn owed_at_rest(&mut self, tag: VirtualTime) {
        self.furthest = self.furthest.max(tag);
    }

    /// The end of a busy period, when all that was asked for is done: moves the clock on to the furthest
    /// tag of those served (rule 2 of start-time fair queueing), so that nobody is in debt. Says whether
    /// it has moved.
    #[inline]
    pub(crate) fn end_busy_period(&mut self) -> bool {
        let before = self.now;
        self.advance_to(self.furthest);
        self.now != before
    }

    /// Moves the clock so far that every tenant is at its cap, whatever its bounds.
    pub(crate) fn fill_all(&mut self) {
        self.now.0 += Bounds::new(CREDIT_CYCLES_MAX, CREDIT_CYCLES_MAX).full_step();
    }
}

/// What a tenant may spend, as of the last time it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    scaled: i64,
    settled_at: VirtualTime,
}

impl Credit {
    pub(crate) fn from_parts(scaled: i64, settled_at: VirtualTime) -> Self {
        Self { scaled, settled_at }
    }

    /// With its fraction, and when it was looked at.
    pub(crate) fn parts(&self) -> (i64, VirtualTime) {
        (self.scaled, self.settled_at)
    }

    pub(crate) fn is_within(&self, bounds: Bounds) -> bool {
        (-bounds.floor..=bounds.cap).contains(&self.scaled)
    }

    pub(crate) fn full(now: VirtualTime, bounds: Bounds) -> Self {
        Self { scaled: bounds.cap, settled_at: now }
    }

    /// Takes in what the clock moved since the last look, up to the cap.
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

    /// Adds cycles, up to the cap.
    pub(crate) fn grant(&mut self, cycles: u64, bounds: Bounds) {
        let granted = u128::from(cycles) << FRACTION_BITS;
        let room = u128::from(bounds.cap.abs_diff(self.scaled));
        self.scaled = if granted < room { self.scaled + granted as i64 } else { bounds.cap };
    }

    /// Takes on other bounds: a lead beyond the new cap is gone, and so is a debt beyond the floor.
    pub(crate) fn confine(&mut self, bounds: Bounds) {
        self.scaled = self.scaled.clamp(-bounds.floor, bounds.cap);
    }

    pub(crate) fn is_funded(&self) -> bool {
        self.scaled > 0
    }

    /// For a tenant in debt, its start tag: the last virtual time at which it is not yet funded.
    /// Tags order tenants by what they owe in proportion to their weights.
    #[inline]
    pub(crate) fn tag(&self, weight: u32) -> VirtualTime {
        if self.is_funded() {
            return self.settled_at;
        }
        let steps = self.scaled.unsigned_abs() / u64::from(weight.max(1));
        VirtualTime(self.settled_at.0 + u128::from(steps))
    }

    /// Whether it owes this many cycles or more.
    pub(crate) fn owes(&self, cycles: u64) -> bool {
        i128::from(self.scaled) <= -(i128::from(cycles) << FRACTION_BITS)
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
