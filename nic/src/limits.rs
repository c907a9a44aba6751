//! Bounds on what a NIC port keeps.

/// Mbufs of one device: what both descriptor rings and two bursts can hold, and slack for the
/// driver's caches.
pub(crate) const POOL_MBUFS: u32 = 4095;

/// Descriptors of the receive and of the transmit ring.
pub(crate) const RING_DESCRIPTORS: u16 = 1024;

/// Frames handed to the driver in one call.
pub(crate) const BURST_FRAMES: usize = 32;

/// Data room of an mbuf, headroom included: a frame of the usual MTU in one piece.
pub(crate) const MBUF_DATA_BYTES: u16 = 2176;
