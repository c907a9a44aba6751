//! A sender that heeds ECN, behind an uplink, beside a tenant that wants the rest of the core: drops,
//! marks and goodput by the debt at which marking turns into dropping (the paper's figure 13).

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde_json::{Value, json};

use super::adversary::{Adversary, Flows, LARGE_BYTES, SATURATING};
use super::bench::{Bench, Variant, neighbour};
use crate::chart::{self, Lines};
use crate::generator::Mode;
use crate::raw::csv_file;
use crate::spread::Spread;
use crate::target::Verdict;

/// Dear enough that its share of the core is far less than a window sends.
const SENDER: Adversary = Adversary {
    name: "dctcp",
    frame_bytes: LARGE_BYTES,
    mode: Mode::Dctcp,
    port_keys: "ring=2048",
    flows: Flows::Rewrites(250),
    from_uplink: true,
    ..SATURATING
};

/// What becomes of the sender's packets while it is over its share.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Overrun {
    Drop,
    /// Marked up to a debt of so many cycles, dropped beyond.
    MarkThenDrop(u64),
    Mark,
}

const CASES: [Overrun; 8] = [
    Overrun::Drop,
    Overrun::MarkThenDrop(2_500),
    Overrun::MarkThenDrop(10_000),
    Overrun::MarkThenDrop(20_000),
    Overrun::MarkThenDrop(50_000),
    Overrun::MarkThenDrop(200_000),
    Overrun::MarkThenDrop(800_000),
    Overrun::Mark,
];

impl Overrun {
    fn name(self) -> String {
        match self {
            Self::Drop => "drop".to_owned(),
            Self::MarkThenDrop(depth_cycles) => format!("mark-then-drop {depth_cycles}"),
            Self::Mark => "mark".to_owned(),
        }
    }

    /// For a logarithmic axis, whose ends stand for never and always marking.
    fn position(self) -> f64 {
        match self {
            Self::Drop => 1_000.0,
            Self::MarkThenDrop(depth_cycles) => depth_cycles as f64,
            Self::Mark => 2_000_000.0,
        }
    }

    fn knobs(self, tenant: &str) -> Value {
        match self {
            Self::Drop => json!({"tenant": tenant, "rx_overrun": "drop"}),
            Self::Mark => json!({"tenant": tenant, "rx_overrun": "mark"}),
            Self::MarkThenDrop(depth_cycles) => json!({
                "tenant": tenant, "rx_overrun": "mark-then-drop", "mark_depth_cycles": depth_cycles
            }),
        }
    }
}

/// Frames a second.
#[derive(Debug, Clone, Copy)]
struct Sample {
    case: Overrun,
    goodput_pps: f64,
    dropped_pps: f64,
    marked_pps: f64,
    p99_us: f64,
    neighbour_pps: f64,
}

/// Every case, round robin.
pub(super) fn run(bench: &mut Bench) -> anyhow::Result<Vec<Verdict>> {
    let bar = Bench::progress(CASES.len() * bench.plan.repetitions as usize, "ecn")?;
    let mut samples = Vec::new();
    for _ in 0..bench.plan.repetitions {
        for case in CASES {
            bar.set_message(case.name());
            bench.subject(Variant::On)?.resume()?;
            set(bench, case)?;
            let run = bench.run(Variant::On, 0, &[SENDER, SATURATING])?;
            let sender = run.outcome.pair(&neighbour(0))?;
            let per_second = |frames: u64| frames as f64 / bench.plan.measured.as_secs_f64();
            samples.push(Sample {
                case,
                goodput_pps: sender.rx_mpps * 1e6,
                dropped_pps: per_second(sender.lost),
                marked_pps: per_second(sender.marked),
                p99_us: sender.latency_us.map_or(f64::NAN, |times| times.p99),
                neighbour_pps: run.outcome.pair(&neighbour(1))?.rx_mpps * 1e6,
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    bench.subject(Variant::On)?.resume()?;
    set(bench, Overrun::Drop)?;
    bench.subject(Variant::On)?.pause()?;
    write_csv(bench, &samples)?;
    println!("{}", table(&samples));
    draw(bench, &samples)?;
    Ok(judge(&samples))
}

fn set(bench: &Bench, case: Overrun) -> anyhow::Result<()> {
    bench.ours.switch().call("tenant_set", case.knobs(&neighbour(0))).map(drop)
}

fn spread(samples: &[Sample], case: Overrun, of: fn(&Sample) -> f64) -> Option<Spread> {
    let own = samples.iter().filter(|sample| sample.case == case).map(of);
    Spread::of(own.filter(|value| value.is_finite()))
}

fn median(samples: &[Sample], case: Overrun, of: fn(&Sample) -> f64) -> f64 {
    spread(samples, case, of).map_or(f64::NAN, |spread| spread.median)
}

/// The shapes of the paper's figure; it has no numbers to hold ours against.
fn judge(samples: &[Sample]) -> Vec<Verdict> {
    let of = |case, what| median(samples, case, what);
    let deepest = CASES[CASES.len() - 2];
    let row = |what: &str, of_case: fn(&Sample) -> f64| {
        let [marking, dropping] = [deepest, Overrun::Drop].map(|case| of(case, of_case));
        let what = format!("ECN: {what}, marked up to 800k cycles of debt / dropped at once");
        Verdict::shown(what, marking / dropping).with(format!("{marking:.0} / {dropping:.0}"))
    };
    vec![
        row("frames dropped a second", |s| s.dropped_pps),
        row("goodput", |s| s.goodput_pps),
        Verdict::shown(
            "ECN: sender's p99 when all is marked / dropped at once",
            of(Overrun::Mark, |s| s.p99_us) / of(Overrun::Drop, |s| s.p99_us),
        ),
    ]
}

fn table(samples: &[Sample]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "rx_overrun",
        "goodput frames/s",
        "dropped/s",
        "marked/s",
        "p99 us",
        "neighbour frames/s",
    ]);
    for case in CASES {
        let show = |of| {
            spread(samples, case, of)
                .map_or_else(|| "-".to_owned(), |spread| format!("{spread:.0}"))
        };
        table.add_row([
            case.name(),
            show(|s| s.goodput_pps),
            show(|s| s.dropped_pps),
            show(|s| s.marked_pps),
            show(|s| s.p99_us),
            show(|s| s.neighbour_pps),
        ]);
    }
    table
}

fn draw(bench: &Bench, samples: &[Sample]) -> anyhow::Result<()> {
    // What is nothing has no place on a logarithmic axis: a frame a second stands for it.
    let line = |of: fn(&Sample) -> f64| {
        CASES.iter().map(|case| (case.position(), median(samples, *case, of).max(1.0))).collect()
    };
    let series: [(&str, Vec<(f64, f64)>); 3] = [
        ("dropped", line(|s| s.dropped_pps)),
        ("goodput", line(|s| s.goodput_pps)),
        ("marked", line(|s| s.marked_pps)),
    ];
    let lines = Lines {
        title: "A sender that heeds ECN, beside a saturated tenant",
        x_label: "debt at which dropping begins, cycles (leftmost: no marks; rightmost: no drops)",
        unit: "frames a second",
        series: &series,
    };
    chart::lines(&bench.out.join("ecn.svg"), &lines)
}

fn write_csv(bench: &Bench, samples: &[Sample]) -> anyhow::Result<()> {
    let mut csv = csv_file(&bench.out.join("ecn.csv"))?;
    csv.write_record([
        "rx_overrun",
        "goodput_pps",
        "dropped_pps",
        "marked_pps",
        "p99_us",
        "neighbour_pps",
    ])?;
    for s in samples {
        let numbers = [s.goodput_pps, s.dropped_pps, s.marked_pps, s.p99_us, s.neighbour_pps];
        let numbers = numbers.map(|number| format!("{number:.1}"));
        csv.write_record([s.case.name()].into_iter().chain(numbers))?;
    }
    Ok(csv.flush()?)
}
