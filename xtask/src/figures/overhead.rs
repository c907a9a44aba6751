//! What protection costs: the running switch is toggled every few tens of milliseconds, and each
//! stretch with it is compared with the one without it beside it (the paper's figures 8 and 10).

use std::time::Duration;

use super::adversary::{LARGE, SATURATING};
use super::bench::{Bench, NEIGHBOURS, VICTIM, VICTIM_RATE, Variant, neighbour};
use crate::chart::{self, Bars};
use crate::generator::{Interval, Outcome};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};

/// Time between two changes.
const SLOT: Duration = Duration::from_millis(24);
/// What the generator reports one by one; those that a change falls into are left out.
const INTERVAL: Duration = Duration::from_millis(4);
/// Resamples of the bootstrap, and the interval that is reported, in percent.
const RESAMPLES: usize = 2000;
const CONFIDENCE: f64 = 95.0;

/// Measures throughput of saturated tenants, and the victim's latency with nobody there.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let mut csv = csv_file(&bench.out.join("overhead.csv"))?;
    csv.write_record(["what", "pair", "off", "on"])?;
    let mut verdicts = Vec::new();
    let mut judge = |what: &str, pairs: &[(f64, f64)], bound: Bound| -> anyhow::Result<()> {
        for (number, (off, on)) in pairs.iter().enumerate() {
            csv.write_record([
                what.to_owned(),
                number.to_string(),
                format!("{off:.3}"),
                format!("{on:.3}"),
            ])?;
        }
        let ratios: Vec<f64> = pairs.iter().map(|(off, on)| on / off).collect();
        let (middle, low, high) = bootstrap(&ratios);
        // The end of the interval that speaks against us decides.
        let judged = if matches!(bound, Bound::AtLeast(_)) { low } else { high };
        let detail = format!("{middle:.4} [{low:.4}..{high:.4}] over {} pairs", ratios.len());
        println!("{what}, protection on / off: {detail}");
        let what = format!("{what}, on / off ({CONFIDENCE:.0} % interval's end)");
        verdicts.push(Verdict::new(what, bound, judged).with(detail));
        Ok(())
    };
    for (load, count) in [(SATURATING, 2), (SATURATING, NEIGHBOURS), (LARGE, 3)] {
        let (outcome, changes) = bench.toggled(0, &vec![load; count], SLOT, INTERVAL)?;
        let frames = |interval: &[&Interval]| {
            interval.iter().map(|interval| interval.received as f64).sum::<f64>()
        };
        let names: Vec<_> = (0..count).map(neighbour).collect();
        let pairs = paired(&outcome, &changes, &names, frames)?;
        let what = format!("throughput of {count} tenants ({})", load.name);
        judge(&what, &pairs, Bound::AtLeast(0.98))?;
    }
    let (outcome, changes) = bench.toggled(VICTIM_RATE, &[], SLOT, INTERVAL)?;
    let victim = [VICTIM.to_owned()];
    let latency = |of: fn(&crate::generator::Quantiles) -> f64| {
        move |intervals: &[&Interval]| {
            intervals.iter().filter_map(|i| i.latency_us.as_ref()).map(of).sum::<f64>()
        }
    };
    let p50 = paired(&outcome, &changes, &victim, latency(|times| times.p50))?;
    judge("idle-path latency p50", &p50, Bound::AtMost(1.03))?;
    let p99 = paired(&outcome, &changes, &victim, latency(|times| times.p99))?;
    judge("idle-path latency p99", &p99, Bound::AtMost(1.03))?;
    csv.flush()?;
    idle_path(bench)?;
    Ok(verdicts)
}

/// One request under way and nobody else there, beside OVS-DPDK, which cannot be toggled: run by run
/// (the paper's figure 10). Protection is judged by the pairs.
fn idle_path(bench: &mut Bench) -> anyhow::Result<()> {
    let variants = bench.variants();
    let mut csv = csv_file(&bench.out.join("idle-path.csv"))?;
    csv.write_record(["switch", "p50_us", "p99_us"])?;
    let mut samples: Vec<(Variant, f64, f64)> = Vec::new();
    for _ in 0..bench.plan.repetitions {
        for variant in &variants {
            let run = bench.run_whole(*variant, VICTIM_RATE, &[])?;
            let victim = run.outcome.pair(VICTIM)?;
            let typical = |quantile| victim.typical_us(quantile).unwrap_or(f64::NAN);
            let (p50, p99) = (typical(|times| times.p50), typical(|times| times.p99));
            csv.write_record([variant.name(), &format!("{p50:.3}"), &format!("{p99:.3}")])?;
            samples.push((*variant, p50, p99));
        }
    }
    csv.flush()?;
    let median = |variant: Variant, of: fn(&(Variant, f64, f64)) -> f64| {
        let own = samples.iter().filter(|sample| sample.0 == variant).map(of);
        Spread::of(own).map_or(f64::NAN, |spread| spread.median)
    };
    let series: Vec<_> = variants
        .iter()
        .map(|variant| {
            let quantiles = [median(*variant, |s| s.1), median(*variant, |s| s.2)];
            let [p50, p99] = quantiles;
            println!("idle path, {}: p50 {p50:.2} us, p99 {p99:.2} us", variant.name());
            (variant.name(), quantiles.to_vec())
        })
        .collect();
    let bars = Bars {
        title: "One request under way, nobody else there: round trip (lower is better)",
        unit: "microseconds",
        groups: &["median", "99th percentile"],
        series: &series,
        logarithmic: false,
    };
    chart::bars(&bench.out.join("idle-path.svg"), &bars)
}

/// Each slot without protection with the one after it: the mean of `of` over the intervals that lie
/// wholly inside.
fn paired(
    outcome: &Outcome,
    changes: &[(u64, bool)],
    names: &[String],
    of: impl Fn(&[&Interval]) -> f64,
) -> anyhow::Result<Vec<(f64, f64)>> {
    let pairs = names.iter().map(|name| outcome.pair(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let tick = outcome.interval_seconds * outcome.tsc_hz as f64;
    let slot = |from_tsc: u64, to_tsc: u64| {
        let position = |tsc: u64| (tsc as f64 - outcome.start_tsc as f64) / tick;
        let (first, last) = (position(from_tsc).ceil(), position(to_tsc).floor());
        let inside = (first.max(0.0) as usize)..(last.max(0.0) as usize);
        let values: Vec<f64> = inside
            .filter_map(|number| {
                let intervals: Option<Vec<_>> =
                    pairs.iter().map(|pair| pair.intervals.get(number)).collect();
                Some(of(&intervals?)).filter(|value| *value > 0.0)
            })
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let triples = changes.windows(3).filter(|change| !change[0].1);
    Ok(triples
        .filter_map(|change| {
            Some((slot(change[0].0, change[1].0)?, slot(change[1].0, change[2].0)?))
        })
        .collect())
}

/// The median and the ends of its confidence interval.
fn bootstrap(ratios: &[f64]) -> (f64, f64, f64) {
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let mut state = 1_u64;
    let mut resampled: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut sample: Vec<f64> = (0..ratios.len())
                .filter_map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    ratios.get((state >> 33) as usize % ratios.len()).copied()
                })
                .collect();
            median(&mut sample)
        })
        .collect();
    resampled.sort_by(f64::total_cmp);
    let at = |percent: f64| {
        let index = (percent / 100.0 * resampled.len() as f64) as usize;
        resampled.get(index.min(resampled.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    };
    let tail = (100.0 - CONFIDENCE) / 2.0;
    (median(&mut ratios.to_vec()), at(tail), at(100.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::bootstrap;

    #[test]
    fn the_interval_surrounds_the_median() {
        let ratios: Vec<f64> = (0..500).map(|n| 1.0 + f64::from(n % 21 - 10) / 100.0).collect();
        let (middle, low, high) = bootstrap(&ratios);
        assert!(low <= middle && middle <= high && high - low < 0.03, "{low} {middle} {high}");
        assert!((middle - 1.0).abs() < 0.011);
    }
}
