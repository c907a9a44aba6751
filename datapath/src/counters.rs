//! What a port has carried and lost. Every frame that enters through a port is accounted for:
//! rx + clones + injected = forwarded + drops + queued + consumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_frame::DropReason;

use crate::megaflow::single_writer_add;

/// Counters of one port on one PMD: written by that PMD, read by anybody.
#[derive(Debug)]
pub struct PortCounters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    forwarded: AtomicU64,
    clones: AtomicU64,
    miss_queued: AtomicU64,
    miss_returned: AtomicU64,
    handed_out: AtomicU64,
    handed_in: AtomicU64,
    injected: AtomicU64,
    consumed: AtomicU64,
    drops: [AtomicU64; DropReason::ALL.len()],
    tx_drops: AtomicU64,
}

impl Default for PortCounters {
    fn default() -> Self {
        Self {
            rx_packets: AtomicU64::new(0),
            rx_bytes: AtomicU64::new(0),
            tx_packets: AtomicU64::new(0),
            tx_bytes: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            clones: AtomicU64::new(0),
            miss_queued: AtomicU64::new(0),
            miss_returned: AtomicU64::new(0),
            handed_out: AtomicU64::new(0),
            handed_in: AtomicU64::new(0),
            injected: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            drops: [const { AtomicU64::new(0) }; DropReason::ALL.len()],
            tx_drops: AtomicU64::new(0),
        }
    }
}

impl PortCounters {
    #[inline]
    pub(crate) fn received(&self, packets: u64, bytes: u64) {
        single_writer_add(&self.rx_packets, packets);
        single_writer_add(&self.rx_bytes, bytes);
    }

    /// As the ingress of packets that were delivered somewhere.
    #[inline]
    pub(crate) fn forwarded(&self, packets: u64) {
        single_writer_add(&self.forwarded, packets);
    }

    /// As the egress of packets that were delivered to this port.
    #[inline]
    pub(crate) fn transmitted(&self, packets: u64, bytes: u64) {
        single_writer_add(&self.tx_packets, packets);
        single_writer_add(&self.tx_bytes, bytes);
    }

    #[inline]
    pub(crate) fn cloned(&self, copies: u64) {
        single_writer_add(&self.clones, copies);
    }

    /// As the ingress of packets that were lost.
    #[inline]
    pub(crate) fn dropped(&self, reason: DropReason, packets: u64) {
        if let Some(counter) = self.drops.get(reason.index()) {
            single_writer_add(counter, packets);
        }
    }

    /// As the egress that could not take a packet (which is counted once more, with its reason, as
    /// a drop of its ingress).
    #[inline]
    pub(crate) fn refused(&self, packets: u64) {
        single_writer_add(&self.tx_drops, packets);
    }

    pub(crate) fn miss_queued(&self) {
        single_writer_add(&self.miss_queued, 1);
    }

    pub(crate) fn miss_returned(&self) {
        single_writer_add(&self.miss_returned, 1);
    }

    /// As the ingress of packets that another PMD delivers.
    pub(crate) fn handed_out(&self, packets: u64) {
        single_writer_add(&self.handed_out, packets);
    }

    /// As the ingress, on the PMD that delivers.
    pub(crate) fn handed_in(&self) {
        single_writer_add(&self.handed_in, 1);
    }

    pub(crate) fn injected(&self) {
        single_writer_add(&self.injected, 1);
    }

    /// As the ingress of a copy that went to the slow path for a controller.
    pub(crate) fn consumed(&self) {
        single_writer_add(&self.consumed, 1);
    }
}

/// A port's counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSnapshot {
    /// Frames taken from the guest, malformed ones included.
    pub rx_packets: u64,
    /// Their bytes, without virtio-net headers.
    pub rx_bytes: u64,
    /// Frames given to the guest.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Copies of this port's frames that reached a port.
    pub forwarded: u64,
    /// Copies made beyond the frame itself (multiple outputs).
    pub clones: u64,
    /// Frames put in by the control side as if received here.
    pub injected: u64,
    /// Frames of this port that wait in the slow path, or for another PMD to deliver them.
    pub queued: u64,
    /// Copies that ended in the switch itself: given to the slow path for a controller.
    pub consumed: u64,
    /// Frames that this port could not take from others.
    pub tx_drops: u64,
    /// Copies of this port's frames that were lost, by reason; zero counts left out.
    pub drops: Vec<(DropReason, u64)>,
}

impl PortSnapshot {
    /// The sum over the PMDs' counters now. They move one by one, so a snapshot under traffic need
    /// not balance.
    pub(crate) fn of(shards: &[Arc<PortCounters>]) -> Self {
        let sum = |counter: fn(&PortCounters) -> &AtomicU64| -> u64 {
            shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
        };
        let of_reason = |reason: DropReason| -> u64 {
            let counters = shards.iter().filter_map(|shard| shard.drops.get(reason.index()));
            counters.map(|counter| counter.load(Ordering::Relaxed)).sum()
        };
        // What has come back is read before what went out, so that the difference is not negative.
        let back = sum(|shard| &shard.miss_returned) + sum(|shard| &shard.handed_in);
        let out = sum(|shard| &shard.miss_queued) + sum(|shard| &shard.handed_out);
        let drops = DropReason::ALL.into_iter().map(|reason| (reason, of_reason(reason)));
        Self {
            rx_packets: sum(|shard| &shard.rx_packets),
            rx_bytes: sum(|shard| &shard.rx_bytes),
            tx_packets: sum(|shard| &shard.tx_packets),
            tx_bytes: sum(|shard| &shard.tx_bytes),
            forwarded: sum(|shard| &shard.forwarded),
            clones: sum(|shard| &shard.clones),
            injected: sum(|shard| &shard.injected),
            queued: out.saturating_sub(back),
            consumed: sum(|shard| &shard.consumed),
            tx_drops: sum(|shard| &shard.tx_drops),
            drops: drops.filter(|(_, count)| *count != 0).collect(),
        }
    }

    /// All drops.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, count)| count).sum()
    }

    /// What went in: rx + clones + injected.
    pub fn entered(&self) -> u64 {
        self.rx_packets + self.clones + self.injected
    }

    /// What is accounted for: forwarded + drops + queued + consumed. Equal to
    /// [`entered`](Self::entered) whenever the port is quiet.
    pub fn accounted(&self) -> u64 {
        self.forwarded + self.dropped() + self.queued + self.consumed
    }
}
