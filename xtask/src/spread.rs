//! What a handful of repetitions say: the median and the range, never a mean.

use std::fmt;

/// Median, smallest and largest of some repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` when there is nothing to sum up.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        let median = f64::midpoint(*sorted.get(lower)?, *sorted.get(upper)?);
        Some(Self { median, min, max })
    }
}

impl fmt::Display for Spread {
    /// `median [min..max]`, with the formatter's precision.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self { median, min, max } = self;
        write!(f, "{median:.digits$} [{min:.digits$}..{max:.digits$}]")
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 10.0]);
        assert_eq!(spread, Some(Spread { median: 3.5, min: 1.0, max: 10.0 }));
        assert_eq!(format!("{:.1}", spread.unwrap()), "3.5 [1.0..10.0]");
    }

    #[test]
    fn nothing_measured_is_nothing_said() {
        assert_eq!(Spread::of([]), None);
    }
}
