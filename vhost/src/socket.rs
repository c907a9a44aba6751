//! The socket of a port: one thread that finds a frontend, serves it, and finds the next.
#![allow(clippy::disallowed_methods)] // control side

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::limits::LOG_LINES_PER_SECOND;
use crate::session::{RingHost, SessionConfig, SessionEnd, serve};
use crate::status::PortStatus;

/// Connect mode: the first wait after a failure; each further one is twice as long. Listen mode
/// waits as long after a session that ended in an error, so that a frontend which renegotiates in
/// a loop does not keep PMDs busy with quiescing.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Connect mode: the longest wait between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Which side makes the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketMode {
    /// The switch listens, frontends connect (QEMU `chardev socket` without `server`).
    Listen,
    /// The frontend listens, the switch connects and keeps trying (QEMU `server=on`).
    Connect,
}

/// Why a port's socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody accepts connections there.
    #[error("{0} is in use by a running process")]
    InUse(PathBuf),
    /// Something that is not a socket has that name.
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    /// The system says no.
    #[error("{path}: {source}")]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A port's socket and the thread behind it. Dropping it shuts it down.
#[derive(Debug)]
pub struct PortSocket {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    /// The socket file that is ours to remove.
    bound: Option<BoundSocket>,
}

impl PortSocket {
    /// Opens the socket and starts serving. One frontend is served at a time; in listen mode
    /// further ones wait in the backlog.
    ///
    /// # Errors
    /// When the path cannot be listened on: somebody else does, or it is no socket. A socket file
    /// that a dead process left is replaced.
    pub fn spawn(
        path: &Path,
        mode: SocketMode,
        config: SessionConfig,
        host: Arc<dyn RingHost>,
        status: Arc<PortStatus>,
    ) -> Result<Self, SocketError> {
        let io_error = |source| SocketError::Io { path: path.to_owned(), source };
        let control = Arc::new(Control::new().map_err(io_error)?);
        let (listener, bound) = match mode {
            SocketMode::Listen => {
                let (listener, bound) = bind(path)?;
                (Some(listener), Some(bound))
            }
            SocketMode::Connect => (None, None),
        };
        let name = format!("vhost-{}", config.name);
        let server = Server {
            path: path.to_owned(),
            config,
            host,
            status,
            control: Arc::clone(&control),
            log: LogLimit::new(),
        };
        let thread = std::thread::Builder::new()
            // The kernel keeps 15 bytes.
            .name(name.chars().take(15).collect())
            .spawn(move || server.run(listener))
            .map_err(io_error)?;
        Ok(Self { control, thread: Some(thread), bound })
    }

    /// Closes the connection, waits until its rings are back from the PMD and the thread has
    /// ended, and removes the socket file.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.control.stop();
        if let Some(bound) = self.bound.take() {
            bound.remove();
        }
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            drop(thread.join());
        }
    }
}

impl Drop for PortSocket {
    fn drop(&mut self) {
        self.end();
    }
}

/// Through which the thread is told to end.
#[derive(Debug)]
struct Control {
    state: Mutex<ControlState>,
    /// An eventfd that becomes readable, for good, when the thread is to end.
    stop: OwnedFd,
}

#[derive(Debug, Default)]
struct ControlState {
    stopping: bool,
    /// The connection being served, to be cut.
    connection: Option<UnixStream>,
}

impl Control {
    fn new() -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), stop })
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        if let Some(connection) = state.connection.take() {
            // Fails only if the peer has closed it already.
            drop(connection.shutdown(std::net::Shutdown::Both));
        }
        // Fails only if it is readable already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Makes `stream` the connection to be cut; `false` when it is too late.
    fn adopt(&self, stream: &UnixStream) -> bool {
        let mut state = self.lock();
        state.connection = stream.try_clone().ok();
        !state.stopping && state.connection.is_some()
    }

    fn release(&self) {
        self.lock().connection = None;
    }

    /// Waits for `fd` to become readable, for `time` to pass, or to be told to end.
    fn wait(&self, fd: Option<BorrowedFd<'_>>, time: Option<Duration>) {
        let stop = PollFd::new(&self.stop, PollFlags::IN);
        let timeout = time.and_then(|time| Timespec::try_from(time).ok());
        // Interrupted early is as good as woken: callers look again.
        let _ = match &fd {
            Some(fd) => poll(&mut [stop, PollFd::new(fd, PollFlags::IN)], timeout.as_ref()),
            None => poll(&mut [stop], timeout.as_ref()),
        };
    }
}

struct Server {
    path: PathBuf,
    config: SessionConfig,
    host: Arc<dyn RingHost>,
    status: Arc<PortStatus>,
    control: Arc<Control>,
    log: LogLimit,
}

impl Server {
    fn run(mut self, listener: Option<UnixListener>) {
        let mut retry = RETRY_MIN;
        while !self.control.is_stopping() {
            let stream = match &listener {
                Some(listener) => {
                    self.control.wait(Some(listener.as_fd()), None);
                    listener.accept().map(|(stream, _)| stream)
                }
                None => connect_now(&self.path),
            };
            let wait = match stream {
                Ok(stream) => self.serve(stream),
                Err(error) if listener.is_some() && error.kind() == io::ErrorKind::WouldBlock => {
                    continue;
                }
                Err(error) => {
                    self.cannot_connect(&error);
                    Some(retry)
                }
            };
            match wait {
                Some(wait) => {
                    self.control.wait(None, Some(wait));
                    retry = (retry * 2).min(RETRY_MAX);
                }
                None => retry = RETRY_MIN,
            }
        }
    }

    /// Serves one frontend; how long to wait before the next.
    fn serve(&mut self, stream: UnixStream) -> Option<Duration> {
        if !self.control.adopt(&stream) {
            return None;
        }
        let name = &self.config.name;
        if self.log.allows() {
            tracing::info!(port = %name, "frontend connected");
        }
        let end = serve(stream, &self.config, &*self.host, &self.status);
        self.control.release();
        let may_log = self.log.allows();
        match end {
            SessionEnd::Disconnected => {
                if may_log {
                    tracing::info!(port = %name, "frontend disconnected");
                }
                None
            }
            SessionEnd::Refused(reason) => {
                if may_log {
                    tracing::warn!(port = %name, %reason, "frontend refused, connection closed");
                }
                Some(RETRY_MIN)
            }
            SessionEnd::HostGone => {
                if may_log {
                    tracing::warn!(port = %name, "the PMD has ended, connection closed");
                }
                Some(RETRY_MAX)
            }
        }
    }

    fn cannot_connect(&mut self, error: &io::Error) {
        let reason = format!("{}: {error}", self.path.display());
        // While one side waits for the other to start, every attempt fails alike: one line is
        // enough.
        if self.status.last_error().as_ref() != Some(&reason) && self.log.allows() {
            tracing::info!(port = %self.config.name, %reason, "no frontend yet");
        }
        self.status.cannot_connect(reason);
    }
}

/// At most so many lines a second; a frontend in a loop must not fill the log.
#[derive(Debug)]
struct LogLimit {
    window: Instant,
    lines: u32,
}

impl LogLimit {
    fn new() -> Self {
        Self { window: Instant::now(), lines: 0 }
    }

    fn allows(&mut self) -> bool {
        if self.window.elapsed() >= Duration::from_secs(1) {
            *self = Self::new();
        }
        self.lines += 1;
        self.lines <= LOG_LINES_PER_SECOND
    }
}

/// A socket file made here, known by its inode.
#[derive(Debug)]
struct BoundSocket {
    path: PathBuf,
    inode: (u64, u64),
}

impl BoundSocket {
    /// Removes the file unless somebody else has replaced it.
    fn remove(self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| inode(&file) == self.inode) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn inode(file: &std::fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn bind(path: &Path) -> Result<(UnixListener, BoundSocket), SocketError> {
    let io_error = |source| SocketError::Io { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => match connect_now(path) {
            // Nobody accepts there any more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(io_error)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) => return Err(SocketError::InUse(path.to_owned())),
            // A full backlog is somebody's too.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(SocketError::InUse(path.to_owned()));
            }
            Err(error) => return Err(io_error(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(error)),
    }
    let listener = UnixListener::bind(path).map_err(io_error)?;
    listener.set_nonblocking(true).map_err(io_error)?;
    let file = std::fs::symlink_metadata(path).map_err(io_error)?;
    Ok((listener, BoundSocket { path: path.to_owned(), inode: inode(&file) }))
}

/// Connects without waiting for a place in the listener's backlog, which may never come.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
