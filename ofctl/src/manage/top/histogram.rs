//! Durations as the switch counts them: by powers of two.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::manage::value::items;

/// The durations of one interval: how many by the least cycles of their bucket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// What was counted between two readings of `[[least_cycles, count], ..]`.
    pub(super) fn between(before: &Value, after: &Value) -> Histogram {
        let before: BTreeMap<u64, u64> = buckets(before).collect();
        let grown = buckets(after).filter_map(|(least_cycles, count)| {
            let grown = count.saturating_sub(before.get(&least_cycles).copied().unwrap_or(0));
            (grown > 0).then_some((least_cycles, grown))
        });
        Histogram(grown.collect())
    }

    /// Cycles that at least `share` of the durations (0.99 for 99 %) stay below: the end of a bucket, up
    /// to twice the true figure. `None` without durations.
    pub(super) fn below_cycles(&self, share: f64) -> Option<u64> {
        let count: u64 = self.0.values().sum();
        let wanted = (count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted.max(1)
        });
        // The first bucket begins at 0 and holds durations of one cycle too.
        bucket.map(|(least_cycles, _)| least_cycles.saturating_mul(2).max(2))
    }
}

fn buckets(pairs: &Value) -> impl Iterator<Item = (u64, u64)> + '_ {
    items(pairs).iter().filter_map(|pair| match items(pair) {
        [least_cycles, count] => Some((least_cycles.as_u64()?, count.as_u64()?)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quantile_is_of_the_interval_alone_and_the_end_of_its_bucket() {
        let before = json!([[256, 1000], [65536, 7]]);
        let after = json!([[0, 1], [256, 1098], [65536, 8]]);
        let histogram = Histogram::between(&before, &after);
        assert_eq!(histogram.below_cycles(0.001), Some(2));
        assert_eq!(histogram.below_cycles(0.5), Some(512));
        assert_eq!(histogram.below_cycles(0.99), Some(512));
        assert_eq!(histogram.below_cycles(1.0), Some(131_072));
    }

    #[test]
    fn nothing_counted_has_no_quantile() {
        let same = json!([[256, 10]]);
        for (before, after) in
            [(&same, &same), (&json!([]), &json!([])), (&json!(null), &json!("x"))]
        {
            assert_eq!(Histogram::between(before, after).below_cycles(0.99), None);
        }
    }
}
