//! A single-producer single-consumer ring of variable-size records, bounded in bytes: what a
//! tenant may have waiting is limited by memory, not by a count of frames of unknown size.

use rtrb::{Consumer, Producer, RingBuffer};

/// Bytes of the length in front of every record.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Makes a ring of `capacity_bytes`, allocated here and never grown.
pub(crate) fn byte_ring(capacity_bytes: usize) -> (RecordProducer, RecordConsumer) {
    let (producer, consumer) = RingBuffer::new(capacity_bytes);
    (RecordProducer(producer), RecordConsumer { ring: consumer, rest: 0 })
}

#[derive(Debug)]
pub(crate) struct RecordProducer(Producer<u8>);

impl RecordProducer {
    /// Appends one record of the two parts together; `false` when there is no room for all of it.
    #[must_use]
    pub(crate) fn push(&mut self, head: &[u8], body: &[u8]) -> bool {
        let len = head.len() + body.len();
        let Ok(len_field) = u32::try_from(len) else { return false };
        if self.0.slots() < LENGTH_BYTES + len {
            return false;
        }
        // The consumer reads the length first and then waits for the rest, so three steps that
        // cannot fail make one record.
        self.0.push_entire_slice(&len_field.to_ne_bytes()).is_ok()
            && self.0.push_entire_slice(head).is_ok()
            && self.0.push_entire_slice(body).is_ok()
    }
}

/// Takes records apart: what is not asked for is not read, as it would come through another core's
/// caches.
#[derive(Debug)]
pub(crate) struct RecordConsumer {
    ring: Consumer<u8>,
    /// Bytes of the oldest record, whose head was taken, that are still there.
    rest: usize,
}

impl RecordConsumer {
    /// Takes the head of the oldest complete record, as many bytes as `head` has; what is left of the
    /// record before is passed over. A shorter one is passed over too.
    #[must_use]
    pub(crate) fn pop_head(&mut self, head: &mut [u8]) -> bool {
        self.skip_rest();
        let mut len = [0; LENGTH_BYTES];
        match self.ring.read_chunk(LENGTH_BYTES) {
            Ok(chunk) => {
                let (front, back) = chunk.as_slices();
                len.iter_mut().zip(front.iter().chain(back)).for_each(|(to, from)| *to = *from);
            }
            Err(_) => return false,
        }
        let len = u32::from_ne_bytes(len) as usize;
        if self.ring.slots() < LENGTH_BYTES + len {
            return false;
        }
        let mut skipped = [0; LENGTH_BYTES];
        if self.ring.pop_entire_slice(&mut skipped).is_err() {
            return false;
        }
        self.rest = len;
        if len < head.len() || self.ring.pop_entire_slice(head).is_err() {
            self.skip_rest();
            return false;
        }
        self.rest = len - head.len();
        true
    }

    /// Moves the oldest complete record into `record` (whose old content is lost).
    #[must_use]
    pub(crate) fn pop(&mut self, record: &mut Vec<u8>) -> bool {
        if !self.pop_head(&mut []) {
            return false;
        }
        record.resize(std::mem::take(&mut self.rest), 0);
        self.ring.pop_entire_slice(record).is_ok()
    }

    /// Bytes of the record that follow its head.
    pub(crate) fn rest_len(&self) -> usize {
        self.rest
    }

    /// Takes what follows the head; nothing if that was done before.
    pub(crate) fn pop_rest(&mut self) -> Vec<u8> {
        let mut rest = vec![0; std::mem::take(&mut self.rest)];
        // It has been there since the head was.
        let _ = self.ring.pop_entire_slice(&mut rest);
        rest
    }

    fn skip_rest(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        if let Ok(chunk) = self.ring.read_chunk(rest) {
            chunk.commit_all();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.slots() <= self.rest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const HEAD: usize = 3;

    proptest! {
        /// The room of what is not asked for is there again with the next record.
        #[test]
        fn records_come_out_whole_and_in_order(
            steps in prop::collection::vec(
                (0..3_u8, prop::collection::vec(any::<u8>(), HEAD..40)),
                0..200,
            )
        ) {
            let (mut producer, mut consumer) = byte_ring(128);
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            // What of the last record that was begun is still in the ring.
            let mut left = 0;
            for (step, bytes) in steps {
                if step == 0 {
                    let used: usize = model.iter().map(|record| record.len() + LENGTH_BYTES).sum();
                    let (head, body) = bytes.split_at(bytes.len() / 2);
                    let fits = used + left + LENGTH_BYTES + bytes.len() <= 128;
                    prop_assert_eq!(producer.push(head, body), fits);
                    if fits { model.push_back(bytes); }
                } else {
                    let mut head = [0; HEAD];
                    let expected = model.pop_front();
                    left = 0;
                    prop_assert_eq!(consumer.pop_head(&mut head), expected.is_some());
                    if let Some(expected) = expected {
                        let (expected_head, expected_rest) = expected.split_at(HEAD);
                        prop_assert_eq!(&head, expected_head);
                        left = expected_rest.len();
                        prop_assert_eq!(consumer.rest_len(), left);
                        if step == 2 {
                            prop_assert_eq!(&consumer.pop_rest(), expected_rest);
                            prop_assert!(consumer.pop_rest().is_empty());
                            left = 0;
                        }
                    }
                }
                prop_assert_eq!(consumer.is_empty(), model.is_empty());
            }
        }
    }
}
