//! One port: memory, queues and a session with the switch.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use vmm_sys_util::eventfd::EventFd;

use crate::endpoint::{Endpoint, EndpointError, SocketMode};
use crate::limits::{FRAME_BYTES_MAX, FRAME_BYTES_MIN, QUEUE_PAIRS_MAX, TX_SEGMENTS_MAX};
use crate::memory::{GuestMemory, MemoryConfig, MemoryError};
use crate::queue::{QueueCounters, RxConfig, RxQueue, TxQueue};
use crate::ring::{RingConfig, RingError, RingFault};
use crate::session::{RingEvents, Session, SessionError};
use crate::virtio::{self, FeatureChoice, Layout};
use crate::wait::Waiter;

/// What a port is like.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Its name in reports and pairs.
    pub name: String,
    /// The vhost-user socket.
    pub path: PathBuf,
    /// Who listens on it.
    pub mode: SocketMode,
    /// How long to wait for the switch when attaching.
    pub timeout: Duration,
    /// Descriptors per ring.
    pub ring_size: u16,
    /// Queue pairs, 1 to [`QUEUE_PAIRS_MAX`].
    pub queue_pairs: u16,
    /// virtio features.
    pub features: FeatureChoice,
    /// Largest frame to send, in bytes.
    pub tx_frame_bytes: usize,
    /// Frame bytes that a receive buffer holds.
    pub rx_buffer_bytes: usize,
    /// Descriptors per receive buffer.
    pub rx_segments: usize,
    /// Check every used entry of transmit rings under IN_ORDER, at the price of one shared cache
    /// line per 8 frames (see [`RingConfig::read_used_entries`]).
    pub check_tx_used: bool,
    /// Sleep until interrupted instead of polling.
    pub interrupts: bool,
    /// 2 MiB pages.
    pub hugepages: bool,
    /// Memory regions to announce.
    pub memory_regions: usize,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// IPv4 address.
    pub ip: [u8; 4],
    /// Whether received frames are taken; without that the port is a guest that stalls.
    pub drain: bool,
}

impl PortConfig {
    /// A polled port with one queue pair of 1024 descriptors, connecting to `path`; addresses are
    /// 02:00:00:00:00:01 and 10.0.0.1.
    pub fn new(name: &str, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            path: path.into(),
            mode: SocketMode::Connect,
            timeout: Duration::from_secs(10),
            ring_size: 1024,
            queue_pairs: 1,
            features: FeatureChoice::default(),
            tx_frame_bytes: 2048,
            rx_buffer_bytes: 2048,
            rx_segments: 1,
            check_tx_used: false,
            interrupts: false,
            hugepages: false,
            memory_regions: 1,
            mac: [2, 0, 0, 0, 0, 1],
            ip: [10, 0, 0, 1],
            drain: true,
        }
    }

    fn validate(&self) -> Result<(), PortError> {
        let bad = |what| Err(PortError::Config { port: self.name.clone(), what });
        if self.queue_pairs == 0 || self.queue_pairs > QUEUE_PAIRS_MAX {
            return bad("queue pairs: 1 to 8");
        }
        if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&self.tx_frame_bytes) {
            return bad("largest frame: 60 to 9216 bytes");
        }
        if !(1..=1 << 16).contains(&self.rx_buffer_bytes) {
            return bad("receive buffers: 1 to 65536 bytes");
        }
        if !(1..=TX_SEGMENTS_MAX).contains(&self.rx_segments) {
            return bad("receive segments: 1 to 32");
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        let pair = TxQueue::memory_bytes(self.ring_size, self.tx_frame_bytes)
            + RxQueue::memory_bytes(self.ring_size, self.rx_buffer_bytes);
        // Allocation goes to the emptiest region, so one may be fuller than the average by the
        // largest block.
        let largest = usize::from(self.ring_size)
            * (64 + self.tx_frame_bytes.max(self.rx_buffer_bytes).next_multiple_of(64));
        let total = pair * usize::from(self.queue_pairs);
        total + if self.memory_regions > 1 { largest * self.memory_regions } else { 0 }
    }
}

/// A port could not be made or lost its switch.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A value out of range.
    #[error("port {port}: {what}")]
    Config {
        /// The port.
        port: String,
        /// What would be right.
        what: &'static str,
    },
    /// No connection.
    #[error("port {port}: {error}")]
    Endpoint {
        /// The port.
        port: String,
        /// Why.
        error: EndpointError,
    },
    /// The switch refused or left.
    #[error("port {port}: {error}")]
    Session {
        /// The port.
        port: String,
        /// Why.
        error: SessionError,
    },
    /// No memory.
    #[error("port {port}: {error}")]
    Memory {
        /// The port.
        port: String,
        /// Why.
        error: MemoryError,
    },
    /// A ring could not be made.
    #[error("port {port}: {error}")]
    Ring {
        /// The port.
        port: String,
        /// Why.
        error: RingError,
    },
    /// The switch broke a ring's rules.
    #[error("port {port}: the switch broke the ring's rules: {fault}")]
    Fault {
        /// The port.
        port: String,
        /// How.
        fault: RingFault,
    },
}

/// Where the switch should go on after a reconnection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Rings start anew: what was outstanding is forgotten.
    Fresh,
    /// Rings go on at the used index, as QEMU does: what the old switch took and did not give back
    /// is done again by the new one.
    AtUsedIndex,
}

/// One direction's queue with its event files.
#[derive(Debug)]
pub(crate) struct Attached<Q> {
    pub(crate) queue: Q,
    pub(crate) events: RingEvents,
    /// Transmit: frames that wait for room.
    pub(crate) waiting: VecDeque<Vec<u8>>,
}

impl<Q> Attached<Q> {
    fn new(queue: Q) -> Result<Self, SessionError> {
        Ok(Self { queue, events: RingEvents::new()?, waiting: VecDeque::new() })
    }
}

/// A virtio-net card that is attached to a switch.
#[derive(Debug)]
pub struct Port {
    config: PortConfig,
    endpoint: Endpoint,
    session: Session,
    waiter: Waiter,
    pub(crate) rx: Vec<Attached<RxQueue>>,
    pub(crate) tx: Vec<Attached<TxQueue>>,
    memory: GuestMemory,
    running: bool,
}

/// A port whose socket is ready but which is not attached yet. In listen mode the switch can
/// connect from now on, so a test opens all its ports before it attaches the first.
#[derive(Debug)]
pub struct OpenPort {
    config: PortConfig,
    endpoint: Endpoint,
}

impl OpenPort {
    /// Checks the configuration and prepares the socket.
    ///
    /// # Errors
    /// A value out of range, or a socket that cannot be made.
    pub fn new(config: PortConfig) -> Result<Self, PortError> {
        config.validate()?;
        let endpoint = Endpoint::open(&config.path, config.mode)
            .map_err(|error| PortError::Endpoint { port: config.name.clone(), error })?;
        Ok(Self { config, endpoint })
    }

    /// Waits for the switch, negotiates, and starts all rings.
    ///
    /// # Errors
    /// No switch in time, a refusal, or no memory.
    pub fn attach(self) -> Result<Port, PortError> {
        let Self { config, endpoint } = self;
        let port = || config.name.clone();
        let stream = endpoint
            .connect(config.timeout)
            .map_err(|error| PortError::Endpoint { port: port(), error })?;
        let mut session = Session::negotiate(stream, config.features, config.queue_pairs)
            .map_err(|error| PortError::Session { port: port(), error })?;
        let mut memory = GuestMemory::new(MemoryConfig {
            bytes: config.memory_bytes(),
            hugepages: config.hugepages,
            regions: config.memory_regions,
            sealed: true,
        })
        .map_err(|error| PortError::Memory { port: port(), error })?;
        session.set_memory(&memory).map_err(|error| PortError::Session { port: port(), error })?;
        let (rx, tx) = make_queues(&config, session.features(), &mut memory)?;
        let waiter = Waiter::new(rx.iter().map(|rx| &rx.events.call))
            .map_err(|error| PortError::Session { port: port(), error: error.into() })?;
        let mut port = Port { config, endpoint, session, waiter, rx, tx, memory, running: false };
        port.start_at([0, 0])?;
        Ok(port)
    }
}

type Queues = (Vec<Attached<RxQueue>>, Vec<Attached<TxQueue>>);

fn make_queues(
    config: &PortConfig,
    features: u64,
    memory: &mut GuestMemory,
) -> Result<Queues, PortError> {
    let ring = RingConfig {
        size: config.ring_size,
        event_idx: features & virtio::EVENT_IDX != 0,
        in_order: features & virtio::IN_ORDER != 0,
        read_used_entries: true,
        first_index: 0,
    };
    let layout = Layout::of(features);
    let rx_config = RxConfig {
        ring,
        layout,
        mergeable: features & virtio::MRG_RXBUF != 0,
        buffer_bytes: config.rx_buffer_bytes,
        segments: config.rx_segments,
    };
    let tx_ring = RingConfig { read_used_entries: config.check_tx_used, ..ring };
    let indirect = features & virtio::INDIRECT_DESC != 0;
    let port = || config.name.clone();
    let ring_error = |error| PortError::Ring { port: port(), error };
    let session_error = |error| PortError::Session { port: port(), error };
    let (mut rx, mut tx) = (Vec::new(), Vec::new());
    for _ in 0..config.queue_pairs {
        let queue = RxQueue::new(memory, rx_config).map_err(ring_error)?;
        rx.push(Attached::new(queue).map_err(session_error)?);
        let queue = TxQueue::new(memory, tx_ring, layout, config.tx_frame_bytes, indirect)
            .map_err(ring_error)?;
        tx.push(Attached::new(queue).map_err(session_error)?);
    }
    Ok((rx, tx))
}

impl Port {
    /// Opens the socket, waits for the switch, negotiates, starts all rings.
    ///
    /// # Errors
    /// See [`OpenPort::new`] and [`OpenPort::attach`].
    pub fn attach(config: PortConfig) -> Result<Self, PortError> {
        OpenPort::new(config)?.attach()
    }

    /// What it was made from.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// The session with the switch.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The guest's memory.
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// A receive queue, by number.
    pub fn rx_queue(&self, index: usize) -> Option<&RxQueue> {
        self.rx.get(index).map(|rx| &rx.queue)
    }

    /// A transmit queue, by number.
    pub fn tx_queue(&self, index: usize) -> Option<&TxQueue> {
        self.tx.get(index).map(|tx| &tx.queue)
    }

    /// All receive queues' counters, added up.
    pub fn rx_counters(&self) -> QueueCounters {
        sum(self.rx.iter().map(|rx| rx.queue.counters()))
    }

    /// All transmit queues' counters, added up.
    pub fn tx_counters(&self) -> QueueCounters {
        sum(self.tx.iter().map(|tx| tx.queue.counters()))
    }

    /// How the switch broke a ring's rules, if it did.
    pub fn fault(&self) -> Option<RingFault> {
        let rx = self.rx.iter().find_map(|rx| rx.queue.ring().fault());
        rx.or_else(|| self.tx.iter().find_map(|tx| tx.queue.ring().fault()))
    }

    /// Sends one frame on queue 0, in a chain of `segments`, and publishes it. For tests and
    /// announcements; the generator fills buffers in place.
    ///
    /// Returns whether there was room.
    pub fn send(&mut self, frame: &[u8], segments: usize) -> bool {
        let Some(Attached { queue, events, .. }) = self.tx.first_mut() else { return false };
        if queue.room(1, segments) == 0 || frame.len() > queue.frame_bytes_max() {
            return false;
        }
        let Some(buffer) = queue.buffer() else { return false };
        buffer.write(0, frame);
        *buffer.content = 0;
        let sent = queue.send(frame.len(), segments).is_ok();
        queue.publish();
        queue.kick(&events.kick);
        sent
    }

    /// Takes at most one burst of received frames from each queue, as bytes. For tests.
    ///
    /// # Errors
    /// When the switch broke a ring's rules.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, PortError> {
        let mut frames = 0;
        let mut bytes = Vec::new();
        for Attached { queue, events, .. } in &mut self.rx {
            let polled = queue.poll(|frame| {
                bytes.resize(frame.len(), 0);
                frame.copy_to(&mut bytes);
                each(&bytes);
            });
            queue.kick(&events.kick);
            frames += polled
                .map_err(|fault| PortError::Fault { port: self.config.name.clone(), fault })?;
        }
        Ok(frames)
    }

    /// Sleeps until a receive queue is interrupted, or `timeout`; returns at once when frames wait.
    ///
    /// # Errors
    /// When the system refuses to poll.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), PortError> {
        if !self.arm() {
            self.waiter.wait(timeout).map_err(|error| PortError::Session {
                port: self.config.name.clone(),
                error: error.into(),
            })?;
        }
        self.disarm();
        Ok(())
    }

    /// Kicks the switch for all that was published, where it asked for that.
    #[inline]
    pub(crate) fn kick(&mut self) {
        for Attached { queue, events, .. } in &mut self.rx {
            queue.kick(&events.kick);
        }
        for Attached { queue, events, .. } in &mut self.tx {
            queue.kick(&events.kick);
        }
    }

    /// Asks for interrupts; true when frames wait already (and then not all queues need be asked).
    pub(crate) fn arm(&mut self) -> bool {
        self.rx.iter_mut().any(|rx| rx.queue.enable_interrupts())
    }

    /// Ends [`Port::arm`] and forgets interrupts that came. Returns how many queues had one.
    pub(crate) fn disarm(&mut self) -> usize {
        self.rx
            .iter_mut()
            .filter_map(|rx| {
                rx.queue.disable_interrupts();
                rx.events.call.read().ok()
            })
            .count()
    }

    /// The event files that the switch writes. They stay the same as long as the port lives.
    pub(crate) fn call_events(&self) -> impl Iterator<Item = &EventFd> {
        self.rx.iter().map(|rx| &rx.events.call)
    }

    /// Whether the switch still holds the connection.
    pub fn is_connected(&self) -> bool {
        let mut fds = [PollFd::new(self.session.stream(), PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut fds, Some(&now)) {
            Ok(0) => true,
            Ok(_) | Err(_) => false,
        }
    }

    /// Stops all rings (GET_VRING_BASE). Returns the bases: receive and transmit of each pair. The
    /// switch touches no ring afterwards; memory and buffers stay as they are.
    ///
    /// # Errors
    /// A refusal, or a switch that left.
    pub fn stop(&mut self) -> Result<Vec<[u16; 2]>, PortError> {
        let port = self.config.name.clone();
        let session = &mut self.session;
        let mut stop = |index| {
            session
                .stop_ring(index)
                .map_err(|error| PortError::Session { port: port.clone(), error })
        };
        let bases = (0..self.rx.len()).map(|pair| Ok([stop(2 * pair)?, stop(2 * pair + 1)?]));
        let bases = bases.collect::<Result<_, _>>()?;
        self.running = false;
        Ok(bases)
    }

    /// Starts stopped rings again at the bases that [`Port::stop`] returned.
    ///
    /// # Errors
    /// A refusal, or a switch that left.
    pub fn start(&mut self, bases: &[[u16; 2]]) -> Result<(), PortError> {
        for pair in 0..self.rx.len() {
            self.start_pair(pair, bases.get(pair).copied().unwrap_or_default())?;
        }
        self.running = true;
        Ok(())
    }

    fn start_at(&mut self, bases: [u16; 2]) -> Result<(), PortError> {
        let all = vec![bases; self.rx.len()];
        self.start(&all)
    }

    fn start_pair(&mut self, pair: usize, [rx_base, tx_base]: [u16; 2]) -> Result<(), PortError> {
        let (Some(rx), Some(tx)) = (self.rx.get_mut(pair), self.tx.get_mut(pair)) else {
            return Ok(());
        };
        let port = self.config.name.clone();
        let session = &mut self.session;
        session
            .start_ring(2 * pair, rx.queue.ring(), rx_base, &rx.events)
            .and_then(|()| session.start_ring(2 * pair + 1, tx.queue.ring(), tx_base, &tx.events))
            .map_err(|error| PortError::Session { port, error })?;
        rx.queue.publish();
        rx.queue.kick(&rx.events.kick);
        Ok(())
    }

    /// Stops all rings, empties them, and starts them anew at index 0, as a guest's driver does
    /// when it is loaded again.
    ///
    /// # Errors
    /// A refusal, or a switch that left.
    pub fn reset(&mut self) -> Result<(), PortError> {
        if self.running {
            self.stop()?;
        }
        self.reset_queues();
        self.start_at([0, 0])
    }

    fn reset_queues(&mut self) {
        for rx in &mut self.rx {
            rx.queue.reset(0);
        }
        for tx in &mut self.tx {
            tx.waiting.clear();
            tx.queue.reset(0);
        }
    }

    /// Enables or disables one ring (2 n: receive, 2 n + 1: transmit) without stopping it.
    ///
    /// # Errors
    /// A refusal, or a switch that left.
    pub fn enable_ring(&mut self, index: usize, enable: bool) -> Result<(), PortError> {
        self.session
            .enable_ring(index, enable)
            .map_err(|error| PortError::Session { port: self.config.name.clone(), error })
    }

    /// Drops the connection, as a VM that is killed.
    pub fn disconnect(&mut self) {
        let _ = self.session.stream().shutdown(std::net::Shutdown::Both);
        self.running = false;
    }

    /// Waits for the switch again and attaches with the same memory and the same features.
    ///
    /// # Errors
    /// No switch in time, or a refusal (of a feature used before, for one).
    pub fn reconnect(&mut self, resume: Resume) -> Result<(), PortError> {
        self.disconnect();
        let port = self.config.name.clone();
        let stream = self
            .endpoint
            .connect(self.config.timeout)
            .map_err(|error| PortError::Endpoint { port: port.clone(), error })?;
        let used = self.session.features() & !(virtio::PROTOCOL_FEATURES | virtio::MQ);
        let choice = FeatureChoice::exactly(used);
        let session_error = |error| PortError::Session { port: port.clone(), error };
        self.session =
            Session::negotiate(stream, choice, self.config.queue_pairs).map_err(session_error)?;
        self.session.set_memory(&self.memory).map_err(session_error)?;
        match resume {
            Resume::Fresh => {
                self.reset_queues();
                self.start_at([0, 0])
            }
            Resume::AtUsedIndex => {
                let bases: Vec<[u16; 2]> = (self.rx.iter_mut().zip(&mut self.tx))
                    .map(|(rx, tx)| [rx.queue.device_used_index(), tx.queue.device_used_index()])
                    .collect();
                self.start(&bases)
            }
        }
    }
}

fn sum(counters: impl Iterator<Item = QueueCounters>) -> QueueCounters {
    counters.fold(QueueCounters::default(), |sum, next| QueueCounters {
        frames: sum.frames + next.frames,
        bytes: sum.bytes + next.bytes,
        kicks: sum.kicks + next.kicks,
        malformed: sum.malformed + next.malformed,
    })
}
