//! How long things took: counts by powers of two. One thread writes, anybody reads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::megaflow::single_writer_add;

/// One bucket for each power of two that a count of cycles can reach.
const BUCKETS: usize = 64;

/// The writer's side.
#[derive(Debug)]
pub(crate) struct HistogramCells([AtomicU64; BUCKETS]);

impl Default for HistogramCells {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl HistogramCells {
    /// Counts one duration; those below two cycles are alike.
    #[inline]
    pub(crate) fn record(&self, cycles: u64) {
        if let Some(bucket) = self.0.get((cycles | 1).ilog2() as usize) {
            single_writer_add(bucket, 1);
        }
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let mut counts = [0; BUCKETS];
        for (count, bucket) in counts.iter_mut().zip(&self.0) {
            *count = bucket.load(Ordering::Relaxed);
        }
        Histogram(counts)
    }

    /// Forgets everything; the next holder of a tenant's index starts at zero.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }
}

/// Durations in cycles at one moment: bucket b counts those of 2^b up to 2^(b+1) - 1, the first also
/// those of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The buckets that are not empty: their least duration in cycles, and their count.
    pub fn non_zero(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buckets = self.0.iter().zip(0_u32..);
        buckets.filter(|(count, _)| **count > 0).map(|(count, bucket)| {
            let least_cycles = if bucket == 0 { 0 } else { 1 << bucket };
            (least_cycles, *count)
        })
    }

    /// What at least `share` of the durations (0.99 for 99 %) do not exceed, in cycles: the upper end
    /// of a bucket. `None` when there are no durations.
    pub fn quantile_cycles(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(u64::MAX >> (BUCKETS - 1 - bucket))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_duration_is_in_the_bucket_of_its_power_of_two() {
        let cells = HistogramCells::default();
        for cycles in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            cells.record(cycles);
        }
        let histogram = cells.snapshot();
        let expected = [(0, 2), (2, 2), (4, 1), (512, 1), (1024, 1), (1 << 63, 1)];
        assert_eq!(histogram.non_zero().collect::<Vec<_>>(), expected);
        assert_eq!(histogram.count(), 8);
        cells.clear();
        assert_eq!(cells.snapshot(), Histogram::default());
        assert_eq!(Histogram::default().quantile_cycles(0.99), None);
    }

    proptest! {
        #[test]
        fn a_quantile_is_no_less_than_the_true_one_nor_twice_it(
            mut durations in prop::collection::vec(1_u64..1 << 40, 1..200),
            share in 0.01_f64..1.0,
        ) {
            let cells = HistogramCells::default();
            durations.iter().for_each(|cycles| cells.record(*cycles));
            durations.sort_unstable();
            let rank = (durations.len() as f64 * share).ceil() as usize;
            let exact = durations[rank - 1];
            let found = cells.snapshot().quantile_cycles(share).unwrap();
            prop_assert!((exact..2 * exact).contains(&found), "{exact} {found}");
        }
    }
}
