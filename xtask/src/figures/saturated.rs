//! Three tenants with as much traffic as the switch takes: its total throughput (the paper's figures
//! 8 and 11).

use super::adversary::{Adversary, CHEAP, LARGE};
use super::bench::{Bench, Variant, neighbour};
use crate::chart::{self, Bars};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::Verdict;

const TENANTS: usize = 3;

const SIZES: [(&str, Adversary); 2] = [("64-byte frames", CHEAP), ("1500-byte frames", LARGE)];

/// Measures both sizes on every variant, round robin. What protection costs is judged by pairs
/// (`overhead`), for which such runs are too coarse.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let variants = bench.variants();
    let runs = SIZES.len() * variants.len() * bench.plan.repetitions as usize;
    let bar = Bench::progress(runs, "saturated")?;
    let mut csv = csv_file(&bench.out.join("saturated.csv"))?;
    csv.write_record(["frames", "switch", "total_mpps"])?;
    let mut samples: Vec<(&str, Variant, f64)> = Vec::new();
    for _ in 0..bench.plan.repetitions {
        for (size, adversary) in &SIZES {
            for variant in &variants {
                bar.set_message(format!("{size}, {}", variant.name()));
                let run = bench.run(*variant, 0, &[*adversary; TENANTS])?;
                let mut total_mpps = 0.0;
                for number in 0..TENANTS {
                    total_mpps += run.outcome.pair(&neighbour(number))?.rx_mpps;
                }
                let [size_text, switch] = [*size, variant.name()];
                csv.write_record([size_text, switch, &format!("{total_mpps:.4}")])?;
                samples.push((size, *variant, total_mpps));
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    csv.flush()?;
    let spread = |size: &str, variant: Variant| {
        let own = samples.iter().filter(|sample| sample.0 == size && sample.1 == variant);
        Spread::of(own.map(|sample| sample.2))
    };
    let mut series = Vec::new();
    for variant in variants {
        let mut medians = Vec::new();
        for (size, _) in &SIZES {
            let Some(spread) = spread(size, variant) else { continue };
            println!("{TENANTS} saturated tenants, {size}, {}: {spread} Mpps", variant.name());
            medians.push(spread.median);
        }
        series.push((variant.name(), medians));
    }
    let bars = Bars {
        title: "Three saturated tenants: what the switch forwards in all (higher is better)",
        unit: "million frames a second",
        groups: &SIZES.map(|(size, _)| size),
        series: &series,
        logarithmic: false,
    };
    chart::bars(&bench.out.join("saturated.svg"), &bars)?;
    Ok(Vec::new())
}
