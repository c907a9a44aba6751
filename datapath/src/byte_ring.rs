//! A single-producer single-consumer ring of variable-size records, bounded in bytes: what a
//! tenant may have waiting is limited by memory, not by a count of frames of unknown size.

use rtrb::{Consumer, Producer, RingBuffer};

/// Bytes of the length in front of every record.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Makes a ring of `capacity_bytes`, allocated here and never grown.
pub(crate) fn byte_ring(capacity_bytes: usize) -> (RecordProducer, RecordConsumer) {
    let (producer, consumer) = RingBuffer::new(capacity_bytes);
    (RecordProducer(producer), RecordConsumer(consumer))
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

#[derive(Debug)]
pub(crate) struct RecordConsumer(Consumer<u8>);

impl RecordConsumer {
    /// Moves the oldest complete record into `record` (whose old content is lost).
    #[must_use]
    pub(crate) fn pop(&mut self, record: &mut Vec<u8>) -> bool {
        let mut len = [0; LENGTH_BYTES];
        match self.0.read_chunk(LENGTH_BYTES) {
            Ok(chunk) => {
                let (front, back) = chunk.as_slices();
                len.iter_mut().zip(front.iter().chain(back)).for_each(|(to, from)| *to = *from);
            }
            Err(_) => return false,
        }
        let len = u32::from_ne_bytes(len) as usize;
        if self.0.slots() < LENGTH_BYTES + len {
            return false;
        }
        record.resize(len, 0);
        let mut skipped = [0; LENGTH_BYTES];
        self.0.pop_entire_slice(&mut skipped).is_ok() && self.0.pop_entire_slice(record).is_ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_out_whole_and_in_order(
            steps in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..200)
        ) {
            let (mut producer, mut consumer) = byte_ring(128);
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            let mut record = Vec::new();
            for (push, bytes) in steps {
                if push {
                    let used: usize = model.iter().map(|record| record.len() + LENGTH_BYTES).sum();
                    let (head, body) = bytes.split_at(bytes.len() / 2);
                    let fits = used + LENGTH_BYTES + bytes.len() <= 128;
                    prop_assert_eq!(producer.push(head, body), fits);
                    if fits { model.push_back(bytes); }
                } else {
                    let expected = model.pop_front();
                    prop_assert_eq!(consumer.pop(&mut record), expected.is_some());
                    if let Some(expected) = expected { prop_assert_eq!(&record, &expected); }
                }
            }
            prop_assert_eq!(consumer.is_empty(), model.is_empty());
        }
    }
}
