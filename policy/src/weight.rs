//! A tenant's share relative to the others'.

use std::fmt;
use std::str::FromStr;

use crate::limits::{WEIGHT_THOUSANDTHS_MAX, WEIGHT_THOUSANDTHS_MIN};

/// A weight in thousandths, 0.001 to 1000, exact: 1.71 is 1710 thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

/// The text or number is not a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a weight is a number from 0.001 to 1000 with at most three decimals")]
pub struct WeightError;

impl Weight {
    /// Weight 1, which a tenant has unless told otherwise.
    pub const ONE: Self = Self(1000);

    /// A weight from a count of thousandths.
    ///
    /// # Errors
    /// When outside 1 to 1 000 000.
    pub fn from_thousandths(thousandths: u32) -> Result<Self, WeightError> {
        if (WEIGHT_THOUSANDTHS_MIN..=WEIGHT_THOUSANDTHS_MAX).contains(&thousandths) {
            Ok(Self(thousandths))
        } else {
            Err(WeightError)
        }
    }

    /// The weight in thousandths.
    #[must_use]
    pub fn thousandths(self) -> u32 {
        self.0
    }

    /// The weight as a number, for display and JSON.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

/// Accepts the double nearest to a whole number of thousandths, which is what a JSON parser makes
/// of "1.71", and nothing finer: a weight is never silently rounded.
impl TryFrom<f64> for Weight {
    type Error = WeightError;

    fn try_from(value: f64) -> Result<Self, WeightError> {
        let thousandths = (value * 1000.0).round();
        let in_range = thousandths >= f64::from(WEIGHT_THOUSANDTHS_MIN)
            && thousandths <= f64::from(WEIGHT_THOUSANDTHS_MAX);
        if !in_range || thousandths / 1000.0 != value {
            return Err(WeightError);
        }
        // In range, so the conversion is exact.
        Self::from_thousandths(thousandths as u32)
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole, 4) || !digits(fraction, 3) {
            return Err(WeightError);
        }
        let whole: u32 = whole.parse().map_err(|_| WeightError)?;
        let fraction: u32 = format!("{fraction:0<3}").parse().map_err(|_| WeightError)?;
        Self::from_thousandths(whole * 1000 + fraction)
    }
}

/// The shortest decimal that parses back to the same weight.
impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1000, self.0 % 1000);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{fraction:03}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}
