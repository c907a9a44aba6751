//! Bounds of this crate, each with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Largest ring: the split virtqueue's own bound (virtio 1.2, 2.7), a power of two.
pub const RING_SIZE_MAX: u16 = 32768;

/// Descriptors in one transmit chain at most. Linux sends 18 (17 page fragments and a header), so
/// this leaves room for what no sensible guest would send.
pub const TX_SEGMENTS_MAX: usize = 256;

/// Receive buffers that one frame may span with MRG_RXBUF. A 64 KiB frame in 1 KiB buffers.
pub const RX_BUFFERS_PER_FRAME_MAX: usize = 64;

/// Frames handled between two publications of a receive ring: the burst that DPDK and the switch
/// use, so that one index write serves 32 frames.
pub const BURST_FRAMES: usize = 32;

/// Queue pairs of one port: what the switch offers.
pub const QUEUE_PAIRS_MAX: u16 = 8;

/// Memory regions of one port: vhost-user's classic bound on SET_MEM_TABLE (8 regions).
pub const MEMORY_REGIONS_MAX: usize = 8;

/// Smallest frame: Ethernet's 64 bytes without the FCS.
pub const FRAME_BYTES_MIN: usize = 60;

/// Largest frame: a usual jumbo MTU and its Ethernet header.
pub const FRAME_BYTES_MAX: usize = 9216;

/// Pairs of one phase: the pair's number travels in one byte of each frame.
pub const PAIRS_MAX: usize = 256;

/// Requests one pair may have outstanding.
pub const INFLIGHT_MAX: usize = 1024;

/// Frames that a sender with a congestion window may have under way: a ring's usual length, so that a
/// path that never marks nor drops is full and still bounded.
pub const CONGESTION_WINDOW_MAX: usize = 1024;

/// Flows whose order is tracked one by one; beyond it flows share entries of the order table
/// (4 bytes each), because a larger table would put a cache miss on every frame received.
pub const ORDERED_FLOWS_MAX: u64 = 65536;

/// Intervals that get a histogram each (29 KB apiece), those of all pairs of a phase together: some
/// 240 MB. A phase with more of them reports counts per interval and one histogram for all.
pub const INTERVAL_HISTOGRAMS_MAX: usize = 8192;

/// A stretch of sending or of pausing: below a microsecond the loop would not see it, and above ten
/// seconds it is another phase.
pub const ON_OFF_RANGE: RangeInclusive<Duration> =
    Duration::from_micros(1)..=Duration::from_secs(10);

/// Intervals of a phase at most: per-interval counts are allocated before the phase starts.
pub const INTERVALS_MAX: usize = 100_000;
