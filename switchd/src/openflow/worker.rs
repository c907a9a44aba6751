//! A connection in the hands of a thread that may block: messages are carried out, and read, for
//! as long as they keep coming.

use std::io;
use std::time::Duration;

use super::session::{Session, Verdict};
use super::socket::Socket;

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
            let (done, verdict) = self.session.work(&self.buffer, 0);
            self.buffer.drain(..done);
            if verdict != Verdict::Continue {
                return Ok(verdict);
            }
            if self.session.peer().is_closed() {
                return Ok(Verdict::Close);
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

    /// Reads what comes soon, if anything does; 0 at the end of the stream.
    fn read_more(&mut self) -> io::Result<Option<usize>> {
        match self.source.read_now(&mut self.buffer)? {
            None if self.source.wait(PATIENCE)? => self.source.read_now(&mut self.buffer),
            read => Ok(read),
        }
    }
}
