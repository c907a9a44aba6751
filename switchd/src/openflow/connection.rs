//! One connection: a reader that has messages answered, and a writer that sends what is queued. A
//! slow writer holds up its own reader and nobody else.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::time::timeout;
use tollgate_openflow::Message;

use super::peer::{Item, Kind, Peer};
use super::session::{Session, Verdict};
use super::stream::Messages;
use super::timing::Timing;
use super::{Bridge, notify};
use crate::limits::{READ_BUFFER_BYTES, WRITE_BYTES};

/// Converses with the other end of `stream` until it ends, misbehaves or falls silent.
pub(super) async fn run<S>(
    stream: S,
    session: Session,
    kind: Kind,
    timing: &Timing,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let peer = Arc::clone(session.peer());
    let bridge = Arc::clone(&session.bridge);
    peer.reply(Session::greeting());
    let (reader, writer) = tokio::io::split(stream);
    let probe = match kind {
        Kind::Controller => timing.controller_probe,
        Kind::Service => timing.service_probe,
    };
    let receive_stall = timing.receive_stall;
    let session = Some(session);
    let mut reader = Reader { stream: reader, session, probe, receive_stall, probing: false };
    let writer = write(writer, &peer, bridge, timing.send_stall);
    tokio::pin!(writer);
    let outcome = tokio::select! {
        outcome = reader.run() => outcome,
        outcome = &mut writer => return outcome,
    };
    peer.close();
    writer.await?;
    reader.linger().await;
    outcome
}

/// Sends what is queued until the queue is closed and empty.
async fn write<S>(
    mut stream: WriteHalf<S>,
    peer: &Peer,
    bridge: Arc<dyn Bridge>,
    stall: Duration,
) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let mut buffer = Vec::new();
    loop {
        let items = peer.take(WRITE_BYTES).await;
        if items.is_empty() {
            return timeout(stall, stream.shutdown()).await?;
        }
        for item in items {
            match item {
                Item::Reply(messages) => buffer.extend_from_slice(&messages),
                Item::Event(event) => buffer.extend_from_slice(&notify::encode(&event, &*bridge)),
            }
        }
        for piece in buffer.chunks(WRITE_BYTES) {
            timeout(stall, stream.write_all(piece)).await??;
        }
        buffer.clear();
        buffer.shrink_to(WRITE_BYTES);
    }
}

struct Reader<S> {
    stream: ReadHalf<S>,
    /// With the thread that works for it, or here.
    session: Option<Session>,
    probe: Duration,
    receive_stall: Duration,
    /// The other end has been asked whether it is there.
    probing: bool,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Reader<S> {
    async fn run(&mut self) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(READ_BUFFER_BYTES);
        loop {
            if self.read(&mut buffer).await? == 0 {
                return Ok(());
            }
            if !Messages::new(&buffer, 0).is_ready() {
                continue;
            }
            let (verdict, done);
            (buffer, done, verdict) = self.work(buffer).await?;
            if verdict == Verdict::Close {
                return Ok(());
            }
            buffer.drain(..done);
        }
    }

    /// Reads some bytes; none at the end of the stream.
    async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            // A message is at most a quarter of the buffer, so there is room.
            let started = !buffer.is_empty() || !self.is_greeted();
            let patience = if started { self.receive_stall } else { self.probe };
            match timeout(patience, self.stream.read_buf(buffer)).await {
                Ok(length) => {
                    self.probing = false;
                    return length;
                }
                Err(_) if started || self.probing => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "it has fallen silent"));
                }
                Err(_) => {
                    self.probing = true;
                    if let Some(session) = &self.session {
                        session.peer().reply(Message::EchoRequest(Vec::new()).encode(0));
                    }
                }
            }
        }
    }

    fn is_greeted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.peer().is_greeted())
    }

    /// Has the session answer the messages in `buffer` on a thread that may block. When the other
    /// end does not read the answers, the rest waits here, and no thread with it. Returns how many
    /// bytes are done with.
    async fn work(&mut self, mut buffer: Vec<u8>) -> io::Result<(Vec<u8>, usize, Verdict)> {
        let mut done = 0;
        loop {
            let Some(mut session) = self.session.take() else {
                return Err(io::Error::other("the connection's session is lost"));
            };
            let work = move || {
                let (done, verdict) = session.work(&buffer, done);
                (session, buffer, done, verdict)
            };
            let (session, verdict);
            (session, buffer, done, verdict) =
                tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?;
            let session = self.session.insert(session);
            match verdict {
                Verdict::Paused => session.peer().room().await,
                Verdict::Continue | Verdict::Close => return Ok((buffer, done, verdict)),
            }
        }
    }

    /// Reads what the other end still sends for a moment: closing a TCP connection with unread
    /// bytes would throw away what was sent to it last.
    async fn linger(&mut self) {
        let mut rest = Vec::with_capacity(WRITE_BYTES);
        let drain = async {
            while self.stream.read_buf(&mut rest).await.is_ok_and(|length| length > 0) {
                rest.clear();
            }
        };
        // Whatever is not over by then is cut off.
        let _ = timeout(LINGER, drain).await;
    }
}

/// How long an ending connection is still read.
const LINGER: Duration = Duration::from_millis(200);
