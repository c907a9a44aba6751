//! A connected stream socket, known to the runtime only while something waits for it there.
//!
//! Clients like ovs-ofctl send every message by a system call of its own. While messages keep
//! coming, the thread that carries them out therefore reads as well: the runtime would be woken for
//! every one of them, and would wake that thread in turn.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::net::{TcpStream, UnixStream};

/// A socket that is nobody's but ours. It does not block.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(StdUnixStream),
    Tcp(StdTcpStream),
}

/// A socket that the runtime watches.
#[derive(Debug)]
pub(super) enum Watched {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl From<UnixStream> for Watched {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

impl From<TcpStream> for Watched {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl Watched {
    /// Takes it out of the runtime's hands.
    pub(super) fn release(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Unix(stream) => Socket::Unix(stream.into_std()?),
            Self::Tcp(stream) => Socket::Tcp(stream.into_std()?),
        })
    }

    /// Reads into the spare room of `buffer` once there is something; 0 at the end of the stream.
    pub(super) async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Unix(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(buffer)
                }
                Self::Tcp(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(buffer)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.writable().await,
            Self::Tcp(stream) => stream.writable().await,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// The same socket once more.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    /// Has the runtime watch it.
    pub(super) fn watch(self) -> io::Result<Watched> {
        Ok(match self {
            Self::Unix(stream) => Watched::Unix(UnixStream::from_std(stream)?),
            Self::Tcp(stream) => Watched::Tcp(TcpStream::from_std(stream)?),
        })
    }

    /// Reads what is there into the spare room of `buffer`; 0 at the end of the stream.
    pub(super) fn read_now(&self, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
        loop {
            match recv(self, spare_capacity(buffer), RecvFlags::DONTWAIT) {
                Ok((length, _)) => return Ok(Some(length)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether there is something to read within `patience`.
    pub(super) fn wait(&self, patience: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what there is room for; how much that was.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match send(self, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// Writes all of `bytes`.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let written = self.write_now(bytes)?;
            bytes = bytes.get(written..).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(());
            }
            // Watched for as long as there is no room: what arrives wakes the runtime too.
            self.try_clone()?.watch()?.writable().await?;
        }
    }

    /// Lets the other end know that nothing more comes.
    pub(super) fn finish(&self) {
        // It may have gone already.
        let _ = shutdown(self, Shutdown::Write);
    }
}
