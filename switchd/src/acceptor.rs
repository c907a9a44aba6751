//! Accepts connections, a bounded number at a time.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::ratelimit::RateLimit;

/// What is accepted, and how many at a time.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// For the log.
    pub(crate) name: String,
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// Sent to a connection beyond that before it is closed.
    pub(crate) farewell: Vec<u8>,
}

/// Where connections come from.
pub(crate) trait Listen: Send + Sync {
    type Stream: Send;

    /// Waits for the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Writes what there is room for.
    fn try_write(stream: &Self::Stream, bytes: &[u8]) -> io::Result<usize>;
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(Self::accept(self).await?.0)
    }

    fn try_write(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
        stream.try_write(bytes)
    }
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let stream = Self::accept(self).await?.0;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn try_write(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        stream.try_write(bytes)
    }
}

impl Acceptor {
    /// Runs `serve` for each connection until this future is dropped, which ends them all.
    pub(crate) async fn run<L, S>(self, listener: L, serve: impl Fn(L::Stream) -> S)
    where
        L: Listen,
        S: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let log = RateLimit::default();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(stream) if connections.len() < self.connections_max => {
                        connections.spawn(serve(stream));
                    }
                    Ok(stream) => {
                        // Best effort: a fresh socket has room for one line.
                        let _ = L::try_write(&stream, &self.farewell);
                        if let Some(suppressed) = log.allow() {
                            tracing::warn!(
                                server = self.name, limit = self.connections_max, suppressed,
                                "too many connections: one more was refused"
                            );
                        }
                    }
                    Err(error) => self.accept_failed(&error, &log).await,
                },
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!(server = self.name, %error, "a connection's task failed");
                    }
                }
            }
        }
    }

    /// Out of file descriptors, most likely: waits, since trying again at once would spin.
    async fn accept_failed(&self, error: &io::Error, log: &RateLimit) {
        if let Some(suppressed) = log.allow() {
            tracing::warn!(server = self.name, %error, suppressed, "cannot accept a connection");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
