//! Messages kept for later, within a budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stream::{Messages, Next};

/// Bytes that may be kept at a time, by whomever.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, used_bytes: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Whole messages, as they stand on the wire: a third of what they take decoded.
#[derive(Debug)]
pub(super) struct Recording {
    /// A vector that grew by doubling would hold a large bundle three times while it grows.
    chunks: Vec<Vec<u8>>,
    bytes: usize,
    budget: Arc<Budget>,
}

/// No room is left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

const CHUNK_BYTES: usize = 1 << 20;

impl Recording {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { chunks: Vec::new(), bytes: 0, budget }
    }

    pub(super) fn push(&mut self, message: &[u8]) -> Result<(), Full> {
        if !self.budget.take(message.len()) {
            return Err(Full);
        }
        self.bytes += message.len();
        match self.chunks.last_mut() {
            Some(last) if last.len() + message.len() <= CHUNK_BYTES => {
                last.extend_from_slice(message);
            }
            _ => self.chunks.push(message.to_vec()),
        }
        Ok(())
    }

    /// The messages in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().flat_map(|chunk| {
            let mut messages = Messages::new(chunk, 0);
            std::iter::from_fn(move || match messages.next() {
                Next::Message(range) => chunk.get(range),
                Next::Incomplete | Next::Lost(_) => None,
            })
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_openflow::Message;

    use super::*;

    #[test]
    fn a_recording_plays_back_what_was_put_in_and_gives_its_room_back() {
        let messages: Vec<_> = (0..60)
            .map(|xid| Message::EchoRequest(vec![7; xid as usize * 1000]).encode(xid))
            .collect();
        let total: usize = messages.iter().map(Vec::len).sum();
        let budget = Arc::new(Budget::new(total));
        for _ in 0..2 {
            let mut recording = Recording::new(Arc::clone(&budget));
            messages.iter().for_each(|message| recording.push(message).unwrap());
            assert!(recording.chunks.len() > 1);
            assert!(recording.iter().eq(messages.iter().map(Vec::as_slice)));
            assert_eq!(recording.push(&messages[0]), Err(Full));
        }
    }
}
