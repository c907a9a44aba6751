//! The generator: one thread that owns all ports, and runs phases of traffic over them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_accel::tsc::{self, TscNotInvariant};

use crate::exchange::{Exchange, LoopAccount, PortSeen};
use crate::frame::{self, PHASES};
use crate::histogram::Times;
use crate::limits::{INTERVAL_HISTOGRAMS_MAX, INTERVALS_MAX, PAIRS_MAX};
use crate::pair::PairConfig;
use crate::port::{OpenPort, Port, PortConfig, PortError};
use crate::queue::QueueCounters;
use crate::report::{LoopReport, PortReport, Report};
use crate::traffic::{Identity, IntervalCounts, Traffic, Window};
use crate::virtio::Names;
use crate::wait::Waiter;

/// Something is wrong with what was asked for, or a port failed.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A pair.
    #[error("pair {pair}: {what}")]
    Pair {
        /// Its name.
        pair: String,
        /// What is wrong.
        what: String,
    },
    /// The phase.
    #[error("phase {phase}: {what}")]
    Phase {
        /// Its name.
        phase: String,
        /// What is wrong.
        what: String,
    },
    /// No clock.
    #[error(transparent)]
    Clock(#[from] TscNotInvariant),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// A stretch of traffic.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name in reports.
    pub name: String,
    /// What runs.
    pub pairs: Vec<PairConfig>,
    /// Traffic before the measured time.
    pub warmup: Duration,
    /// Measured time.
    pub duration: Duration,
    /// Afterwards, frames under way are waited for until all have arrived or none has for so long.
    pub drain: Duration,
    /// Length of the intervals that are reported one by one.
    pub interval: Duration,
}

impl Phase {
    /// A phase with a fifth of a second's warm-up and drain, reported by the second.
    pub fn new(name: &str, duration: Duration, pairs: Vec<PairConfig>) -> Self {
        Self {
            name: name.to_owned(),
            pairs,
            warmup: Duration::from_millis(200),
            duration,
            drain: Duration::from_millis(200),
            interval: Duration::from_secs(1),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    start: AtomicU64,
    end: AtomicU64,
}

/// A view of a running generator for other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Ends the running phase early; its report is of what was measured until then.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// How much of the running phase is over: 0 to 1, warm-up included.
    pub fn progress(&self) -> f64 {
        let start = self.shared.start.load(Ordering::Relaxed);
        let length = self.shared.end.load(Ordering::Relaxed).saturating_sub(start);
        if length == 0 {
            return 0.0;
        }
        (tsc::now().saturating_sub(start) as f64 / length as f64).clamp(0.0, 1.0)
    }
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// When the process may not use that CPU.
pub fn pin_to_core(core: usize) -> std::io::Result<()> {
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Ports, and what is needed to run traffic over them.
#[derive(Debug)]
pub struct Generator {
    ports: Vec<Port>,
    tsc_hz: u64,
    phases_run: u32,
    shared: Arc<Shared>,
    /// When all ports sleep until interrupted.
    waiter: Option<Waiter>,
    seen: Vec<PortSeen>,
    scratch: Vec<u8>,
}

impl Generator {
    /// Attaches all ports. Those that listen do so before the first waits for its switch.
    ///
    /// # Errors
    /// Two ports of one name, a port that cannot be attached, or no usable clock.
    pub fn attach(configs: Vec<PortConfig>) -> Result<Self, GeneratorError> {
        for (index, config) in configs.iter().enumerate() {
            if configs.iter().take(index).any(|other| other.name == config.name) {
                let what = "another port has this name";
                return Err(PortError::Config { port: config.name.clone(), what }.into());
            }
        }
        let tsc_hz = tsc::calibrate_hz()?;
        let open: Vec<OpenPort> =
            configs.into_iter().map(OpenPort::new).collect::<Result<_, _>>()?;
        let ports: Vec<Port> = open.into_iter().map(OpenPort::attach).collect::<Result<_, _>>()?;
        let all_sleep = !ports.is_empty() && ports.iter().all(|port| port.config().interrupts);
        let events = || ports.iter().flat_map(Port::call_events);
        let waiter = if all_sleep { Some(Waiter::new(events())?) } else { None };
        let seen = vec![PortSeen::default(); ports.len()];
        let shared = Arc::default();
        Ok(Self { ports, tsc_hz, phases_run: 0, shared, waiter, seen, scratch: Vec::new() })
    }

    /// For other threads, while phases run.
    pub fn handle(&self) -> Handle {
        Handle { shared: self.shared.clone() }
    }

    /// All ports.
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// A port by name, to stop, reset or reconnect it between phases.
    pub fn port_mut(&mut self, name: &str) -> Option<&mut Port> {
        self.ports.iter_mut().find(|port| port.config().name == name)
    }

    /// Sends a gratuitous ARP from each port, so that a learning switch knows where it is.
    pub fn announce(&mut self) {
        for port in &mut self.ports {
            let (mac, ip) = (port.config().mac, port.config().ip);
            port.send(&frame::announcement(mac, Ipv4Addr::from(ip)), 1);
        }
    }

    /// Runs one phase to its end, or until [`Handle::stop`].
    ///
    /// # Errors
    /// A pair or phase that makes no sense. What the switch does wrong is in the report instead.
    pub fn run(&mut self, phase: &Phase) -> Result<Report, GeneratorError> {
        self.phases_run = self.phases_run.wrapping_add(1);
        let window = self.window(phase, 0)?;
        let mut traffic = self.prepare(phase, window)?;
        self.shared.stop.store(false, Ordering::Relaxed);
        for (port, seen) in self.ports.iter().zip(&mut self.seen) {
            let (rx_before, tx_before) = (port.rx_counters(), port.tx_counters());
            *seen = PortSeen { rx_before, tx_before, ..PortSeen::default() };
        }
        // The clock starts when everything is ready.
        let start = tsc::now();
        let window = self.window(phase, start)?;
        self.shared.start.store(start, Ordering::Relaxed);
        self.shared.end.store(window.end, Ordering::Relaxed);
        let count = traffic.len().max(1) as u64;
        for (index, pair) in (0..).zip(&mut traffic) {
            let spacing = pair.period_cycles();
            pair.start(window, start + spacing * index / count);
        }
        let drain_cycles = self.cycles(phase.drain);
        let exchange = Exchange {
            ports: &mut self.ports,
            seen: &mut self.seen,
            traffic: &mut traffic,
            window,
            phase: (self.phases_run % u32::from(PHASES)) as u8,
            waiter: self.waiter.as_ref(),
            stop: &self.shared.stop,
            scratch: &mut self.scratch,
            account: LoopAccount::default(),
            first_pair: 0,
        };
        let (window, account) = exchange.run(drain_cycles);
        Ok(self.report(phase, window, account, traffic))
    }

    fn cycles(&self, duration: Duration) -> u64 {
        // Rounded up, so that n intervals are not less than n times as long a phase.
        (duration.as_secs_f64() * self.tsc_hz as f64).ceil() as u64
    }

    fn window(&self, phase: &Phase, start: u64) -> Result<Window, GeneratorError> {
        let bad = |what: &str| {
            Err(GeneratorError::Phase { phase: phase.name.clone(), what: what.to_owned() })
        };
        let interval_cycles = self.cycles(phase.interval);
        if phase.duration.is_zero() || interval_cycles == 0 {
            return bad("duration and interval must be longer than 0");
        }
        let start = start + self.cycles(phase.warmup);
        let length = self.cycles(phase.duration);
        if length / interval_cycles > INTERVALS_MAX as u64 {
            return bad("too many intervals (at most 100000)");
        }
        Ok(Window { start, end: start + length, interval_cycles, tsc_hz: self.tsc_hz })
    }

    fn prepare(&self, phase: &Phase, window: Window) -> Result<Vec<Traffic>, GeneratorError> {
        if phase.pairs.is_empty() || phase.pairs.len() > PAIRS_MAX {
            let what = format!("{} pairs: 1 to {PAIRS_MAX}", phase.pairs.len());
            return Err(GeneratorError::Phase { phase: phase.name.clone(), what });
        }
        let length = window.end - window.start;
        let intervals = length.div_ceil(window.interval_cycles) as usize;
        let with_times = intervals * phase.pairs.len() <= INTERVAL_HISTOGRAMS_MAX;
        let one = || IntervalCounts { latency: with_times.then(Times::new), ..Default::default() };
        phase
            .pairs
            .iter()
            .enumerate()
            .map(|(number, pair)| {
                let [from, to] = self.check_pair(pair)?;
                let id = Identity {
                    from: from.0,
                    to: to.0,
                    number: number as u8,
                    phase: (self.phases_run % u32::from(PHASES)) as u8,
                    // 256 pairs a phase: unique for 2^24 phases, and never 0.
                    template: self.phases_run << 8 | (number as u32 + 1),
                };
                let intervals = (0..intervals).map(|_| one()).collect();
                Ok(Traffic::new(pair.clone(), id, [from.1, to.1], window, intervals))
            })
            .collect()
    }

    /// The pair's two ports with their positions.
    fn check_pair(&self, pair: &PairConfig) -> Result<[(usize, &Port); 2], GeneratorError> {
        let bad = |what: String| GeneratorError::Pair { pair: pair.name.clone(), what };
        pair.validate().map_err(bad)?;
        let find = |name: &str| {
            let mut ports = self.ports.iter().enumerate();
            ports
                .find(|(_, port)| port.config().name == name)
                .ok_or_else(|| bad(format!("there is no port '{name}'")))
        };
        let ends = [find(&pair.from)?, find(&pair.to)?];
        for config in ends.map(|(_, port)| port.config()) {
            if pair.frame_bytes > config.tx_frame_bytes {
                let most = config.tx_frame_bytes;
                return Err(bad(format!("size={}: the port sends up to {most}", pair.frame_bytes)));
            }
            if pair.queue >= usize::from(config.queue_pairs) {
                return Err(bad(format!("queue={}: port {} has fewer", pair.queue, config.name)));
            }
            let ring = usize::from(config.ring_size);
            if pair.burst * pair.segments > ring {
                return Err(bad(format!("burst times segments: up to the ring's size, {ring}")));
            }
        }
        Ok(ends)
    }

    fn report(
        &mut self,
        phase: &Phase,
        window: Window,
        mut account: LoopAccount,
        traffic: Vec<Traffic>,
    ) -> Report {
        let cycles = window.end - window.start;
        let seconds = cycles as f64 / self.tsc_hz as f64;
        let ports = self.ports.iter().zip(&self.seen);
        Report {
            phase: phase.name.clone(),
            seconds,
            stopped: self.shared.stop.load(Ordering::Relaxed),
            tsc_hz: self.tsc_hz,
            start_tsc: window.start,
            interval_seconds: window.interval_cycles as f64 / self.tsc_hz as f64,
            loop_us: account.rounds.summary(self.tsc_hz),
            generator: LoopReport {
                busy_percent: account.busy_cycles as f64 * 100.0 / cycles.max(1) as f64,
                cycles_per_frame: account.busy_cycles as f64 / account.frames.max(1) as f64,
                stalls: account.stalls,
                stalled_ms: account.stalled_cycles as f64 * 1e3 / self.tsc_hz as f64,
            },
            ports: ports.map(|(port, seen)| port_report(port, seen)).collect(),
            pairs: traffic.into_iter().map(|pair| pair.report(seconds)).collect(),
        }
    }
}

fn port_report(port: &Port, seen: &PortSeen) -> PortReport {
    let (rx, tx) = (port.rx_counters(), port.tx_counters());
    let since = |value: fn(&QueueCounters) -> u64, now: &QueueCounters, before: &QueueCounters| {
        value(now) - value(before)
    };
    PortReport {
        name: port.config().name.clone(),
        connected: port.is_connected(),
        fault: port.fault().map(|fault| fault.to_string()),
        features: Names(port.session().features()).to_string(),
        tx_frames: since(|c| c.frames, &tx, &seen.tx_before),
        rx_frames: since(|c| c.frames, &rx, &seen.rx_before),
        alien: seen.alien,
        stale: seen.stale,
        malformed: since(|c| c.malformed, &rx, &seen.rx_before),
        kicks: since(|c| c.kicks, &rx, &seen.rx_before) + since(|c| c.kicks, &tx, &seen.tx_before),
        interrupts: seen.interrupts,
    }
}
