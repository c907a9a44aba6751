//! The OpenFlow side of one bridge: its own socket and its controllers.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tollgate_openflow::message::ErrorMessage;
use tollgate_openflow::{ErrorCode, Message};

use super::controllers::{self, Controller, ControllerSummary, ListenError};
use super::hub::Audience;
use super::peer::Kind;
use super::session::Session;
use super::target::Target;
use super::timing::Timing;
use super::{Bridge, connection};
use crate::acceptor::Acceptor;
use crate::limits::MAX_OPENFLOW_CONNECTIONS;
use crate::ratelimit::RateLimit;
use crate::rundir::BoundSocket;

/// Answers controllers and tools of one bridge until it is dropped.
#[derive(Debug)]
pub struct BridgeServer {
    runtime: Handle,
    door: Arc<Door>,
    management: AbortHandle,
    controllers: Mutex<Vec<Controller>>,
    _socket: BoundSocket,
}

/// What every conversation about a bridge needs.
pub(super) struct Door {
    pub(super) bridge: Arc<dyn Bridge>,
    pub(super) log: Arc<RateLimit>,
    pub(super) timing: Timing,
    audience: Arc<Audience>,
}

impl Door {
    /// A new conversation.
    pub(super) fn admit(&self, kind: Kind) -> Session {
        Session::new(Arc::clone(&self.bridge), self.audience.join(kind), Arc::clone(&self.log))
    }

    /// Accepts so many connections at a time and tells others why they are not.
    pub(super) fn acceptor(&self, connections_max: usize) -> Acceptor {
        let mut farewell = Session::greeting();
        let data = format!("{connections_max} connections at a time, and that many there are");
        let refusal = ErrorMessage { code: ErrorCode::OFPHFC_EPERM, data: data.into_bytes() };
        farewell.extend(Message::Error(refusal).encode(0));
        Acceptor { name: format!("openflow {}", self.bridge.name()), connections_max, farewell }
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("bridge", &self.bridge.name()).finish_non_exhaustive()
    }
}

impl BridgeServer {
    /// Begins to answer on the bridge's own socket. Events are taken from `audience`.
    ///
    /// # Errors
    /// When the runtime refuses the listener.
    pub fn start(
        runtime: Handle,
        (socket, listener): (BoundSocket, UnixListener),
        bridge: Arc<dyn Bridge>,
        audience: Arc<Audience>,
        timing: Timing,
    ) -> io::Result<Self> {
        let door = Arc::new(Door { bridge, audience, timing, log: Arc::default() });
        let listener = controllers::in_runtime(&runtime, listener)?;
        let management = {
            let acceptor = door.acceptor(MAX_OPENFLOW_CONNECTIONS);
            let door = Arc::clone(&door);
            acceptor.run(listener, move |stream| {
                let (session, door) = (door.admit(Kind::Service), Arc::clone(&door));
                async move {
                    let socket = stream.into();
                    let served =
                        connection::run(socket, session, Kind::Service, &door.timing).await;
                    if let Err(error) = served {
                        let bridge = door.bridge.name();
                        tracing::debug!(bridge, %error, "an OpenFlow connection ended");
                    }
                }
            })
        };
        let management = runtime.spawn(management).abort_handle();
        let controllers = Mutex::default();
        Ok(Self { runtime, door, management, controllers, _socket: socket })
    }

    fn list(&self) -> MutexGuard<'_, Vec<Controller>> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the bridge exactly these controllers. Connections to those that it has already go on.
    ///
    /// # Errors
    /// When one cannot be listened on; the bridge has those that it had before.
    pub fn set_controllers(&self, targets: &[Target]) -> Result<(), ListenError> {
        let mut list = self.list();
        let has = |list: &[Controller], target| list.iter().any(|known| known.target() == target);
        let mut new: Vec<Controller> = Vec::new();
        for target in targets {
            if !has(&list, target) && !has(&new, target) {
                new.push(Controller::start(&self.runtime, &self.door, target)?);
            }
        }
        list.retain(|known| targets.contains(known.target()));
        list.extend(new);
        let place = |known: &Controller| targets.iter().position(|t| t == known.target());
        list.sort_by_key(place);
        Ok(())
    }

    /// The bridge's controllers, in the order in which they were given.
    pub fn controllers(&self) -> Vec<ControllerSummary> {
        self.list().iter().map(Controller::summary).collect()
    }
}

impl Drop for BridgeServer {
    fn drop(&mut self) {
        self.management.abort();
    }
}
