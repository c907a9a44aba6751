//! The device's side of two split rings (virtio 1.2, 2.7), by raw pointers: headers through a copy,
//! payloads from buffer to buffer, and nothing that is not needed for a guest that can be trusted.

use std::sync::atomic::{AtomicU16, Ordering};

use tollgate_accel::prefetch::{prefetch_read, prefetch_write};
use tollgate_frame::copy;
use tollgate_guest::memory::Block;
use tollgate_guest::ring::SplitRing;
use tollgate_packet::limits::HEADER_COPY_BYTES;

/// Only full bursts are moved.
pub(crate) const BURST_PACKETS: u16 = 32;

const BURST: usize = BURST_PACKETS as usize;
const DESCRIPTOR_BYTES: usize = 16;
const INDEX: usize = 2;
const ENTRIES: usize = 4;
const AVAIL_ENTRY_BYTES: usize = 2;
const USED_ENTRY_BYTES: usize = 8;
/// A modern device's (virtio 1.2, 5.1.6).
const NET_HEADER_BYTES: usize = 12;
/// One buffer, no offloads.
const NET_HEADER: [u8; NET_HEADER_BYTES] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// Polls of an index that does not move are so far apart, or they would keep its line from the guest.
const PAUSES: u32 = 8;

/// Moves frames from one ring to the other.
#[derive(Debug)]
pub(crate) struct Device {
    from: Ring,
    to: Ring,
    headers: Box<[[u8; HEADER_COPY_BYTES]; BURST]>,
}

/// One ring.
///
/// Invariant: the three parts are those of a [`SplitRing`] of `mask + 1` entries, a power of two, and
/// stay mapped as long as `_parts` live. The guest is this program's own driver, and the descriptors
/// that it has made available describe its buffers, inside the mapping of the parts, and long enough
/// for what is copied. It does not touch a buffer between the avail index that offers it and the used
/// index that gives it back; whatever both sides touch at once is one of the indexes, atomically.
#[derive(Debug)]
struct Ring {
    table: *mut u8,
    avail: *mut u8,
    used: *mut u8,
    table_guest_address: u64,
    mask: u16,
    /// Of both indexes: every burst is given back before the next is taken.
    next: u16,
    _parts: [Block; 3],
}

// SAFETY: the pointers go into a mapping that any thread may use and that `_parts` keep alive.
unsafe impl Send for Ring {}

/// What a descriptor describes, in this process's addresses.
#[derive(Debug, Clone, Copy)]
struct Chain {
    head: u16,
    start: *mut u8,
    bytes: usize,
}

impl Device {
    /// For the sender's and the receiver's ring of a driver in this process.
    pub(crate) fn new([from, to]: [&SplitRing; 2]) -> Self {
        let headers = Box::new([[0; HEADER_COPY_BYTES]; BURST]);
        Self { from: Ring::new(from), to: Ring::new(to), headers }
    }

    /// Moves a burst, if one waits and there are buffers for it.
    pub(crate) fn turn(&mut self) -> bool {
        if self.from.waiting() < BURST_PACKETS || self.to.waiting() < BURST_PACKETS {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            return false;
        }
        let sources: [Chain; BURST] = std::array::from_fn(|at| self.from.chain(at));
        for source in &sources {
            prefetch_read(source.start.wrapping_add(NET_HEADER_BYTES));
        }
        let targets: [Chain; BURST] = std::array::from_fn(|at| self.to.chain(at));
        for target in &targets {
            prefetch_write(target.start.wrapping_add(NET_HEADER_BYTES));
        }
        for (source, header) in sources.iter().zip(self.headers.iter_mut()) {
            let frame = source.start.wrapping_add(NET_HEADER_BYTES);
            let bytes = (source.bytes - NET_HEADER_BYTES).min(header.len());
            // SAFETY: `bytes` is part of a buffer that is the device's now, by the invariant of Ring.
            unsafe { copy::copy_in(frame, &mut header[..bytes]) };
        }
        for (at, (source, target)) in sources.iter().zip(&targets).enumerate() {
            let header = &self.headers[at];
            let header = &header[..header.len().min(source.bytes - NET_HEADER_BYTES)];
            // SAFETY: both buffers are the device's now and the target holds the largest frame, by the
            // invariant of Ring.
            unsafe { write_frame(source, target, header) };
            self.from.write_used(at, source.head, 0);
            self.to.write_used(at, target.head, source.bytes);
        }
        self.from.publish();
        self.to.publish();
        true
    }
}

/// Writes the virtio-net header, `header`, and what follows it in the source.
///
/// # Safety
/// The source's bytes are mapped readable; as many at the target are mapped writable; nobody else
/// touches either meanwhile. `header` is no longer than the source's frame.
#[inline(always)]
unsafe fn write_frame(source: &Chain, target: &Chain, header: &[u8]) {
    // As the switch does: a line that is not written stays shared with the guest.
    // SAFETY: the target has at least a net header's bytes.
    if !unsafe { copy::equals_12(target.start, &NET_HEADER) } {
        // SAFETY: as above.
        unsafe { copy::copy_out(&NET_HEADER, target.start) };
    }
    let copied = NET_HEADER_BYTES + header.len();
    // SAFETY: the target's bytes behind the net header, up to `copied` <= `source.bytes`.
    unsafe { copy::copy_out(header, target.start.wrapping_add(NET_HEADER_BYTES)) };
    let rest = source.bytes - copied;
    if rest > 0 {
        let [from, to] = [source, target].map(|chain| chain.start.wrapping_add(copied));
        // SAFETY: from `copied` to `source.bytes` in both.
        unsafe { copy::copy_racing(from, to, rest) };
    }
}

impl Ring {
    fn new(ring: &SplitRing) -> Self {
        let [table, avail, used] = ring.parts();
        let start = |part: &Block| part.host_address().cast_mut();
        Self {
            table: start(table),
            avail: start(avail),
            used: start(used),
            table_guest_address: table.guest_address(),
            mask: ring.size() - 1,
            next: 0,
            _parts: [table, avail, used].map(Clone::clone),
        }
    }

    /// Chains that the guest has made available.
    #[inline(always)]
    fn waiting(&self) -> u16 {
        // SAFETY: the avail index, aligned to 2 as its part is to 64; all access to it is atomic.
        let index = unsafe { AtomicU16::from_ptr(self.avail.wrapping_add(INDEX).cast()) };
        index.load(Ordering::Acquire).wrapping_sub(self.next)
    }

    fn position(&self, ahead: usize) -> usize {
        usize::from(self.next.wrapping_add(ahead as u16) & self.mask)
    }

    /// The chain `ahead` of the next, of those that wait.
    #[inline(always)]
    fn chain(&self, ahead: usize) -> Chain {
        let entry = self.avail.wrapping_add(ENTRIES + AVAIL_ENTRY_BYTES * self.position(ahead));
        // SAFETY: an entry of the avail ring, as `position` is at most `mask`.
        let head = unsafe { copy::load_u16(entry) };
        let descriptor = self.table.wrapping_add(DESCRIPTOR_BYTES * usize::from(head));
        // SAFETY: a descriptor of the table: the guest offers heads below its ring's size.
        let [guest_address, rest] = unsafe { copy::load_pair(descriptor) };
        // The guest's memory is one region: addresses in it are as far apart there as here.
        let offset = guest_address.wrapping_sub(self.table_guest_address) as usize;
        Chain { head, start: self.table.wrapping_add(offset), bytes: rest as u32 as usize }
    }

    #[inline(always)]
    fn write_used(&self, ahead: usize, head: u16, bytes: usize) {
        let entry = self.used.wrapping_add(ENTRIES + USED_ENTRY_BYTES * self.position(ahead));
        let value = u64::from(head) | (bytes as u64) << 32;
        // SAFETY: an entry of the used ring, as `position` is at most `mask`; the guest reads it only
        // once the index has passed it.
        unsafe { copy::copy_out(&value.to_le_bytes(), entry) };
    }

    /// Gives a burst back.
    #[inline(always)]
    fn publish(&mut self) {
        self.next = self.next.wrapping_add(BURST_PACKETS);
        // SAFETY: the used index, aligned to 2 as its part is to 64; all access to it is atomic.
        let index = unsafe { AtomicU16::from_ptr(self.used.wrapping_add(INDEX).cast()) };
        index.store(self.next, Ordering::Release);
    }
}
