//! Cuts a byte stream into OpenFlow messages.

use tollgate_openflow::limits::MESSAGE_MAX_BYTES;
use tollgate_openflow::message::{HEADER_BYTES, Header};

/// What has arrived of a connection's byte stream: at most one message and one read.
#[derive(Debug, Default)]
pub(super) struct MessageStream {
    bytes: Vec<u8>,
}

/// The stream cannot be followed: a length field is smaller than the header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LostStream;

impl MessageStream {
    /// Bytes that may be appended before whole messages are taken out.
    pub(super) const READ_BYTES: usize = MESSAGE_MAX_BYTES;

    /// Appends what was read.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether a message has begun and is not complete.
    pub(super) fn is_partial(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Takes all complete messages out. Those before a length that cannot be are still returned.
    pub(super) fn take_messages(&mut self) -> (Vec<Vec<u8>>, Result<(), LostStream>) {
        let mut messages = Vec::new();
        let mut rest = self.bytes.as_slice();
        let mut state = Ok(());
        while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
            let Ok(header) = Header::decode(*header) else {
                // Enough of it to be quoted in the refusal.
                messages.push(rest.get(..HEADER_BYTES).unwrap_or(rest).to_vec());
                rest = &[];
                state = Err(LostStream);
                break;
            };
            let Some((message, after)) = rest.split_at_checked(usize::from(header.length)) else {
                break;
            };
            messages.push(message.to_vec());
            rest = after;
        }
        let consumed = self.bytes.len() - rest.len();
        self.bytes.drain(..consumed);
        (messages, state)
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
            let mut stream = MessageStream::default();
            let mut received = Vec::new();
            for piece in sent.concat().chunks(piece) {
                stream.extend(piece);
                let (messages, state) = stream.take_messages();
                prop_assert_eq!(state, Ok(()));
                received.extend(messages);
            }
            prop_assert_eq!(received, sent);
            prop_assert!(!stream.is_partial());
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_stream_after_what_came_before() {
        let mut stream = MessageStream::default();
        let good = message(b"x");
        stream.extend(&good);
        stream.extend(&[4, 2, 0, 7, 0, 0, 0, 9, 1, 2, 3]);
        let (messages, state) = stream.take_messages();
        assert_eq!(messages, [good, vec![4, 2, 0, 7, 0, 0, 0, 9]]);
        assert_eq!(state, Err(LostStream));
    }
}
