//! SET_VRING_ENABLE before SET_FEATURES.
//!
//! QEMU enables a card's first queue pair when the card is made, long before a driver in the guest has
//! acknowledged anything. The specification allows the message once VHOST_USER_F_PROTOCOL_FEATURES
//! "has been negotiated", which QEMU takes for offered by us and used by it; the `vhost` crate's
//! dispatcher takes it for acknowledged by SET_FEATURES and ends the connection. So until features
//! are acknowledged, this one message is taken off the stream here.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, recv};
use vhost::vhost_user::message::FrontendReq;
use vhost::vhost_user::{Error as ProtocolError, VhostUserBackendReqHandlerMut as _};

use super::Session;

const HEADER_BYTES: usize = 12;

/// Header, ring index, and 0 or 1.
const MESSAGE_BYTES: usize = HEADER_BYTES + 8;

/// Flags of a header (vhost-user, "Message Specification"): version 1 in the low two bits.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Handles the next message if it enables or disables a ring and features are not acknowledged yet.
/// Waits for a message like the dispatcher; `false` leaves it on the stream for that one.
pub(super) fn handle_enable(
    stream: &mut UnixStream,
    session: &mut Session<'_>,
) -> Result<bool, ProtocolError> {
    let mut header = [0; HEADER_BYTES];
    // Looked at, not taken. No place is given for descriptors, so those that the message may carry
    // stay with it as well.
    let seen = recv(&*stream, &mut header, RecvFlags::PEEK | RecvFlags::WAITALL);
    if !matches!(seen, Ok((HEADER_BYTES, _))) {
        // The end of the stream or an error: the dispatcher meets and names it.
        return Ok(false);
    }
    let [request, flags, size] = words(&header);
    let wanted = (u32::from(FrontendReq::SET_VRING_ENABLE), VERSION, 8);
    if (request, flags & 3, size) != wanted {
        return Ok(false);
    }
    let mut message = [0; MESSAGE_BYTES];
    stream.read_exact(&mut message).map_err(|_| ProtocolError::PartialMessage)?;
    let [_, _, _, index, enable] = words(&message);
    let result = match enable {
        0 | 1 => session.set_vring_enable(index, enable == 1),
        _ => Err(ProtocolError::InvalidParam),
    };
    if flags & NEED_REPLY != 0 && session.acknowledges {
        let failed = u64::from(result.is_err());
        let mut reply = Vec::with_capacity(MESSAGE_BYTES);
        for word in [request, VERSION | REPLY, 8] {
            reply.extend_from_slice(&word.to_le_bytes());
        }
        reply.extend_from_slice(&failed.to_le_bytes());
        stream.write_all(&reply).map_err(ProtocolError::SocketBroken)?;
    }
    result.map(|()| true)
}

/// The little-endian words of a message.
fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    let (chunks, _) = bytes.as_chunks::<4>();
    let mut words = [0; WORDS];
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u32::from_le_bytes(*chunk);
    }
    words
}
