//! The JSON-RPC server: one task per connection, one request at a time on each.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::dispatch::{Handler, ReplyWriter, error_line, respond};
use super::{Framer, RpcError};
use crate::acceptor::Acceptor;
use crate::limits::{MAX_RPC_CONNECTIONS, RECEIVE_STALL, SEND_STALL};
use crate::ratelimit::RateLimit;

const READ_BYTES: usize = 16 << 10;

/// Answers requests on `listener` until the future is dropped.
pub async fn serve(listener: UnixListener, handler: Arc<dyn Handler>) {
    let refusal = format!("at most {MAX_RPC_CONNECTIONS} connections at a time: try again later");
    let acceptor = Acceptor {
        name: "rpc".to_owned(),
        connections_max: MAX_RPC_CONNECTIONS,
        farewell: error_line(RpcError::refused(refusal)),
    };
    let log = Arc::new(RateLimit::default());
    let connection = |stream| {
        let framer = Framer::new();
        let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
        let connection = Connection { stream, handler, framer, log };
        async move {
            if let Err(error) = connection.run().await {
                tracing::debug!(%error, "an RPC connection ended");
            }
        }
    };
    acceptor.run(listener, connection).await;
}

struct Connection {
    stream: UnixStream,
    handler: Arc<dyn Handler>,
    framer: Framer,
    log: Arc<RateLimit>,
}

/// Passes replies from the thread that makes them to the task that sends them, one at a time.
struct Replies(mpsc::Sender<Vec<u8>>);

impl ReplyWriter for Replies {
    fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.0.blocking_send(bytes).is_ok()
    }
}

impl Connection {
    async fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let received = self.receive(&mut buffer).await?;
            let Some(mut input) = buffer.get(..received).filter(|input| !input.is_empty()) else {
                return self.end_of_input().await;
            };
            while let Some(frame) = self.framer.next(&mut input) {
                match frame {
                    Ok(text) => self.answer(text).await?,
                    Err(error) => {
                        if let Some(suppressed) = self.log.allow() {
                            tracing::info!(%error, suppressed, "an RPC client sent nonsense");
                        }
                        let code = RpcError::PARSE_ERROR;
                        let line = error_line(RpcError { code, message: error.to_string() });
                        self.send(&line).await?;
                        if error.is_fatal() {
                            return Err(io::Error::other(error));
                        }
                    }
                }
            }
        }
    }

    /// Waits for ever between requests, and not long within one.
    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.framer.is_partial() {
            timeout(RECEIVE_STALL, self.stream.read(buffer)).await?
        } else {
            self.stream.read(buffer).await
        }
    }

    async fn end_of_input(&mut self) -> io::Result<()> {
        if self.framer.is_partial() {
            let message = "the connection ended within a request".to_owned();
            self.send(&error_line(RpcError { code: RpcError::PARSE_ERROR, message })).await?;
        }
        Ok(())
    }

    async fn answer(&mut self, text: Vec<u8>) -> io::Result<()> {
        let (sender, mut replies) = mpsc::channel(1);
        let handler = Arc::clone(&self.handler);
        let work = tokio::task::spawn_blocking(move || {
            respond(&text, &*handler, &mut Replies(sender));
        });
        while let Some(reply) = replies.recv().await {
            self.send(&reply).await?;
        }
        work.await.map_err(io::Error::other)
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(SEND_STALL, self.stream.write_all(bytes)).await?
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    struct Large;

    impl Handler for Large {
        fn call(&self, _: &str, _: Option<Value>) -> Result<Value, RpcError> {
            Ok("x".repeat(8 << 20).into())
        }
    }

    fn connection() -> (Connection, UnixStream) {
        let (ours, peer) = UnixStream::pair().unwrap();
        let (handler, log) = (Arc::new(Large), Arc::default());
        (Connection { stream: ours, handler, framer: Framer::new(), log }, peer)
    }

    // The clock is paused: it jumps to the next timeout whenever nothing else can happen.

    #[tokio::test(start_paused = true)]
    async fn who_leaves_a_reply_unread_is_dropped() {
        let (connection, mut peer) = connection();
        peer.write_all(br#"{"jsonrpc":"2.0","method":"m","id":1}"#).await.unwrap();
        let error = connection.run().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_a_request_half_sent_is_dropped_and_who_sends_none_is_not() {
        let (connection, mut peer) = connection();
        peer.write_all(br#"{"jsonrpc""#).await.unwrap();
        let error = connection.run().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (connection, _peer) = self::connection();
        let waited = timeout(100 * RECEIVE_STALL, connection.run()).await;
        assert!(waited.is_err(), "it was still being served");
    }
}
