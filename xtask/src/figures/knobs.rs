//! The knobs of the coordinated refill, and the local one beside it: a victim's p99 and a neighbour's
//! throughput by boost, cap and period (the paper's figure 12).
//!
//! A period below 50 us makes the coordinator spin, here on the generator's core: there is no third.
//! Latencies are therefore of round trips that met no stall of the generator.

use serde_json::{Value, json};

use super::adversary::{Adversary, CHEAP};
use super::bench::{Bench, NEIGHBOURS, VICTIM, VICTIM_RATE, Variant, WIRE, neighbour};
use crate::chart::{self, Lines};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::Verdict;

/// On for 250 ms, off for 250 ms.
const BURSTY: Adversary = Adversary { name: "bursts", keys: "on=250,off=250", ..CHEAP };

/// What the others are while one is swept: as the authors run it, but for a period that lets the
/// coordinator sleep.
const BOOST: f64 = 0.85;
const CAP_CYCLES: u64 = 15_000;
const PERIOD_US: u64 = 100;

const BOOSTS: [f64; 6] = [0.5, 0.7, 0.85, 0.94, 1.0, 1.1];
const CAPS_CYCLES: [u64; 6] = [2_000, 5_000, 15_000, 50_000, 200_000, 500_000];
const PERIODS_US: [u64; 4] = [1, 10, 100, 1_000];

/// A cap holds two quanta at least.
const QUANTUM_CYCLES: u64 = 5_000;

/// Tenants that do nothing take their part of a coordinated refill all the same: this little.
const WEIGHT_OF_ABSENT: f64 = 0.001;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    /// Of which sweep; none for the local refill.
    axis: Option<usize>,
    x: f64,
    boost: f64,
    cap_cycles: u64,
    period_us: u64,
}

/// In files' names, over charts, under their axes; the ends whose ratio is shown, and what the paper
/// says of it.
struct Axis {
    name: &'static str,
    label: &'static str,
    shape: &'static str,
    /// Compared with the value that is usual.
    end: f64,
    usual: f64,
}

const AXES: [Axis; 3] = [
    Axis {
        name: "boost",
        label: "boost: part of the elapsed time that is given out",
        shape: "too high a boost throttles nobody",
        end: 1.1,
        usual: BOOST,
    },
    Axis {
        name: "cap",
        label: "cap, cycles",
        shape: "a large cap lets a waking neighbour burst",
        end: 500_000.0,
        usual: CAP_CYCLES as f64,
    },
    Axis {
        name: "period",
        label: "refill period, us",
        shape: "a long period is worse than a short one",
        end: 1_000.0,
        usual: PERIOD_US as f64,
    },
];

#[derive(Debug, Clone, Copy)]
struct Sample {
    point: Point,
    p50_us: f64,
    p99_us: f64,
    completed_percent: f64,
    neighbour_mpps: f64,
}

fn points() -> Vec<Point> {
    let usual =
        Point { axis: None, x: 0.0, boost: BOOST, cap_cycles: CAP_CYCLES, period_us: PERIOD_US };
    let boost = BOOSTS.map(|boost| Point { axis: Some(0), x: boost, boost, ..usual });
    let cap = CAPS_CYCLES.map(|cap_cycles| Point {
        axis: Some(1),
        x: cap_cycles as f64,
        cap_cycles,
        ..usual
    });
    let period = PERIODS_US.map(|period_us| Point {
        axis: Some(2),
        x: period_us as f64,
        period_us,
        ..usual
    });
    [usual].into_iter().chain(boost).chain(cap).chain(period).collect()
}

impl Point {
    /// Parameters of `scheduler_set`.
    fn knobs(self) -> Value {
        if self.axis.is_none() {
            return json!({
                "refill": "local", "quantum_cycles": QUANTUM_CYCLES, "cap_cycles": 4 * QUANTUM_CYCLES
            });
        }
        json!({
            "refill": "coordinator",
            "boost": self.boost,
            "period_us": self.period_us,
            "cap_cycles": self.cap_cycles,
            "quantum_cycles": QUANTUM_CYCLES.min(self.cap_cycles / 2),
        })
    }
}

/// Every point, round robin, and then the switch as it was.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    bench.subject(Variant::On)?.resume()?;
    weigh_absent(bench, WEIGHT_OF_ABSENT)?;
    let samples = measure(bench)?;
    // As it was, for the experiments that follow.
    bench.subject(Variant::On)?.resume()?;
    bench.ours.switch().call("scheduler_set", usual().knobs())?;
    weigh_absent(bench, 1.0)?;
    bench.subject(Variant::On)?.pause()?;
    write_csv(bench, &samples)?;
    let local = median(&samples, usual(), |s| s.p99_us);
    let mpps = median(&samples, usual(), |s| s.neighbour_mpps);
    println!("local refill: p99 {local:.1} us, neighbour {mpps:.3} Mpps");
    let mut verdicts = Vec::new();
    for (number, axis) in AXES.iter().enumerate() {
        verdicts.push(show(bench, &samples, number, axis, local)?);
    }
    Ok(verdicts)
}

fn usual() -> Point {
    Point { axis: None, x: 0.0, boost: BOOST, cap_cycles: CAP_CYCLES, period_us: PERIOD_US }
}

fn weigh_absent(bench: &Bench, weight: f64) -> anyhow::Result<()> {
    let mut client = bench.ours.switch().rpc()?;
    for tenant in (1..NEIGHBOURS).map(neighbour).chain([WIRE.to_owned()]) {
        client.call("tenant_set", json!({"tenant": tenant, "weight": weight}))?;
    }
    Ok(())
}

fn measure(bench: &mut Bench) -> anyhow::Result<Vec<Sample>> {
    let points = points();
    let bar = Bench::progress(points.len() * bench.plan.repetitions as usize, "knobs")?;
    let mut samples = Vec::new();
    for _ in 0..bench.plan.repetitions {
        for point in &points {
            bar.set_message(match point.axis.and_then(|axis| AXES.get(axis)) {
                Some(axis) => format!("{} {}", axis.name, point.x),
                None => "local".to_owned(),
            });
            bench.subject(Variant::On)?.resume()?;
            bench.ours.switch().call("scheduler_set", point.knobs())?;
            let run = bench.run(Variant::On, VICTIM_RATE, &[BURSTY])?;
            let victim = run.outcome.pair(VICTIM)?;
            let latency = victim.undisturbed_us;
            samples.push(Sample {
                point: *point,
                p50_us: latency.map_or(f64::NAN, |times| times.p50),
                p99_us: latency.map_or(f64::NAN, |times| times.p99),
                completed_percent: victim.completed_percent,
                neighbour_mpps: run.outcome.pair(&neighbour(0))?.rx_mpps,
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

fn median(samples: &[Sample], point: Point, of: fn(&Sample) -> f64) -> f64 {
    let own = samples.iter().filter(|sample| sample.point == point).map(of);
    Spread::of(own.filter(|value| value.is_finite())).map_or(f64::NAN, |spread| spread.median)
}

/// Prints and draws one sweep; the shape of the table as a row.
fn show(
    bench: &Bench,
    samples: &[Sample],
    number: usize,
    axis: &Axis,
    local: f64,
) -> anyhow::Result<Verdict> {
    let own: Vec<_> = points().into_iter().filter(|point| point.axis == Some(number)).collect();
    let line = |of: fn(&Sample) -> f64| {
        own.iter().map(|point| (point.x, median(samples, *point, of))).collect::<Vec<_>>()
    };
    let (p99, mpps) = (line(|s| s.p99_us), line(|s| s.neighbour_mpps));
    let text: Vec<_> = p99
        .iter()
        .zip(&mpps)
        .map(|((x, p99), (_, mpps))| format!("{x}: {p99:.1} us, {mpps:.3} Mpps"))
        .collect();
    println!("{} (coordinator): victim's p99, neighbour: {}", axis.name, text.join("; "));
    let at = |x: f64| p99.iter().find(|point| point.0 == x).map_or(f64::NAN, |point| point.1);
    let series = [
        ("coordinator", p99.clone()),
        ("ours (local)", own.iter().map(|point| (point.x, local)).collect()),
    ];
    let lines = Lines {
        title: &format!("Victim's p99 beside bursts of 250 ms, by {}", axis.name),
        x_label: axis.label,
        unit: "p99, microseconds",
        series: &series,
    };
    chart::lines(&bench.out.join(format!("knobs-{}.svg", axis.name)), &lines)?;
    let (end, usual) = (at(axis.end), at(axis.usual));
    let what = format!("{}: victim's p99 at {} / at {}", axis.shape, axis.end, axis.usual);
    let detail = format!("{end:.1} / {usual:.1} us; local {local:.1}");
    Ok(Verdict::shown(what, end / usual).with(detail))
}

fn write_csv(bench: &Bench, samples: &[Sample]) -> anyhow::Result<()> {
    let mut csv = csv_file(&bench.out.join("knobs.csv"))?;
    csv.write_record([
        "refill",
        "boost",
        "cap_cycles",
        "period_us",
        "victim_p50_us",
        "victim_p99_us",
        "victim_completed_percent",
        "neighbour_mpps",
    ])?;
    for Sample { point, p50_us, p99_us, completed_percent, neighbour_mpps } in samples {
        let coordinated = |value: String| if point.axis.is_some() { value } else { String::new() };
        csv.write_record([
            if point.axis.is_some() { "coordinator" } else { "local" }.to_owned(),
            coordinated(point.boost.to_string()),
            coordinated(point.cap_cycles.to_string()),
            coordinated(point.period_us.to_string()),
            format!("{p50_us:.2}"),
            format!("{p99_us:.2}"),
            format!("{completed_percent:.2}"),
            format!("{neighbour_mpps:.4}"),
        ])?;
    }
    Ok(csv.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cap_holds_two_quanta_and_what_is_compared_is_measured() {
        let points = points();
        for knobs in points.iter().map(|point| point.knobs()) {
            let cycles = |knob: &str| knobs[knob].as_u64().unwrap();
            assert!(cycles("cap_cycles") >= 2 * cycles("quantum_cycles"), "{knobs}");
        }
        for (number, axis) in AXES.iter().enumerate() {
            let has = |x| points.iter().any(|point| point.axis == Some(number) && point.x == x);
            assert!(has(axis.end) && has(axis.usual), "{}", axis.name);
        }
    }
}
