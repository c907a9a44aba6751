//! `tollgate-guest`: VMs' network cards without the VMs, and traffic between them.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use tollgate_guest::generator::{Generator, Phase, pin_to_core};
use tollgate_guest::options::{
    PAIR_KEYS, PHASE_KEYS, PORT_KEYS, PhaseOption, parse_pair, parse_phase, parse_port,
};
use tollgate_guest::pair::PairConfig;
use tollgate_guest::port::PortConfig;
use tollgate_guest::report::Report;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table per phase.
    Table,
    /// One JSON array of all phases.
    Json,
}

/// Attaches virtio-net ports to a vhost-user switch and measures traffic between them, all in one
/// thread.
#[derive(Debug, Parser)]
#[command(version, after_help = after_help())]
struct Arguments {
    /// A port: NAME,path=SOCKET,...
    #[arg(long = "port", required = true, value_name = "NAME,KEY=VALUE,...")]
    ports: Vec<String>,
    /// One direction of traffic: NAME,from=PORT,to=PORT,...
    #[arg(long = "pair", required = true, value_name = "NAME,KEY=VALUE,...")]
    pairs: Vec<String>,
    /// A phase; several run in turn without attaching anew (default: one, of all pairs)
    #[arg(long = "phase", value_name = "NAME,KEY=VALUE,...")]
    phases: Vec<String>,
    /// Run on this CPU
    #[arg(short, long)]
    core: Option<usize>,
    /// Measured time of each phase
    #[arg(short, long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Unmeasured time before it
    #[arg(short, long, default_value = "1", value_parser = seconds)]
    warmup: Duration,
    /// Afterwards, wait for frames under way until none has come for so long
    #[arg(long, default_value = "0.2", value_parser = seconds)]
    drain: Duration,
    /// Length of the intervals that are reported one by one
    #[arg(long, default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Send a gratuitous ARP from each port first, for switches that learn
    #[arg(long)]
    announce: bool,
    /// How to print results
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// With a table: one line per interval as well
    #[arg(long)]
    intervals: bool,
}

fn after_help() -> String {
    let end = "Exit status: 0; 1 when frames came back wrong or a ring broke; 2 for other errors.";
    [PORT_KEYS, PAIR_KEYS, PHASE_KEYS, end].join("\n\n")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "tollgate-guest: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs everything; returns whether the switch did nothing wrong.
fn run(arguments: &Arguments) -> Result<bool> {
    let ports: Vec<PortConfig> = (1u8..)
        .zip(&arguments.ports)
        .map(|(position, text)| parse_port(text, position))
        .collect::<Result<_, _>>()?;
    let pairs: Vec<PairConfig> =
        arguments.pairs.iter().map(|text| parse_pair(text)).collect::<Result<_, _>>()?;
    let phases = phases(arguments, &pairs)?;
    if let Some(core) = arguments.core {
        pin_to_core(core).with_context(|| format!("cannot run on CPU {core}"))?;
    }
    let mut generator = Generator::attach(ports)?;
    if arguments.announce {
        generator.announce();
    }
    let mut out = std::io::stdout().lock();
    let mut reports: Vec<Report> = Vec::new();
    for phase in &phases {
        let report = generator.run(phase)?;
        if arguments.format == Format::Table {
            writeln!(out, "{report}")?;
            if arguments.intervals {
                writeln!(out, "{}\n", report.interval_table())?;
            }
        }
        reports.push(report);
    }
    if arguments.format == Format::Json {
        serde_json::to_writer_pretty(&mut out, &reports)?;
        writeln!(out)?;
    }
    Ok(reports.iter().all(|report| report.faults().is_empty()))
}

fn phases(arguments: &Arguments, pairs: &[PairConfig]) -> Result<Vec<Phase>> {
    let mut options: Vec<PhaseOption> =
        arguments.phases.iter().map(|text| parse_phase(text)).collect::<Result<_, _>>()?;
    if options.is_empty() {
        options.push(parse_phase("all")?);
    }
    options.into_iter().map(|option| phase(arguments, pairs, option)).collect()
}

fn phase(arguments: &Arguments, pairs: &[PairConfig], option: PhaseOption) -> Result<Phase> {
    for name in &option.pairs {
        if !pairs.iter().any(|pair| pair.name == *name) {
            bail!("phase '{}': there is no pair '{name}'", option.name);
        }
    }
    let runs = |pair: &&PairConfig| option.pairs.is_empty() || option.pairs.contains(&pair.name);
    Ok(Phase {
        pairs: pairs.iter().filter(runs).cloned().collect(),
        warmup: option.warmup.unwrap_or(arguments.warmup),
        duration: option.duration.unwrap_or(arguments.seconds),
        drain: arguments.drain,
        interval: arguments.interval,
        name: option.name,
    })
}
