//! A hundred idle ports, with guests behind them: what they cost a turn (at most 3 %), on the wire and
//! in instructions.

use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::adversary::SATURATING;
use super::bench::{Bench, VICTIM, VICTIM_RATE, Variant, neighbour};
use crate::bench::{Count, counts};
use crate::generator::{Load, Mode, Pair, Running};
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::{Bound, Verdict};

const IDLE: usize = 100;

/// Fewer pairs than this say nothing of 3 %.
const PAIRS_MIN: u32 = 7;

/// Small rings and buffers: there are many. Their process sleeps until interrupted.
const IDLE_KEYS: &str = "irq=1,ring=256,rx=256";

/// Longer than any run.
const ATTACHED: Duration = Duration::from_secs(600);

/// How much dearer a turn may be.
const DEARER_MOST: f64 = 1.03;

#[derive(Debug, Clone, Copy)]
struct Sample {
    cycles_per_packet: f64,
    mpps: f64,
    victim_p50_us: f64,
}

/// Measures in pairs: nobody attached, a hundred attached.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    bench.subject(Variant::On)?.resume()?;
    for number in 0..IDLE {
        let name = idle(number);
        bench.subject(Variant::On)?.add_port(&name, &name)?;
    }
    bench.subject(Variant::On)?.pause()?;
    let pairs = bench.plan.repetitions.max(PAIRS_MIN);
    let bar = Bench::progress(2 * pairs as usize, "idle")?;
    let mut samples = Vec::new();
    for _ in 0..pairs {
        bar.set_message("0 idle ports");
        let without = one_run(bench)?;
        bar.inc(1);
        bar.set_message(format!("{IDLE} idle ports"));
        let guests = attach(bench)?;
        let with = one_run(bench)?;
        drop(guests);
        bar.inc(1);
        samples.push([without, with]);
    }
    bar.finish_and_clear();
    write_csv(bench, &samples)?;
    println!("{}", table(&samples));
    let ratio = |of: fn(&Sample) -> f64| {
        Spread::of(samples.iter().map(|[without, with]| of(with) / of(without)))
    };
    let judged = |what: &str, bound, spread: Option<Spread>| {
        let measured = spread.map_or(f64::NAN, |spread| spread.median);
        let detail = spread.map_or_else(String::new, |spread| format!("{spread:.4}"));
        let what = format!("{IDLE} idle ports / none: {what}");
        Verdict::new(what, bound, measured).with(detail)
    };
    let mut verdicts = vec![
        judged("cycles per packet", Bound::AtMost(DEARER_MOST), ratio(|s| s.cycles_per_packet)),
        judged("throughput", Bound::AtLeast(1.0 / DEARER_MOST), ratio(|s| s.mpps)),
    ];
    verdicts.extend(instructions()?);
    Ok(verdicts)
}

fn idle(number: usize) -> String {
    format!("idle{number}")
}

/// A saturated tenant and the victim.
fn one_run(bench: &mut Bench) -> anyhow::Result<Sample> {
    let victim = Some(Mode::RoundTrips(VICTIM_RATE));
    // Read before the generator begins and after it has ended: beside it the switch answers late.
    bench.subject(Variant::On)?.resume()?;
    let before = bench.cycles(Variant::On)?;
    let run = bench.run_with(Variant::On, victim, &[SATURATING], false)?;
    bench.subject(Variant::On)?.resume()?;
    let after = bench.cycles(Variant::On)?;
    bench.subject(Variant::On)?.pause()?;
    let cost = after.zip(before).map(|(after, before)| after.since(&before).per_any_packet());
    let latency = run.outcome.pair(VICTIM)?.typical_us(|times| times.p50);
    Ok(Sample {
        cycles_per_packet: cost.unwrap_or(f64::NAN),
        mpps: run.outcome.pair(&neighbour(0))?.rx_mpps,
        victim_p50_us: latency.unwrap_or(f64::NAN),
    })
}

/// Guests that sleep behind every idle port, in a process of their own. Of a generator that must have
/// traffic, one sends a frame a second.
fn attach(bench: &mut Bench) -> anyhow::Result<Running> {
    let core = bench.cores.peers;
    let subject = bench.subject(Variant::On)?;
    subject.resume()?;
    let names: Vec<_> = (0..IDLE).map(idle).collect();
    let [from, to] = [0, 1].map(|number: usize| idle(number));
    let pair = Pair {
        sockets: [subject.socket(&from)?, subject.socket(&to)?],
        ports: [from, to],
        port_keys: IDLE_KEYS,
        ..Pair::new("idle", Mode::Stream(1), super::adversary::SMALL_BYTES)
    };
    let mut listeners = Vec::new();
    for name in names.iter().skip(2) {
        listeners.push((name.clone(), subject.socket(name)?, IDLE_KEYS));
    }
    let (warm_up, interval) = (Duration::ZERO, Duration::from_secs(1));
    let load = Load { pairs: vec![pair], listeners, warm_up, measured: ATTACHED, interval, core };
    let running = load.start()?;
    for name in &names {
        bench.ours.switch().wait_running(name, 2)?;
    }
    Ok(running)
}

/// The same in instructions, which no machine's mood changes.
fn instructions() -> anyhow::Result<Option<Verdict>> {
    let counts = match counts()? {
        Ok(counts) => counts,
        Err(missing) => {
            println!("SKIP the instructions of a turn: {missing}");
            return Ok(None);
        }
    };
    let count = |case: &str| {
        let found = counts.iter().find(|Count { name, .. }| name.ends_with(case));
        found.map_or(f64::NAN, |count| count.instructions as f64)
    };
    let [none, hundred] = ["beside_nobody", "beside_100_idle"].map(count);
    let what = format!("{IDLE} idle ports / none: instructions of a full turn");
    let detail = format!("{hundred} / {none}");
    Ok(Some(Verdict::new(what, Bound::AtMost(DEARER_MOST), hundred / none).with(detail)))
}

fn table(samples: &[[Sample; 2]]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["idle ports", "cycles per packet", "Mpps", "victim p50 us"]);
    for (index, ports) in [0, IDLE].into_iter().enumerate() {
        let show = |of: fn(&Sample) -> f64, digits: usize| {
            Spread::of(samples.iter().filter_map(|pair| pair.get(index)).map(of))
                .map_or_else(|| "-".to_owned(), |spread| format!("{spread:.digits$}"))
        };
        table.add_row([
            ports.to_string(),
            show(|s| s.cycles_per_packet, 0),
            show(|s| s.mpps, 4),
            show(|s| s.victim_p50_us, 1),
        ]);
    }
    table
}

fn write_csv(bench: &Bench, samples: &[[Sample; 2]]) -> anyhow::Result<()> {
    let mut csv = csv_file(&bench.out.join("idle.csv"))?;
    csv.write_record(["pair", "idle_ports", "cycles_per_packet", "mpps", "victim_p50_us"])?;
    for (pair, samples) in samples.iter().enumerate() {
        for (ports, sample) in [0, IDLE].iter().zip(samples) {
            csv.write_record([
                pair.to_string(),
                ports.to_string(),
                format!("{:.1}", sample.cycles_per_packet),
                format!("{:.5}", sample.mpps),
                format!("{:.2}", sample.victim_p50_us),
            ])?;
        }
    }
    Ok(csv.flush()?)
}
