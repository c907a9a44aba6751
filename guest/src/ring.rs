//! The driver side of a split virtqueue (virtio 1.2, 2.7), without knowledge of what it carries.
//!
//! The device is a peer in another process: what it writes (used index, used entries) is checked
//! before it is believed, and a lie is a [`RingFault`]. What the driver wrote itself is kept in
//! private copies and never read back; a field that already holds the value is not written again,
//! so that its cache line stays shared with the device.

use std::sync::atomic::{Ordering, fence};

use crate::limits::RING_SIZE_MAX;
use crate::memory::{Block, GuestMemory, MemoryError};

const DESCRIPTOR_BYTES: usize = 16;
const DESC_F_NEXT: u16 = 1;
const DESC_F_WRITE: u16 = 2;
const DESC_F_INDIRECT: u16 = 4;
const AVAIL_F_NO_INTERRUPT: u16 = 1;
const USED_F_NO_NOTIFY: u16 = 1;
/// Offsets shared by the avail and the used ring: flags, idx, entries.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const ENTRIES: usize = 4;
const USED_ENTRY_BYTES: usize = 8;
/// Alignment of each part: more than the spec asks (16, 2, 4), so that no two share a line.
const PART_ALIGN: usize = 64;
/// A used event this far behind is refreshed, or it would come true once per 65536 entries.
const USED_EVENT_STALE: u16 = 0x4000;

/// Shape of a ring and what was negotiated for it.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Descriptors: a power of two up to [`RING_SIZE_MAX`].
    pub size: u16,
    /// VIRTIO_F_EVENT_IDX.
    pub event_idx: bool,
    /// VIRTIO_F_IN_ORDER.
    pub in_order: bool,
    /// Whether used entries are read under IN_ORDER. Without that only the used index is, which
    /// saves a shared cache line per 8 chains; lengths then read as 0.
    pub read_used_entries: bool,
    /// Where both indexes start (0 for a fresh ring).
    pub first_index: u16,
}

/// One element of a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub guest_address: u64,
    /// Bytes.
    pub bytes: u32,
    /// Who writes it, or whether it is a table of more.
    pub kind: SegmentKind,
}

/// What the device does with a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// The device reads it.
    #[default]
    Readable,
    /// The device writes it.
    Writable,
    /// It is an indirect table (and the only segment).
    Indirect,
}

impl SegmentKind {
    fn flags(self) -> u16 {
        match self {
            Self::Readable => 0,
            Self::Writable => DESC_F_WRITE,
            Self::Indirect => DESC_F_INDIRECT,
        }
    }
}

/// A chain that the device has finished with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// What [`SplitRing::post`] was given.
    pub token: u16,
    /// Bytes the device wrote; `None` for a chain it skipped under IN_ORDER, which means all of
    /// them (virtio 1.2, 2.7.9).
    pub bytes: Option<u32>,
}

/// The device broke the ring's rules. The ring is not used any more until it is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// More chains used than were made available.
    #[error("used index moved by {moved} with {outstanding} chains outstanding")]
    UsedIndexJumped {
        /// Distance from the last chain taken back.
        moved: u16,
        /// Chains the device has.
        outstanding: u16,
    },
    /// An id that is no head of an outstanding chain.
    #[error("used id {0} is not the head of an outstanding chain")]
    UnknownUsedId(u32),
    /// A known id that IN_ORDER does not allow here.
    #[error("used id {0} came out of order although IN_ORDER was negotiated")]
    UsedOutOfOrder(u32),
}

/// The ring has too few free descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring full")]
pub struct RingFull;

/// A ring could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The size is not usable.
    #[error("ring size {0}: a power of two from 2 to {RING_SIZE_MAX} is needed")]
    Size(u16),
    /// No memory for it.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// What was last written to a descriptor; the second word holds bytes, flags and next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Descriptor {
    guest_address: u64,
    rest: u64,
}

/// A chain as the entries of an indirect table: pairs of words, to lie 16 bytes apart.
pub(crate) fn indirect_entries(segments: &[Segment]) -> impl Iterator<Item = [u64; 2]> {
    let last = segments.len().saturating_sub(1);
    segments.iter().enumerate().map(move |(position, segment)| {
        let next = (position < last).then_some(position as u16 + 1);
        let descriptor = Descriptor::new(segment, next);
        [descriptor.guest_address, descriptor.rest]
    })
}

impl Descriptor {
    fn new(segment: &Segment, next: Option<u16>) -> Self {
        let flags = segment.kind.flags() | if next.is_some() { DESC_F_NEXT } else { 0 };
        let rest = u64::from(segment.bytes)
            | u64::from(flags) << 32
            | u64::from(next.unwrap_or_default()) << 48;
        Self { guest_address: segment.guest_address, rest }
    }

    fn next(self) -> Option<u16> {
        let flags = (self.rest >> 32) as u16;
        (flags & DESC_F_NEXT != 0).then_some((self.rest >> 48) as u16)
    }
}

/// A chain the device has: descriptors it takes up, and the caller's token.
#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    descriptors: u16,
    token: u16,
}

/// The driver's end of one split virtqueue.
#[derive(Debug)]
pub struct SplitRing {
    table: Block,
    avail: Block,
    used: Block,
    config: RingConfig,
    mask: u16,
    /// Free descriptors, first in first out: under IN_ORDER that is ring order by itself.
    free: Box<[u16]>,
    free_first: u16,
    free_count: u16,
    written: Box<[Descriptor]>,
    /// The avail ring as written: under IN_ORDER also the order in which chains come back.
    offered: Box<[u16]>,
    /// By head; `descriptors == 0` means that the device does not have it.
    chains: Box<[Chain]>,
    avail_next: u16,
    avail_published: u16,
    /// The index before the publications for which no kick was considered yet.
    kick_from: Option<u16>,
    used_next: u16,
    used_seen: u16,
    /// Under IN_ORDER: position after the chain whose entry covers those before it, and its bytes.
    batch: Option<(u16, u32)>,
    used_event: u16,
    interrupts: bool,
    fault: Option<RingFault>,
}

impl SplitRing {
    /// Lays the ring out in `memory`, empty, with interrupts off.
    ///
    /// # Errors
    /// A size that is no power of two in range, or no memory.
    pub fn new(memory: &mut GuestMemory, config: RingConfig) -> Result<Self, RingError> {
        let size = config.size;
        if !size.is_power_of_two() || !(2..=RING_SIZE_MAX).contains(&size) {
            return Err(RingError::Size(size));
        }
        let entries = usize::from(size);
        let mut part = |bytes| memory.allocate(bytes, PART_ALIGN);
        let mut ring = Self {
            table: part(entries * DESCRIPTOR_BYTES)?,
            avail: part(ENTRIES + entries * 2 + 2)?,
            used: part(ENTRIES + entries * USED_ENTRY_BYTES + 2)?,
            config,
            mask: size - 1,
            free: Box::default(),
            free_first: 0,
            free_count: size,
            written: vec![Descriptor::default(); entries].into(),
            offered: vec![0; entries].into(),
            chains: vec![Chain::default(); entries].into(),
            avail_next: 0,
            avail_published: 0,
            kick_from: None,
            used_next: 0,
            used_seen: 0,
            batch: None,
            used_event: 0,
            interrupts: false,
            fault: None,
        };
        ring.reset(config.first_index);
        Ok(ring)
    }

    /// Bytes that a ring of `size` takes in guest memory, alignment included.
    pub fn memory_bytes(size: u16) -> usize {
        let entries = usize::from(size);
        entries * (DESCRIPTOR_BYTES + 2 + USED_ENTRY_BYTES) + 4 * PART_ALIGN
    }

    /// Empties the ring. Only while the device does not use it (before start, after stop).
    pub fn reset(&mut self, first_index: u16) {
        self.free = (0..self.config.size).collect();
        self.free_first = 0;
        self.free_count = self.config.size;
        self.chains.fill(Chain::default());
        self.avail_next = first_index;
        self.avail_published = first_index;
        self.kick_from = None;
        self.used_next = first_index;
        self.used_seen = first_index;
        self.batch = None;
        self.fault = None;
        self.avail.store_u16(INDEX, first_index, Ordering::Relaxed);
        self.used.store_u16(FLAGS, 0, Ordering::Relaxed);
        self.used.store_u16(INDEX, first_index, Ordering::Release);
        self.disable_interrupts();
    }

    /// Descriptor table, avail ring, used ring: for SET_VRING_ADDR, and for tests that do evil.
    pub fn parts(&self) -> [&Block; 3] {
        [&self.table, &self.avail, &self.used]
    }

    /// Descriptors.
    pub fn size(&self) -> u16 {
        self.config.size
    }

    /// Descriptors that are free.
    #[inline]
    pub fn free_descriptors(&self) -> usize {
        usize::from(self.free_count)
    }

    /// Chains that were posted and not taken back.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        self.avail_next.wrapping_sub(self.used_next)
    }

    /// The used index as the device left it: where one that takes over resumes.
    pub fn device_used_index(&mut self) -> u16 {
        self.look_for_used();
        self.used_seen
    }

    /// How the device broke the rules, if it did.
    pub fn fault(&self) -> Option<RingFault> {
        self.fault
    }

    /// Offers a chain to the device; [`SplitRing::publish`] makes it visible.
    ///
    /// # Errors
    /// When too few descriptors are free (an empty chain never fits); nothing has changed then.
    #[inline]
    pub fn post(&mut self, segments: &[Segment], token: u16) -> Result<(), RingFull> {
        if segments.is_empty() || segments.len() > usize::from(self.free_count) {
            return Err(RingFull);
        }
        let count = segments.len() as u16;
        let head = self.free_at(0);
        for (position, segment) in (0..count).zip(segments) {
            let id = self.free_at(position);
            let next = (position + 1 < count).then(|| self.free_at(position + 1));
            self.write_descriptor(id, Descriptor::new(segment, next));
        }
        self.free_first = self.free_first.wrapping_add(count) & self.mask;
        self.free_count -= count;
        if let Some(chain) = self.chains.get_mut(usize::from(head)) {
            *chain = Chain { descriptors: count, token };
        }
        self.offer(head);
        Ok(())
    }

    /// The free descriptor `ahead` places from the first.
    #[inline]
    fn free_at(&self, ahead: u16) -> u16 {
        let position = self.free_first.wrapping_add(ahead) & self.mask;
        self.free.get(usize::from(position)).copied().unwrap_or_default()
    }

    #[inline]
    fn write_descriptor(&mut self, id: u16, descriptor: Descriptor) {
        let Some(written) = self.written.get_mut(usize::from(id)) else { return };
        let offset = usize::from(id) * DESCRIPTOR_BYTES;
        if written.guest_address != descriptor.guest_address {
            self.table.store_u64(offset, descriptor.guest_address);
        }
        if written.rest != descriptor.rest {
            self.table.store_u64(offset + 8, descriptor.rest);
        }
        *written = descriptor;
    }

    #[inline]
    fn offer(&mut self, head: u16) {
        let position = usize::from(self.avail_next & self.mask);
        if let Some(offered) = self.offered.get_mut(position)
            && *offered != head
        {
            *offered = head;
            self.avail.store_u16(ENTRIES + position * 2, head, Ordering::Relaxed);
        }
        self.avail_next = self.avail_next.wrapping_add(1);
    }

    /// Makes everything posted visible to the device. [`SplitRing::wants_kick`] must follow, though
    /// not at once.
    #[inline]
    pub fn publish(&mut self) {
        if self.avail_published == self.avail_next {
            return;
        }
        self.kick_from.get_or_insert(self.avail_published);
        self.avail_published = self.avail_next;
        self.avail.store_u16(INDEX, self.avail_next, Ordering::Release);
    }

    /// Whether the device wants a kick for what was published since this was last asked.
    ///
    /// It waits until the published index is visible to the device, which takes a round trip between
    /// CPUs: a driver with other work does that first.
    #[inline]
    pub fn wants_kick(&mut self) -> bool {
        let Some(from) = self.kick_from.take() else { return false };
        // The index must be visible before the device's wish is read, or both sides could sleep
        // (virtio 1.2, 2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.config.event_idx {
            let event = self.used.load_u16(self.avail_event_offset(), Ordering::Relaxed);
            passes_event(event, from, self.avail_published)
        } else {
            self.used.load_u16(FLAGS, Ordering::Relaxed) & USED_F_NO_NOTIFY == 0
        }
    }

    fn avail_event_offset(&self) -> usize {
        ENTRIES + usize::from(self.config.size) * USED_ENTRY_BYTES
    }

    fn used_event_offset(&self) -> usize {
        ENTRIES + usize::from(self.config.size) * 2
    }

    /// Chains that the device has used and that wait to be taken back; 0 after a fault.
    #[inline]
    pub fn used_ready(&mut self) -> u16 {
        if self.fault.is_some() {
            return 0;
        }
        let ready = self.used_seen.wrapping_sub(self.used_next);
        if ready > 0 { ready } else { self.look_for_used() }
    }

    /// Reads the used index anew.
    #[inline]
    fn look_for_used(&mut self) -> u16 {
        let index = self.used.load_u16(INDEX, Ordering::Acquire);
        let moved = index.wrapping_sub(self.used_next);
        let outstanding = self.avail_published.wrapping_sub(self.used_next);
        if moved > outstanding {
            self.fault = Some(RingFault::UsedIndexJumped { moved, outstanding });
            return 0;
        }
        self.used_seen = index;
        moved
    }

    /// Takes the next used chain back, if there is one.
    ///
    /// # Errors
    /// When the device broke the rules, now or earlier.
    #[inline]
    pub fn take_used(&mut self) -> Result<Option<Used>, RingFault> {
        if self.used_ready() == 0 {
            return self.fault.map_or(Ok(None), Err);
        }
        let position = self.used_next;
        let taken = if !self.config.in_order {
            let (id, bytes) = self.used_entry(position);
            u16::try_from(id).map_err(|_| RingFault::UnknownUsedId(id)).map(|h| (h, Some(bytes)))
        } else if self.config.read_used_entries {
            self.take_in_order(position)
        } else {
            Ok((self.offered_at(position), Some(0)))
        };
        match taken.and_then(|(head, bytes)| Ok((self.release(head)?, bytes))) {
            Ok((token, bytes)) => {
                self.used_next = position.wrapping_add(1);
                Ok(Some(Used { token, bytes }))
            }
            Err(fault) => {
                self.fault = Some(fault);
                Err(fault)
            }
        }
    }

    /// The head that IN_ORDER expects at `position`. The entry there may speak for a whole batch:
    /// it then names the batch's last chain, and those before it have no entry of their own.
    fn take_in_order(&mut self, position: u16) -> Result<(u16, Option<u32>), RingFault> {
        let head = self.offered_at(position);
        let (end, bytes) = match self.batch {
            Some(batch) => batch,
            None => {
                let (id, bytes) = self.used_entry(position);
                let ready = self.used_seen.wrapping_sub(position);
                let same =
                    |ahead: &u16| u32::from(self.offered_at(position.wrapping_add(*ahead))) == id;
                let ahead = (0..ready).find(same).ok_or(RingFault::UsedOutOfOrder(id))?;
                (position.wrapping_add(ahead), bytes)
            }
        };
        let last = end == position;
        self.batch = if last { None } else { Some((end, bytes)) };
        Ok((head, last.then_some(bytes)))
    }

    #[inline]
    fn offered_at(&self, position: u16) -> u16 {
        self.offered.get(usize::from(position & self.mask)).copied().unwrap_or_default()
    }

    #[inline]
    fn used_entry(&self, position: u16) -> (u32, u32) {
        let offset = ENTRIES + usize::from(position & self.mask) * USED_ENTRY_BYTES;
        (self.used.load_u32(offset), self.used.load_u32(offset + 4))
    }

    /// Frees the descriptors of the chain at `head`.
    #[inline]
    fn release(&mut self, head: u16) -> Result<u16, RingFault> {
        let chain = self.chains.get_mut(usize::from(head)).map(std::mem::take);
        let Some(chain) = chain.filter(|chain| chain.descriptors > 0) else {
            return Err(RingFault::UnknownUsedId(u32::from(head)));
        };
        let mut id = Some(head);
        while let Some(free) = id {
            let end = self.free_first.wrapping_add(self.free_count) & self.mask;
            if let Some(entry) = self.free.get_mut(usize::from(end)) {
                *entry = free;
            }
            self.free_count += 1;
            id = self.written.get(usize::from(free)).and_then(|written| written.next());
        }
        Ok(chain.token)
    }

    /// Asks for an interrupt at the next used chain. Returns whether one is there already, for
    /// which no interrupt may come any more.
    pub fn enable_interrupts(&mut self) -> bool {
        self.interrupts = true;
        if self.config.event_idx {
            self.store_used_event(self.used_next);
        } else {
            self.avail.store_u16(FLAGS, 0, Ordering::Relaxed);
        }
        // The wish must be visible before the index is read again (virtio 1.2, 2.7.7.1).
        fence(Ordering::SeqCst);
        self.used_ready() > 0
    }

    /// Says that no interrupts are needed; one under way may still come.
    pub fn disable_interrupts(&mut self) {
        self.interrupts = false;
        if self.config.event_idx {
            self.avail.store_u16(FLAGS, 0, Ordering::Relaxed);
            self.store_used_event(self.used_next.wrapping_sub(1));
        } else {
            self.avail.store_u16(FLAGS, AVAIL_F_NO_INTERRUPT, Ordering::Relaxed);
        }
    }

    fn store_used_event(&mut self, index: u16) {
        self.used_event = index;
        self.avail.store_u16(self.used_event_offset(), index, Ordering::Relaxed);
    }

    /// Keeps a polled ring's used event behind the used index; once per burst is enough.
    #[inline]
    pub fn keep_quiet(&mut self) {
        if self.config.event_idx
            && !self.interrupts
            && self.used_next.wrapping_sub(self.used_event) > USED_EVENT_STALE
        {
            self.store_used_event(self.used_next.wrapping_sub(1));
        }
    }
}

/// Whether moving an index from `old` to `new` passes `event` (vring_need_event, virtio 1.2,
/// 2.7.7.2).
fn passes_event(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
