//! A packet in flight: a copied header, a reference to the payload where it lies, and the copies
//! of racing memory between them.
//!
//! The source of a frame (a guest's ring, a host port) appends to a [`Burst`]: the header's bytes
//! are copied once, the payload stays where it is and is named by [`Segment`]s. A [`Sink`] copies
//! header and payload once into their destination. Memory that a peer can write at any moment is
//! touched only by [`copy`].
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod buffer;
pub mod burst;
pub mod copy;
pub mod drop_reason;
mod fetch_stats;
pub mod limits;
pub mod segment;

pub use buffer::Buffer;
pub use burst::{Burst, Packet, PacketWriter};
pub use drop_reason::DropReason;
pub use fetch_stats::FetchStats;
pub use limits::{BURST_PACKETS, BURST_SEGMENTS, MAX_PACKET_SEGMENTS};
pub use segment::{Segment, payload_len};

/// Where frames leave: a guest's receive ring, a host port.
pub trait Sink {
    /// Copies one frame out, or says why not. The peer may see it only once the sink's owner has
    /// published.
    ///
    /// # Errors
    /// The reason under which the caller counts the frame as dropped; the sink has not counted it.
    fn deliver(&mut self, header: &[u8], payload: &[Segment<'_>]) -> Result<(), DropReason>;
}
