//! What is not isolated: the caches and the memory that all cores and tenants share. Nothing here is
//! a target; the rows say what a victim pays for neighbours that thrash them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::adversary::{Adversary, CHEAP, Flows, LARGE};
use super::bench::{Bench, VICTIM, VICTIM_RATE, Variant, neighbour};
use crate::chart::{self, Bars};
use crate::generator::Mode;
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::Verdict;

/// Far more than any last-level cache.
const THRASHED_BYTES: usize = 256 << 20;
const LINE_WORDS: usize = 8;

/// A ring of 8 MB of buffers, of which each is cold when its turn comes.
const COLD_KEYS: &str = "ring=4096";
/// Large frames of one flow out of cold buffers.
const COLD: Adversary = Adversary { port_keys: COLD_KEYS, ..LARGE };
/// The same of 50 000 flows, each a decision of its own.
const COLD_FLOWS: Adversary =
    Adversary { keys: "flows=50000,order=rand", flows: Flows::EveryTuple, ..COLD };

/// A case: whose packets are looked at, and what is beside them.
struct Case {
    name: &'static str,
    /// Whether the victim makes its round trips; else the neighbour is looked at.
    victim: bool,
    neighbours: &'static [Adversary],
    thrashing: bool,
    /// The case to compare with.
    against: Option<&'static str>,
}

const CASES: [Case; 6] = [
    Case { name: "alone", victim: true, neighbours: &[], thrashing: false, against: None },
    Case {
        name: "beside cheap frames",
        victim: true,
        neighbours: &[CHEAP],
        thrashing: false,
        against: Some("alone"),
    },
    Case {
        name: "beside 50k flows, cold buffers",
        victim: true,
        neighbours: &[COLD_FLOWS],
        thrashing: false,
        against: Some("alone"),
    },
    Case {
        name: "beside a thrashing process",
        victim: true,
        neighbours: &[],
        thrashing: true,
        against: Some("alone"),
    },
    Case {
        name: "stream alone",
        victim: false,
        neighbours: &[COLD],
        thrashing: false,
        against: None,
    },
    Case {
        name: "stream beside a thrashing process",
        victim: false,
        neighbours: &[COLD],
        thrashing: true,
        against: Some("stream alone"),
    },
];

#[derive(Debug, Clone, Copy)]
struct Sample {
    case: &'static str,
    cycles_per_packet: f64,
    /// Of round trips that met no stall of the generator, which shares its core with the thrasher.
    p99_us: f64,
}

/// Every case, round robin, on ours with protection.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let bar = Bench::progress(CASES.len() * bench.plan.repetitions as usize, "caches")?;
    let mut samples = Vec::new();
    for _ in 0..bench.plan.repetitions {
        for case in &CASES {
            bar.set_message(case.name);
            let thrasher = case.thrashing.then(|| Thrasher::start(bench.cores.peers));
            let victim = case.victim.then_some(Mode::RoundTrips(VICTIM_RATE));
            let run = bench.run_with(Variant::On, victim, case.neighbours, false)?;
            drop(thrasher);
            let tenant = if case.victim { VICTIM.to_owned() } else { neighbour(0) };
            let latency = run.outcome.pair(&tenant)?.undisturbed_us;
            samples.push(Sample {
                case: case.name,
                cycles_per_packet: run.cycles.map_or(f64::NAN, |c| c.per_packet(&tenant)),
                p99_us: latency.map_or(f64::NAN, |times| times.p99),
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    write_csv(bench, &samples)?;
    println!("{}", table(&samples));
    let names = CASES.map(|case| case.name);
    let cycles = names.map(|name| median(&samples, name, |s| s.cycles_per_packet)).to_vec();
    let bars = Bars {
        title: "What is not isolated: cycles of a packet beside neighbours that thrash caches",
        unit: "cycles a packet",
        groups: &names,
        series: &[("protection on", cycles)],
        logarithmic: false,
    };
    chart::bars(&bench.out.join("caches.svg"), &bars)?;
    Ok(CASES.iter().filter_map(|case| verdict(&samples, case)).collect())
}

fn verdict(samples: &[Sample], case: &Case) -> Option<Verdict> {
    let of = |name| median(samples, name, |s| s.cycles_per_packet);
    let (measured, alone) = (of(case.name), of(case.against?));
    let what = format!("not isolated: cycles per packet {} / alone", case.name);
    Some(Verdict::shown(what, measured / alone).with(format!("{measured:.0} / {alone:.0}")))
}

fn spread(samples: &[Sample], case: &str, of: fn(&Sample) -> f64) -> Option<Spread> {
    let own = samples.iter().filter(|sample| sample.case == case).map(of);
    Spread::of(own.filter(|value| value.is_finite()))
}

fn median(samples: &[Sample], case: &str, of: fn(&Sample) -> f64) -> f64 {
    spread(samples, case, of).map_or(f64::NAN, |spread| spread.median)
}

fn table(samples: &[Sample]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["case", "cycles per packet", "p99 us"]);
    for case in &CASES {
        let show = |of| {
            spread(samples, case.name, of)
                .map_or_else(|| "-".to_owned(), |spread| format!("{spread:.1}"))
        };
        table.add_row([
            case.name.to_owned(),
            show(|s| s.cycles_per_packet),
            if case.victim { show(|s| s.p99_us) } else { "-".to_owned() },
        ]);
    }
    table
}

fn write_csv(bench: &Bench, samples: &[Sample]) -> anyhow::Result<()> {
    let mut csv = csv_file(&bench.out.join("caches.csv"))?;
    csv.write_record(["case", "cycles_per_packet", "undisturbed_p99_us"])?;
    for sample in samples {
        csv.write_record([
            sample.case.to_owned(),
            format!("{:.1}", sample.cycles_per_packet),
            format!("{:.2}", sample.p99_us),
        ])?;
    }
    Ok(csv.flush()?)
}

/// A thread that writes to memory all over, on the generator's core: there is no third. They take
/// turns of some milliseconds, so what the PMD does meanwhile is the backlog of rings.
#[derive(Debug)]
struct Thrasher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Thrasher {
    fn start(core: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut set = CpuSet::new();
            set.set(core);
            // Elsewhere, or with less of the core, it thrashes less; nothing here is a target.
            let _ = sched_setaffinity(None, &set);
            let _ = setpriority_process(None, -20);
            thrash(&flag);
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Thrasher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

fn thrash(stop: &AtomicBool) {
    let mut memory = vec![1_u64; THRASHED_BYTES / size_of::<u64>()];
    let lines = memory.len() / LINE_WORDS;
    let mut state = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if let Some(word) = memory.get_mut((state >> 33) as usize % lines * LINE_WORDS) {
                *word = word.wrapping_add(state);
            }
        }
    }
    std::hint::black_box(&memory);
}
