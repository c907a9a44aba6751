//! The socket of a port, in either mode: we connect to the switch, or the switch connects to us.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// How long to wait between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// Who listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketMode {
    /// The switch listens; we connect.
    #[default]
    Connect,
    /// We listen; the switch connects.
    Listen,
}

/// No connection came about.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The listening socket could not be made.
    #[error("cannot listen on {}: {error}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A peer that lives listens there already.
    #[error("cannot listen on {}: another process listens there", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Nobody was there in time.
    #[error("{} within {timeout:?}: {error}", what(*mode, path))]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// Who should have connected.
        mode: SocketMode,
        /// How long was waited.
        timeout: Duration,
        /// The last attempt's error.
        error: io::Error,
    },
}

fn what(mode: SocketMode, path: &Path) -> String {
    match mode {
        SocketMode::Connect => format!("no switch listens on {}", path.display()),
        SocketMode::Listen => format!("no switch connected to {}", path.display()),
    }
}

/// A place where connections to the switch come from, one after another.
#[derive(Debug)]
pub struct Endpoint {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Endpoint {
    /// Prepares the socket; in listen mode the switch may connect from now on. A socket file that
    /// a dead process left behind is replaced.
    ///
    /// # Errors
    /// In listen mode, when the socket cannot be made or is another process's.
    pub fn open(path: &Path, mode: SocketMode) -> Result<Self, EndpointError> {
        let path = path.to_owned();
        if mode == SocketMode::Connect {
            return Ok(Self { path, listener: None });
        }
        let is_socket = std::fs::symlink_metadata(&path).is_ok_and(|m| m.file_type().is_socket());
        if is_socket {
            if UnixStream::connect(&path).is_ok() {
                return Err(EndpointError::InUse { path });
            }
            let _ = std::fs::remove_file(&path);
        }
        match UnixListener::bind(&path) {
            Ok(listener) => Ok(Self { path, listener: Some(listener) }),
            Err(error) => Err(EndpointError::Listen { path, error }),
        }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// When none comes about within `timeout`.
    pub fn connect(&self, timeout: Duration) -> Result<UnixStream, EndpointError> {
        let deadline = Instant::now() + timeout;
        let result = match &self.listener {
            Some(listener) => accept(listener, deadline),
            None => connect(&self.path, deadline),
        };
        let mode = if self.listener.is_some() { SocketMode::Listen } else { SocketMode::Connect };
        let path = self.path.clone();
        result.map_err(|error| EndpointError::Timeout { path, mode, timeout, error })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.listener.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn accept(listener: &UnixListener, deadline: Instant) -> io::Result<UnixStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).ok();
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    if rustix::event::poll(&mut fds, timeout.as_ref())? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    listener.accept().map(|(stream, _)| stream)
}

fn connect(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(RETRY),
            result => return result,
        }
    }
}
