//! Sending many messages in a row while listening for what is refused of them.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{anyhow, bail};
use tollgate_openflow::text::format_error;
use tollgate_openflow::{ErrorCode, Message};

use super::connection::{Connection, broken, is_timeout};
use crate::limits::SEND_CHUNK_BYTES;
use crate::stream::Stream;

/// A refusal of one of several messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Which message, counted from 0 in the order of sending.
    pub(crate) index: usize,
    /// Why.
    pub(crate) code: ErrorCode,
}

/// What became of messages sent in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// How many there were.
    pub(crate) count: usize,
    /// How many of them were refused.
    pub(crate) refused: usize,
    /// The first refusal.
    pub(crate) first_refusal: Option<Refusal>,
    /// The xid of the first message; the others follow.
    pub(super) first_xid: u32,
}

/// Half of all xids: those in the other half are of messages sent before.
const COUNT_MAX: usize = 1 << 31;

impl Sent {
    /// Takes note of an error if it is about one of the messages.
    pub(super) fn refuse(&mut self, xid: u32, code: ErrorCode) -> bool {
        let index = xid.wrapping_sub(self.first_xid) as usize;
        if index >= self.count.min(COUNT_MAX) {
            return false;
        }
        self.refused += 1;
        self.first_refusal.get_or_insert(Refusal { index, code });
        true
    }
}

impl Connection {
    /// Sends the messages as they come and a barrier, and waits until the switch has carried out
    /// all of them. A message that fails to come ends the connection.
    ///
    /// Sending and receiving go on side by side: a switch that stops reading until its refusals
    /// are read would otherwise never go on.
    pub(crate) fn pipeline<I>(&mut self, messages: I) -> anyhow::Result<Sent>
    where
        I: Iterator<Item = anyhow::Result<Message>> + Send,
    {
        let barrier = self.next_xid();
        let first_xid = barrier.wrapping_add(1);
        let mut stream = self.stream.try_clone()?;
        let progress = AtomicUsize::new(0);
        let mut echoes = Vec::new();
        let mut sent = Sent { count: usize::MAX, first_xid, ..Sent::default() };
        let outcome = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let result = send(&mut stream, messages, first_xid, barrier, &progress);
                if result.is_err() {
                    // Ends the wait for an answer that will not come.
                    let _ = stream.shutdown();
                }
                result
            });
            let heard = self.until_barrier(barrier, &mut sent, &progress, &mut echoes);
            if heard.is_err() {
                // Ends a write that would wait for the switch for ever.
                let _ = self.stream.shutdown();
            }
            match sending.join() {
                // What the switch said last tells more than that it went.
                Ok(Err(error)) if error.is::<io::Error>() => {
                    heard.and(Err(error.downcast().map_or_else(|error| error, broken)))
                }
                Ok(Err(error)) => Err(error),
                Ok(Ok(count)) => heard.map(|()| count),
                Err(_) => Err(anyhow!("sending broke off")),
            }
        });
        sent.count = outcome?;
        self.xid = barrier.wrapping_add(sent.count as u32);
        for echo in echoes {
            self.stream.write_all(&echo).map_err(broken)?;
        }
        Ok(sent)
    }

    /// Receives up to the barrier's answer. Replies to echo requests are only collected: while the
    /// other thread writes, waiting for the socket could block both sides.
    fn until_barrier(
        &mut self,
        barrier: u32,
        sent: &mut Sent,
        progress: &AtomicUsize,
        echoes: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let mut before = 0;
        loop {
            let (header, message) = match self.hear() {
                Ok(heard) => heard,
                Err(error) => {
                    let error = error.downcast::<io::Error>()?;
                    let now = progress.load(Ordering::Relaxed);
                    // A switch that still takes messages is not silent: no answer is due yet.
                    if is_timeout(&error) && now != before {
                        before = now;
                        continue;
                    }
                    return Err(broken(error));
                }
            };
            match message {
                Message::BarrierReply if header.xid == barrier => return Ok(()),
                Message::Error(error) if !sent.refuse(header.xid, error.code) => {
                    bail!("the switch refused: {}", format_error(error.code));
                }
                Message::EchoRequest(data) => {
                    echoes.push(Message::EchoReply(data).encode(header.xid));
                }
                _ => {}
            }
        }
    }
}

/// Sends the messages with xids from `first_xid` on, and a barrier; how many there were.
fn send(
    stream: &mut Stream,
    messages: impl Iterator<Item = anyhow::Result<Message>>,
    first_xid: u32,
    barrier: u32,
    progress: &AtomicUsize,
) -> anyhow::Result<usize> {
    let mut chunk = Vec::with_capacity(SEND_CHUNK_BYTES + SEND_CHUNK_BYTES / 4);
    let mut count: usize = 0;
    for message in messages {
        message?.encode_into(first_xid.wrapping_add(count as u32), &mut chunk);
        count += 1;
        if chunk.len() >= SEND_CHUNK_BYTES {
            stream.write_all(&chunk)?;
            chunk.clear();
            progress.store(count, Ordering::Relaxed);
        }
    }
    Message::BarrierRequest.encode_into(barrier, &mut chunk);
    stream.write_all(&chunk)?;
    Ok(count)
}
