//! A victim's round trips beside every kind of adversary (the paper's figures 3 and 4, and ours).

use std::collections::BTreeMap;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use tollgate_policy::SchedulerConfig;

use super::adversary::{self, Adversary, SATURATING};
use super::bench::{Bench, Run, VICTIM, VICTIM_RATE, Variant, neighbour};
use crate::chart::{self, Bars, Lines};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};

/// Below this share of its round trips a victim's latency is that of requests never made.
const COMPLETED_PERCENT_MIN: f64 = 99.0;

/// Beside nobody.
const ALONE: &str = "alone";

/// Beside so many that make much work with few frames: the generator's one thread, which serves them
/// all, is then not what the victim waits for.
const MANY: [(&str, usize); 4] =
    [("1 neighbour", 1), ("2 neighbours", 2), ("8 neighbours", 8), ("32 neighbours", 32)];

/// A switch that has less of its time to spare is under load; else what bounds its bursts is the
/// generator, and a turn's own cost has few packets to be compared with.
const LOADED_IDLE_PERCENT: f64 = 10.0;

/// A round trip crosses the switch so often, and may wait each time.
const CROSSINGS: f64 = 2.0;

/// Whom the victim has beside it.
struct Case {
    name: &'static str,
    neighbours: Vec<Adversary>,
}

fn cases() -> Vec<Case> {
    let alone = Case { name: ALONE, neighbours: Vec::new() };
    let single =
        |adversary: &Adversary| Case { name: adversary.name, neighbours: vec![*adversary] };
    let many = MANY.map(|(name, count)| Case { name, neighbours: vec![SATURATING; count] });
    std::iter::once(alone).chain(adversary::ALL.iter().map(single)).chain(many).collect()
}

/// One run, as it goes into the CSV.
#[derive(Debug, Clone)]
struct Sample {
    case: &'static str,
    variant: Variant,
    p50_us: f64,
    p99_us: f64,
    p99_of_all_us: f64,
    completed_percent: f64,
    loop_p99_us: f64,
    adversary_mpps: f64,
    victim_percent: f64,
    adversary_percent: f64,
    system_percent: f64,
    stolen_percent: f64,
    /// Of all the time, what the switch had nothing to do in.
    idle_percent: f64,
    /// What the switch's own histograms promise that two crossings do not wait beyond.
    bound_us: f64,
}

impl Sample {
    fn of(case: &Case, variant: Variant, run: &Run) -> anyhow::Result<Self> {
        let victim = run.outcome.pair(VICTIM)?;
        let latency = victim.latency_us.as_ref();
        // Of 50 ms: the machine takes a core away for milliseconds, and where that is a hundredth of
        // the time it would be all that the quantiles of the whole run say, of either switch.
        let typical = |quantile| victim.typical_us(quantile).unwrap_or(f64::NAN);
        let percent = |part: fn(&crate::cycles::Cycles) -> u64| {
            run.cycles.as_ref().map_or(f64::NAN, |cycles| cycles.percent_of_busy(part(cycles)))
        };
        let adversary = run.outcome.pair(&neighbour(0)).ok();
        // At worst each neighbour stands ahead with credit for a quantum.
        let quantum = SchedulerConfig::default().quantum_cycles;
        let ahead_cycles = quantum * case.neighbours.len() as u64;
        let bound_us = run
            .cycles
            .as_ref()
            .map_or(f64::NAN, |cycles| CROSSINGS * cycles.wait_bound_us(ahead_cycles));
        Ok(Self {
            case: case.name,
            bound_us,
            variant,
            p50_us: typical(|times| times.p50),
            p99_us: typical(|times| times.p99),
            p99_of_all_us: latency.map_or(f64::NAN, |times| times.p99),
            completed_percent: victim.completed_percent,
            loop_p99_us: run.outcome.loop_p99_us(),
            adversary_mpps: adversary.map_or(0.0, |pair| pair.tx_mpps),
            victim_percent: percent(|cycles| cycles.tenant(VICTIM)),
            adversary_percent: percent(|cycles| cycles.tenant(&neighbour(0))),
            system_percent: percent(|cycles| cycles.system),
            stolen_percent: percent(|cycles| cycles.stolen),
            idle_percent: run.cycles.as_ref().map_or(f64::NAN, |c| c.percent(c.idle)),
        })
    }
}

/// Runs every case on every variant, round robin.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let variants = bench.variants();
    let cases = cases();
    let runs = cases.len() * variants.len() * bench.plan.repetitions as usize;
    let bar = Bench::progress(runs, "isolation")?;
    let mut samples = Vec::new();
    for _ in 0..bench.plan.repetitions {
        for case in &cases {
            for variant in &variants {
                bar.set_message(format!("{}, {}", case.name, variant.name()));
                let run = bench.run_whole(*variant, VICTIM_RATE, &case.neighbours)?;
                samples.push(Sample::of(case, *variant, &run)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    write_csv(bench, &samples)?;
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    println!("{}", table(&samples, &names, &variants));
    draw(bench, &samples, &names, &variants)?;
    draw_many(bench, &samples, &variants)?;
    Ok(judge(&samples, &variants))
}

fn spread(
    samples: &[Sample],
    case: &str,
    variant: Variant,
    of: fn(&Sample) -> f64,
) -> Option<Spread> {
    let own = samples.iter().filter(|s| s.case == case && s.variant == variant).map(of);
    Spread::of(own.filter(|value| value.is_finite()))
}

fn median(samples: &[Sample], case: &str, variant: Variant, of: fn(&Sample) -> f64) -> f64 {
    spread(samples, case, variant, of).map_or(f64::NAN, |spread| spread.median)
}

fn table(samples: &[Sample], cases: &[&str], variants: &[Variant]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "adversary",
        "switch",
        "victim p50 us",
        "p99 us",
        "bound on waits us",
        "completed %",
        "adversary Mpps",
        "victim % of busy",
        "adversary %",
        "system %",
        "stolen %",
    ]);
    for case in cases {
        for variant in variants {
            let show = |of: fn(&Sample) -> f64, digits: usize| {
                spread(samples, case, *variant, of)
                    .map_or_else(|| "-".to_owned(), |spread| format!("{spread:.digits$}"))
            };
            table.add_row([
                (*case).to_owned(),
                variant.name().to_owned(),
                show(|s| s.p50_us, 1),
                show(|s| s.p99_us, 1),
                show(|s| s.bound_us, 1),
                show(|s| s.completed_percent, 1),
                show(|s| s.adversary_mpps, 2),
                show(|s| s.victim_percent, 1),
                show(|s| s.adversary_percent, 1),
                show(|s| s.system_percent, 1),
                show(|s| s.stolen_percent, 1),
            ]);
        }
    }
    table
}

fn draw(
    bench: &Bench,
    samples: &[Sample],
    cases: &[&str],
    variants: &[Variant],
) -> anyhow::Result<()> {
    let values: BTreeMap<_, _> = variants
        .iter()
        .map(|variant| {
            let of_case = cases.iter().map(|case| median(samples, case, *variant, |s| s.p99_us));
            (*variant, of_case.collect::<Vec<_>>())
        })
        .collect();
    let series: Vec<_> =
        variants.iter().map(|variant| (variant.name(), values[variant].clone())).collect();
    let bars = Bars {
        title: "Victim's round trips beside an adversary: 99th percentile (lower is better)",
        unit: "p99, microseconds (logarithmic)",
        groups: cases,
        series: &series,
        logarithmic: true,
    };
    chart::bars(&bench.out.join("isolation.svg"), &bars)
}

/// The victim's p99 by the number of neighbours.
fn draw_many(bench: &Bench, samples: &[Sample], variants: &[Variant]) -> anyhow::Result<()> {
    let counts = MANY;
    let series: Vec<_> = variants
        .iter()
        .map(|variant| {
            let point = |(case, count): (&'static str, usize)| {
                (count as f64, median(samples, case, *variant, |s| s.p99_us))
            };
            (variant.name(), counts.iter().copied().map(point).collect::<Vec<_>>())
        })
        .collect();
    let lines = Lines {
        title: "Victim's round trips beside many neighbours: 99th percentile (lower is better)",
        x_label: "neighbours, each with 64-byte frames flat out",
        unit: "p99, microseconds",
        series: &series,
    };
    chart::lines(&bench.out.join("neighbours.svg"), &lines)
}

/// p99 beyond that of the victim alone, less what the generator's own two loops may add. Infinite where
/// nothing was answered.
fn excess(samples: &[Sample], case: &str, variant: Variant) -> f64 {
    let p99 = |case| median(samples, case, variant, |s| s.p99_us);
    let lateness = median(samples, case, variant, |s| s.loop_p99_us);
    let beyond = p99(case) - p99(ALONE) - 2.0 * lateness;
    if beyond.is_nan() { f64::INFINITY } else { beyond.max(0.0) }
}

fn judge(samples: &[Sample], variants: &[Variant]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let many = MANY.map(|(name, _)| (name, SATURATING.of_ovs));
    let single = adversary::ALL.iter().map(|adversary| (adversary.name, adversary.of_ovs));
    for (case, of_ovs) in single.chain(many) {
        let completed = median(samples, case, Variant::On, |s| s.completed_percent);
        let what = format!("{case}: victim's requests completed, %");
        verdicts.push(Verdict::new(what, Bound::AtLeast(COMPLETED_PERCENT_MIN), completed));
        let ours = excess(samples, case, Variant::On);
        let bound = median(samples, case, Variant::On, |s| s.bound_us);
        let what = format!("{case}: excess p99 / bound from the histograms");
        let detail = format!("{ours:.1} / {bound:.1} us");
        verdicts.push(Verdict::new(what, Bound::AtMost(1.0), ours / bound).with(detail));
        if variants.contains(&Variant::Ovs) {
            let theirs = excess(samples, case, Variant::Ovs);
            let what = format!("{case}: excess p99, ours / OVS-DPDK");
            let ratio = if ours == 0.0 { 0.0 } else { ours / theirs };
            let detail = format!("{ours:.1} / {theirs:.1} us");
            verdicts.push(Verdict::new(what, Bound::AtMost(of_ovs), ratio).with(detail));
        }
    }
    let p99 = |case| median(samples, case, Variant::On, |s| s.p99_us);
    let (one, all) = (p99("1 neighbour"), p99("32 neighbours"));
    let detail = format!("{all:.1} / {one:.1} us");
    let what = "victim's p99 with 32 neighbours / with one";
    verdicts.push(Verdict::new(what, Bound::AtMost(1.5), all / one).with(detail));
    let is_loaded = |s: &&Sample| s.variant == Variant::On && s.idle_percent < LOADED_IDLE_PERCENT;
    let loaded = samples.iter().filter(is_loaded);
    let overhead = Spread::of(loaded.map(|s| s.system_percent + s.stolen_percent));
    let what = "system + stolen where the switch has no time to spare, % of busy cycles (median)";
    let measured = overhead.map_or(f64::NAN, |spread| spread.median);
    let detail = overhead.map_or_else(String::new, |spread| spread.to_string());
    verdicts.push(Verdict::new(what, Bound::AtMost(5.0), measured).with(detail));
    verdicts
}

fn write_csv(bench: &Bench, samples: &[Sample]) -> anyhow::Result<()> {
    let mut csv = csv_file(&bench.out.join("isolation.csv"))?;
    csv.write_record([
        "adversary",
        "switch",
        "victim_p50_us",
        "victim_p99_us",
        "victim_p99_of_all_intervals_us",
        "victim_completed_percent",
        "generator_loop_p99_us",
        "adversary_mpps",
        "victim_percent_of_busy",
        "adversary_percent_of_busy",
        "system_percent_of_busy",
        "stolen_percent_of_busy",
        "idle_percent",
        "bound_us",
    ])?;
    for s in samples {
        let numbers = [
            s.p50_us,
            s.p99_us,
            s.p99_of_all_us,
            s.completed_percent,
            s.loop_p99_us,
            s.adversary_mpps,
            s.victim_percent,
            s.adversary_percent,
            s.system_percent,
            s.stolen_percent,
            s.idle_percent,
            s.bound_us,
        ];
        let text = [s.case.to_owned(), s.variant.name().to_owned()];
        csv.write_record(text.into_iter().chain(numbers.map(|number| format!("{number:.3}"))))?;
    }
    Ok(csv.flush()?)
}
