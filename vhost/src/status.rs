//! What the outside may know of a port's connection and rings, while it runs.
#![allow(clippy::disallowed_methods)] // control side

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::features::Features;
use crate::limits::MAX_QUEUE_PAIRS;

const MAX_RINGS: usize = MAX_QUEUE_PAIRS as usize * 2;

macro_rules! ring_faults {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)+) => {
        /// Why a ring was quarantined: the guest broke the rules of virtio in a way that leaves
        /// nothing to be trusted. It lasts until the ring is set up anew.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum RingFault {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl RingFault {
            /// Every fault.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// A sentence for people.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

ring_faults! {
    /// More entries than the ring has.
    AvailIndexJump = "the avail index moved by more than the ring's size",
    /// A head beyond the ring.
    HeadOutOfRange = "an avail entry names a descriptor beyond the ring",
    /// A `next` beyond the ring or table.
    NextOutOfRange = "a descriptor's next lies beyond its table",
    /// A chain that returns to itself.
    ChainLoop = "a descriptor chain loops",
    /// A buffer or table that is not in guest memory.
    BadAddress = "a descriptor's address is not in guest memory",
    /// A receive buffer that may not be written.
    ReadOnlyBuffer = "a receive buffer is not writable",
    /// An indirect descriptor without the feature.
    IndirectNotNegotiated = "an indirect descriptor without VIRTIO_F_INDIRECT_DESC",
    /// An indirect descriptor in an indirect table.
    IndirectNested = "an indirect table refers to an indirect table",
    /// INDIRECT and NEXT together.
    IndirectWithNext = "an indirect descriptor has a next",
    /// Empty, or not a whole number of descriptors.
    IndirectBadLength = "an indirect table's length is not a positive multiple of 16",
    /// More descriptors than the ring's size allows in a chain.
    IndirectTooLong = "an indirect table is longer than the ring",
}

impl std::fmt::Display for RingFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Shared by a port's session, its PMD and whoever lists ports. Writers never wait.
#[derive(Debug, Default)]
pub struct PortStatus {
    connected: AtomicBool,
    features: AtomicU64,
    rings_started: AtomicU32,
    memory_regions: AtomicU32,
    sessions: AtomicU64,
    session_errors: AtomicU64,
    quarantines: AtomicU64,
    /// One more than the [`RingFault`]; 0 = none.
    faults: [AtomicU8; MAX_RINGS],
    /// Why the last session ended, if it was an error.
    session_error: Mutex<Option<String>>,
    /// Why there is no connection, while there is none.
    connect_error: Mutex<Option<String>>,
}

impl PortStatus {
    /// Of a port that nobody has connected to yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a frontend is connected.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// The features that driver and device agreed on; none before that.
    pub fn features(&self) -> Features {
        Features(self.features.load(Ordering::Relaxed))
    }

    /// Whether ring `index` (odd: from the guest, even: to it) is with the PMD.
    pub fn is_started(&self, index: u16) -> bool {
        u32::from(index) < u32::BITS && self.rings_started.load(Ordering::Relaxed) >> index & 1 == 1
    }

    /// The indexes of the rings that are with the PMD.
    pub fn rings_started(&self) -> Vec<u16> {
        (0..MAX_QUEUE_PAIRS * 2).filter(|index| self.is_started(*index)).collect()
    }

    /// Memory regions that the frontend has shared.
    pub fn memory_regions(&self) -> u32 {
        self.memory_regions.load(Ordering::Relaxed)
    }

    /// Connections so far.
    pub fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Connections that were closed because of an error.
    pub fn session_errors(&self) -> u64 {
        self.session_errors.load(Ordering::Relaxed)
    }

    /// Rings that were quarantined so far.
    pub fn quarantines(&self) -> u64 {
        self.quarantines.load(Ordering::Relaxed)
    }

    /// Why ring `index` is quarantined, if it is.
    pub fn fault(&self, index: u16) -> Option<RingFault> {
        let code = self.faults.get(usize::from(index))?.load(Ordering::Relaxed);
        RingFault::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// What went wrong last: why there is no connection, or why the last one was closed.
    pub fn last_error(&self) -> Option<String> {
        let get = |error: &Mutex<Option<String>>| {
            error.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        get(&self.connect_error).or_else(|| get(&self.session_error))
    }

    /// Notes a quarantine; for the PMD: no lock, no allocation.
    pub(crate) fn set_fault(&self, index: u16, fault: RingFault) {
        if let Some(slot) = self.faults.get(usize::from(index)) {
            slot.store(fault as u8 + 1, Ordering::Relaxed);
            self.quarantines.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn clear_fault(&self, index: u16) {
        if let Some(slot) = self.faults.get(usize::from(index)) {
            slot.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_started(&self, index: u16, started: bool) {
        let bit = 1u32.checked_shl(u32::from(index)).unwrap_or(0);
        if started {
            self.rings_started.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.rings_started.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_features(&self, features: Features) {
        self.features.store(features.0, Ordering::Relaxed);
    }

    pub(crate) fn set_memory_regions(&self, regions: usize) {
        self.memory_regions.store(u32::try_from(regions).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    pub(crate) fn session_begins(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        self.connected.store(true, Ordering::Relaxed);
        set(&self.connect_error, None);
        (0..MAX_QUEUE_PAIRS * 2).for_each(|index| self.clear_fault(index));
    }

    pub(crate) fn session_ends(&self, error: Option<String>) {
        if let Some(error) = error {
            self.session_errors.fetch_add(1, Ordering::Relaxed);
            set(&self.session_error, Some(error));
        }
        self.set_features(Features::default());
        self.set_memory_regions(0);
        self.connected.store(false, Ordering::Relaxed);
    }

    pub(crate) fn cannot_connect(&self, error: String) {
        set(&self.connect_error, Some(error));
    }
}

fn set(slot: &Mutex<Option<String>>, error: Option<String>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = error;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_kept_per_ring_and_cleared_with_the_next_session() {
        let status = PortStatus::new();
        for fault in RingFault::ALL {
            status.set_fault(3, fault);
            assert_eq!(status.fault(3), Some(fault));
        }
        assert_eq!((status.fault(2), status.fault(500)), (None, None));
        assert_eq!(status.quarantines(), RingFault::ALL.len() as u64);
        status.session_begins();
        assert_eq!(status.fault(3), None);
    }

    #[test]
    fn a_connection_ends_the_reason_for_having_none() {
        let status = PortStatus::new();
        status.session_begins();
        status.session_ends(Some("was refused".to_owned()));
        status.cannot_connect("nobody there".to_owned());
        assert_eq!(status.last_error().as_deref(), Some("nobody there"));
        status.session_begins();
        assert_eq!(status.last_error().as_deref(), Some("was refused"));
    }

    #[test]
    fn started_rings_are_listed() {
        let status = PortStatus::new();
        status.set_started(0, true);
        status.set_started(15, true);
        status.set_started(0, false);
        assert_eq!(status.rings_started(), [15]);
        assert!(!status.is_started(200));
    }
}
