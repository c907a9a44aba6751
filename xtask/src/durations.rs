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

    /// The length of what goes on at a random moment, in cycles: what is not exceeded in `share` of the
    /// time that they take together; the upper end of a bucket. 0 of none. Whoever comes meets a long one
    /// more often than there are long ones.
    pub(crate) fn met_cycles(&self, share: f64) -> u64 {
        let end = |least: u64| (2 * least).max(2) - 1;
        let time = |(least, count): (&u64, &u64)| end(*least) as f64 * *count as f64;
        let wanted = self.0.iter().map(time).sum::<f64>() * share;
        let mut seen = 0.0;
        let bucket = self.0.iter().find(|bucket| {
            seen += time(*bucket);
            seen >= wanted
        });
        bucket.map_or(0, |(least, _)| end(*least))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Durations;

    #[test]
    fn a_quantile_is_of_the_time_of_what_was_added() -> anyhow::Result<()> {
        let before = Durations::read(&json!([[0, 5], [1024, 1000]]))?;
        let after = Durations::read(&json!([[0, 6], [256, 98], [1024, 1000], [65536, 1]]))?;
        let grown = after.since(&before);
        // One cycle, 98 times 511, and once 131 071.
        let met = [0.0, 0.27, 0.28, 0.99, 1.0].map(|share| grown.met_cycles(share));
        assert_eq!(met, [1, 511, 131_071, 131_071, 131_071]);
        assert_eq!(Durations::default().met_cycles(0.99), 0);
        assert!(Durations::read(&json!({"no": "list"})).is_err());
        Ok(())
    }
}
