//! Bounds on what one frontend and its guest may ask for.

pub use tollgate_frame::limits::MAX_PACKET_SEGMENTS;
pub use tollgate_packet::limits::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};

/// Queue pairs of one port: more would let one VM fill the PMD's turn with polling.
pub const MAX_QUEUE_PAIRS: u16 = 8;

/// Entries of a split ring (virtio 1.2, 2.7: a power of two, at most 32768). Nothing here grows
/// with it.
pub const MAX_RING_ENTRIES: u32 = 32768;

/// Memory regions of one frontend: as many as one message of the `vhost` crate can carry; QEMU uses
/// 2 to 8. They are searched linearly after the last hit, so there should be few.
pub const MAX_MEMORY_REGIONS: usize = 32;

/// Descriptors of one chain that are looked at before its frame is given up; also the pieces that a
/// frame may be gathered from or scattered to.
pub const MAX_CHAIN_DESCRIPTORS: usize = MAX_PACKET_SEGMENTS;

/// Receive buffers that one frame may be spread over: a 9216-byte frame fits into 128-byte buffers.
pub const MAX_BUFFERS_PER_FRAME: usize = 80;

/// Cycles that a receiver is charged at most for finding one piece of its buffers: several cache
/// misses. What takes longer is an interruption, or a page that was never touched.
pub const MAX_PIECE_CYCLES: u64 = 2000;

/// Ring entries staged ahead (heads, descriptors, prefetches): one burst. A power of two.
pub const STAGED_ENTRIES: usize = tollgate_frame::BURST_PACKETS;

/// Signals that one flush of a [`Notifier`](crate::Notifier) sends.
pub const NOTIFIER_BATCH: usize = 32;

/// Log lines a second for one port; the rest are counted.
pub const LOG_LINES_PER_SECOND: u32 = 5;

/// Times a second that one frontend may start or stop rings; beyond it, its messages wait. Each is
/// mail to a PMD, which others share. Setting up 8 pairs takes some 100.
pub const RING_CHANGES_PER_SECOND: u32 = 500;

/// Pages of one region that it is known of whether they were written to, a bit each: 2 MiB for one of
/// 64 GiB. A frontend that maps an endless sparse file costs no more.
pub const TRACKED_PAGES_MAX: u64 = 1 << 24;

/// As far into a buffer as a frame of 1500 bytes reaches with all headers: whether these pages are
/// known is seen when the buffer is read ahead.
pub const USUAL_FRAME_BYTES: u32 = 1536;

/// Most that a first write to pages of a receiver's makes it pay for one frame: a huge page is cleared
/// in less. Longer than that is an interruption.
pub const MAX_MEET_CYCLES: u64 = 1_000_000;
