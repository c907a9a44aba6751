//! One connection: a reader that has messages answered, and a writer that sends what is queued. A
//! slow writer holds up its own reader and nobody else.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tollgate_openflow::Message;

use super::peer::{Kind, Peer};
use super::session::{Session, Verdict};
use super::socket::{Socket, Watched};
use super::stream::Messages;
use super::timing::Timing;
use super::worker::Worker;
use super::{Bridge, notify};
use crate::limits::{READ_BUFFER_BYTES, WRITE_BYTES};

/// Converses with the other end of `socket` until it ends, misbehaves or falls silent.
pub(super) async fn run(
    socket: Watched,
    session: Session,
    kind: Kind,
    timing: &Timing,
) -> io::Result<()> {
    let peer = Arc::clone(session.peer());
    // Also when this future is dropped: a thread may be at work for it.
    let _closed = Closed(Arc::clone(&peer));
    let bridge = Arc::clone(&session.bridge);
    peer.reply(Session::greeting());
    let source = socket.release()?;
    let sink = source.try_clone()?;
    let mut reader = Reader {
        peer: Arc::clone(&peer),
        probe: match kind {
            Kind::Controller => timing.controller_probe,
            Kind::Service => timing.service_probe,
        },
        receive_stall: timing.receive_stall,
        probing: false,
    };
    let writer = write(sink, &peer, bridge, timing.send_stall);
    tokio::pin!(writer);
    let (outcome, source) = tokio::select! {
        outcome = reader.run(source, session) => match outcome {
            Ok(source) => (Ok(()), Some(source)),
            Err(error) => (Err(error), None),
        },
        outcome = &mut writer => return outcome,
    };
    peer.close();
    writer.await?;
    if let Some(source) = source {
        linger(&source).await;
    }
    outcome
}

/// Ends a peer's queue, on whatever way its connection ends.
struct Closed(Arc<Peer>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Sends what is queued until the queue is closed and empty.
async fn write(
    sink: Socket,
    peer: &Peer,
    bridge: Arc<dyn Bridge>,
    stall: Duration,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let items = peer.take(WRITE_BYTES).await;
        if items.is_empty() {
            sink.finish();
            return Ok(());
        }
        notify::encode(items, &*bridge, &mut buffer);
        for piece in buffer.chunks(WRITE_BYTES) {
            timeout(stall, sink.write_all(piece)).await??;
        }
        peer.sent(Vec::new());
        buffer.clear();
        buffer.shrink_to(WRITE_BYTES);
    }
}

struct Reader {
    peer: Arc<Peer>,
    probe: Duration,
    receive_stall: Duration,
    /// The other end has been asked whether it is there.
    probing: bool,
}

impl Reader {
    /// Has messages answered until the conversation is over.
    async fn run(&mut self, source: Socket, session: Session) -> io::Result<Watched> {
        let mut buffer = Vec::with_capacity(READ_BUFFER_BYTES);
        let mut source = source.watch()?;
        let mut session = session;
        loop {
            if self.read(&source, &mut buffer).await? == 0 {
                return Ok(source);
            }
            if !Messages::new(&buffer, 0).is_ready() {
                continue;
            }
            let mut worker = Worker { source: source.release()?, session, buffer };
            let mut verdict;
            loop {
                let work = move || worker.work().map(|verdict| (worker, verdict));
                let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?;
                (worker, verdict) = done?;
                match verdict {
                    // The rest waits here, and no thread with it.
                    Verdict::Paused => self.peer.room().await,
                    Verdict::Continue | Verdict::Close => break,
                }
            }
            source = worker.source.watch()?;
            (session, buffer) = (worker.session, worker.buffer);
            if verdict == Verdict::Close {
                return Ok(source);
            }
        }
    }

    /// Reads some bytes; none at the end of the stream.
    async fn read(&mut self, source: &Watched, buffer: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let started = !buffer.is_empty() || !self.peer.is_greeted();
            let patience = if started { self.receive_stall } else { self.probe };
            // A message is at most a quarter of the buffer, so there is room.
            match timeout(patience, source.read(buffer)).await {
                Ok(length) => {
                    self.probing = false;
                    return length;
                }
                Err(_) if started || self.probing => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "it has fallen silent"));
                }
                Err(_) => {
                    self.probing = true;
                    self.peer.reply(Message::EchoRequest(Vec::new()).encode(0));
                }
            }
        }
    }
}

/// Reads what the other end still sends for a moment: closing a TCP connection with unread bytes
/// would throw away what was sent to it last.
async fn linger(source: &Watched) {
    let mut rest = Vec::with_capacity(WRITE_BYTES);
    let drain = async {
        while source.read(&mut rest).await.is_ok_and(|length| length > 0) {
            rest.clear();
        }
    };
    // Whatever is not over by then is cut off.
    let _ = timeout(LINGER, drain).await;
}

/// How long an ending connection is still read.
const LINGER: Duration = Duration::from_millis(200);
