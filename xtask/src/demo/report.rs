//! The demo's table, its raw figures, and what to type next.

use std::path::Path;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::scene::{ADVERSARY, VICTIM};
use super::{Phase, PhaseResult};
use crate::cycles::Cycles;
use crate::generator::{PairOutcome, Quantiles};
use crate::raw::csv_file;

/// Below this share of the intended round trips a latency figure is not valid.
const COMPLETED_PERCENT_MIN: f64 = 99.0;

/// Above this share of a PMD's core the machine, and not the switch, is what was measured.
const STOLEN_PERCENT_MAX: f64 = 5.0;

/// A line of the table: what it is called, and how it is read from a phase.
type Line = (&'static str, fn(&PhaseResult) -> String);

const LINES: [Line; 13] = [
    ("victim: round trip p50, us", |result| latency(result, |times| times.p50)),
    ("  p99 of the median 50 ms, us", typical_p99),
    ("  p99, us", |result| latency(result, |times| times.p99)),
    ("  p99.9, us", |result| latency(result, |times| times.p99_9)),
    ("  completed", |result| of_pair(result, VICTIM, |pair| percent(pair.completed_percent))),
    ("adversary: frames in, M/s", |result| of_pair(result, ADVERSARY, |pair| rate(pair.tx_mpps))),
    ("  frames out, M/s", |result| of_pair(result, ADVERSARY, |pair| rate(pair.rx_mpps))),
    ("share of the core: victim", |result| share(result, |cycles| cycles.tenant(VICTIM))),
    ("  adversary", |result| share(result, |cycles| cycles.tenant(ADVERSARY))),
    ("  system", |result| share(result, |cycles| cycles.system)),
    ("  idle", |result| share(result, |cycles| cycles.idle)),
    ("  taken by other processes", |result| share(result, |cycles| cycles.stolen)),
    ("generator's own lateness p99, us", |result| format!("{:.1}", result.outcome.loop_p99_us())),
];

/// The table, and what protection did to the victim's p99.
pub(super) fn print(results: &[PhaseResult], machine: &str) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let phases = results.iter().map(|result| result.phase.name().to_owned());
    table.set_header(std::iter::once(String::new()).chain(phases));
    for (name, read) in LINES {
        table.add_row(std::iter::once(name.to_owned()).chain(results.iter().map(read)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    println!("Round trips are timed from when they were meant to begin. {machine}.");
    println!(
        "When the cores themselves are taken away (a virtual machine's are, for milliseconds), that is in\n\
         the whole phase's p99 and p99.9; the median 50 ms is a stretch in which they were not."
    );
    print_effect(results)
}

fn latency(result: &PhaseResult, value: fn(&Quantiles) -> f64) -> String {
    of_pair(result, VICTIM, |pair| {
        pair.latency_us.as_ref().map_or("-".to_owned(), |times| format!("{:.1}", value(times)))
    })
}

fn typical_p99(result: &PhaseResult) -> String {
    of_pair(result, VICTIM, |pair| {
        pair.typical_us(|times| times.p99).map_or("-".to_owned(), |us| format!("{us:.1}"))
    })
}

/// A dash where a pair has no part in a phase.
fn of_pair(result: &PhaseResult, name: &str, read: impl Fn(&PairOutcome) -> String) -> String {
    result.outcome.pair(name).map_or("-".to_owned(), read)
}

fn share(result: &PhaseResult, part: fn(&Cycles) -> u64) -> String {
    percent(result.cycles.percent(part(&result.cycles)))
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

fn rate(mpps: f64) -> String {
    format!("{mpps:.3}")
}

/// One sentence, computed from the table, and what speaks against it.
fn print_effect(results: &[PhaseResult]) -> anyhow::Result<()> {
    let mut p99 = Vec::new();
    for result in results {
        let stolen = result.cycles.percent(result.cycles.stolen);
        if stolen > STOLEN_PERCENT_MAX {
            println!(
                "Other processes took {stolen:.0} % of the PMD's core in \"{}\": its latencies are theirs too.",
                result.phase.name()
            );
        }
        let victim = result.outcome.pair(VICTIM)?;
        if victim.completed_percent < COMPLETED_PERCENT_MIN {
            println!(
                "Only {:.1} % of the round trips were completed in \"{}\": its latency figures are too kind.",
                victim.completed_percent,
                result.phase.name()
            );
        }
        p99.push((result.phase, victim.typical_us(|times| times.p99).unwrap_or(f64::NAN)));
    }
    let of =
        |wanted| p99.iter().find(|(phase, _)| *phase == wanted).map_or(f64::NAN, |(_, us)| *us);
    let (alone, off, on) = (of(Phase::Alone), of(Phase::Unprotected), of(Phase::Protected));
    println!(
        "In the median 50 ms the adversary raised the victim's p99 from {alone:.1} to {off:.1} us; \
         with protection on it is {on:.1} us."
    );
    Ok(())
}

/// One line for every phase, interval and pair.
pub(super) fn write_csv(results: &[PhaseResult], path: &Path) -> anyhow::Result<()> {
    let mut csv = csv_file(path)?;
    csv.write_record([
        "phase", "pair", "second", "sent", "received", "p50_us", "p99_us", "p99.9_us",
    ])?;
    for result in results {
        let pairs = [VICTIM, ADVERSARY]
            .into_iter()
            .filter_map(|name| result.outcome.pair(name).ok().map(|pair| (name, pair)));
        for (name, pair) in pairs {
            for (number, interval) in pair.intervals.iter().enumerate() {
                let second = number as f64 * result.outcome.interval_seconds;
                let us = |value: fn(&Quantiles) -> f64| {
                    interval.latency_us.as_ref().map(value).unwrap_or(f64::NAN).to_string()
                };
                csv.write_record([
                    result.phase.name().to_owned(),
                    name.to_owned(),
                    format!("{second:.2}"),
                    interval.sent.to_string(),
                    interval.received.to_string(),
                    us(|times| times.p50),
                    us(|times| times.p99),
                    us(|times| times.p99_9),
                ])?;
            }
        }
    }
    csv.flush()?;
    Ok(())
}

/// Where the raw figures are, and what a user would do now.
pub(super) fn print_next(csv: &Path) {
    println!(
        "\nRaw figures: {}\n\n\
         Next, with a switch of your own:\n\
         \x20 export TOLLGATE_RUNDIR=$HOME/tollgate PATH=$PWD/target/release:$PATH\n\
         \x20 setsid switchd & sleep 1\n\
         \x20 ofctl bridge add br0\n\
         \x20 ofctl port add br0 vm1                  # a VM attaches at $TOLLGATE_RUNDIR/vhost/vm1: docs/attach.md\n\
         \x20 ofctl port add br0 vm2\n\
         \x20 ofctl add-flow br0 'in_port=vm1,actions=output:vm2'\n\
         \x20 ofctl tenant set vm1 --weight 4\n\
         \x20 ofctl pmd stats                         # which tenant has which share of the core",
        csv.display()
    );
}
