//! Bounds on a burst.

/// Packets in a burst, the unit of all work on a PMD: enough to hide the cache misses of one packet
/// behind the work on the others, little enough to be one scheduling quantum.
pub const BURST_PACKETS: usize = 32;

/// Payload segments of one packet, and descriptors of one chain. A 9216-byte frame in 4 KiB pages
/// needs 4; Linux never builds more than about 20. What is longer costs more to walk than it can
/// be worth (DPDK's vhost library stops at 256 too).
pub const MAX_PACKET_SEGMENTS: usize = 256;

/// Segments of all packets of a burst. Twelve a packet on average beside one of the longest, so
/// that only absurd guests see short bursts.
pub const BURST_SEGMENTS: usize = MAX_PACKET_SEGMENTS + BURST_PACKETS * 12;
