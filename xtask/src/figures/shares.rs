//! Saturated tenants share a core by weight.

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::adversary::{Adversary, EQUAL_COST, EQUAL_COST_RING};
use super::bench::{Bench, Run, Variant, neighbour};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};

/// Weights side by side; 1.71 has no small common denominator with 1.
const WEIGHTS: [&[f64]; 4] = [&[1.0, 1.0], &[1.0, 3.0], &[1.0, 1.71], &[1.0, 2.0, 4.0, 8.0]];

/// Beside the table.
const EQUAL_COST_NOTE: &str = "140 rewrites of one header and no delivery, so that a frame is \
     worth most of a turn, in rings small enough for the caches; what a frame cost each tenant is in the last column";

/// Runs begun for one that counts.
const ATTEMPTS: usize = 5;

/// Part of a ring that may be emptied while the generator is away: shares count only while everybody
/// has work, and what is left then is still a lot.
const RING_PART: f64 = 0.8;

/// A run in which nobody's ring ran dry. When the machine takes the generator's core away for longer
/// than the fastest tenant's ring lasts, others get what that one cannot use, as they should.
fn undisturbed(bench: &mut Bench, neighbours: &[Adversary]) -> anyhow::Result<(Run, usize)> {
    let mut attempt = 0;
    loop {
        let run = bench.run(Variant::On, 0, neighbours)?;
        let mut lasts_us = f64::INFINITY;
        for number in 0..neighbours.len() {
            let mpps = run.outcome.pair(&neighbour(number))?.tx_mpps;
            lasts_us = lasts_us.min(EQUAL_COST_RING / mpps);
        }
        let away_us = run.outcome.loop_us.map_or(f64::INFINITY, |times| times.max);
        if away_us < RING_PART * lasts_us || attempt + 1 == ATTEMPTS {
            return Ok((run, attempt));
        }
        attempt += 1;
    }
}

/// Measures every set of weights.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let mut csv = csv_file(&bench.out.join("shares.csv"))?;
    csv.write_record([
        "weights",
        "tenant",
        "entitled_percent",
        "cycles_percent",
        "frames_percent",
        "cycles_per_frame",
    ])?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "weights",
        "tenant",
        "entitled %",
        "of cycles %",
        "of frames %",
        "cycles per frame",
    ]);
    let mut verdicts = Vec::new();
    let mut disturbed = 0;
    let bar = Bench::progress(WEIGHTS.len() * bench.plan.repetitions as usize, "shares")?;
    for weights in WEIGHTS {
        let names: Vec<_> = weights.iter().map(f64::to_string).collect();
        let label = names.join(":");
        let neighbours: Vec<_> =
            weights.iter().map(|weight| Adversary { weight: *weight, ..EQUAL_COST }).collect();
        let mut by_tenant = vec![(Vec::new(), Vec::new(), Vec::new()); weights.len()];
        for _ in 0..bench.plan.repetitions {
            bar.set_message(label.clone());
            let (run, repeated) = undisturbed(bench, &neighbours)?;
            disturbed += repeated;
            let cycles = run.cycles.unwrap_or_default();
            let tenants = 0..weights.len();
            let used = |number| cycles.tenant(&neighbour(number)) as f64;
            let all_used: f64 = tenants.clone().map(used).sum();
            let sent = |number| run.outcome.pair(&neighbour(number)).map_or(0.0, |p| p.tx_mpps);
            let all_sent: f64 = tenants.clone().map(sent).sum();
            for number in tenants {
                by_tenant[number].0.push(100.0 * used(number) / all_used);
                by_tenant[number].1.push(100.0 * sent(number) / all_sent);
                by_tenant[number].2.push(cycles.per_packet(&neighbour(number)));
            }
            bar.inc(1);
        }
        let mut worst = [0.0_f64; 2];
        for (number, (cycles, frames, costs)) in by_tenant.into_iter().enumerate() {
            let entitled = 100.0 * weights[number] / weights.iter().sum::<f64>();
            for ((cycles, frames), cost) in cycles.iter().zip(&frames).zip(&costs) {
                csv.write_record([
                    label.clone(),
                    number.to_string(),
                    format!("{entitled:.3}"),
                    format!("{cycles:.3}"),
                    format!("{frames:.3}"),
                    format!("{cost:.1}"),
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
                Spread::of(costs).map_or_else(|| "-".to_owned(), |spread| format!("{spread:.0}")),
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
    println!("equal cost: {EQUAL_COST_NOTE}");
    println!("{disturbed} runs repeated: the generator was away for longer than a ring lasts");
    Ok(verdicts)
}
