//! Two tenants with as many frames a second each, of which one makes more work: what a frame of
//! either costs, and to whom (the paper's figures 4 and 5).

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::adversary::{Adversary, CHEAP, Flows};
use super::bench::{Bench, VICTIM, Variant, neighbour};
use crate::chart::{self, Bars};
use crate::generator::Mode;
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};

/// Frames a second of either: less than half of what the dearest leave room for.
const RATE: u32 = 200_000;

/// The neighbour's work, the least first.
fn cases() -> Vec<(&'static str, Adversary)> {
    let like = |flows| Adversary { flows, mode: Mode::Stream(RATE), ..CHEAP };
    let of_flows = |keys| Adversary { keys, ..like(Flows::EveryTuple) };
    vec![
        (EQUAL, like(Flows::Forward)),
        // Resubmits, which our slow path follows once and for all; in OVS recirculations, through its
        // connection tracker, for resubmits cost it nothing either.
        ("1 pass", like(Flows::Passes(1))),
        ("2 passes", like(Flows::Passes(2))),
        ("3 passes", like(Flows::Passes(3))),
        ("4 passes", like(Flows::Passes(4))),
        // Work that costs ours for each frame; OVS makes one of them all.
        ("16 rewrites", like(Flows::Rewrites(16))),
        (DEAR, like(Flows::Rewrites(64))),
        // The same work on another working set.
        ("5 flows", of_flows("flows=5")),
        ("50k flows", of_flows("flows=50000")),
    ]
}

const EQUAL: &str = "same work";
const DEAR: &str = "64 rewrites";

/// What one run showed, in cycles for each frame.
struct Sample {
    case: &'static str,
    variant: Variant,
    victim: f64,
    neighbour: f64,
    /// By the switch's own counters, over the frames of both.
    mean: f64,
    p99_us: f64,
}

/// Measures every case on every variant, round robin.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let (variants, cases) = (bench.variants(), cases());
    let runs = cases.len() * variants.len() * bench.plan.curve_repetitions() as usize;
    let bar = Bench::progress(runs, "equal")?;
    let mut samples = Vec::new();
    for _ in 0..bench.plan.curve_repetitions() {
        for (case, adversary) in &cases {
            for variant in &variants {
                bar.set_message(format!("{case}, {}", variant.name()));
                let victim = Some(Mode::Stream(RATE));
                let run = bench.run_with(*variant, victim, &[*adversary], true)?;
                let times = run.outcome.pair(VICTIM)?.latency_us;
                let of = |tenant: &str| {
                    run.cycles.as_ref().map_or(f64::NAN, |cycles| cycles.per_packet(tenant))
                };
                samples.push(Sample {
                    case,
                    variant: *variant,
                    victim: of(VICTIM),
                    neighbour: of(&neighbour(0)),
                    mean: run.cost.map_or(f64::NAN, |cost| cost.cycles_per_packet),
                    p99_us: times.map_or(f64::NAN, |times| times.p99),
                });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    report(bench, &samples)?;
    draw(bench, &samples, &cases, &variants)?;
    Ok(judge(&samples))
}

fn median(samples: &[Sample], case: &str, variant: Variant, of: fn(&Sample) -> f64) -> f64 {
    let own = samples.iter().filter(|sample| sample.case == case && sample.variant == variant);
    let finite = own.map(of).filter(|value| value.is_finite());
    Spread::of(finite).map_or(f64::NAN, |spread| spread.median)
}

fn report(bench: &Bench, samples: &[Sample]) -> anyhow::Result<()> {
    let mut csv = csv_file(&bench.out.join("equal.csv"))?;
    csv.write_record([
        "neighbour",
        "switch",
        "victim_cycles_per_frame",
        "neighbour_cycles_per_frame",
        "mean_cycles_per_frame",
        "victim_p99_us",
    ])?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "neighbour",
        "switch",
        "cycles per frame: victim",
        "neighbour",
        "mean of both",
        "victim p99 us, one way",
    ]);
    for s in samples {
        let numbers = [s.victim, s.neighbour, s.mean, s.p99_us];
        let text = [s.case.to_owned(), s.variant.name().to_owned()];
        csv.write_record(text.into_iter().chain(numbers.map(|number| format!("{number:.3}"))))?;
    }
    csv.flush()?;
    // Each case and variant once, in the order of the first repetition.
    let mut seen = Vec::new();
    for s in samples {
        if seen.contains(&(s.case, s.variant)) {
            continue;
        }
        seen.push((s.case, s.variant));
        let show = |of: fn(&Sample) -> f64| {
            let value = median(samples, s.case, s.variant, of);
            if value.is_finite() { format!("{value:.0}") } else { "-".to_owned() }
        };
        let p99 = median(samples, s.case, s.variant, |s| s.p99_us);
        table.add_row([
            s.case.to_owned(),
            s.variant.name().to_owned(),
            show(|s| s.victim),
            show(|s| s.neighbour),
            show(|s| s.mean),
            format!("{p99:.1}"),
        ]);
    }
    println!("{table}");
    Ok(())
}

fn draw(
    bench: &Bench,
    samples: &[Sample],
    cases: &[(&str, Adversary)],
    variants: &[Variant],
) -> anyhow::Result<()> {
    let groups: Vec<_> = cases.iter().map(|(case, _)| *case).collect();
    let values = |variant: Variant, of: fn(&Sample) -> f64| {
        groups.iter().map(|case| median(samples, case, variant, of)).collect::<Vec<_>>()
    };
    let mut series = vec![
        ("victim, protection off", values(Variant::Off, |s| s.victim)),
        ("neighbour, protection off", values(Variant::Off, |s| s.neighbour)),
        ("victim, protection on", values(Variant::On, |s| s.victim)),
        ("neighbour, protection on", values(Variant::On, |s| s.neighbour)),
    ];
    if variants.contains(&Variant::Ovs) {
        series.push(("OVS-DPDK, mean of both", values(Variant::Ovs, |s| s.mean)));
    }
    let bars = Bars {
        title: "Victim and neighbour at the same rate: what a frame of each costs",
        unit: "cycles per frame",
        groups: &groups,
        series: &series,
        logarithmic: false,
    };
    chart::bars(&bench.out.join("equal.svg"), &bars)
}

fn judge(samples: &[Sample]) -> Vec<Verdict> {
    let of = |case: &str, of: fn(&Sample) -> f64| median(samples, case, Variant::On, of);
    let (victim, neighbour) = (of(DEAR, |s| s.victim), of(DEAR, |s| s.neighbour));
    let what = format!("{DEAR} at equal rate: neighbour's cycles per frame / victim's");
    let detail = format!("{neighbour:.0} / {victim:.0} cycles");
    let pays = Verdict::new(what, Bound::AtLeast(2.0), neighbour / victim).with(detail);
    let (dear, same) = (of(DEAR, |s| s.victim), of(EQUAL, |s| s.victim));
    let what = format!("{DEAR} at equal rate: victim's cycles per frame / beside the same work");
    let detail = format!("{dear:.0} / {same:.0} cycles");
    let spared = Verdict::new(what, Bound::AtMost(1.25), dear / same).with(detail);
    vec![pays, spared]
}
