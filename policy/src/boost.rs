//! How much of the elapsed time a coordinator gives out.

use crate::limits::{BOOST_THOUSANDTHS_MAX, COORDINATOR_BOOST_THOUSANDTHS};

/// A part of the elapsed time in thousandths, 0.001 to 2, exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boost(u32);

/// The number is not a boost.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("boost is {0}; it must be 0.001 to 2, with at most three decimals")]
pub struct BoostError(f64);

impl Boost {
    /// In thousandths.
    #[must_use]
    pub fn thousandths(self) -> u32 {
        self.0
    }

    /// As a number, for display and JSON.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl Default for Boost {
    /// As the authors of the coordinated refill run it.
    fn default() -> Self {
        Self(COORDINATOR_BOOST_THOUSANDTHS)
    }
}

/// Accepts the double nearest to a whole number of thousandths, and nothing finer, as
/// [`Weight`](crate::Weight) does.
impl TryFrom<f64> for Boost {
    type Error = BoostError;

    fn try_from(value: f64) -> Result<Self, BoostError> {
        let thousandths = (value * 1000.0).round();
        let in_range = (1.0..=f64::from(BOOST_THOUSANDTHS_MAX)).contains(&thousandths);
        if !in_range || thousandths / 1000.0 != value {
            return Err(BoostError(value));
        }
        // In range, so the conversion is exact.
        Ok(Self(thousandths as u32))
    }
}
