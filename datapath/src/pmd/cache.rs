//! The PMD's two levels of cached decisions, and the way home of those it gives up.

use std::sync::Arc;

use rtrb::Producer;
use tollgate_classifier::{ExactTable, FlowSlot, InsertError, MegaflowCache};
use tollgate_packet::FlowKey;

use crate::megaflow::Megaflow;
use crate::slow_path::{EvictionCause, Homebound};

/// Exact-match table in front of megaflows.
#[derive(Debug)]
pub(crate) struct FlowCache {
    /// Whose it is.
    pmd: usize,
    exact: ExactTable,
    megaflows: MegaflowCache<Arc<Megaflow>>,
    /// Megaflows walked under older tables are refused.
    min_generation: u64,
    homeward: Producer<Homebound>,
    pub(crate) exact_hits: u64,
    pub(crate) megaflow_hits: u64,
    pub(crate) subtable_probes: u64,
}

impl FlowCache {
    pub(crate) fn new(
        pmd: usize,
        exact: ExactTable,
        megaflows: MegaflowCache<Arc<Megaflow>>,
        homeward: Producer<Homebound>,
    ) -> Self {
        Self {
            pmd,
            exact,
            megaflows,
            min_generation: 0,
            homeward,
            exact_hits: 0,
            megaflow_hits: 0,
            subtable_probes: 0,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        self.exact.hash(key)
    }

    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.exact.prefetch(hash);
    }

    /// The decision for a packet; a megaflow's is remembered for the packet's exact key, within the
    /// quota of the megaflow's owner.
    #[inline]
    pub(crate) fn lookup(&mut self, hash: u64, key: &FlowKey) -> Option<FlowSlot> {
        if let Some(slot) = self.exact.lookup(hash, key)
            && self.megaflows.get(slot).is_some()
        {
            self.exact_hits += 1;
            return Some(slot);
        }
        let (slot, probes) = self.megaflows.lookup(key)?;
        self.megaflow_hits += 1;
        self.subtable_probes += u64::from(probes);
        let owner = self.megaflows.get(slot)?.owner;
        // The place of an entry whose megaflow is gone may be taken, whoever had it.
        let megaflows = &self.megaflows;
        let is_stale = |slot| megaflows.get(slot).is_none();
        self.exact.insert_over_stale(hash, key, slot, owner.0, is_stale);
        Some(slot)
    }

    #[inline]
    pub(crate) fn get(&self, slot: FlowSlot) -> Option<&Arc<Megaflow>> {
        self.megaflows.get(slot)
    }

    /// Whether it was walked under tables that are older than an order has told of.
    pub(crate) fn is_stale(&self, megaflow: &Megaflow) -> bool {
        megaflow.generation < self.min_generation
    }

    /// Caches a decision, or sends it home with the reason.
    pub(crate) fn install(&mut self, megaflow: Arc<Megaflow>) {
        if self.is_stale(&megaflow) {
            return self.send_home(megaflow, EvictionCause::Refused);
        }
        match self.megaflows.insert(megaflow.matcher, megaflow) {
            Ok(slot) => {
                if let Some(megaflow) = self.megaflows.get(slot) {
                    megaflow.stats.settle(self.pmd, slot);
                }
            }
            Err((error, megaflow)) => {
                let cause = match error {
                    InsertError::Duplicate => EvictionCause::Duplicate,
                    InsertError::InPortWild => EvictionCause::InPortWild,
                    InsertError::Full | InsertError::TooManySubtables => EvictionCause::CacheFull,
                };
                self.send_home(megaflow, cause);
            }
        }
    }

    /// Sends home a decision that was for one packet only.
    pub(crate) fn decline(&mut self, megaflow: Arc<Megaflow>) {
        self.push_home(Homebound::Decision(megaflow));
    }

    /// From now on refuses megaflows of generations before `generation`.
    pub(crate) fn require_generation(&mut self, generation: u64) {
        self.min_generation = self.min_generation.max(generation);
    }

    /// Forgets the megaflow and gives it out, if it is here.
    pub(crate) fn forget(&mut self, megaflow: &Megaflow) -> Option<Arc<Megaflow>> {
        let slot = megaflow.stats.slot_at(self.pmd)?;
        let forgotten = self.megaflows.remove(slot)?;
        forgotten.stats.leave();
        Some(forgotten)
    }

    /// Things that can be sent home now. Whoever is about to send some asks first.
    pub(crate) fn homeward_room(&self) -> usize {
        self.homeward.slots()
    }

    pub(crate) fn send_frame_home(&mut self, frame: Vec<u8>) {
        self.push_home(Homebound::Frame(frame));
    }

    fn send_home(&mut self, megaflow: Arc<Megaflow>, cause: EvictionCause) {
        self.push_home(Homebound::Megaflow(megaflow, cause));
    }

    fn push_home(&mut self, item: Homebound) {
        let pushed = self.homeward.push(item);
        debug_assert!(pushed.is_ok(), "room was asked for before");
    }

    /// Keeps the subtables in the order of their hits; bounded.
    pub(crate) fn housekeeping(&mut self) {
        self.megaflows.rank();
    }

    pub(crate) fn megaflow_count(&self) -> usize {
        self.megaflows.len()
    }

    pub(crate) fn subtable_count(&self) -> usize {
        self.megaflows.subtables()
    }
}
