//! Tenants that send in bursts, one after the other: a core that they share against a core of which
//! each has a fixed third (the paper's figures 2 and 9).

use super::adversary::{Adversary, LARGE};
use super::bench::{Bench, Variant, neighbour};
use crate::chart::{self, Bars};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};

const TENANTS: usize = 3;

/// Bursts of 2 ms with 5 ms between them. The generator begins each tenant's a third of a period
/// after the one before, so that no two are on at once, and what each wants is a whole core.
///
/// The ring is short, or what waits in it would be served between the bursts.
const BURSTY: Adversary =
    Adversary { name: "bursts", keys: "on=2,off=5", port_keys: "ring=64", ..LARGE };

/// Measures the three together, and one of them alone, of which a third is what a fixed third of a
/// core would have done for it: while it is on, the core is the limit and its time the measure, and
/// while it is off nobody may have its third. What is left in its ring at the end of a burst, at most
/// [`RING`] frames each time, is added in full.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let variants = bench.variants();
    let runs = 2 * variants.len() * bench.plan.repetitions as usize;
    let bar = Bench::progress(runs, "bursts")?;
    let mut csv = csv_file(&bench.out.join("bursts.csv"))?;
    csv.write_record(["switch", "shared_mpps", "thirds_mpps"])?;
    let mut samples: Vec<(Variant, f64, f64)> = Vec::new();
    for _ in 0..bench.plan.repetitions {
        for variant in &variants {
            bar.set_message(variant.name());
            let mut shared = 0.0;
            let run = bench.run(*variant, 0, &[BURSTY; TENANTS])?;
            for number in 0..TENANTS {
                shared += run.outcome.pair(&neighbour(number))?.rx_mpps;
            }
            bar.inc(1);
            let run = bench.run(*variant, 0, &[BURSTY])?;
            let alone = run.outcome.pair(&neighbour(0))?.rx_mpps;
            let thirds = alone + TENANTS as f64 * LEFT_MPPS;
            csv.write_record([variant.name(), &format!("{shared:.4}"), &format!("{thirds:.4}")])?;
            samples.push((*variant, shared, thirds));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    csv.flush()?;
    let spread = |variant: Variant, of: fn(&(Variant, f64, f64)) -> f64| {
        Spread::of(samples.iter().filter(|sample| sample.0 == variant).map(of))
    };
    let (mut shared, mut thirds) = (Vec::new(), Vec::new());
    let mut verdicts = Vec::new();
    for variant in &variants {
        let median = |of| spread(*variant, of).map_or(f64::NAN, |spread| spread.median);
        shared.push(median(|sample| sample.1));
        thirds.push(median(|sample| sample.2));
        let ratio = spread(*variant, |sample| sample.1 / sample.2);
        if let Some(ratio) = ratio {
            println!("bursts, {}: a shared core / fixed thirds of it: {ratio}", variant.name());
        }
        if *variant == Variant::On {
            let measured = ratio.map_or(f64::NAN, |ratio| ratio.median);
            let what = "bursts of three tenants: a shared core / fixed thirds of it";
            verdicts.push(Verdict::new(what, Bound::AtLeast(2.5), measured));
        }
    }
    let groups: Vec<_> = variants.iter().map(|variant| variant.name()).collect();
    let bars = Bars {
        title: "Three tenants with bursts of 2 ms in 7: all their frames (higher is better)",
        unit: "million frames a second",
        groups: &groups,
        series: &[("a shared core", shared), ("a fixed third each (computed)", thirds)],
        logarithmic: false,
    };
    chart::bars(&bench.out.join("bursts.svg"), &bars)?;
    Ok(verdicts)
}

/// Frames of one tenant's ring, and what it is when they are served between any two bursts.
const RING: f64 = 64.0;
const LEFT_MPPS: f64 = RING / 7e-3 / 1e6;
