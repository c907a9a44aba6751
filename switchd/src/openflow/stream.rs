//! Cuts a byte stream into OpenFlow messages.

use std::ops::Range;

use tollgate_openflow::message::{HEADER_BYTES, Header};

/// Whole messages at the start of `bytes`, as ranges, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Messages<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What the next message is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole one.
    Message(Range<usize>),
    /// None yet.
    Incomplete,
    /// The stream cannot be followed: a length field is smaller than the header, which is here.
    Lost(Range<usize>),
}

impl<'a> Messages<'a> {
    /// The messages of `bytes` from `at` on.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the next message begins.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Moves past the next message, if it is whole.
    pub(super) fn next(&mut self) -> Next {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(header) = rest.first_chunk::<HEADER_BYTES>() else { return Next::Incomplete };
        let Ok(header) = Header::decode(*header) else {
            return Next::Lost(self.at..self.at + HEADER_BYTES);
        };
        let end = self.at + usize::from(header.length);
        if end > self.bytes.len() {
            return Next::Incomplete;
        }
        let start = std::mem::replace(&mut self.at, end);
        Next::Message(start..end)
    }

    /// Whether something can be done now: a message is whole, or the stream is lost.
    pub(super) fn is_ready(&self) -> bool {
        !matches!(self.clone().next(), Next::Incomplete)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(HEADER_BYTES + body.len()).unwrap().to_be_bytes();
        [&[4, 2, length[0], length[1], 0, 0, 0, 1], body].concat()
    }

    proptest! {
        #[test]
        fn messages_come_out_whole_however_they_arrive(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            piece in 1_usize..400,
        ) {
            let sent: Vec<_> = bodies.iter().map(|body| message(body)).collect();
            let mut buffer = Vec::new();
            let mut received = Vec::new();
            for piece in sent.concat().chunks(piece) {
                buffer.extend_from_slice(piece);
                let mut messages = Messages::new(&buffer, 0);
                while let Next::Message(range) = messages.next() {
                    received.push(buffer[range].to_vec());
                }
                prop_assert!(!messages.is_ready());
                let done = messages.position();
                buffer.drain(..done);
            }
            prop_assert_eq!(received, sent);
            prop_assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_stream_after_what_came_before() {
        let good = message(b"x");
        let bytes = [&good[..], &[4, 2, 0, 7, 0, 0, 0, 9, 1, 2, 3]].concat();
        let mut messages = Messages::new(&bytes, 0);
        assert_eq!(messages.next(), Next::Message(0..9));
        for _ in 0..2 {
            assert!(messages.is_ready());
            assert_eq!(messages.next(), Next::Lost(9..17));
        }
    }
}
