//! Saturated tenants share a core by weight.

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::adversary::{Adversary, SATURATING};
use super::bench::{Bench, Variant, neighbour};
use super::target::{Bound, Verdict};
use crate::raw::csv_file;
use crate::spread::Spread;

/// Weights side by side; 1.71 has no small common denominator with 1.
const WEIGHTS: [&[f64]; 4] = [&[1.0, 1.0], &[1.0, 3.0], &[1.0, 1.71], &[1.0, 2.0, 4.0, 8.0]];

/// Measures every set of weights.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let mut csv = csv_file(&bench.out.join("shares.csv"))?;
    csv.write_record([
        "weights",
        "tenant",
        "entitled_percent",
        "cycles_percent",
        "frames_percent",
    ])?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["weights", "tenant", "entitled %", "of cycles %", "of frames %"]);
    let mut verdicts = Vec::new();
    let bar = Bench::progress(WEIGHTS.len() * bench.plan.repetitions as usize, "shares")?;
    for weights in WEIGHTS {
        let names: Vec<_> = weights.iter().map(f64::to_string).collect();
        let label = names.join(":");
        let neighbours: Vec<_> =
            weights.iter().map(|weight| Adversary { weight: *weight, ..SATURATING }).collect();
        let mut by_tenant = vec![(Vec::new(), Vec::new()); weights.len()];
        for _ in 0..bench.plan.repetitions {
            bar.set_message(label.clone());
            let run = bench.run(Variant::On, 0, &neighbours)?;
            let cycles = run.cycles.unwrap_or_default();
            let tenants = 0..weights.len();
            let used = |number| cycles.tenant(&neighbour(number)) as f64;
            let all_used: f64 = tenants.clone().map(used).sum();
            let sent = |number| run.outcome.pair(&neighbour(number)).map_or(0.0, |p| p.tx_mpps);
            let all_sent: f64 = tenants.clone().map(sent).sum();
            for number in tenants {
                by_tenant[number].0.push(100.0 * used(number) / all_used);
                by_tenant[number].1.push(100.0 * sent(number) / all_sent);
            }
            bar.inc(1);
        }
        let mut worst = [0.0_f64; 2];
        for (number, (cycles, frames)) in by_tenant.into_iter().enumerate() {
            let entitled = 100.0 * weights[number] / weights.iter().sum::<f64>();
            for (cycles, frames) in cycles.iter().zip(&frames) {
                csv.write_record([
                    label.clone(),
                    number.to_string(),
                    format!("{entitled:.3}"),
                    format!("{cycles:.3}"),
                    format!("{frames:.3}"),
                ])?;
            }
            let spreads = [Spread::of(cycles), Spread::of(frames)];
            for (worst, spread) in worst.iter_mut().zip(&spreads) {
                let measured = spread.map_or(f64::NAN, |spread| spread.median);
                *worst = worst.max(100.0 * (measured - entitled).abs() / entitled);
            }
            let show = |spread: Option<Spread>| {
                spread.map_or_else(|| "-".to_owned(), |spread| format!("{spread:.2}"))
            };
            table.add_row([
                label.clone(),
                number.to_string(),
                format!("{entitled:.2}"),
                show(spreads[0]),
                show(spreads[1]),
            ]);
        }
        for (of, worst) in ["cycles", "frames"].iter().zip(worst) {
            let what = format!("shares {label} by {of}: worst tenant's error, %");
            verdicts.push(Verdict::new(what, Bound::AtMost(1.0), worst));
        }
    }
    bar.finish_and_clear();
    csv.flush()?;
    println!("{table}");
    Ok(verdicts)
}
