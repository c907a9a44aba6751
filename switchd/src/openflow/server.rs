//! The OpenFlow server of one bridge: a task per connection, messages answered in order.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Bridge;
use super::session::{Session, Verdict};
use super::stream::{LostStream, MessageStream};
use crate::acceptor::Acceptor;
use crate::limits::{MAX_OPENFLOW_CONNECTIONS, RECEIVE_STALL, SEND_STALL};
use crate::ratelimit::RateLimit;

/// Answers controllers and tools on `listener` until the future is dropped.
pub async fn serve(listener: UnixListener, bridge: Arc<dyn Bridge>) {
    let acceptor = Acceptor {
        name: format!("openflow {}", bridge.name()),
        connections_max: MAX_OPENFLOW_CONNECTIONS,
        farewell: Vec::new(),
    };
    let log = Arc::new(RateLimit::default());
    let connection = |stream| {
        let bridge = Arc::clone(&bridge);
        let session = Session::new(Arc::clone(&bridge), Arc::clone(&log));
        async move {
            if let Err(error) = run(stream, session).await {
                tracing::debug!(bridge = bridge.name(), %error, "an OpenFlow connection ended");
            }
        }
    };
    acceptor.run(listener, connection).await;
}

async fn run(mut stream: UnixStream, mut session: Session) -> io::Result<()> {
    send(&mut stream, &Session::greeting()).await?;
    let mut received = MessageStream::default();
    let mut buffer = vec![0; MessageStream::READ_BYTES];
    loop {
        let read = stream.read(&mut buffer);
        let length =
            if received.is_partial() { timeout(RECEIVE_STALL, read).await?? } else { read.await? };
        if length == 0 {
            return Ok(());
        }
        received.extend(buffer.get(..length).unwrap_or_default());
        let (messages, state) = received.take_messages();
        let verdict;
        (session, verdict) = answer(&mut stream, session, messages).await?;
        if verdict == Verdict::Close || state == Err(LostStream) {
            return Ok(());
        }
    }
}

/// Has `session` answer `messages` on a thread that may block, and sends the answers as they are
/// made: at most one waits for the peer to read.
async fn answer(
    stream: &mut UnixStream,
    mut session: Session,
    messages: Vec<Vec<u8>>,
) -> io::Result<(Session, Verdict)> {
    let (sender, mut answers) = mpsc::channel(1);
    let work = tokio::task::spawn_blocking(move || {
        let mut verdict = Verdict::Continue;
        for message in messages {
            verdict = session.handle(&message, &mut |answer| sender.blocking_send(answer).is_ok());
            if verdict == Verdict::Close {
                break;
            }
        }
        (session, verdict)
    });
    while let Some(answer) = answers.recv().await {
        send(stream, &answer).await?;
    }
    work.await.map_err(io::Error::other)
}

async fn send(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    timeout(SEND_STALL, stream.write_all(bytes)).await?
}
