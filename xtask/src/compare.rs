//! `cargo xtask compare`: cycles per packet and Mpps beside OVS-DPDK, by docs/measuring.md.
//!
//! Both switches run with one PMD on the same core and the same flows; the same generator, on the
//! other core, sends the same frames over the same kind of ring to one and then to the other, A B A B
//! in one run. While one is measured the other is stopped, so that the core is one switch's alone.

mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use indicatif::ProgressBar;

use crate::generator::{self, Load, Mode, Pair};
use crate::interrupt::Interrupt;
use crate::machine::{self, Cores, Quiet};
use crate::ovs::Ovs;
use crate::subject::{OvsDpdk, Subject, Tollgate};

/// Fewer pairs than this say nothing on a machine whose speed drifts by a factor of two.
const PAIRS_MIN: u32 = 5;

/// Unmeasured time at the start of each run.
const WARM_UP: Duration = Duration::from_secs(1);

/// Costs are read so much after the beginning and before the end of the measured time.
const MARGIN: Duration = Duration::from_millis(250);

/// The smallest and a full frame on the ring; one flow, one direction.
const FRAME_BYTES: [usize; 2] = [60, 1496];

/// Sender and receiver.
const PORTS: [&str; 2] = ["v0", "v1"];

/// The same flows for both, as a user writes them.
const FLOWS: [&str; 2] = ["in_port=v0,actions=output:v1", "in_port=v1,actions=output:v0"];

/// Arguments of `cargo xtask compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A B pairs for each frame size: at least 5.
    #[arg(long, default_value_t = 7)]
    pairs: u32,
    /// Measured seconds of each run.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Where the raw samples go.
    #[arg(long, default_value = "target/compare.csv")]
    csv: PathBuf,
}

/// One run of one switch.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) pair: u32,
    pub(crate) frame_bytes: usize,
    pub(crate) switch: &'static str,
    pub(crate) mpps: f64,
    pub(crate) cycles_per_packet: f64,
    pub(crate) packets_per_burst: f64,
    /// How late the generator's one thread may be: 99th percentile, and once at worst.
    pub(crate) generator_loop_p99_us: f64,
    pub(crate) generator_loop_max_us: f64,
    /// One way from core to core just before the run.
    pub(crate) core_to_core_cycles: f64,
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(arguments.pairs >= PAIRS_MIN, "--pairs must be at least {PAIRS_MIN}");
    ensure!(arguments.seconds >= 1.0, "--seconds must be at least 1");
    if let Err(missing) = Ovs::available() {
        println!("SKIP {missing}");
        return Ok(());
    }
    let cores = Cores::find()?;
    let interrupt = Interrupt::install()?;
    generator::build_release()?;
    let quiet = Quiet::begin();
    let mut subjects: [Box<dyn Subject>; 2] =
        [Box::new(Tollgate::start(cores)?), Box::new(OvsDpdk::start(cores)?)];
    for subject in &mut subjects {
        for port in PORTS {
            subject.add_port(port, port)?;
        }
        subject.set_flows(&FLOWS.map(str::to_owned))?;
        subject.pause()?;
    }

    let runs = u64::from(arguments.pairs) * FRAME_BYTES.len() as u64 * 2;
    let bar = ProgressBar::new(runs);
    let mut samples = Vec::new();
    for pair in 1..=arguments.pairs {
        for frame_bytes in FRAME_BYTES {
            for subject in &mut subjects {
                interrupt.check()?;
                let seconds = Duration::from_secs_f64(arguments.seconds);
                samples.push(one_run(
                    subject.as_mut(),
                    (pair, frame_bytes),
                    seconds,
                    cores,
                    &interrupt,
                )?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    report::print(&samples, &FRAME_BYTES);
    report::write_csv(&samples, &arguments.csv)?;
    println!("OVS-DPDK: {}; {}", Ovs::settings(cores.pmd), quiet.describe());
    println!("raw samples: {}", arguments.csv.display());
    Ok(())
}

fn one_run(
    subject: &mut dyn Subject,
    (number, frame_bytes): (u32, usize),
    seconds: Duration,
    cores: Cores,
    interrupt: &Interrupt,
) -> anyhow::Result<Sample> {
    let core_to_core_cycles = machine::core_to_core_cycles(cores.pmd, cores.peers);
    subject.resume()?;
    let pair = Pair {
        ports: PORTS.map(str::to_owned),
        sockets: [subject.socket(PORTS[0])?, subject.socket(PORTS[1])?],
        ..Pair::new("stream", Mode::FlatOut, frame_bytes)
    };
    let load = Load {
        listeners: Vec::new(),
        pairs: vec![pair],
        warm_up: WARM_UP,
        measured: seconds,
        interval: Duration::from_secs(1),
        core: cores.peers,
    };
    let running = load.start()?;
    // Costs are taken inside the measured time, so that only the loaded switch is counted.
    interrupt.sleep(WARM_UP + MARGIN, |_| ())?;
    subject.begin()?;
    interrupt.sleep(seconds - 2 * MARGIN, |_| ())?;
    let cost = subject.cost()?;
    // Each at its best: every flow in its caches.
    ensure!(cost.uncached < 0.001, "{} could not cache the flow", subject.name());
    let outcome = running.finish()?;
    subject.pause()?;
    let stream = outcome.pair("stream")?;
    ensure!(stream.corrupted + stream.misdelivered == 0, "{} delivered wrongly", subject.name());
    Ok(Sample {
        pair: number,
        frame_bytes,
        switch: subject.name(),
        mpps: stream.rx_mpps,
        cycles_per_packet: cost.cycles_per_packet,
        packets_per_burst: cost.packets_per_burst,
        generator_loop_p99_us: outcome.loop_p99_us(),
        generator_loop_max_us: outcome.loop_us.map_or(f64::NAN, |times| times.max),
        core_to_core_cycles: core_to_core_cycles.unwrap_or(f64::NAN),
    })
}
