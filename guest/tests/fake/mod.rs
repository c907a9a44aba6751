//! A small vhost-user switch of two ports for tests, on the `vhost` crate's backend and
//! `virtio-queue`: code that shares nothing with the driver it tests.
//!
//! What enters one port leaves the other. Faults can be put in between.
#![allow(dead_code, reason = "each test file uses its own part")]

mod backend;
mod wire;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use vhost::vhost_user::BackendReqHandler;

pub(crate) use backend::Device;

/// virtio-net and vhost-user feature bits, by their numbers in the specifications.
pub(crate) mod bits {
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const MQ: u64 = 1 << 22;
    pub(crate) const ANY_LAYOUT: u64 = 1 << 27;
    pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const IN_ORDER: u64 = 1 << 35;
    pub(crate) const ALL: u64 = MRG_RXBUF
        | MQ
        | ANY_LAYOUT
        | INDIRECT_DESC
        | EVENT_IDX
        | PROTOCOL_FEATURES
        | VERSION_1
        | IN_ORDER;
}

/// What the switch is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Features it offers.
    pub(crate) features: u64,
    /// Queue pairs it offers.
    pub(crate) queue_pairs: u64,
    /// Whether it waits for kicks instead of polling.
    pub(crate) kicked: bool,
    /// Whether transmit chains of a burst are given back in reverse (not with IN_ORDER).
    pub(crate) reverse_used: bool,
    /// What it does to frames.
    pub(crate) fault: Fault,
    /// Every how many frames.
    pub(crate) fault_every: u64,
    /// Whether each frame is looked at.
    pub(crate) check_frames: bool,
    /// Whether SET_MEM_TABLE fails.
    pub(crate) refuse_memory: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            features: bits::ALL,
            queue_pairs: 8,
            kicked: false,
            reverse_used: false,
            fault: Fault::None,
            fault_every: 1000,
            check_frames: false,
            refuse_memory: false,
        }
    }
}

/// What happens to every `fault_every`th frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Drop,
    Duplicate,
    /// One bit of the last byte.
    Corrupt,
    /// The last byte is missing.
    Truncate,
    /// The payload is the one of the frame before, with checksums that fit.
    StalePayload,
    /// Sent on after the frame that follows it.
    Swap,
    /// Out of the port it came from.
    Misdeliver,
    /// ECN's CE, if the frame says that its sender heeds it.
    Mark,
    /// The virtio-net header asks for a checksum to be finished.
    BadHeader,
}

/// What the switch counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) forwarded: AtomicU64,
    pub(crate) faults: AtomicU64,
    /// Frames for a port whose receive ring does not run.
    pub(crate) no_ring: AtomicU64,
    pub(crate) chains: AtomicU64,
    pub(crate) chain_descriptors: AtomicU64,
    pub(crate) indirect_chains: AtomicU64,
    pub(crate) kicks: AtomicU64,
    pub(crate) calls: AtomicU64,
    /// Frames that another implementation would not accept as UDP with right checksums.
    pub(crate) invalid_frames: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// A running switch; it ends when dropped.
pub(crate) struct FakeSwitch {
    pub(crate) counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<UnixStream>>>,
    threads: Vec<JoinHandle<()>>,
}

/// Who listens on the two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchSocket {
    Listens,
    Connects,
}

/// The sockets of the two ports in `directory`.
pub(crate) fn sockets(directory: &Path) -> [PathBuf; 2] {
    ["a", "b"].map(|name| directory.join(name))
}

impl FakeSwitch {
    pub(crate) fn start(directory: &Path, socket: SwitchSocket, behaviour: Behaviour) -> Self {
        let counters = Arc::new(Counters::default());
        let stop = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let devices: [Arc<Mutex<Device>>; 2] =
            std::array::from_fn(|_| Arc::new(Mutex::new(Device::new(behaviour))));
        let mut threads = Vec::new();
        for (device, path) in devices.iter().zip(sockets(directory)) {
            // Bound before the thread starts, so that a guest can connect at once.
            let listener = (socket == SwitchSocket::Listens).then(|| {
                let _ = std::fs::remove_file(&path);
                let listener = UnixListener::bind(&path).unwrap();
                listener.set_nonblocking(true).unwrap();
                listener
            });
            let (device, stop, streams) = (device.clone(), stop.clone(), streams.clone());
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let stream = match &listener {
                        Some(listener) => listener.accept().map(|(stream, _)| stream),
                        None => UnixStream::connect(&path),
                    };
                    match stream {
                        Ok(stream) => serve(stream, &device, &streams),
                        Err(_) => std::thread::sleep(Duration::from_millis(2)),
                    }
                }
            }));
        }
        let wire = wire::Wire::new(devices, counters.clone(), behaviour);
        let stop_wire = stop.clone();
        threads.push(std::thread::spawn(move || wire.run(&stop_wire)));
        Self { counters, stop, streams, threads }
    }

    /// Closes all connections, as a switch that restarts.
    pub(crate) fn drop_connections(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for FakeSwitch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.drop_connections();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Serves one connection to its end.
fn serve(stream: UnixStream, device: &Arc<Mutex<Device>>, streams: &Mutex<Vec<UnixStream>>) {
    stream.set_nonblocking(false).unwrap();
    streams.lock().unwrap().push(stream.try_clone().unwrap());
    let mut handler = BackendReqHandler::from_stream(stream, device.clone());
    while handler.handle_request().is_ok() {}
    device.lock().unwrap().disconnect();
}
