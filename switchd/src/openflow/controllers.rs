//! The controllers that a bridge was given: a connection that is kept up, or a socket that is
//! listened on, each with a task of its own.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::connection;
use super::peer::{Kind, Lost, Peer};
use super::roles::Role;
use super::server::Door;
use super::socket::Watched;
use super::target::Target;
use super::timing::Timing;
use crate::acceptor::Listen;
use crate::limits::MAX_CONTROLLER_CONNECTIONS;
use crate::rundir::{BoundSocket, RunDirError};

/// A target cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A unix socket.
    #[error(transparent)]
    Unix(#[from] RunDirError),
    /// A TCP port.
    #[error("cannot listen on {target}: {source}")]
    Tcp {
        /// Where.
        target: Target,
        /// Why not.
        source: io::Error,
    },
}

/// A controller as its operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSummary {
    /// Where it is.
    pub target: Target,
    /// Connections that have agreed on OpenFlow 1.3: at most one, unless the switch listens.
    pub connections: usize,
    /// The role of the connection if there is exactly one.
    pub role: Option<Role>,
    /// What the switch is doing about it.
    pub state: LinkState,
    /// Why the last connection failed or ended, if any did.
    pub last_error: Option<String>,
    /// Packets for it that were dropped since it was slow.
    pub packet_ins_lost: u64,
    /// FLOW_REMOVED and PORT_STATUS messages that were dropped since it was slow.
    pub notices_lost: u64,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// Waiting for controllers to connect.
    Listening,
    /// Connecting, or connected and not greeted yet.
    #[default]
    Connecting,
    /// OpenFlow 1.3 is spoken.
    Active,
    /// Waiting before the next attempt.
    Backoff,
}

impl LinkState {
    /// As JSON-RPC names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listening => "listening",
            Self::Connecting => "connecting",
            Self::Active => "active",
            Self::Backoff => "backoff",
        }
    }
}

/// What a controller's task tells of itself.
#[derive(Debug, Default)]
struct Link(Mutex<LinkInner>);

#[derive(Debug, Default)]
struct LinkInner {
    /// While no connection is greeted.
    state: LinkState,
    peers: Vec<Arc<Peer>>,
    last_error: Option<String>,
    /// Of connections that have ended.
    lost: Lost,
}

impl Link {
    fn inner(&self) -> MutexGuard<'_, LinkInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: LinkState) {
        self.inner().state = state;
    }

    fn failed(&self, reason: String) {
        self.inner().last_error = Some(reason);
    }

    fn enter<'a>(&'a self, peer: &Arc<Peer>) -> Presence<'a> {
        self.inner().peers.push(Arc::clone(peer));
        Presence { link: self, peer: Arc::clone(peer) }
    }
}

/// A connection of a link, until it ends on whatever way.
struct Presence<'a> {
    link: &'a Link,
    peer: Arc<Peer>,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        let mut link = self.link.inner();
        link.peers.retain(|other| !Arc::ptr_eq(other, &self.peer));
        let lost = self.peer.lost();
        link.lost.packet_ins += lost.packet_ins;
        link.lost.notices += lost.notices;
    }
}

/// One of a bridge's controllers. Its connections end with it.
#[derive(Debug)]
pub(super) struct Controller {
    target: Target,
    link: Arc<Link>,
    task: AbortHandle,
    _socket: Option<BoundSocket>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controller {
    /// Begins to connect, or to listen.
    pub(super) fn start(
        runtime: &Handle,
        door: &Arc<Door>,
        target: &Target,
    ) -> Result<Self, ListenError> {
        let link = Arc::new(Link::default());
        let (task, socket) = match target {
            Target::Tcp(_) | Target::Unix(_) => {
                let task = keep_connected(Arc::clone(door), target.clone(), Arc::clone(&link));
                (runtime.spawn(task), None)
            }
            Target::PassiveTcp(address) => {
                let refused = |source| ListenError::Tcp { target: target.clone(), source };
                let listener = std::net::TcpListener::bind(address).map_err(refused)?;
                listener.set_nonblocking(true).map_err(refused)?;
                let _context = runtime.enter();
                let listener = TcpListener::from_std(listener).map_err(refused)?;
                (runtime.spawn(listen(listener, Arc::clone(door), Arc::clone(&link))), None)
            }
            Target::PassiveUnix(path) => {
                let (socket, listener) = BoundSocket::listen(path)?;
                let listener = in_runtime(runtime, listener).map_err(|source| RunDirError::Io {
                    action: "listen on",
                    path: path.clone(),
                    source,
                })?;
                (runtime.spawn(listen(listener, Arc::clone(door), Arc::clone(&link))), Some(socket))
            }
        };
        Ok(Self { target: target.clone(), link, task: task.abort_handle(), _socket: socket })
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn summary(&self) -> ControllerSummary {
        let link = self.link.inner();
        let greeted: Vec<_> = link.peers.iter().filter(|peer| peer.is_greeted()).collect();
        let role = match greeted[..] {
            [peer] => Some(peer.settings().role),
            _ => None,
        };
        let state = match greeted[..] {
            [] => link.state,
            _ => LinkState::Active,
        };
        let lost = || std::iter::once(link.lost).chain(link.peers.iter().map(|peer| peer.lost()));
        ControllerSummary {
            target: self.target.clone(),
            connections: greeted.len(),
            role,
            state,
            last_error: link.last_error.clone(),
            packet_ins_lost: lost().map(|lost| lost.packet_ins).sum(),
            notices_lost: lost().map(|lost| lost.notices).sum(),
        }
    }
}

/// A listener of the standard library's, in the hands of the runtime.
pub(super) fn in_runtime(
    runtime: &Handle,
    listener: std::os::unix::net::UnixListener,
) -> io::Result<UnixListener> {
    let _context = runtime.enter();
    UnixListener::from_std(listener)
}

/// Converses with whoever connects.
fn listen<L>(
    listener: L,
    door: Arc<Door>,
    link: Arc<Link>,
) -> impl Future<Output = ()> + Send + 'static
where
    L: Listen + 'static,
    L::Stream: Into<Watched> + 'static,
{
    link.set(LinkState::Listening);
    let acceptor = door.acceptor(MAX_CONTROLLER_CONNECTIONS);
    acceptor.run(listener, move |stream| {
        let (door, link) = (Arc::clone(&door), Arc::clone(&link));
        async move {
            converse(stream.into(), &door, &link).await;
        }
    })
}

/// Converses until the connection ends; whether OpenFlow 1.3 was spoken.
async fn converse(socket: Watched, door: &Door, link: &Link) -> bool {
    let session = door.admit(Kind::Controller);
    let peer = Arc::clone(session.peer());
    let _presence = link.enter(&peer);
    let outcome = connection::run(socket, session, Kind::Controller, &door.timing).await;
    link.failed(match outcome {
        Ok(()) => "the connection was closed".to_owned(),
        Err(error) => error.to_string(),
    });
    peer.is_greeted()
}

/// Connects, converses, and does so again whenever the connection ends. The pauses
/// double while nobody there speaks OpenFlow 1.3.
async fn keep_connected(door: Arc<Door>, target: Target, link: Arc<Link>) {
    let Timing { reconnect_min, reconnect_max, .. } = door.timing;
    let mut pause = reconnect_min;
    loop {
        link.set(LinkState::Connecting);
        match attempt(&target, &door, &link).await {
            Ok(true) => pause = reconnect_min,
            Ok(false) => {}
            Err(error) => {
                if let Some(suppressed) = door.log.allow() {
                    let bridge = door.bridge.name();
                    tracing::warn!(bridge, %target, %error, suppressed, "no connection to a controller");
                }
                link.failed(error.to_string());
            }
        }
        link.set(LinkState::Backoff);
        sleep(pause).await;
        pause = reconnect_max.min(pause * 2);
    }
}

/// Connects and converses; whether OpenFlow 1.3 was spoken.
async fn attempt(target: &Target, door: &Door, link: &Link) -> io::Result<bool> {
    match target {
        Target::Tcp(address) => {
            let stream =
                timeout(door.timing.connect_timeout, TcpStream::connect(address)).await??;
            stream.set_nodelay(true)?;
            Ok(converse(stream.into(), door, link).await)
        }
        Target::Unix(path) => {
            let stream = timeout(door.timing.connect_timeout, UnixStream::connect(path)).await??;
            Ok(converse(stream.into(), door, link).await)
        }
        Target::PassiveTcp(_) | Target::PassiveUnix(_) => Ok(false),
    }
}
