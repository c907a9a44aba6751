//! The daemon from start to end.

use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::fs::Mode;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_datapath::{Datapath, DatapathConfig, Megaflow};

use crate::cli::Args;
use crate::config::{self, Config, RefillKind, SchedulerSection};
use crate::control::Switch;
use crate::cores;
use crate::dpdk;
use crate::limits::MAX_BLOCKING_THREADS;
use crate::methods::Methods;
use crate::openflow::EventHub;
use crate::pipeline::{Caches, Pipeline, PipelineConfig};
use crate::rpc;
use crate::rundir::{BoundSocket, RunDir};

/// Threads that move bytes of management connections; the work is done on others.
const MANAGEMENT_THREADS: usize = 2;

/// How long blocking calls may go on after everything they could wait for has ended.
const RUNTIME_GRACE: Duration = Duration::from_millis(200);

/// Starts the switch and runs it until a signal ends it.
///
/// # Errors
/// When it cannot be started, with the reason; nothing is left of it then.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let config = match &args.config {
        Some(path) => config::load(path)?,
        None => Config::default(),
    };
    if args.check {
        return Ok(());
    }
    // Sockets are for us and our group, which hypervisors may be in.
    rustix::process::umask(Mode::RWXO);
    let polled = cores::choose(&config.pmd.cores)?;
    let run_dir = RunDir::claim(&args.run_dir).context("--run-dir (TOLLGATE_RUNDIR)")?;
    let rpc_path = run_dir.rpc_socket();
    cores::stay_off(&polled)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(MANAGEMENT_THREADS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("management")
        .enable_all()
        .build()
        .context("cannot start the management threads")?;
    // From here on a signal ends the switch in order.
    let signals = Signals::listen(&runtime)?;

    // Before the PMDs, which make themselves known to it.
    let eal = config.dpdk.as_ref().map(|dpdk| dpdk::start(dpdk, &polled)).transpose()?;
    let events = Arc::new(EventHub::default());
    let (datapath, pipeline) = start_datapath(&config, polled, Arc::clone(&events))?;
    let switch = Arc::new(Switch::new(
        Arc::clone(&datapath),
        Arc::clone(&pipeline),
        events,
        run_dir,
        eal,
        runtime.handle().clone(),
    ));
    let outcome = serve(&runtime, &switch, &config, rpc_path, signals);
    tracing::info!("ending");
    // Whatever a port, PMD or blocking call still waits for, the process ends in time.
    let deadline = Duration::from_millis(args.shutdown_timeout_ms);
    std::thread::spawn(move || {
        std::thread::sleep(deadline);
        tracing::error!(?deadline, "the switch did not end in time and is aborted");
        std::process::exit(1);
    });
    switch.close();
    pipeline.stop();
    datapath.stop();
    // Millions of rules take seconds to free one by one; the process ends with them.
    let _tables = ManuallyDrop::new(pipeline);
    drop(switch);
    runtime.shutdown_timeout(RUNTIME_GRACE);
    outcome
}

fn start_datapath(
    config: &Config,
    polled: Vec<usize>,
    events: Arc<EventHub>,
) -> anyhow::Result<(Arc<Datapath>, Arc<Pipeline>)> {
    let settings = DatapathConfig {
        pmd_cores: polled,
        // The coordinator, if there is to be one, starts when the clock is known.
        scheduler: SchedulerSection { refill: RefillKind::Local, ..config.scheduler.clone() }
            .policy(0),
        megaflows_max: config.cache.megaflows,
        subtables_max: config.cache.subtables,
        exact_entries: config.cache.exact_entries,
        exact_match: config.cache.exact_match,
        protection: config.scheduler.protection,
    };
    let (datapath, slow_path) = Datapath::start(&settings)?;
    let caches = Arc::new(Pmds(Arc::clone(&datapath)));
    let pipeline = cores::run_on(config.slow_path.core, config.slow_path.nice, || {
        let megaflows_per_tenant = config.cache.megaflows_per_tenant();
        let settings =
            PipelineConfig { megaflows_per_tenant, ..PipelineConfig::new(datapath.tsc_hz()) };
        Pipeline::start(caches, slow_path, events, &settings).context("cannot start the slow path")
    })?;
    pipeline.set_protection(config.scheduler.protection);
    Ok((datapath, Arc::new(pipeline)))
}

/// The PMDs as the holders of the pipeline's decisions.
struct Pmds(Arc<Datapath>);

impl Caches for Pmds {
    fn tables_changed(&self, generation: u64, stale: &[Arc<Megaflow>]) {
        // Fails when the datapath has stopped: then it holds nothing.
        let _ = self.0.tables_changed(generation, stale);
    }
}

/// Makes what is configured, answers JSON-RPC, and returns at a signal.
fn serve(
    runtime: &Runtime,
    switch: &Arc<Switch>,
    config: &Config,
    rpc_path: PathBuf,
    mut signals: Signals,
) -> anyhow::Result<()> {
    switch.populate(config)?;
    let (_socket, listener) = BoundSocket::listen(&rpc_path)?;
    let listener = {
        let _context = runtime.enter();
        UnixListener::from_std(listener).context("cannot listen for JSON-RPC")?
    };
    let methods = Arc::new(Methods::new(Arc::clone(switch)));
    let server = runtime.spawn(rpc::serve(listener, methods));
    tracing::info!(
        rpc = %rpc_path.display(),
        bridges = config.bridges.len(),
        ports = config.ports.len(),
        "ready"
    );
    let signal = runtime.block_on(signals.next());
    tracing::info!(signal, "signal");
    server.abort();
    Ok(())
}

/// The signals that end the switch.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen(runtime: &Runtime) -> anyhow::Result<Self> {
        let _context = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
