//! The knobs of a scheduler and what they may be set to.

use crate::limits::{CAP_QUANTA_MIN, CREDIT_CYCLES_MAX};

/// All in TSC cycles; the same on every PMD.
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
        }
    }
}

/// A knob is out of range; the message names it and its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Zero, or too large for the arithmetic.
    #[error("quantum_cycles is {given}; it must be 1 to {most}")]
    Quantum {
        /// What was asked for.
        given: u64,
        /// The largest that is allowed.
        most: u64,
    },
    /// Less than two quanta, or too large.
    #[error("cap_cycles is {given}; it must be {least} (two quanta) to {most}")]
    Cap {
        /// What was asked for.
        given: u64,
        /// Two quanta.
        least: u64,
        /// The largest that is allowed.
        most: u64,
    },
    /// Less than one quantum, or too large.
    #[error("floor_cycles is {given}; it must be {least} (one quantum) to {most}")]
    Floor {
        /// What was asked for.
        given: u64,
        /// One quantum.
        least: u64,
        /// The largest that is allowed.
        most: u64,
    },
    /// Shorter than the floor: an idle spell would forgive more than it gave away.
    #[error("horizon_cycles is {given}; it must be at least floor_cycles ({least})")]
    Horizon {
        /// What was asked for.
        given: u64,
        /// The floor.
        least: u64,
    },
}

impl SchedulerConfig {
    /// Checks every knob.
    ///
    /// # Errors
    /// Names the first knob that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let most = CREDIT_CYCLES_MAX;
        let quantum_most = most / CAP_QUANTA_MIN;
        if !(1..=quantum_most).contains(&self.quantum_cycles) {
            return Err(ConfigError::Quantum { given: self.quantum_cycles, most: quantum_most });
        }
        let least = CAP_QUANTA_MIN * self.quantum_cycles;
        if !(least..=most).contains(&self.cap_cycles) {
            return Err(ConfigError::Cap { given: self.cap_cycles, least, most });
        }
        let least = self.quantum_cycles;
        if !(least..=most).contains(&self.floor_cycles) {
            return Err(ConfigError::Floor { given: self.floor_cycles, least, most });
        }
        if self.horizon_cycles < self.floor_cycles {
            let (given, least) = (self.horizon_cycles, self.floor_cycles);
            return Err(ConfigError::Horizon { given, least });
        }
        Ok(())
    }
}
