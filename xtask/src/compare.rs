//! `cargo xtask compare`: throughput, cycles and latency beside OVS-DPDK, by docs/measuring.md.
//!
//! Both switches run with one PMD on the same core and the same flows; the same generator, on the
//! other core, sends the same frames over the same kind of ring to one and then to the other, A B A B
//! in one run. While one is measured the other is stopped, so that the core is one switch's alone.

mod bench;
mod floor;
mod goals;
mod other;
mod report;
mod row;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use indicatif::{ProgressBar, ProgressStyle};

use crate::generator;
use crate::interrupt::Interrupt;
use crate::machine::{Cores, Quiet};
use crate::ovs::Ovs;
use crate::target;
use bench::{Bench, Plan, Sample, Switch};
use floor::Floor;
use other::Other;
use row::Row;

/// Fewer pairs than this say nothing on a machine whose speed drifts by a factor of two.
const PAIRS_MIN: u32 = 5;

/// Of a quick look, whose figures are not for quoting.
const QUICK: Plan =
    Plan { pairs: 3, warm_up: Duration::from_millis(500), measured: Duration::from_millis(1000) };

/// Unmeasured time at the start of each run.
const WARM_UP: Duration = Duration::from_secs(1);

/// Arguments of `cargo xtask compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these rows, or groups of them (size, flows, masks, exact, actions, misses, trips, pairs).
    rows: Vec<String>,
    /// Three pairs of one second each: everything in under 10 minutes, for a first look only.
    #[arg(long, conflicts_with_all = ["pairs", "seconds"])]
    quick: bool,
    /// A B pairs for each row: at least 5.
    #[arg(long, default_value_t = 7)]
    pairs: u32,
    /// Measured seconds of each run.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Another load generator, by docs/measuring.md: what it can send is measured with it too.
    #[arg(long, value_name = "PATH")]
    generator: Option<PathBuf>,
    /// Where tables, CSV and SVG go.
    #[arg(long, default_value = "docs/compare")]
    out: PathBuf,
}

impl Arguments {
    fn plan(&self) -> anyhow::Result<Plan> {
        if self.quick {
            return Ok(QUICK);
        }
        ensure!(self.pairs >= PAIRS_MIN, "--pairs must be at least {PAIRS_MIN}");
        ensure!((1.0..=3600.0).contains(&self.seconds), "--seconds must be 1 to 3600");
        let measured = Duration::from_secs_f64(self.seconds);
        Ok(Plan { pairs: self.pairs, warm_up: WARM_UP, measured })
    }
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = arguments.plan()?;
    let rows = row::chosen(&arguments.rows)?;
    let other = arguments.generator.as_deref().map(Other::new).transpose()?;
    if let Err(missing) = Ovs::available() {
        println!("SKIP {missing}");
        return Ok(());
    }
    let cores = Cores::find()?;
    ensure!(cores.pmd != cores.peers, "two cores are needed: one polls, one sends");
    let interrupt = Interrupt::install()?;
    generator::build_release()?;
    let with_floor = rows.iter().any(Row::has_floor);
    let floor = with_floor.then(|| Floor::build(cores)).transpose()?;
    let quiet = Quiet::begin();
    let began = Instant::now();
    let mut bench = Bench::start(cores, interrupt, plan)?;
    let samples = measure(&mut bench, &rows, plan, floor.as_ref(), other.as_ref(), &arguments.out)?;
    drop(bench);

    let mut parts = vec![report::tables(&samples, &rows)];
    let verdicts = goals::verdicts(&samples, &rows);
    if !verdicts.is_empty() {
        parts.push(target::table(&verdicts).to_string());
        let missed = verdicts.iter().filter(|verdict| !verdict.met()).count();
        parts.push(format!("{missed} of {} targets missed.", verdicts.len()));
    }
    if other.is_some() {
        parts.push(report::agreement(&samples, &rows).to_string());
    }
    parts.push(format!(
        "{} pairs of {} s each; OVS-DPDK: {}; {}.",
        plan.pairs,
        plan.measured.as_secs_f64(),
        Ovs::settings(cores.pmd),
        quiet.describe()
    ));
    if arguments.quick {
        parts.push(format!(
            "--quick: not for quoting; {PAIRS_MIN} pairs of 2 s are the least that is."
        ));
    }
    let text = parts.join("\n\n");
    println!("{text}");
    report::draw(&samples, &rows, &arguments.out)?;
    fs::write(arguments.out.join("compare.md"), format!("{text}\n"))?;
    println!(
        "\n{:.0} s in all; tables, raw samples and charts: {}",
        began.elapsed().as_secs_f64(),
        arguments.out.display()
    );
    Ok(())
}

/// Every row in turn, in pairs of runs; what was measured is written as it comes.
fn measure(
    bench: &mut Bench,
    rows: &[Row],
    plan: Plan,
    floor: Option<&Floor>,
    other: Option<&Other>,
    out: &Path,
) -> anyhow::Result<Vec<Sample>> {
    let runs_of = |row: &Row| {
        let generators = 1 + u64::from(row.by_others && other.is_some());
        2 * u64::from(plan.pairs) * generators
    };
    let style = ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}")?;
    let bar = ProgressBar::new(rows.iter().map(runs_of).sum()).with_style(style);
    let mut csv = report::Csv::create(&out.join("compare.csv"))?;
    let mut samples = Vec::new();
    for row in rows {
        bar.set_message(format!("{}: ports, flows, caches", row.name));
        bench.prepare(row)?;
        let generators = [None, other.filter(|_| row.by_others)];
        let second = usize::from(generators[1].is_some());
        for generator in &generators[..=second] {
            for pair in 1..=plan.pairs {
                for switch in [Switch::Ours, Switch::Theirs] {
                    bar.set_message(format!("{}, pair {pair}, {switch:?}", row.name));
                    let sample = bench.run(switch, row, pair, *generator)?;
                    csv.write(&sample)?;
                    samples.push(sample);
                    bar.inc(1);
                }
                // Both are stopped now.
                if let Some(floor) = floor.filter(|_| row.has_floor() && generator.is_none()) {
                    let sample = floor.run(row, pair)?;
                    csv.write(&sample)?;
                    samples.push(sample);
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}
