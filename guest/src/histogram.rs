//! Times in TSC cycles, and what reports say about them.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest time that is told apart: a thousand seconds at 4 GHz.
const CYCLES_MAX: u64 = 4_000_000_000_000;
/// Two digits: a value is right within 1 %, which is finer than any machine is quiet, and a
/// histogram takes 36 KB.
const DIGITS: u8 = 2;

/// A distribution of times.
#[derive(Clone, Debug)]
pub struct Times {
    /// `None` only if the library refused the constants above, which it does not.
    histogram: Option<Histogram<u64>>,
    /// The value seen last and how often in a row: frames of one burst share their times.
    run: (u64, u64),
}

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

impl Times {
    /// Empty, with all its memory touched, so that recording takes no page faults.
    pub fn new() -> Self {
        let mut histogram = Histogram::new_with_bounds(1, CYCLES_MAX, DIGITS).ok();
        if let Some(histogram) = &mut histogram {
            histogram.reset();
        }
        Self { histogram, run: (0, 0) }
    }

    /// Records one time.
    #[inline]
    pub fn record(&mut self, cycles: u64) {
        if self.run.0 == cycles {
            self.run.1 += 1;
        } else {
            self.flush();
            self.run = (cycles, 1);
        }
    }

    fn flush(&mut self) {
        let (cycles, count) = std::mem::take(&mut self.run);
        if let Some(histogram) = &mut self.histogram
            && count > 0
        {
            histogram.saturating_record_n(cycles, count);
        }
    }

    /// Adds all of another distribution.
    pub fn add(&mut self, mut other: Self) {
        self.flush();
        other.flush();
        if let (Some(histogram), Some(other)) = (&mut self.histogram, &other.histogram) {
            // Both have the same bounds, so nothing can be out of range.
            let added = histogram.add(other);
            debug_assert!(added.is_ok());
        }
    }

    /// The summary in microseconds, for a clock of `tsc_hz`; `None` when nothing was recorded.
    pub fn summary(&mut self, tsc_hz: u64) -> Option<Quantiles> {
        self.flush();
        let histogram = self.histogram.as_ref().filter(|histogram| !histogram.is_empty())?;
        let us = |cycles: f64| cycles * 1e6 / tsc_hz as f64;
        let at = |quantile| us(histogram.value_at_quantile(quantile) as f64);
        Some(Quantiles {
            count: histogram.len(),
            min: us(histogram.min() as f64),
            mean: us(histogram.mean()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: us(histogram.max() as f64),
        })
    }
}

/// A distribution of times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Times recorded.
    pub count: u64,
    /// Shortest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// 99.99th percentile.
    #[serde(rename = "p99.99")]
    pub p99_99: f64,
    /// Longest.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_percent_and_in_microseconds() {
        let mut times = Times::new();
        for value in 1..=10_000u64 {
            times.record(value * 1000);
        }
        let summary = times.summary(1_000_000_000).unwrap();
        assert_eq!(summary.count, 10_000);
        for (quantile, us) in [(summary.p50, 5_000.0), (summary.p99, 9_900.0)] {
            assert!((quantile / us - 1.0).abs() < 0.011, "{quantile} for {us}");
        }
        assert!((summary.max / 10_000.0 - 1.0).abs() < 0.011);
    }

    #[test]
    fn runs_of_equal_times_and_added_histograms_are_counted_in_full() {
        let mut first = Times::new();
        let mut second = Times::new();
        (0..7).for_each(|_| first.record(500));
        (0..5).for_each(|_| second.record(500));
        second.record(90);
        first.add(second);
        assert_eq!(first.summary(1_000_000).unwrap().count, 13);
        assert_eq!(Times::new().summary(1_000_000), None);
    }
}
