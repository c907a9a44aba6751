//! What the slow path decides once for many packets.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tollgate_accel::prefetch::{prefetch_read, prefetch_write};
use tollgate_classifier::FlowSlot;
use tollgate_frame::DropReason;
use tollgate_packet::edit::Edit;
use tollgate_packet::{FlowMatch, PortIndex};
use tollgate_policy::TenantIndex;

use crate::meter::Meter;

const CACHE_LINE_BYTES: usize = 64;

/// One step of a compiled action list. Floods are already expanded to their outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Send the packet, as it is now, to a port.
    Output(PortIndex),
    /// Change the header copy; a packet that lacks the field is dropped with a reason.
    Edit(Edit),
    /// Drop the packet, and with it the rest of the list, if it is over the rate of the meter at
    /// this place in [`Megaflow::meters`].
    Meter(u8),
    /// Send a copy of the frame as it was received to the slow path, for a controller. One list
    /// makes one such copy, however often it says so: the walk that the copy gets finds them all.
    Punt,
    /// Spend this many cycles on every packet. No flow rule compiles to it: it exists to prove that
    /// what is spent for a tenant is charged to it.
    Burn(u32),
}

/// A cached decision, valid for every packet that agrees with `matcher`.
#[derive(Debug)]
pub struct Megaflow {
    /// `in_port` holds a datapath [`PortIndex`] and is always matched exactly.
    pub matcher: FlowMatch,
    /// What to do, in order.
    pub ops: Box<[Op]>,
    /// The meters that `ops` names.
    pub meters: Box<[Arc<Meter>]>,
    /// The reason that is counted when `ops` makes no copy.
    pub drop_reason: DropReason,
    /// Who pays for the packets, and whose quota in the caches it uses.
    pub owner: TenantIndex,
    /// Generation of the tables under which they were walked; a PMD that has heard of a newer one
    /// refuses it.
    pub generation: u64,
    /// What it has carried.
    pub stats: MegaflowStats,
}

impl Megaflow {
    /// Asks for all of it but what it points to.
    pub(crate) fn prefetch(this: *const Self) {
        let bytes = this.cast::<u8>();
        for at in (0..size_of::<Self>()).step_by(CACHE_LINE_BYTES) {
            prefetch_read(bytes.wrapping_add(at));
        }
        prefetch_write(bytes.wrapping_add(offset_of!(Self, stats)));
    }
}

/// Counters of one megaflow, and where it is cached: written by the one PMD that holds it, read by
/// anybody.
#[derive(Debug, Default)]
pub struct MegaflowStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_used_tsc: AtomicU64,
    slot: AtomicU64,
    /// The PMD that caches the megaflow, counted from 1; 0 where none does.
    holder: AtomicUsize,
}

impl MegaflowStats {
    /// Counts packets, for the PMD (or its stand-in) that holds the megaflow. Single writer: a
    /// plain load and store, cheaper than an atomic add.
    #[inline]
    pub fn add(&self, packets: u64, bytes: u64, now_tsc: u64) {
        single_writer_add(&self.packets, packets);
        single_writer_add(&self.bytes, bytes);
        self.last_used_tsc.store(now_tsc, Ordering::Relaxed);
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Bytes so far, as received.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes where the megaflow is cached now.
    pub(crate) fn settle(&self, pmd: usize, slot: FlowSlot) {
        let slot = u64::from(slot.version) << 32 | u64::from(slot.index);
        self.slot.store(slot, Ordering::Relaxed);
        self.holder.store(pmd + 1, Ordering::Release);
    }

    /// Notes that it is cached no longer.
    pub(crate) fn leave(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// Where on a PMD it is cached, if it is.
    pub(crate) fn slot_at(&self, pmd: usize) -> Option<FlowSlot> {
        let is_here = self.holder.load(Ordering::Acquire) == pmd + 1;
        let slot = self.slot.load(Ordering::Relaxed);
        is_here.then_some(FlowSlot { index: slot as u32, version: (slot >> 32) as u32 })
    }

    /// When the last packet passed; 0 before the first.
    pub fn last_used_tsc(&self) -> u64 {
        self.last_used_tsc.load(Ordering::Relaxed)
    }
}

/// Adds to a counter that only the calling thread writes.
#[inline(always)]
pub(crate) fn single_writer_add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}
