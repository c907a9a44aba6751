//! Every thread of the daemon but the PMD is held while traffic runs: flows that are established, and
//! protection, must not notice.

mod threads;

use tollgate_accel::tsc;

use super::adversary::{Adversary, SATURATING};
use super::bench::{Bench, VICTIM, VICTIM_RATE, Variant, neighbour};
use crate::generator::{Interval, Mode, Outcome, Quantiles};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};
use threads::Held;

const WEIGHTS: [f64; 2] = [1.0, 3.0];

/// What a stretch of time showed.
#[derive(Debug, Clone)]
struct Stretch {
    completed_percent: f64,
    /// Medians over the intervals.
    p50_us: f64,
    p99_us: f64,
    /// Of the first tenant, among the frames of both.
    share_percent: f64,
    mpps: f64,
}

/// Runs once: as long without as with the hold.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let held = bench.plan.held;
    let neighbours = WEIGHTS.map(|weight| Adversary { weight, ..SATURATING });
    bench.subject(Variant::On)?.resume()?;
    bench.prepare(Variant::On, &neighbours)?;
    let measured = 2 * held + bench.plan.measured;
    let victim = Some(Mode::RoundTrips(VICTIM_RATE));
    let load = bench.load(Variant::On, victim, &neighbours, measured)?;
    let bar = Bench::progress(2, "held")?;
    bar.set_message("before");
    let running = load.start()?;
    bench.interrupt.sleep(bench.plan.warm_up + bench.plan.measured / 2 + held, |_| ())?;
    bar.inc(1);
    bar.set_message(format!("held for {} s", held.as_secs()));
    let threads = Held::hold(bench.ours.switch().pid())?;
    let from_tsc = tsc::now();
    let slept = bench.interrupt.sleep(held, |_| ());
    let to_tsc = tsc::now();
    let ran = threads.release();
    slept?;
    let (threads, ran_ns) = ran?;
    let outcome = running.finish()?;
    bench.subject(Variant::On)?.pause()?;
    bar.finish_and_clear();
    let before = stretch(&outcome, 0, from_tsc)?;
    let during = stretch(&outcome, from_tsc, to_tsc)?;
    write_csv(bench, &before, &during)?;
    println!(
        "{threads} threads held for {} s, in which they ran {ran_ns} ns; before -> during: \
         p50 {:.1} -> {:.1} us, p99 {:.1} -> {:.1} us, share {:.2} -> {:.2} %, {:.4} -> {:.4} Mpps",
        held.as_secs(),
        before.p50_us,
        during.p50_us,
        before.p99_us,
        during.p99_us,
        before.share_percent,
        during.share_percent,
        before.mpps,
        during.mpps,
    );
    Ok(judge(&before, &during))
}

fn judge(before: &Stretch, during: &Stretch) -> Vec<Verdict> {
    // Against before: whether shares are right at all is judged where nothing else is.
    let off = 100.0 * (during.share_percent / before.share_percent - 1.0).abs();
    let p99 = format!("{:.1} / {:.1} us", during.p99_us, before.p99_us);
    vec![
        Verdict::new(
            "daemon held: victim's requests completed, %",
            Bound::AtLeast(99.0),
            during.completed_percent,
        )
        .with(format!("{:.2} before", before.completed_percent)),
        Verdict::new(
            "daemon held: victim's p99 / before",
            Bound::AtMost(1.2),
            during.p99_us / before.p99_us,
        )
        .with(p99),
        Verdict::new(
            "daemon held: change of the share of weight 1 in 4, %",
            Bound::AtMost(1.0),
            off,
        )
        .with(format!("{:.2} / {:.2} % of all frames", during.share_percent, before.share_percent)),
        Verdict::new(
            "daemon held: throughput / before",
            Bound::AtLeast(0.9),
            during.mpps / before.mpps,
        ),
    ]
}

/// Of the intervals that lie wholly between two times.
fn stretch(outcome: &Outcome, from_tsc: u64, to_tsc: u64) -> anyhow::Result<Stretch> {
    let tick = outcome.interval_seconds * outcome.tsc_hz as f64;
    let position = |tsc: u64| (tsc as f64 - outcome.start_tsc as f64) / tick;
    let first = position(from_tsc).ceil().max(0.0) as usize;
    let last = position(to_tsc).floor().max(0.0) as usize;
    let within = |name: &str| -> anyhow::Result<Vec<Interval>> {
        let intervals = &outcome.pair(name)?.intervals;
        Ok(intervals.get(first..last.min(intervals.len())).unwrap_or_default().to_vec())
    };
    let received = |intervals: &[Interval]| -> f64 {
        intervals.iter().map(|interval| interval.received as f64).sum()
    };
    let victim = within(VICTIM)?;
    let seconds = victim.len() as f64 * outcome.interval_seconds;
    let typical = |of: fn(&Quantiles) -> f64| {
        let values = victim.iter().filter_map(|interval| interval.latency_us.as_ref()).map(of);
        Spread::of(values).map_or(f64::NAN, |spread| spread.median)
    };
    let frames = [received(&within(&neighbour(0))?), received(&within(&neighbour(1))?)];
    let all: f64 = frames.iter().sum();
    Ok(Stretch {
        completed_percent: 100.0 * received(&victim) / (seconds * f64::from(VICTIM_RATE)),
        p50_us: typical(|times| times.p50),
        p99_us: typical(|times| times.p99),
        share_percent: 100.0 * frames[0] / all,
        mpps: all / seconds / 1e6,
    })
}

fn write_csv(bench: &Bench, before: &Stretch, during: &Stretch) -> anyhow::Result<()> {
    let mut csv = csv_file(&bench.out.join("held.csv"))?;
    csv.write_record([
        "daemon",
        "victim_completed_percent",
        "victim_p50_us",
        "victim_p99_us",
        "share_of_weight_1_percent",
        "mpps",
    ])?;
    for (name, stretch) in [("running", before), ("held", during)] {
        let numbers = [
            stretch.completed_percent,
            stretch.p50_us,
            stretch.p99_us,
            stretch.share_percent,
            stretch.mpps,
        ];
        let numbers = numbers.map(|number| format!("{number:.3}"));
        csv.write_record([name.to_owned()].into_iter().chain(numbers))?;
    }
    Ok(csv.flush()?)
}
