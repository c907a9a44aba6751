//! Two vhost-user ports and a thread that moves every frame from one to the other: the smallest
//! [`RingHost`], and a way to measure the rings alone.
//!
//!     forward SOCKET_A SOCKET_B [listen|connect] [CORE] [SECONDS]
//!
//! Prints once a second: million packets a second, cycles per packet while serving (mean, and median
//! over full bursts, which a disturbed machine spoils less), packets per burst, drops, and signals
//! sent.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use tollgate_accel::tsc;
use tollgate_frame::{BURST_PACKETS, Burst};
use tollgate_vhost::{
    ActiveVring, FetchStats, HostGone, Notifier, PortSocket, PortStatus, RingHost, SessionConfig,
    SocketMode,
};

/// What a session asks of the polling thread; it answers when it has done it.
enum Mail {
    Start { port: usize, ring: Box<ActiveVring>, done: Sender<()> },
    Stop { port: usize, index: u16, done: Sender<Option<Box<ActiveVring>>> },
}

struct Mailbox {
    port: usize,
    mail: Sender<Mail>,
}

impl RingHost for Mailbox {
    fn start(&self, ring: ActiveVring) -> Result<(), HostGone> {
        let (done, answer) = channel();
        let mail = Mail::Start { port: self.port, ring: Box::new(ring), done };
        self.mail.send(mail).map_err(|_| HostGone)?;
        answer.recv().map_err(|_| HostGone)
    }

    fn stop(&self, index: u16) -> Result<Option<Box<ActiveVring>>, HostGone> {
        let (done, answer) = channel();
        self.mail.send(Mail::Stop { port: self.port, index, done }).map_err(|_| HostGone)?;
        answer.recv().map_err(|_| HostGone)
    }
}

/// Full bursts are counted by cycles per packet up to here.
const MAX_CYCLES: usize = 2000;

struct Counters {
    full_bursts: Vec<AtomicU64>,
    packets: AtomicU64,
    drops: AtomicU64,
    bursts: AtomicU64,
    busy_cycles: AtomicU64,
    signals: AtomicU64,
}

impl Counters {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            full_bursts: (0..=MAX_CYCLES).map(|_| zero()).collect(),
            packets: zero(),
            drops: zero(),
            bursts: zero(),
            busy_cycles: zero(),
            signals: zero(),
        }
    }
}

/// The polling thread's own.
struct Poller {
    rings: [BTreeMap<u16, Box<ActiveVring>>; 2],
    work: Work,
}

impl Poller {
    fn run(mut self, mail: &Receiver<Mail>) {
        loop {
            match mail.try_recv() {
                Ok(Mail::Start { port, ring, done }) => {
                    self.rings[port].insert(ring.index(), ring);
                    let _ = done.send(());
                }
                Ok(Mail::Stop { port, index, done }) => {
                    let _ = done.send(self.rings[port].remove(&index));
                }
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                Err(std::sync::mpsc::TryRecvError::Empty) => {}
            }
            let [a, b] = &mut self.rings;
            self.work.forward(a, b);
            self.work.forward(b, a);
        }
    }
}

/// What forwarding needs besides rings.
struct Work {
    burst: Burst,
    stats: FetchStats,
    notifier: Notifier,
    counters: Arc<Counters>,
}

impl Work {
    fn forward(
        &mut self,
        from: &mut BTreeMap<u16, Box<ActiveVring>>,
        to: &mut BTreeMap<u16, Box<ActiveVring>>,
    ) {
        for (index, source) in from.iter_mut().filter(|(index, _)| **index % 2 == 1) {
            if !source.has_work() {
                continue;
            }
            let start = tsc::now();
            let fetched = source.fetch(&mut self.burst, BURST_PACKETS, &mut self.stats);
            let mut drops = u64::from(self.stats.dropped());
            match to.get_mut(&(index - 1)) {
                Some(target) => {
                    target.prefetch(fetched);
                    for at in 0..fetched {
                        let Some(packet) = self.burst.packet(at) else { continue };
                        let sent = target.deliver(packet.header.bytes(), self.burst.payload(at));
                        drops += u64::from(sent.is_err());
                    }
                    if target.publish()
                        && let Some(call) = target.call_fd()
                    {
                        self.notifier.queue(call);
                    }
                }
                None => drops += fetched as u64,
            }
            self.burst.clear();
            self.stats.clear();
            if source.complete()
                && let Some(call) = source.call_fd()
            {
                self.notifier.queue(call);
            }
            let signals = if self.notifier.is_empty() { 0 } else { self.notifier.flush() };
            let counters = &self.counters;
            add(&counters.packets, fetched as u64);
            add(&counters.drops, drops);
            add(&counters.bursts, 1);
            add(&counters.signals, u64::from(signals));
            let cycles = tsc::now() - start;
            add(&counters.busy_cycles, cycles);
            if fetched == BURST_PACKETS {
                let each = cycles as usize / BURST_PACKETS;
                add(&counters.full_bursts[each.min(MAX_CYCLES)], 1);
            }
        }
    }
}

/// There is one writer.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let number = |at, default| argument(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (Some(a), Some(b)) = (argument(0), argument(1)) else {
        eprintln!("usage: forward SOCKET_A SOCKET_B [listen|connect] [CORE] [SECONDS]");
        return ExitCode::FAILURE;
    };
    let mode = match argument(2) {
        Some("connect") => SocketMode::Connect,
        _ => SocketMode::Listen,
    };
    match run([PathBuf::from(a), PathBuf::from(b)], mode, number(3, 0), number(4, u64::MAX)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    paths: [PathBuf; 2],
    mode: SocketMode,
    core: u64,
    seconds: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let (mail, mailbox) = channel();
    let counters = Arc::new(Counters::new());
    let work = Work {
        burst: Burst::new(),
        stats: FetchStats::new(),
        notifier: Notifier::new()?,
        counters: Arc::clone(&counters),
    };
    let poller = Poller { rings: Default::default(), work };
    let thread = std::thread::spawn(move || {
        let mut cores = CpuSet::new();
        cores.set(core as usize);
        if let Err(error) = sched_setaffinity(None, &cores) {
            eprintln!("not pinned to core {core}: {error}");
        }
        poller.run(&mailbox);
    });
    let statuses = [Arc::new(PortStatus::new()), Arc::new(PortStatus::new())];
    let mut sockets = Vec::new();
    for (port, path) in paths.iter().enumerate() {
        let config = SessionConfig { name: format!("port{port}"), queue_pairs_max: 8 };
        let host = Arc::new(Mailbox { port, mail: mail.clone() });
        let status = Arc::clone(&statuses[port]);
        sockets.push(PortSocket::spawn(path, mode, config, host, status)?);
    }
    report(&counters, &statuses, seconds);
    drop(sockets);
    drop(mail);
    thread.join().map_err(|_| "the polling thread panicked")?;
    Ok(())
}

fn report(counters: &Counters, statuses: &[Arc<PortStatus>; 2], seconds: u64) {
    let read = || {
        let Counters { packets, drops, bursts, busy_cycles, signals, full_bursts } = counters;
        let sums = [packets, drops, bursts, busy_cycles, signals].map(|sum| sum.load(Relaxed));
        (sums, full_bursts.iter().map(|count| count.load(Relaxed)).collect::<Vec<_>>())
    };
    let mut before = read();
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        let now = read();
        let [packets, drops, bursts, busy, signals] =
            std::array::from_fn(|at| (now.0[at] - before.0[at]) as f64);
        let full: Vec<u64> =
            now.1.iter().zip(&before.1).map(|(now, before)| now - before).collect();
        before = now;
        println!(
            "{:6.2} Mpps  {:5.0} cycles/packet (median {:4})  {:4.1} packets/burst  {:9.0} drops  \
             {:7.0} signals",
            packets / 1e6,
            busy / packets.max(1.0),
            median(&full),
            packets / bursts.max(1.0),
            drops,
            signals,
        );
        for status in statuses {
            print!("   rings {:?} {:?}", status.rings_started(), status.features().names());
            println!(" {}", status.last_error().unwrap_or_default());
        }
    }
}

/// The value that half of the bursts do not exceed, of counts by value.
fn median(counts: &[u64]) -> usize {
    let half = counts.iter().sum::<u64>() / 2;
    let mut sum = 0;
    counts
        .iter()
        .position(|count| {
            sum += count;
            sum > half
        })
        .unwrap_or(0)
}
