//! A split ring that is running: what both directions share. `fetch.rs` receives from the guest,
//! `deliver.rs` sends to it.
#![deny(clippy::disallowed_macros)] // on the PMD

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use tollgate_accel::prefetch::{prefetch_read, prefetch_write};
use tollgate_frame::burst::Mapping;
use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};

use crate::chain::{Direction, Pieces, Walk};
use crate::deliver::UsedBuffers;
use crate::features::Features;
use crate::fetch::Fetched;
use crate::limits::STAGED_ENTRIES;
use crate::memory::{GuestMemory, Near};
use crate::notify::CallFd;
use crate::pages::NewPages;
use crate::shared::{AvailPeek, Descriptor, RingAddresses, RingPlaceError, SharedRing};
use crate::status::{PortStatus, RingFault};

/// What the frontend has said about a ring that is not running.
#[derive(Debug)]
pub(crate) struct VringConfig {
    pub(crate) index: u16,
    pub(crate) size: u32,
    pub(crate) addresses: RingAddresses,
    /// The avail index to go on from.
    pub(crate) base: u16,
    pub(crate) features: Features,
    pub(crate) call: Option<Arc<CallFd>>,
    /// The quarantine that the ring is still under.
    pub(crate) fault: Option<RingFault>,
}

/// One entry of the avail ring, read ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) head: u16,
    pub(crate) descriptor: Descriptor,
    /// Where the first buffer is, or null if it does not lie in one region as a whole, or is one to be
    /// written to whose pages were never met. It stays mapped as long as the ring holds its memory.
    pub(crate) host: *mut u8,
}

// SAFETY: as for `SharedRing`: an address inside guest memory, used only through opaque copies.
unsafe impl Send for Entry {}

impl Entry {
    const EMPTY: Self = Self { head: 0, descriptor: Descriptor::EMPTY, host: std::ptr::null_mut() };

    /// Reads the first descriptor of the chain at `head`, if there is one, and finds its buffer.
    #[inline(always)]
    fn load(ring: &SharedRing, head: u16, near: &mut Near) -> Option<Self> {
        let descriptor = ring.descriptor(head)?;
        let host = match ring.memory().at(descriptor.address, near) {
            Some((host, room)) if u64::from(descriptor.len) <= room => host,
            _ => std::ptr::null_mut(),
        };
        Some(Self { head, descriptor, host })
    }
}

/// A ring that its PMD may use: every address checked, everything that it needs allocated.
///
/// Odd rings carry frames from the guest ([`fetch`](Self::fetch), [`complete`](Self::complete)),
/// even ones to it ([`deliver`](Self::deliver), [`publish`](Self::publish)); virtio 1.2, 5.1.2. A
/// ring is never dropped by its PMD (that may unmap memory): it goes back to the session through
/// [`RingHost::stop`](crate::RingHost::stop).
pub struct ActiveVring {
    pub(crate) shared: SharedRing,
    pub(crate) next_avail: u16,
    /// The driver's index as last seen.
    avail_seen: u16,
    /// Where the next used entry goes.
    pub(crate) next_used: u16,
    /// The used index that the driver can see.
    published_used: u16,
    /// No used event can be trusted yet, so the next publication interrupts.
    interrupt_next: bool,
    fault: Option<RingFault>,
    pub(crate) near: Near,
    pub(crate) features: Features,
    pub(crate) net_header_bytes: usize,
    /// Entries from `next_avail` on that are in `staged`.
    staged_count: u16,
    staged: Box<[Entry; STAGED_ENTRIES]>,
    pub(crate) pieces: Pieces,
    pub(crate) fetched: Fetched,
    pub(crate) used_buffers: UsedBuffers,
    /// What small receive buffers and new pages have cost, until it is asked for.
    pub(crate) receiver_cycles: u64,
    new_pages: NewPages,
    pub(crate) mapping: Mapping,
    index: u16,
    call: Option<Arc<CallFd>>,
    kick: Option<OwnedFd>,
    status: Arc<PortStatus>,
}

impl ActiveVring {
    /// Checks `config` against the memory that its addresses refer to.
    pub(crate) fn activate(
        config: VringConfig,
        memory: &Arc<GuestMemory>,
        status: &Arc<PortStatus>,
    ) -> Result<Self, RingPlaceError> {
        let VringConfig { index, size, addresses, base, features, call, fault } = config;
        let shared = SharedRing::new(memory, &addresses, size, features.event_idx())?;
        // Not `base`: if the two differ, frames are lost in between, but the index that the driver
        // sees must not jump.
        let used = shared.used_index();
        let mapping = Arc::clone(memory);
        let ring_entries = shared.size();
        let mut ring = Self {
            shared,
            next_avail: base,
            avail_seen: base,
            next_used: used,
            published_used: used,
            interrupt_next: true,
            fault,
            near: Near::NOWHERE,
            features,
            net_header_bytes: features.net_header_bytes(),
            staged_count: 0,
            staged: Box::new([Entry::EMPTY; STAGED_ENTRIES]),
            pieces: Pieces::new(),
            fetched: Fetched::new(base),
            used_buffers: UsedBuffers::new(),
            receiver_cycles: 0,
            new_pages: NewPages::new(ring_entries),
            mapping,
            index,
            call,
            kick: None,
            status: Arc::clone(status),
        };
        ring.disable_kicks();
        Ok(ring)
    }

    /// The ring's number in its port: odd from the guest, even to the guest.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Whether it is a ring that the guest sends on.
    pub fn is_from_guest(&self) -> bool {
        self.direction() == Direction::FromGuest
    }

    /// The next entry of the avail ring to be taken.
    pub fn next_avail(&self) -> u16 {
        self.next_avail
    }

    /// Why the ring is quarantined, if it is.
    pub fn fault(&self) -> Option<RingFault> {
        self.fault
    }

    /// What was negotiated for it.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Whom to signal when the guest wants an interrupt; `None` when it polls.
    #[inline]
    pub fn call_fd(&self) -> Option<&Arc<CallFd>> {
        self.call.as_ref()
    }

    /// What the guest signals when it has [asked to be woken](Self::enable_kicks). It belongs to
    /// the peer as well: poll it, never read it blockingly.
    pub fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(AsFd::as_fd)
    }

    /// Whether the guest has made something available. One load of its index at most.
    #[inline]
    pub fn has_work(&mut self) -> bool {
        self.fault.is_none() && self.available() > 0
    }

    /// A way to see whether the ring gets work, now that it has none, without touching the ring. It
    /// keeps the guest's memory mapped: let go of it before the ring is handed back.
    pub fn peek(&self) -> AvailPeek {
        AvailPeek::new(&self.shared, self.next_avail)
    }

    /// Receive buffers (or frames) known to be available, without looking again.
    #[inline]
    pub fn free_buffers_hint(&self) -> u16 {
        self.avail_seen.wrapping_sub(self.next_avail)
    }

    /// Asks the guest for a kick with the next thing that it makes available. Returns whether
    /// something already is, in which case no kick may come.
    #[must_use]
    pub fn enable_kicks(&mut self) -> bool {
        self.shared.set_used_flags(0);
        self.shared.set_avail_event(self.next_avail);
        // The request must be visible before the index is read again (virtio 1.2, 2.7.7.2).
        fence(Ordering::SeqCst);
        self.avail_seen = self.next_avail;
        self.has_work()
    }

    /// Asks the guest not to kick. It may all the same, once in 65536 entries.
    pub fn disable_kicks(&mut self) {
        self.shared.set_used_flags(VRING_USED_F_NO_NOTIFY as u16);
        self.shared.set_avail_event(self.next_avail.wrapping_sub(1));
    }

    /// Entries available, looking at the guest's index only if none is known. A jump beyond the
    /// ring's size is a fault.
    #[inline]
    pub(crate) fn available(&mut self) -> u16 {
        let known = self.free_buffers_hint();
        if known > 0 {
            return known;
        }
        self.refresh()
    }

    /// Looks at the guest's index; entries available by it.
    #[inline]
    pub(crate) fn refresh(&mut self) -> u16 {
        let seen = self.shared.avail_index();
        let count = seen.wrapping_sub(self.next_avail);
        if count > self.shared.size() {
            self.quarantine(RingFault::AvailIndexJump);
            return 0;
        }
        self.avail_seen = seen;
        count
    }

    /// Stops the ring for good.
    #[cold]
    pub(crate) fn quarantine(&mut self, fault: RingFault) {
        if self.fault.is_none() {
            self.fault = Some(fault);
            self.staged_count = 0;
            self.status.set_fault(self.index, fault);
        }
    }

    /// How chains of this ring are walked.
    #[inline]
    pub(crate) fn walk(&self, bytes_wanted: u64) -> Walk {
        Walk { direction: self.direction(), indirect: self.features.indirect(), bytes_wanted }
    }

    /// The next entry, if it is staged.
    #[inline(always)]
    pub(crate) fn staged(&self) -> Option<Entry> {
        #[expect(clippy::indexing_slicing, reason = "reduced modulo the array's length")]
        let entry = self.staged[usize::from(self.next_avail) % STAGED_ENTRIES];
        (self.staged_count > 0).then_some(entry)
    }

    /// The entry `ahead` of the next one: staged, or read now.
    #[inline]
    pub(crate) fn entry(&mut self, ahead: u16) -> Result<Entry, RingFault> {
        let position = self.next_avail.wrapping_add(ahead);
        if ahead < self.staged_count {
            return Ok(*staged_at(&mut self.staged, position));
        }
        let head = self.shared.avail_entry(position);
        Entry::load(&self.shared, head, &mut self.near).ok_or(RingFault::HeadOutOfRange)
    }

    /// Moves past `count` entries.
    #[inline]
    pub(crate) fn advance(&mut self, count: u16) {
        self.next_avail = self.next_avail.wrapping_add(count);
        self.staged_count = self.staged_count.saturating_sub(count);
    }

    /// Gives `count` entries back, of which the last [`STAGED_ENTRIES`] are still staged.
    pub(crate) fn retreat(&mut self, count: u16) {
        self.next_avail = self.next_avail.wrapping_sub(count);
        self.staged_count += count;
    }

    /// Reads up to `wanted` entries ahead, in stages over all of them so that their cache misses
    /// overlap: heads, then descriptors, then (prefetched only) what they point to. Each head and
    /// first descriptor is read once; what is staged stays staged until it is used.
    #[inline]
    pub(crate) fn stage(&mut self, wanted: u16) {
        let first = self.staged_count;
        let wanted = wanted.min(self.free_buffers_hint()).min(STAGED_ENTRIES as u16);
        let from_guest = self.is_from_guest();
        let Self { shared, near, staged, next_avail, net_header_bytes, .. } = self;
        let mut count = first;
        while count < wanted {
            let position = next_avail.wrapping_add(count);
            let head = shared.avail_entry(position);
            if head >= shared.size() {
                // Found again, as a fault, when its turn comes.
                break;
            }
            shared.prefetch_descriptor(head);
            staged_at(staged, position).head = head;
            count += 1;
        }
        for ahead in first..count {
            let staged = staged_at(staged, next_avail.wrapping_add(ahead));
            let Some(entry) = Entry::load(shared, staged.head, near) else { break };
            if from_guest {
                prefetch_frame(entry.host, entry.descriptor.len);
            } else {
                prefetch_room(entry.host, *net_header_bytes);
            }
            *staged = entry;
        }
        self.staged_count = count.max(first);
        self.shared.prefetch_used(self.next_used);
        if !from_guest && count > first {
            self.watch_pages(first, count);
        }
    }

    /// Makes sure that no buffer among those staged from `first` to `count` is filled without further ado
    /// whose pages were never met. Once many in a row were, it looks at one of them only, until that is a
    /// new one: so its receiver can make its senders pay for the first write to about one page in a burst.
    #[inline]
    fn watch_pages(&mut self, first: u16, count: u16) {
        if self.new_pages.is_likely() {
            return self.find_new_pages(first, count);
        }
        let ahead = first + self.new_pages.pick(count - first);
        if !self.is_met(ahead) {
            self.find_new_pages(first, count);
        }
    }

    #[cold]
    #[inline(never)]
    fn find_new_pages(&mut self, first: u16, count: u16) {
        for ahead in first..count {
            let is_new = !self.is_met(ahead);
            if is_new {
                staged_at(&mut self.staged, self.next_avail.wrapping_add(ahead)).host =
                    std::ptr::null_mut();
            }
            self.new_pages.seen(is_new);
        }
    }

    /// Whether a staged buffer is one whose pages were met, or one that is gathered piece by piece anyway.
    #[inline]
    fn is_met(&mut self, ahead: u16) -> bool {
        let Self { shared, near, staged, next_avail, .. } = self;
        let Entry { descriptor, host, .. } = *staged_at(staged, next_avail.wrapping_add(ahead));
        host.is_null() || shared.memory().has_met(descriptor.address, descriptor.len, near)
    }

    /// Makes all used entries so far visible; whether the guest wants an interrupt for them.
    #[inline]
    pub(crate) fn publish_used(&mut self) -> bool {
        let (old, new) = (self.published_used, self.next_used);
        if old == new {
            return false;
        }
        self.shared.publish_used_index(new);
        self.published_used = new;
        // The index must be visible before the guest's wish is read, or both sides could miss
        // each other (virtio 1.2, 2.7.10).
        fence(Ordering::SeqCst);
        if !self.features.event_idx() {
            return u32::from(self.shared.avail_flags()) & VRING_AVAIL_F_NO_INTERRUPT == 0;
        }
        let passed = event_passed(self.shared.used_event(), old, new);
        std::mem::take(&mut self.interrupt_next) || passed
    }

    pub(crate) fn set_kick(&mut self, kick: OwnedFd) {
        self.kick = Some(kick);
    }

    /// The kick fd of a ring that has stopped running; the rest is let go of.
    pub(crate) fn into_kick(self) -> Option<OwnedFd> {
        self.kick
    }

    #[inline]
    fn direction(&self) -> Direction {
        // virtio 1.2, 5.1.2: receiveq1 is virtqueue 0, transmitq1 virtqueue 1, named from the guest.
        if self.index % 2 == 1 { Direction::FromGuest } else { Direction::ToGuest }
    }
}

/// The place of a ring position in what is staged.
#[inline(always)]
fn staged_at(staged: &mut [Entry; STAGED_ENTRIES], position: u16) -> &mut Entry {
    #[expect(clippy::indexing_slicing, reason = "reduced modulo the array's length")]
    &mut staged[usize::from(position) % STAGED_ENTRIES]
}

/// Asks for the lines of the header copy.
#[inline]
fn prefetch_frame(host: *const u8, len: u32) {
    prefetch_read(host);
    if len > 64 {
        prefetch_read(host.wrapping_add(64));
    }
    if len > 128 {
        prefetch_read(host.wrapping_add(128));
        prefetch_read(host.wrapping_add(192));
    }
}

/// Asks for a buffer's virtio-net header for reading (it is usually right already, see
/// `deliver.rs`), and for the frame's start for writing.
#[inline]
fn prefetch_room(host: *const u8, net_header_bytes: usize) {
    prefetch_read(host);
    prefetch_write(host.wrapping_add(net_header_bytes));
}

/// Whether going from `old` to `new` passes `event` (virtio 1.2, 2.7.7.1; all modulo 2^16).
#[inline]
fn event_passed(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

impl fmt::Debug for ActiveVring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveVring")
            .field("index", &self.index)
            .field("size", &self.shared.size())
            .field("next_avail", &self.next_avail)
            .field("next_used", &self.next_used)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}
