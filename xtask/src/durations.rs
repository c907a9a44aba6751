//! A histogram as `pmd_stats` shows it: counts by powers of two of cycles.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

/// Counts by the least duration of their bucket; the next bucket begins at twice as many cycles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Durations(BTreeMap<u64, u64>);

impl Durations {
    pub(crate) fn read(pairs: &Value) -> anyhow::Result<Self> {
        let pairs = pairs.as_array().with_context(|| format!("no histogram: {pairs}"))?;
        let pair = |pair: &Value| Some((pair[0].as_u64()?, pair[1].as_u64()?));
        let pairs: Option<_> = pairs.iter().map(pair).collect();
        Ok(Self(pairs.context("a histogram of other things than pairs")?))
    }

    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let then = |least| before.0.get(least).copied().unwrap_or_default();
        let grown = self.0.iter().map(|(least, count)| (*least, count.saturating_sub(then(least))));
        Self(grown.filter(|(_, count)| *count > 0).collect())
    }

    /// What at least `share` of them do not exceed, in cycles: the upper end of a bucket. 0 of none.
    pub(crate) fn quantile_cycles(&self, share: f64) -> u64 {
        let count: u64 = self.0.values().sum();
        let wanted = (count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        bucket.map_or(0, |(least, _)| (2 * least).max(2) - 1)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Durations;

    #[test]
    fn a_quantile_is_of_what_was_added() -> anyhow::Result<()> {
        let before = Durations::read(&json!([[0, 5], [1024, 1000]]))?;
        let after = Durations::read(&json!([[0, 6], [256, 98], [1024, 1000], [65536, 1]]))?;
        let grown = after.since(&before);
        let quantiles = [0.01, 0.5, 0.99, 1.0].map(|share| grown.quantile_cycles(share));
        assert_eq!(quantiles, [1, 511, 511, 131_071]);
        assert_eq!(Durations::default().quantile_cycles(0.99), 0);
        assert!(Durations::read(&json!({"no": "list"})).is_err());
        Ok(())
    }
}
