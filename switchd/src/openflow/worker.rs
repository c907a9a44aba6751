//! A connection in the hands of a thread that may block: messages are carried out, and read, for
//! as long as they keep coming.

use std::io;
use std::time::Duration;

use super::notify;
use super::session::{Session, Verdict};
use super::socket::Socket;
use crate::limits::WRITE_BYTES;

/// What a thread needs to go on with a conversation.
pub(super) struct Worker {
    pub(super) source: Socket,
    pub(super) session: Session,
    /// What was read and is not answered yet; it has room for more.
    pub(super) buffer: Vec<u8>,
}

/// How long the next message may take before the thread is given back: longer than it takes a
/// client to send one, shorter than anybody would notice a thread missing.
const PATIENCE: Duration = Duration::from_millis(1);

/// Whoever sends less at a time is given the processor once more before the next read, so that
/// more comes at once.
const SMALL_BYTES: usize = 16 << 10;

impl Worker {
    /// Carries out messages until none comes for a while, the answers are not read, or the
    /// conversation is over.
    pub(super) fn work(&mut self) -> io::Result<Verdict> {
        loop {
            let (done, verdict) = self.session.work(&self.buffer);
            self.buffer.drain(..done);
            self.send_answers()?;
            match verdict {
                Verdict::Paused if !self.session.peer().is_full() => continue,
                Verdict::Paused | Verdict::Close => return Ok(verdict),
                Verdict::Continue if self.session.peer().is_closed() => return Ok(Verdict::Close),
                Verdict::Continue => {}
            }
            if done < SMALL_BYTES {
                std::thread::yield_now();
            }
            match self.read_more()? {
                Some(0) => return Ok(Verdict::Close),
                Some(_) => {}
                None => return Ok(Verdict::Continue),
            }
        }
    }

    /// Sends what is queued as far as there is room, unless the connection's writer is at it. The
    /// rest is the writer's.
    fn send_answers(&self) -> io::Result<()> {
        let peer = self.session.peer();
        loop {
            let items = peer.take_now(WRITE_BYTES);
            if items.is_empty() {
                return Ok(());
            }
            let mut buffer = Vec::new();
            notify::encode(items, &*self.session.bridge, &mut buffer);
            let written = self.source.write_now(&buffer)?;
            buffer.drain(..written);
            let stuck = !buffer.is_empty();
            peer.sent(buffer);
            if stuck {
                return Ok(());
            }
        }
    }

    /// Reads what comes soon, if anything does; 0 at the end of the stream.
    fn read_more(&mut self) -> io::Result<Option<usize>> {
        match self.source.read_now(&mut self.buffer)? {
            None if self.source.wait(PATIENCE)? => self.source.read_now(&mut self.buffer),
            read => Ok(read),
        }
    }
}
