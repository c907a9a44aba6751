//! The PMD's two levels of cached decisions, and the way home of those it gives up.

use std::sync::Arc;

use rtrb::Producer;
use tollgate_accel::prefetch::prefetch_read;
use tollgate_classifier::{ExactTable, FlowSlot, InsertError, MegaflowCache};
use tollgate_packet::FlowKey;

use crate::limits::{EXACT_TRIM, LARGE_CACHE_MEGAFLOWS};
use crate::megaflow::Megaflow;
use crate::slow_path::{EvictionCause, Homebound};
use crate::stages::Stage;

/// Exact-match table in front of megaflows.
#[derive(Debug)]
pub(crate) struct FlowCache {
    /// Whose it is.
    pmd: usize,
    exact: ExactTable,
    /// Whether it is looked into and filled.
    exact_match: bool,
    megaflows: MegaflowCache<Arc<Megaflow>>,
    /// Megaflows walked under older tables are refused.
    min_generation: u64,
    homeward: Producer<Homebound>,
    /// Packets decided on by their port of entry alone.
    pub(crate) port_hits: u64,
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
            exact_match: true,
            megaflows,
            min_generation: 0,
            homeward,
            port_hits: 0,
            exact_hits: 0,
            megaflow_hits: 0,
            subtable_probes: 0,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        self.exact.hash(key)
    }

    /// Asks for where the tags of a hash's bucket are.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: u64) {
        if self.exact_match {
            self.exact.prefetch_bucket(hash);
        }
    }

    /// Asks for the exact-match entry that the tags name.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) {
        if self.exact_match {
            self.exact.prefetch(hash);
        }
    }

    /// Whether it is worth asking for megaflows ahead.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.megaflows.len() >= LARGE_CACHE_MEGAFLOWS
    }

    /// Asks for the megaflow that the exact-match entry names.
    #[inline]
    pub(crate) fn prefetch_megaflow(&self, hash: u64, key: &FlowKey) {
        if self.exact_match
            && let Some(slot) = self.exact.lookup(hash, key)
        {
            self.megaflows.prefetch(slot);
        }
    }

    /// Asks for what a decision says.
    #[inline]
    pub(crate) fn prefetch_ops(&self, slot: FlowSlot) {
        if let Some(megaflow) = self.get(slot) {
            prefetch_read(Arc::as_ptr(megaflow));
            prefetch_read(&raw const megaflow.stats);
        }
    }

    /// The decision for a packet; a megaflow's is remembered for the packet's exact key, within the
    /// quota of the megaflow's owner.
    #[inline]
    pub(crate) fn lookup(&mut self, hash: u64, key: &FlowKey) -> Option<FlowSlot> {
        self.lookup_in_stages(hash, key, |_| ())
    }

    /// The same; where the exact-match table does not know it, `lap` hears of the end of each stage.
    #[inline]
    pub(crate) fn lookup_in_stages(
        &mut self,
        hash: u64,
        key: &FlowKey,
        mut lap: impl FnMut(Stage),
    ) -> Option<FlowSlot> {
        if self.exact_match
            && let Some(slot) = self.exact.lookup(hash, key)
            && self.megaflows.get(slot).is_some()
        {
            self.exact_hits += 1;
            return Some(slot);
        }
        lap(Stage::Exact);
        let slot = self.lookup_megaflow(hash, key);
        lap(Stage::Megaflow);
        slot
    }

    #[inline]
    fn lookup_megaflow(&mut self, hash: u64, key: &FlowKey) -> Option<FlowSlot> {
        let (slot, probes) = self.megaflows.lookup(key)?;
        self.megaflow_hits += 1;
        self.subtable_probes += u64::from(probes);
        if !self.exact_match {
            return Some(slot);
        }
        let owner = self.megaflows.get(slot)?.owner;
        // The place of an entry whose megaflow is gone may be taken, whoever had it.
        let megaflows = &self.megaflows;
        let is_stale = |slot| megaflows.get(slot).is_none();
        self.exact.insert_over_stale(hash, key, slot, owner.0, is_stale);
        Some(slot)
    }

    /// Counts a packet that is decided as the one before it, whose key it has.
    #[inline]
    pub(crate) fn count_repeat(&mut self) {
        let level = if self.exact_match { &mut self.exact_hits } else { &mut self.megaflow_hits };
        *level += 1;
    }

    pub(crate) fn exact_match(&self) -> bool {
        self.exact_match
    }

    /// Turns the exact-match table on or off. Its entries stay, so that an entry is as old as it was
    /// when it is turned on again; one whose megaflow is gone by then is not used.
    pub(crate) fn set_exact_match(&mut self, on: bool) {
        self.exact_match = on;
    }

    #[inline]
    pub(crate) fn get(&self, slot: FlowSlot) -> Option<&Arc<Megaflow>> {
        self.megaflows.get(slot)
    }

    /// Whether it was walked under tables that are older than an order has told of.
    pub(crate) fn is_stale(&self, megaflow: &Megaflow) -> bool {
        megaflow.generation < self.min_generation
    }

    /// Asks for what carrying out a decision and caching it will touch, after `ahead` others.
    pub(crate) fn prefetch_install(&self, megaflow: &Megaflow, ahead: usize) {
        prefetch_read(megaflow.ops.as_ptr());
        self.megaflows.prefetch_insert(&megaflow.matcher, ahead);
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

    /// How many exact-match entries an owner may have, `None` for an equal part with `owners` in all.
    pub(crate) fn set_exact_quota(&mut self, owner: u16, entries: Option<u64>, owners: usize) {
        let capacity = self.exact.capacity();
        let part = (capacity / owners.max(1)) as u64;
        let quota = entries.unwrap_or(part).min(capacity as u64);
        self.exact.set_quota(owner, quota as u32);
    }

    /// Takes back some entries of an owner that has too many.
    pub(crate) fn trim_exact(&mut self, owner: u16) {
        self.exact.trim(owner, EXACT_TRIM);
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

#[cfg(test)]
mod tests {
    use rtrb::RingBuffer;
    use tollgate_accel::hash::HashSecret;
    use tollgate_frame::DropReason;
    use tollgate_packet::{FlowMask, FlowMatch};
    use tollgate_policy::TenantIndex;

    use super::*;
    use crate::megaflow::MegaflowStats;

    /// Every packet of a port.
    fn megaflow(port: u32) -> Arc<Megaflow> {
        let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
        let key = FlowKey { in_port: port, ..FlowKey::default() };
        Arc::new(Megaflow {
            matcher: FlowMatch::new(&key, mask),
            ops: Box::default(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(port as u16),
            generation: 1,
            stats: MegaflowStats::default(),
        })
    }

    /// Sends packets of eight flows of a port twice; how many the exact-match table decided.
    fn exact_hits(cache: &mut FlowCache, port: u32) -> u64 {
        let before = cache.exact_hits;
        for round in 0..16_u16 {
            let key = FlowKey { in_port: port, l4_src: round % 8, ..FlowKey::default() };
            let hash = cache.hash(&key);
            assert!(cache.lookup(hash, &key).is_some());
        }
        cache.exact_hits - before
    }

    /// A tenant with more flows than its part keeps no place from another, and has its own back when
    /// the other is gone.
    #[test]
    fn each_owner_has_its_part_of_the_exact_match_table() {
        let exact = ExactTable::new(16, 4, HashSecret::random());
        let megaflows = MegaflowCache::new(4, 64, HashSecret::random());
        let mut cache = FlowCache::new(0, exact, megaflows, RingBuffer::new(1).0);
        cache.install(megaflow(1));
        cache.install(megaflow(2));
        let fill = |cache: &mut FlowCache, port| {
            for l4_src in 0..1000 {
                let key = FlowKey { in_port: port, l4_src, ..FlowKey::default() };
                cache.lookup(cache.hash(&key), &key);
            }
        };
        fill(&mut cache, 1);
        assert_eq!(cache.exact.occupancy(1), 16);
        (1..=2).for_each(|owner| cache.set_exact_quota(owner, None, 2));
        cache.trim_exact(1);
        fill(&mut cache, 2);
        fill(&mut cache, 1);
        assert_eq!((cache.exact.occupancy(1), cache.exact.occupancy(2)), (8, 8));
        cache.set_exact_quota(2, Some(3), 2);
        cache.trim_exact(2);
        assert_eq!(cache.exact.occupancy(2), 3);
        cache.set_exact_quota(2, Some(1 << 40), 2);
        fill(&mut cache, 2);
        assert!(cache.exact.occupancy(2) >= 3);
    }

    /// Nothing is decided by it or put into it while it is off, and nothing is lost by that.
    #[test]
    fn the_exact_match_table_can_be_turned_off_and_on() {
        let exact = ExactTable::new(16, 4, HashSecret::random());
        let megaflows = MegaflowCache::new(4, 64, HashSecret::random());
        let mut cache = FlowCache::new(0, exact, megaflows, RingBuffer::new(1).0);
        cache.install(megaflow(1));
        cache.set_exact_match(false);
        assert_eq!(exact_hits(&mut cache, 1), 0);
        cache.count_repeat();
        assert_eq!((cache.megaflow_hits, cache.exact_hits, cache.exact.occupancy(1)), (17, 0, 0));
        cache.set_exact_match(true);
        assert_eq!(exact_hits(&mut cache, 1), 8, "eight flows, each the second time");
        cache.set_exact_match(false);
        assert_eq!(exact_hits(&mut cache, 1), 0, "nor by what is in it already");
    }

    /// They stayed until their tenant wanted the places for others, which may have been never.
    #[test]
    fn bug_exact_entries_of_forgotten_megaflows_keep_no_place_from_other_tenants() {
        let exact = ExactTable::new(8, 4, HashSecret::random());
        let megaflows = MegaflowCache::new(4, 64, HashSecret::random());
        let mut cache = FlowCache::new(0, exact, megaflows, RingBuffer::new(1).0);
        let (first, second) = (megaflow(1), megaflow(2));
        cache.install(Arc::clone(&first));
        cache.install(Arc::clone(&second));
        assert_eq!(exact_hits(&mut cache, 1), 8, "it has the whole table");
        assert_eq!(exact_hits(&mut cache, 2), 0, "nobody takes a live entry from another");
        assert!(cache.forget(&first).is_some() && cache.forget(&first).is_none());
        assert_eq!(exact_hits(&mut cache, 2), 8);
    }
}
