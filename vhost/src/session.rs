//! One connection with a frontend: the vhost-user protocol on its own thread.
//!
//! The `vhost` crate reads and checks messages; here is what they mean. Every change that concerns
//! a running ring takes the ring back from its PMD first and answers afterwards, so that a
//! frontend which has its reply knows that nothing of the old is touched any more.
#![allow(clippy::disallowed_methods)] // control side

mod early;
mod handler;
mod vring;

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vhost::vhost_user::{BackendReqHandler, Error as ProtocolError};

use crate::features::Features;
use crate::limits::{MAX_QUEUE_PAIRS, RING_CHANGES_PER_SECOND};
use crate::memory::{GuestMemory, MemoryError};
use crate::notify::NotAnEventFd;
use crate::ring::ActiveVring;
use crate::shared::RingPlaceError;
use crate::status::PortStatus;
use vring::Vring;

/// The side that owns running rings: a PMD behind its mailbox. Each call returns only after the
/// PMD has taken the change in.
pub trait RingHost: Send + Sync {
    /// Takes a ring over. [`ActiveVring::index`] says which: odd = the guest sends, even = it
    /// receives.
    ///
    /// # Errors
    /// When there is no PMD any more.
    fn start(&self, ring: ActiveVring) -> Result<(), HostGone>;

    /// Gives ring `index` back, with everything fetched from it completed, its signals sent and
    /// bursts with its packets cleared. After the return nobody touches it or its memory. `None`
    /// when it had not been started.
    ///
    /// # Errors
    /// When there is no PMD any more (so nobody touches the ring either).
    fn stop(&self, index: u16) -> Result<Option<Box<ActiveVring>>, HostGone>;
}

/// The PMD has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the PMD of this port has ended")]
pub struct HostGone;

/// What a port allows its frontend.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The port's name, for the log.
    pub name: String,
    /// Queue pairs offered, 1 to [`MAX_QUEUE_PAIRS`].
    pub queue_pairs_max: u16,
}

/// How a session ended.
#[derive(Debug)]
pub enum SessionEnd {
    /// The frontend closed the connection, or the port was shut down.
    Disconnected,
    /// The frontend broke the protocol, or asked for what cannot be; the connection was closed.
    Refused(String),
    /// There is no PMD any more.
    HostGone,
}

/// Why a message was refused.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("ring {index}: this port has {rings} rings")]
    NoSuchRing { index: u32, rings: u16 },
    #[error("ring {index}: {source}")]
    Place { index: u16, source: RingPlaceError },
    #[error("ring {index}: {what} while it is running")]
    Running { index: u16, what: &'static str },
    #[error("ring {index}: {source}")]
    NotAnEventFd { index: u16, source: NotAnEventFd },
    #[error("ring {index}: an avail index of {base} does not fit 16 bits")]
    BaseTooLarge { index: u16, base: u32 },
    #[error("ring {index}: a dirty log was asked for, but none was offered")]
    LogNotOffered { index: u16 },
    #[error("features {0:?} were acknowledged but not offered")]
    FeaturesNotOffered(Vec<String>),
    #[error("protocol features {0:#x} were acknowledged but not offered")]
    ProtocolFeaturesNotOffered(u64),
    #[error("features were changed while rings are running")]
    FeaturesWhileRunning,
    #[error("{0}")]
    Memory(#[from] MemoryError),
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    #[error("{0}")]
    HostGone(#[from] HostGone),
}

/// The state of one connection.
struct Session<'a> {
    config: &'a SessionConfig,
    host: &'a dyn RingHost,
    status: &'a Arc<PortStatus>,
    memory: Arc<GuestMemory>,
    /// What was acknowledged; `None` before that, when no ring may run.
    features: Option<Features>,
    /// Whether REPLY_ACK is in use.
    acknowledges: bool,
    vrings: Vec<Vring>,
    host_gone: bool,
    changes: ChangeLimit,
}

/// Makes a frontend that keeps starting and stopping rings wait, on its own thread.
struct ChangeLimit {
    window: Instant,
    changes: u32,
}

impl ChangeLimit {
    fn new() -> Self {
        Self { window: Instant::now(), changes: 0 }
    }

    fn count(&mut self) {
        const WINDOW: Duration = Duration::from_secs(1);
        let age = self.window.elapsed();
        self.changes += 1;
        if age < WINDOW && self.changes <= RING_CHANGES_PER_SECOND {
            return;
        }
        std::thread::sleep(WINDOW.saturating_sub(age));
        *self = Self::new();
    }
}

/// Serves one frontend until it disconnects, breaks the protocol or `stream` is shut down from
/// another thread. All rings are back from the PMD before this returns.
pub fn serve(
    stream: UnixStream,
    config: &SessionConfig,
    host: &dyn RingHost,
    status: &Arc<PortStatus>,
) -> SessionEnd {
    status.session_begins();
    let session = Arc::new(Mutex::new(Session::new(config, host, status)));
    let early = stream.try_clone();
    let mut requests = BackendReqHandler::from_stream(stream, Arc::clone(&session));
    let error = match early {
        Ok(early) => serve_until_error(&mut requests, early, &session),
        Err(error) => ProtocolError::SocketBroken(error),
    };
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    session.end();
    let end = if session.host_gone { SessionEnd::HostGone } else { end_of(error) };
    // Rings and memory are let go of before the outside hears of the end.
    session.forget_all();
    status.session_ends(match &end {
        SessionEnd::Refused(reason) => Some(reason.clone()),
        SessionEnd::HostGone => Some(HostGone.to_string()),
        SessionEnd::Disconnected => None,
    });
    end
}

fn serve_until_error<'a>(
    requests: &mut BackendReqHandler<Mutex<Session<'a>>>,
    mut early: UnixStream,
    session: &Mutex<Session<'a>>,
) -> ProtocolError {
    loop {
        let outcome = {
            // Nobody else holds it between two requests.
            let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
            match session.features {
                None => early::handle_enable(&mut early, &mut session),
                Some(_) => Ok(false),
            }
        };
        let outcome = match outcome {
            Ok(false) => requests.handle_request(),
            handled => handled.map(|_| ()),
        };
        if let Err(error) = outcome {
            return error;
        }
    }
}

fn end_of(error: ProtocolError) -> SessionEnd {
    match error {
        ProtocolError::Disconnected | ProtocolError::SocketBroken(_) => SessionEnd::Disconnected,
        ProtocolError::ReqHandlerError(reason) => SessionEnd::Refused(reason.to_string()),
        ProtocolError::PartialMessage => {
            SessionEnd::Refused("the connection ended within a message".to_owned())
        }
        other => SessionEnd::Refused(format!("vhost-user protocol: {other}")),
    }
}

impl<'a> Session<'a> {
    fn new(config: &'a SessionConfig, host: &'a dyn RingHost, status: &'a Arc<PortStatus>) -> Self {
        let rings = config.queue_pairs_max.clamp(1, MAX_QUEUE_PAIRS) * 2;
        Self {
            config,
            host,
            status,
            memory: Arc::default(),
            features: None,
            acknowledges: false,
            vrings: (0..rings).map(Vring::new).collect(),
            host_gone: false,
            changes: ChangeLimit::new(),
        }
    }

    fn queue_pairs(&self) -> u16 {
        self.config.queue_pairs_max.clamp(1, MAX_QUEUE_PAIRS)
    }

    fn ring_index(&self, index: u32) -> Result<u16, SessionError> {
        match u16::try_from(index) {
            Ok(small) if usize::from(small) < self.vrings.len() => Ok(small),
            _ => Err(SessionError::NoSuchRing { index, rings: self.queue_pairs() * 2 }),
        }
    }

    /// Ring `index` as the frontend numbers it.
    fn vring(&mut self, index: u32) -> Result<&mut Vring, SessionError> {
        let rings = self.queue_pairs() * 2;
        let missing = SessionError::NoSuchRing { index, rings };
        // A u32 always fits: usize has 64 bits on the only architecture that builds.
        self.vrings.get_mut(index as usize).ok_or(missing)
    }

    fn any_running(&self) -> bool {
        self.vrings.iter().any(Vring::is_running)
    }

    /// Takes ring `index` back from the PMD, if it is there.
    fn stop(&mut self, index: u16) -> Result<(), SessionError> {
        let Some(vring) = self.vrings.get_mut(usize::from(index)) else { return Ok(()) };
        if !vring.is_running() {
            return Ok(());
        }
        self.changes.count();
        let stopped = self.host.stop(index);
        self.status.set_started(index, false);
        match stopped {
            Ok(ring) => vring.came_back(ring),
            Err(gone) => {
                vring.came_back(None);
                self.host_gone = true;
                return Err(gone.into());
            }
        }
        Ok(())
    }

    fn stop_all(&mut self) -> Result<(), SessionError> {
        let indexes = 0..self.queue_pairs() * 2;
        // All of them, whatever happens to one.
        indexes.map(|index| self.stop(index)).fold(Ok(()), Result::and)
    }

    /// Starts ring `index` if everything that it needs is there.
    fn start_if_ready(&mut self, index: u16) -> Result<(), SessionError> {
        let Some(features) = self.features else { return Ok(()) };
        let Some(vring) = self.vrings.get_mut(usize::from(index)) else { return Ok(()) };
        let place = |source| SessionError::Place { index, source };
        let ring = vring.activate(features, &self.memory, self.status).map_err(place)?;
        let Some(ring) = ring else { return Ok(()) };
        if ring.fault().is_none() {
            self.status.clear_fault(index);
        }
        if let Err(gone) = self.host.start(ring) {
            self.host_gone = true;
            vring.came_back(None);
            return Err(gone.into());
        }
        self.status.set_started(index, true);
        Ok(())
    }

    /// Changes memory: every ring leaves the old one first and those that still lie in the new one
    /// go on.
    fn replace_memory(
        &mut self,
        change: impl FnOnce(&GuestMemory) -> Result<GuestMemory, MemoryError>,
    ) -> Result<(), SessionError> {
        self.stop_all()?;
        let memory = change(&self.memory)?;
        self.memory = Arc::new(memory);
        self.status.set_memory_regions(self.memory.region_count());
        for index in 0..self.queue_pairs() * 2 {
            match self.start_if_ready(index) {
                // Its memory may come back with a later message (QEMU removes and adds regions one
                // by one). Until then it stands still.
                Err(SessionError::Place { source: RingPlaceError::Unmapped { .. }, .. }) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.stop_all().is_err() {
            self.host_gone = true;
        }
    }

    fn forget_all(&mut self) {
        self.vrings.clear();
        self.memory = Arc::default();
    }
}
