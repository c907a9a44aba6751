//! The three parts of a split ring where they lie in guest memory (virtio 1.2, 2.7), behind
//! accessors that cannot leave them.
//!
//! The guest may write any of it at any moment. Indexes are read and written as atomics, each
//! descriptor is loaded once into a private copy, and every position is reduced modulo the size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use tollgate_accel::prefetch::{prefetch_read, prefetch_write};
use tollgate_frame::copy;

use crate::limits::MAX_RING_ENTRIES;
use crate::memory::GuestMemory;

const DESCRIPTOR_BYTES: u64 = 16;
/// Flags and index in front of the entries of the avail and the used ring.
const RING_HEADER_BYTES: u64 = 4;
/// Of the index, behind the flags.
const AVAIL_INDEX_OFFSET: usize = 2;
const AVAIL_ENTRY_BYTES: u64 = 2;
const USED_ENTRY_BYTES: u64 = 8;
/// The event index behind the entries.
const EVENT_BYTES: u64 = 2;

/// Where a ring lies, in the frontend's user addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingAddresses {
    pub(crate) descriptors: u64,
    pub(crate) avail: u64,
    pub(crate) used: u64,
}

/// Why a ring cannot be where its frontend says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingPlaceError {
    /// Not a size that virtio allows.
    #[error("ring size {0} is not a power of two from 1 to {MAX_RING_ENTRIES}")]
    Size(u32),
    /// A part is not aligned.
    #[error("the {part} ring at {address:#x} is not aligned to {alignment} bytes")]
    Misaligned {
        /// Which part.
        part: &'static str,
        /// Its user address.
        address: u64,
        /// What virtio 1.2, 2.7 asks for.
        alignment: u64,
    },
    /// A part is not in guest memory.
    #[error("the {part} ring at {address:#x} ({len} bytes) does not lie inside one memory region")]
    Unmapped {
        /// Which part.
        part: &'static str,
        /// Its user address.
        address: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Two parts share bytes.
    #[error("the {0} and {1} rings overlap")]
    Overlap(&'static str, &'static str),
}

/// One descriptor, copied out of the ring or of an indirect table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self { address: 0, len: 0, flags: 0, next: 0 };

    /// Loads a descriptor, each byte once.
    ///
    /// # Safety
    /// 16 bytes at `address` are mapped readable.
    #[inline(always)]
    pub(crate) unsafe fn load(address: *const u8) -> Self {
        // SAFETY: the caller's contract is that of `load_pair`.
        let [address, rest] = unsafe { copy::load_pair(address) };
        Self { address, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }
}

/// A ring in mapped guest memory.
///
/// Invariant: `size` is a power of two; `descriptors`, `avail` and `used` point to their parts,
/// which are aligned, mapped readable and writable as a whole (including the event indexes if
/// `event_idx`) as long as `memory` lives, and disjoint.
#[derive(Debug)]
pub(crate) struct SharedRing {
    memory: Arc<GuestMemory>,
    descriptors: *const u8,
    avail: *mut u8,
    used: *mut u8,
    size: u16,
    event_idx: bool,
}

// SAFETY: the pointers go into a mapping that any thread may use and that `memory` keeps alive;
// all access through them is atomic or opaque to the compiler.
unsafe impl Send for SharedRing {}

impl SharedRing {
    pub(crate) fn new(
        memory: &Arc<GuestMemory>,
        addresses: &RingAddresses,
        size: u32,
        event_idx: bool,
    ) -> Result<Self, RingPlaceError> {
        if !size.is_power_of_two() || size > MAX_RING_ENTRIES {
            return Err(RingPlaceError::Size(size));
        }
        let entries = u64::from(size);
        let event_bytes = if event_idx { EVENT_BYTES } else { 0 };
        let part = |name, address, alignment, len| Part { name, address, alignment, len };
        let parts = [
            part("descriptor", addresses.descriptors, 16, DESCRIPTOR_BYTES * entries),
            part(
                "avail",
                addresses.avail,
                2,
                RING_HEADER_BYTES + AVAIL_ENTRY_BYTES * entries + event_bytes,
            ),
            part(
                "used",
                addresses.used,
                4,
                RING_HEADER_BYTES + USED_ENTRY_BYTES * entries + event_bytes,
            ),
        ];
        let [descriptors, avail, used] = &parts;
        for (one, other) in [(descriptors, avail), (descriptors, used), (avail, used)] {
            one.check_disjoint(other)?;
        }
        Ok(Self {
            descriptors: descriptors.locate(memory)?,
            avail: avail.locate(memory)?,
            used: used.locate(memory)?,
            memory: Arc::clone(memory),
            // Lossless: at most MAX_RING_ENTRIES.
            size: size as u16,
            event_idx,
        })
    }

    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    #[inline(always)]
    pub(crate) fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The driver's index: entries before it are available, with all that they refer to.
    #[inline(always)]
    pub(crate) fn avail_index(&self) -> u16 {
        self.avail_u16(AVAIL_INDEX_OFFSET).load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(crate) fn avail_flags(&self) -> u16 {
        self.avail_u16(0).load(Ordering::Relaxed)
    }

    /// The head of the chain at a position of the avail ring: not yet checked against the size.
    #[inline(always)]
    pub(crate) fn avail_entry(&self, position: u16) -> u16 {
        let entry = usize::from(position & (self.size - 1));
        self.avail_u16(4 + 2 * entry).load(Ordering::Relaxed)
    }

    /// The used index after which the driver wants an interrupt; only with EVENT_IDX.
    #[inline(always)]
    pub(crate) fn used_event(&self) -> u16 {
        if !self.event_idx {
            return 0;
        }
        self.avail_u16(4 + 2 * usize::from(self.size)).load(Ordering::Relaxed)
    }

    /// Copies descriptor `index`, or `None` when the ring has none.
    #[inline(always)]
    pub(crate) fn descriptor(&self, index: u16) -> Option<Descriptor> {
        if index >= self.size {
            return None;
        }
        // SAFETY: index < size, so the 16 bytes lie inside the descriptor part, which is mapped
        // (invariant).
        Some(unsafe { Descriptor::load(self.descriptor_address(index)) })
    }

    /// Asks for descriptor `index`.
    #[inline(always)]
    pub(crate) fn prefetch_descriptor(&self, index: u16) {
        prefetch_read(self.descriptor_address(index));
    }

    /// Asks for the line of the used entry at `position`, for writing.
    #[inline(always)]
    pub(crate) fn prefetch_used(&self, position: u16) {
        let entry = usize::from(position & (self.size - 1));
        prefetch_write(self.used.wrapping_add(4 + 8 * entry));
    }

    /// The device's own index, as it stands in the ring.
    pub(crate) fn used_index(&self) -> u16 {
        self.used_u16(2).load(Ordering::Relaxed)
    }

    /// Fills the used entry at `position`; the driver looks at it once the index has passed it.
    #[inline(always)]
    pub(crate) fn write_used(&self, position: u16, head: u16, written: u32) {
        let entry = usize::from(position & (self.size - 1));
        self.used_u32(4 + 8 * entry).store(u32::from(head), Ordering::Relaxed);
        self.used_u32(8 + 8 * entry).store(written, Ordering::Relaxed);
    }

    /// Publishes all used entries before `index`, with the buffers that they hand back.
    #[inline(always)]
    pub(crate) fn publish_used_index(&self, index: u16) {
        self.used_u16(2).store(index, Ordering::Release);
    }

    pub(crate) fn set_used_flags(&self, flags: u16) {
        self.used_u16(0).store(flags, Ordering::Relaxed);
    }

    /// Asks for a kick when the driver passes `index`; without EVENT_IDX there is no such field.
    pub(crate) fn set_avail_event(&self, index: u16) {
        if self.event_idx {
            self.used_u16(4 + 8 * usize::from(self.size)).store(index, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn descriptor_address(&self, index: u16) -> *const u8 {
        self.descriptors.wrapping_add(16 * usize::from(index))
    }

    #[inline(always)]
    fn avail_u16(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= 4 + 2 * usize::from(self.size) + 2);
        // SAFETY: callers pass an even offset that ends inside the avail part (positions are
        // masked; the event index is only asked for with EVENT_IDX, when it belongs to the part);
        // the part is 2-aligned and mapped while `self.memory` lives (invariant), which the
        // returned lifetime cannot exceed. Other writers are outside of Rust or use atomics.
        unsafe { AtomicU16::from_ptr(self.avail.wrapping_add(offset).cast()) }
    }

    #[inline(always)]
    fn used_u16(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= 4 + 8 * usize::from(self.size) + 2);
        // SAFETY: as in `avail_u16`, for the used part, which is 4-aligned.
        unsafe { AtomicU16::from_ptr(self.used.wrapping_add(offset).cast()) }
    }

    #[inline(always)]
    fn used_u32(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + 4 <= 4 + 8 * usize::from(self.size));
        // SAFETY: as in `avail_u16`: callers pass a multiple of 4 (4 or 8 plus 8 times a masked
        // position) that ends inside the used part, which is 4-aligned.
        unsafe { AtomicU32::from_ptr(self.used.wrapping_add(offset).cast()) }
    }
}

/// Whether the guest has made something available on a ring that was found empty, without touching
/// the ring: for looks at many rings, most of which are silent.
///
/// It only compares the driver's index, which the guest may set to anything, with where the ring
/// stopped. Whether that was a jump beyond its size the ring finds when it is served.
///
/// Invariant: `index` is 2-aligned and its two bytes are mapped readable as long as `_memory` lives.
#[derive(Debug)]
pub struct AvailPeek {
    index: *const AtomicU16,
    _memory: Arc<GuestMemory>,
    next_avail: u16,
}

// SAFETY: as for `SharedRing`: the pointer goes into a mapping that any thread may use and that
// `_memory` keeps alive; it is only loaded from, atomically.
unsafe impl Send for AvailPeek {}

impl AvailPeek {
    pub(crate) fn new(ring: &SharedRing, next_avail: u16) -> Self {
        // The index lies inside the avail part, which is 2-aligned and mapped as long as the memory
        // lives (invariant of `SharedRing`).
        let index = ring.avail.wrapping_add(AVAIL_INDEX_OFFSET).cast_const().cast();
        Self { index, _memory: Arc::clone(&ring.memory), next_avail }
    }

    /// Whether the driver's index is elsewhere than where the ring stopped. One load.
    #[inline(always)]
    pub fn has_changed(&self) -> bool {
        // SAFETY: aligned, and mapped while `self._memory` lives (invariant), which the reference does
        // not outlive. Other writers are outside of Rust or use atomics.
        let index = unsafe { &*self.index };
        // Nothing that the index refers to is read before the ring itself has loaded it.
        index.load(Ordering::Relaxed) != self.next_avail
    }

    /// The ring has gone on to `next_avail` ([`ActiveVring::next_avail`](crate::ActiveVring::next_avail)).
    #[inline]
    pub fn set_next_avail(&mut self, next_avail: u16) {
        self.next_avail = next_avail;
    }
}

struct Part {
    name: &'static str,
    address: u64,
    alignment: u64,
    len: u64,
}

impl Part {
    fn locate(&self, memory: &GuestMemory) -> Result<*mut u8, RingPlaceError> {
        let Self { name: part, address, alignment, len } = *self;
        let misaligned = RingPlaceError::Misaligned { part, address, alignment };
        if !address.is_multiple_of(alignment) {
            return Err(misaligned);
        }
        let host = memory.at_user_address(address, len).ok_or(RingPlaceError::Unmapped {
            part,
            address,
            len,
        })?;
        // A region may be mapped with another alignment than the frontend's.
        if !(host.addr() as u64).is_multiple_of(alignment) { Err(misaligned) } else { Ok(host) }
    }

    fn check_disjoint(&self, other: &Self) -> Result<(), RingPlaceError> {
        let (first, second) =
            if self.address <= other.address { (self, other) } else { (other, self) };
        if second.address - first.address < first.len {
            return Err(RingPlaceError::Overlap(self.name, other.name));
        }
        Ok(())
    }
}
