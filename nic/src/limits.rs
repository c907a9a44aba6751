//! Bounds on what a NIC port keeps.

use std::ops::RangeInclusive;

use tollgate_frame::BURST_PACKETS;
use tollgate_packet::limits::MAX_FRAME_BYTES;

/// Receive queues of one port; the datapath polls as many rings of one port.
pub const MAX_QUEUES: u16 = 8;

/// What a frame has beside its payload of at most an MTU: the Ethernet header and two VLAN tags.
pub const FRAME_OVERHEAD_BYTES: u16 = 14 + 2 * 4;

/// MTUs that can be asked for: the least that IPv4 allows, and what the largest frame holds.
pub const MTU: RangeInclusive<u16> = 68..=MAX_FRAME_BYTES as u16 - FRAME_OVERHEAD_BYTES;

/// Descriptors of a receive ring, unless the device wants fewer: what comes at 10 Gbit/s in the
/// smallest frames while a ring that was silent for long is not looked at (100 us) fits.
#[cfg(feature = "dpdk")]
pub(crate) const RX_DESCRIPTORS: u16 = 2048;

/// Descriptors of a transmit ring: some milliseconds of small frames at 10 Gbit/s would be more than
/// latency allows; this is less than one.
#[cfg(feature = "dpdk")]
pub(crate) const TX_DESCRIPTORS: u16 = 2048;

/// Frames taken from or given to the driver in one call. Vectorised drivers take no fewer, and a task
/// has no more.
pub const DRIVER_BURST: usize = BURST_PACKETS;

/// Mbufs that a polling thread may keep to itself, so that it goes to the pool's shared ring once in a
/// few bursts.
#[cfg(feature = "dpdk")]
pub(crate) const POOL_CACHE_MBUFS: u32 = 256;

/// Mbufs of a pool beyond what both rings and the caches hold: bursts under way, and what waits in the
/// rings of other devices that they were handed to.
#[cfg(feature = "dpdk")]
pub(crate) const POOL_SPARE_MBUFS: u32 = 2048;

/// In front of the data of each mbuf (RTE_PKTMBUF_HEADROOM): tags and tunnel headers are pushed there.
#[cfg(feature = "dpdk")]
pub(crate) const MBUF_HEADROOM_BYTES: u16 = 128;

/// Least data room of an mbuf beside the headroom: below it some drivers cut frames into pieces.
#[cfg(feature = "dpdk")]
pub(crate) const MBUF_DATA_BYTES_MIN: u16 = 2048;

/// Bursts that are thrown away when a device is closed, so that a ring that is filled while it is
/// emptied does not keep us.
#[cfg(feature = "dpdk")]
pub(crate) const CLOSING_BURSTS: usize = 1024;
