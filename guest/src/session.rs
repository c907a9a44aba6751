//! The control side of one connection: features, memory, starting and stopping rings.
//!
//! Every request asks for an acknowledgement when the switch can give one (REPLY_ACK), so that a
//! refusal is an error here and not a mystery later.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::limits::QUEUE_PAIRS_MAX;
use crate::memory::GuestMemory;
use crate::ring::SplitRing;
use crate::virtio::{self, FeatureChoice};

/// The switch must answer a request within this; a switch that does not is given up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Talking to the switch failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A request failed, was refused, or was not answered in time.
    #[error("vhost-user {request}: {error}")]
    Request {
        /// The message's name in the vhost-user specification.
        request: &'static str,
        /// What the protocol library says.
        error: vhost::Error,
    },
    /// Required features are not offered.
    #[error("the switch does not offer: {0}")]
    FeaturesMissing(virtio::Names),
    /// More queue pairs wanted than offered.
    #[error("{wanted} queue pairs wanted; the switch offers {offered}")]
    QueuePairs {
        /// Pairs asked for.
        wanted: u16,
        /// Pairs the switch has.
        offered: u64,
    },
    /// A base index that is none.
    #[error("the switch answered GET_VRING_BASE with {0}, which is no ring index")]
    Base(u32),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

fn request<T>(request: &'static str, result: vhost::Result<T>) -> Result<T, SessionError> {
    result.map_err(|error| SessionError::Request { request, error })
}

/// The two event files of one ring.
#[derive(Debug)]
pub struct RingEvents {
    /// Written by us when buffers were made available.
    pub kick: EventFd,
    /// Written by the switch when buffers were used.
    pub call: EventFd,
}

impl RingEvents {
    /// Two fresh, non-blocking eventfds.
    ///
    /// # Errors
    /// When the process may open no more files.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { kick: EventFd::new(EFD_NONBLOCK)?, call: EventFd::new(EFD_NONBLOCK)? })
    }
}

/// One negotiated connection.
pub struct Session {
    frontend: Frontend,
    stream: UnixStream,
    features: u64,
    protocol_features: VhostUserProtocolFeatures,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("features", &virtio::Names(self.features))
            .field("protocol_features", &self.protocol_features)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Negotiates features on a fresh connection.
    ///
    /// # Errors
    /// A refused or unanswered request, missing features, too few queue pairs.
    pub fn negotiate(
        stream: UnixStream,
        choice: FeatureChoice,
        queue_pairs: u16,
    ) -> Result<Self, SessionError> {
        let watched = stream.try_clone()?;
        let _watchdog = Watchdog::over(&watched)?;
        if queue_pairs > 1 {
            let offered = offered_queue_pairs(&watched)?;
            if offered < u64::from(queue_pairs) {
                return Err(SessionError::QueuePairs { wanted: queue_pairs, offered });
            }
        }
        let rings = u64::from(2 * queue_pairs.min(QUEUE_PAIRS_MAX));
        let mut frontend = Frontend::from_stream(stream, rings);
        let offered = request("GET_FEATURES", frontend.get_features())?;
        let mut features = choice.negotiate(offered).map_err(SessionError::FeaturesMissing)?;
        if queue_pairs > 1 {
            features |= offered & virtio::MQ;
        }
        let mut protocol_features = VhostUserProtocolFeatures::empty();
        if offered & virtio::PROTOCOL_FEATURES != 0 {
            features |= virtio::PROTOCOL_FEATURES;
            protocol_features = negotiate_protocol(&mut frontend)?;
        }
        request("SET_OWNER", frontend.set_owner())?;
        request("SET_FEATURES", frontend.set_features(features))?;
        Ok(Self { frontend, stream: watched, features, protocol_features })
    }

    /// The virtio features that were acknowledged.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Whether requests are acknowledged, so that refusals are seen.
    pub fn acknowledges(&self) -> bool {
        self.protocol_features.contains(VhostUserProtocolFeatures::REPLY_ACK)
    }

    /// The connection's own socket, for polling.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Announces all regions of `memory`.
    ///
    /// # Errors
    /// A refused or unanswered request.
    pub fn set_memory(&mut self, memory: &GuestMemory) -> Result<(), SessionError> {
        let _watchdog = Watchdog::over(&self.stream)?;
        let regions: Vec<VhostUserMemoryRegionInfo> = memory
            .regions()
            .iter()
            .map(|region| VhostUserMemoryRegionInfo {
                guest_phys_addr: region.guest_address,
                memory_size: region.bytes,
                userspace_addr: region.host_address,
                mmap_offset: region.file_offset,
                mmap_handle: memory.file().as_raw_fd(),
            })
            .collect();
        request("SET_MEM_TABLE", self.frontend.set_mem_table(&regions)).map(drop)
    }

    /// Starts ring `index` (2 n: receive, 2 n + 1: transmit) at `base`, enabled.
    ///
    /// # Errors
    /// A refused or unanswered request.
    pub fn start_ring(
        &mut self,
        index: usize,
        ring: &SplitRing,
        base: u16,
        events: &RingEvents,
    ) -> Result<(), SessionError> {
        let watchdog = Watchdog::over(&self.stream)?;
        let [table, avail, used] = ring.parts().map(|part| part.host_address().addr() as u64);
        let addresses = VringConfigData {
            queue_max_size: ring.size(),
            queue_size: ring.size(),
            flags: 0,
            desc_table_addr: table,
            used_ring_addr: used,
            avail_ring_addr: avail,
            log_addr: None,
        };
        let frontend = &self.frontend;
        request("SET_VRING_NUM", frontend.set_vring_num(index, ring.size()))?;
        request("SET_VRING_BASE", frontend.set_vring_base(index, base))?;
        request("SET_VRING_ADDR", frontend.set_vring_addr(index, &addresses))?;
        request("SET_VRING_CALL", frontend.set_vring_call(index, &events.call))?;
        request("SET_VRING_KICK", frontend.set_vring_kick(index, &events.kick))?;
        drop(watchdog);
        self.enable_ring(index, true)
    }

    /// Enables or disables a started ring. Without protocol features rings are always enabled.
    ///
    /// # Errors
    /// A refused or unanswered request.
    pub fn enable_ring(&mut self, index: usize, enable: bool) -> Result<(), SessionError> {
        if self.features & virtio::PROTOCOL_FEATURES == 0 {
            return Ok(());
        }
        let _watchdog = Watchdog::over(&self.stream)?;
        request("SET_VRING_ENABLE", self.frontend.set_vring_enable(index, enable))
    }

    /// Stops a ring. Returns the index of the next avail entry the switch would have taken.
    ///
    /// # Errors
    /// A refused or unanswered request, or an answer that is no index.
    pub fn stop_ring(&mut self, index: usize) -> Result<u16, SessionError> {
        let _watchdog = Watchdog::over(&self.stream)?;
        let base = request("GET_VRING_BASE", self.frontend.get_vring_base(index))?;
        u16::try_from(base).map_err(|_| SessionError::Base(base))
    }

    /// Resets the device by RESET_DEVICE, where the switch knows it; otherwise does nothing and
    /// says so.
    ///
    /// # Errors
    /// A refused or unanswered request.
    pub fn reset_device(&mut self) -> Result<bool, SessionError> {
        if !self.protocol_features.contains(VhostUserProtocolFeatures::RESET_DEVICE) {
            return Ok(false);
        }
        let _watchdog = Watchdog::over(&self.stream)?;
        request("RESET_DEVICE", self.frontend.reset_device()).map(|()| true)
    }
}

fn negotiate_protocol(frontend: &mut Frontend) -> Result<VhostUserProtocolFeatures, SessionError> {
    let known = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::RESET_DEVICE;
    let offered = request("GET_PROTOCOL_FEATURES", frontend.get_protocol_features())?;
    let taken = offered & known;
    request("SET_PROTOCOL_FEATURES", frontend.set_protocol_features(taken))?;
    if taken.contains(VhostUserProtocolFeatures::REPLY_ACK) {
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    Ok(taken)
}

/// Asks how many queue pairs the switch has (GET_QUEUE_NUM, of which virtio-net needs two rings
/// each). The library takes the answer for its bound on ring numbers, which is half too small, so a
/// handle of its own asks, on the same connection.
fn offered_queue_pairs(stream: &UnixStream) -> Result<u64, SessionError> {
    let mut frontend = Frontend::from_stream(stream.try_clone()?, 1);
    let offered = request("GET_FEATURES", frontend.get_features())?;
    if offered & virtio::PROTOCOL_FEATURES == 0
        || !negotiate_protocol(&mut frontend)?.contains(VhostUserProtocolFeatures::MQ)
    {
        return Ok(1);
    }
    request("GET_QUEUE_NUM", frontend.get_queue_num())
}

/// Shuts the connection down when a request takes too long: the protocol library waits for ever,
/// retrying through socket timeouts.
struct Watchdog {
    /// Dropping it dismisses the watchdog.
    _dismiss: mpsc::Sender<()>,
}

impl Watchdog {
    fn over(stream: &UnixStream) -> std::io::Result<Self> {
        let stream = stream.try_clone()?;
        let (dismiss, dismissed) = mpsc::channel();
        std::thread::Builder::new().name("guest-watchdog".into()).spawn(move || {
            if dismissed.recv_timeout(REPLY_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        })?;
        Ok(Self { _dismiss: dismiss })
    }
}
