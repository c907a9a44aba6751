//! The victim beside a growing neighbour: its number of flows, and its load (the paper's figures 3
//! and 7).

use super::adversary::{ALL, Adversary, CHEAP, LARGE};
use super::bench::{Bench, VICTIM, VICTIM_RATE, Variant, neighbour};
use crate::chart::{self, Lines};
use crate::generator::Mode;
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};

/// One axis.
struct Axis {
    /// In the files' names.
    name: &'static str,
    title: &'static str,
    label: &'static str,
    points: Vec<(f64, Vec<Adversary>)>,
}

/// The key of so many flows; keys are static text.
const FLOW_KEYS: [(f64, &str); 5] = [
    (1.0, "flows=1"),
    (16.0, "flows=16"),
    (1000.0, "flows=1000"),
    (8000.0, "flows=8000"),
    (64000.0, "flows=64000"),
];

/// What the neighbour offers, in parts of what the switch would take from it alone.
const LOADS: [f64; 6] = [0.1, 0.4, 0.8, 1.2, 2.0, 5.0];

/// Frames a second that the switch takes from the neighbour alone.
fn capacity_pps(bench: &mut Bench) -> anyhow::Result<f64> {
    let run = bench.run(Variant::Off, 0, &[LARGE])?;
    Ok(run.outcome.pair(&neighbour(0))?.rx_mpps * 1e6)
}

fn axes(capacity_pps: f64) -> Vec<Axis> {
    let every_tuple = ALL.iter().find(|adversary| adversary.name == "50k flows").unwrap_or(&CHEAP);
    let load = |part: f64| {
        let mode = Mode::Stream((part * capacity_pps) as u32);
        (part, vec![Adversary { mode, ..LARGE }])
    };
    vec![
        Axis {
            name: "flows",
            title: "Victim's p99 by the neighbour's number of flows",
            label: "flows of the neighbour (64 B, flat out)",
            points: FLOW_KEYS
                .map(|(flows, keys)| (flows, vec![Adversary { keys, ..*every_tuple }]))
                .into(),
        },
        Axis {
            name: "load",
            title: "Victim's p99 by the neighbour's load",
            label: "offered load, in parts of what the switch takes from the neighbour alone (1.5 kB)",
            points: LOADS.map(load).into(),
        },
    ]
}

/// Measures along every axis.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let variants = bench.variants();
    let capacity_pps = capacity_pps(bench)?;
    println!("load: 1 is {:.2} million frames of 1.5 kB a second", capacity_pps / 1e6);
    let mut verdicts = Vec::new();
    for axis in axes(capacity_pps) {
        let runs = axis.points.len() * variants.len() * bench.plan.curve_repetitions() as usize;
        let bar = Bench::progress(runs, axis.name)?;
        let mut samples: Vec<(Variant, f64, f64, f64)> = Vec::new();
        for _ in 0..bench.plan.curve_repetitions() {
            for (x, neighbours) in &axis.points {
                for variant in &variants {
                    bar.set_message(format!("{x}, {}", variant.name()));
                    let run = bench.run_whole(*variant, VICTIM_RATE, neighbours)?;
                    let victim = run.outcome.pair(VICTIM)?;
                    let p99 = victim.typical_us(|times| times.p99).unwrap_or(f64::NAN);
                    samples.push((*variant, *x, p99, victim.completed_percent));
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        let mut csv = csv_file(&bench.out.join(format!("sweep-{}.csv", axis.name)))?;
        csv.write_record(["switch", axis.name, "victim_p99_us", "victim_completed_percent"])?;
        for (variant, x, p99, completed) in &samples {
            csv.write_record([
                variant.name().to_owned(),
                x.to_string(),
                format!("{p99:.3}"),
                format!("{completed:.3}"),
            ])?;
        }
        csv.flush()?;
        let median = |variant: Variant, x: f64| {
            let own = samples.iter().filter(|sample| sample.0 == variant && sample.1 == x);
            let finite = own.map(|sample| sample.2).filter(|p99| p99.is_finite());
            Spread::of(finite).map_or(f64::NAN, |spread| spread.median)
        };
        let series: Vec<_> = variants
            .iter()
            .map(|variant| {
                let points = axis.points.iter().map(|(x, _)| (*x, median(*variant, *x)));
                (variant.name(), points.collect::<Vec<_>>())
            })
            .collect();
        for (name, points) in &series {
            let points: Vec<_> = points.iter().map(|(x, p99)| format!("{x}: {p99:.1}")).collect();
            println!("{}, {name}: p99 us at {}", axis.name, points.join(", "));
        }
        let lines = Lines {
            title: axis.title,
            x_label: axis.label,
            unit: "p99, microseconds",
            series: &series,
        };
        chart::lines(&bench.out.join(format!("sweep-{}.svg", axis.name)), &lines)?;
        if axis.name == "load" {
            let most = |variant| {
                let points = axis.points.iter().map(|(x, _)| median(variant, *x));
                points.fold(f64::NAN, f64::max)
            };
            let [on, off] = [Variant::On, Variant::Off].map(most);
            let what = "load: victim's worst p99 without protection / with it";
            let detail = format!("{off:.1} / {on:.1} us");
            verdicts.push(Verdict::new(what, Bound::AtLeast(5.0), off / on).with(detail));
        }
    }
    Ok(verdicts)
}
