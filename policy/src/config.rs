//! The knobs of a scheduler and what they may be set to.

use std::fmt;

use crate::limits::{
    BOOST_THOUSANDTHS_MAX, CAP_QUANTA_MIN, COORDINATOR_BOOST_THOUSANDTHS, COORDINATOR_CAP_CYCLES,
    COORDINATOR_PERIOD_US, COORDINATOR_PERIOD_US_MAX, CREDIT_CYCLES_MAX,
};

/// Who gives tenants their credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refill {
    /// The PMD itself: what one tenant is charged is issued to those with work, at once.
    #[default]
    Local,
    /// A thread beside the PMDs, for comparison: every period it grants each registered tenant its
    /// part of the elapsed time ([`coordinator`](crate::coordinator)).
    Coordinator {
        /// From one grant to the next, in TSC cycles.
        period_cycles: u64,
        /// Thousandths of the elapsed time that are given out. The rest is meant to cover what no
        /// tenant is charged for.
        boost_thousandths: u32,
    },
}

/// In TSC cycles; the same on every PMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// One turn's budget, whatever the weight: the longest others wait for a well-behaved turn.
    pub quantum_cycles: u64,
    /// Most credit a tenant may hold: how far ahead one that slept may run when it wakes.
    pub cap_cycles: u64,
    /// Most debt that is remembered. Deep enough to hold the cost of a few slow-path misses.
    pub floor_cycles: u64,
    /// How long a core must be idle before all debts are forgotten.
    pub horizon_cycles: u64,
    /// Who gives tenants their credit.
    pub refill: Refill,
}

impl Default for SchedulerConfig {
    /// At 2.5 GHz: turns of 2 us, 8 us of lead, 0.4 ms of debt and horizon.
    fn default() -> Self {
        let quantum_cycles = 5000;
        Self {
            quantum_cycles,
            cap_cycles: 4 * quantum_cycles,
            floor_cycles: 200 * quantum_cycles,
            horizon_cycles: 200 * quantum_cycles,
            refill: Refill::Local,
        }
    }
}

/// A knob is out of range; the message names it and its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{knob} is {given}; it must be {range}")]
pub struct ConfigError {
    /// The knob's name, as an operator writes it.
    pub knob: &'static str,
    /// What was asked for.
    pub given: u64,
    /// What is allowed.
    pub range: KnobRange,
}

/// What a knob may be set to, and where its ends come from when that is another knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobRange {
    least: u64,
    most: u64,
    least_is: &'static str,
    most_is: &'static str,
}

impl KnobRange {
    pub(crate) const fn new(least: u64, most: u64) -> Self {
        Self { least, most, least_is: "", most_is: "" }
    }

    pub(crate) const fn least_is(self, least_is: &'static str) -> Self {
        Self { least_is, ..self }
    }

    pub(crate) const fn most_is(self, most_is: &'static str) -> Self {
        Self { most_is, ..self }
    }

    /// Checks one knob.
    pub(crate) fn check(self, knob: &'static str, given: u64) -> Result<(), ConfigError> {
        let allowed = (self.least..=self.most).contains(&given);
        if allowed { Ok(()) } else { Err(ConfigError { knob, given, range: self }) }
    }
}

impl fmt::Display for KnobRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |f: &mut fmt::Formatter<'_>, value: u64, is: &str| match is {
            "" => write!(f, "{value}"),
            _ => write!(f, "{value} ({is})"),
        };
        if self.most == u64::MAX {
            write!(f, "at least ")?;
            return end(f, self.least, self.least_is);
        }
        end(f, self.least, self.least_is)?;
        write!(f, " to ")?;
        end(f, self.most, self.most_is)
    }
}

impl SchedulerConfig {
    /// The coordinated refill as its authors run it, on a clock of `tsc_hz`.
    #[must_use]
    pub fn coordinated(tsc_hz: u64) -> Self {
        let refill = Refill::Coordinator {
            period_cycles: tsc_hz / 1_000_000 * COORDINATOR_PERIOD_US,
            boost_thousandths: COORDINATOR_BOOST_THOUSANDTHS,
        };
        Self { cap_cycles: COORDINATOR_CAP_CYCLES, refill, ..Self::default() }
    }

    /// Checks a period that an operator gives, before it is one of cycles.
    ///
    /// # Errors
    /// Names the knob, `period_us`, and its range.
    pub fn check_period_us(period_us: u64) -> Result<(), ConfigError> {
        KnobRange::new(1, COORDINATOR_PERIOD_US_MAX).check("period_us", period_us)
    }

    /// Checks every knob.
    ///
    /// # Errors
    /// Names the first knob that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let quantum_most = CREDIT_CYCLES_MAX / CAP_QUANTA_MIN;
        KnobRange::new(1, quantum_most).check("quantum_cycles", self.quantum_cycles)?;
        self.cap_range().check("cap_cycles", self.cap_cycles)?;
        self.floor_range(CREDIT_CYCLES_MAX).check("floor_cycles", self.floor_cycles)?;
        // A shorter idle spell would forgive more than it gave away.
        KnobRange::new(self.floor_cycles, u64::MAX)
            .least_is("floor_cycles")
            .check("horizon_cycles", self.horizon_cycles)?;
        if let Refill::Coordinator { period_cycles, boost_thousandths } = self.refill {
            KnobRange::new(1, CREDIT_CYCLES_MAX).check("period_cycles", period_cycles)?;
            KnobRange::new(1, BOOST_THOUSANDTHS_MAX.into())
                .check("boost_thousandths", boost_thousandths.into())?;
        }
        Ok(())
    }

    /// What the cap may be, of all tenants or of one.
    pub(crate) fn cap_range(&self) -> KnobRange {
        KnobRange::new(self.quantum_cycles.saturating_mul(CAP_QUANTA_MIN), CREDIT_CYCLES_MAX)
            .least_is("two quanta")
    }

    /// What the floor may be, of all tenants or of one.
    pub(crate) fn floor_range(&self, most: u64) -> KnobRange {
        KnobRange::new(self.quantum_cycles, most).least_is("one quantum")
    }
}
