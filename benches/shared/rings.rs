//! Two rings with nothing of the switch in between: what its packets' way would cost if nothing were
//! to be decided or accounted for.

use std::fmt;
use std::sync::Arc;

use proving_ground::instructions::PACKETS;
use tollgate_frame::Burst;
use tollgate_vhost::mock::{self, Driver, Ram};
use tollgate_vhost::{ActiveVring, Features, FetchStats, PortStatus};

/// The least power of two that holds [`PACKETS`].
pub(crate) const RING_ENTRIES: u16 = 256;
/// Packets of a burst.
pub(crate) const BURST_PACKETS: usize = 32;
/// What the driver posts.
const RECEIVE_BYTES: u32 = 2048;

/// A sender's ring and a receiver's, and the drivers of both.
pub(crate) struct Rings {
    from: ActiveVring,
    to: ActiveVring,
    sender: Driver,
    receiver: Driver,
    _rams: [Ram; 2],
    frame: Vec<u8>,
    burst: Burst,
    malformed: FetchStats,
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

impl Rings {
    /// With frames of `frame_bytes`, [`PACKETS`] of them waiting; the way has been gone before.
    pub(crate) fn new(frame_bytes: usize) -> Self {
        let status = Arc::new(PortStatus::new());
        let ring = |index| {
            let (ram, driver) = Driver::alone(RING_ENTRIES);
            driver.set_avail_flags(1);
            let features = Features::offered(1);
            let ring = mock::activate(&ram, &driver, index, features, &status);
            (ring.expect("it lies in its memory"), ram, driver)
        };
        let (from, from_ram, sender) = ring(mock::FROM_GUEST);
        let (to, to_ram, receiver) = ring(mock::TO_GUEST);
        let mut rings = Self {
            from,
            to,
            sender,
            receiver,
            _rams: [from_ram, to_ram],
            frame: mock::frame(frame_bytes, 1),
            burst: Burst::new(),
            malformed: FetchStats::new(),
        };
        // Until every buffer is known to the ring, and all of a round were.
        for _ in 0..3 {
            rings.refill();
            rings.copy();
        }
        rings.refill();
        rings
    }

    /// Sends [`PACKETS`] frames, and posts a buffer for each.
    pub(crate) fn refill(&mut self) {
        let header_bytes = Features::offered(1).net_header_bytes();
        self.sender.take_used();
        self.receiver.take_used();
        for _ in 0..PACKETS {
            self.receiver.post(RECEIVE_BYTES);
            self.sender.transmit(header_bytes, &self.frame);
        }
    }

    /// Fetches and delivers all that waits, burst by burst; how many packets that were.
    pub(crate) fn copy(&mut self) -> usize {
        let mut packets = 0;
        loop {
            let fetched = self.from.fetch(&mut self.burst, BURST_PACKETS, &mut self.malformed);
            if fetched == 0 {
                return packets;
            }
            self.to.prefetch(fetched);
            for (packet, payload) in self.burst.frames_from(0) {
                let delivered = self.to.deliver(packet.header.bytes(), payload);
                packets += usize::from(delivered.is_ok());
            }
            self.from.complete();
            self.to.publish();
            self.burst.clear();
        }
    }
}
