//! A tenant on one PMD: its rings, its lane to the slow path, what its packets cost.

use std::collections::VecDeque;

use tollgate_policy::TenantIndex;

use crate::lane::PmdLane;
use crate::limits::{MAX_RINGS_PER_TENANT, MAX_TENANTS, OVERLAPPING_PACKETS, TASK_PACKETS};
use crate::pmd::parked::Parked;
use crate::pmd::ports::RingRef;

/// Made and dropped off the PMD.
#[derive(Debug)]
pub(crate) struct TenantSlot {
    pub(crate) index: TenantIndex,
    pub(crate) lane: PmdLane,
    /// Where a packet waits whose action list was cut; taken out while that is run on.
    pub(crate) parked: Option<Box<Parked>>,
    /// How many are polled.
    rings: usize,
    /// Those known to have packets, to be served in this order.
    ready: VecDeque<RingRef>,
    /// Running means, so that a task is sized ahead to its budget: of all that a packet costs, and of
    /// fetching and classifying it.
    packet_cost_cycles: u64,
    classify_cost_cycles: u64,
    /// In one of the scheduler's lists.
    pub(crate) listed: bool,
    /// While it is listed: when its work was seen, or its last turn ended.
    pub(crate) work_since_tsc: u64,
    pub(crate) packets: u64,
    /// Its quota in the exact-match table, if one was set.
    pub(crate) exact_entries: Option<u64>,
    /// Until when it counts as active there, and its packets when that was last seen.
    active_until_tsc: u64,
    packets_seen: u64,
}

impl TenantSlot {
    pub(crate) fn new(index: TenantIndex, lane: PmdLane, exact_entries: Option<u64>) -> Self {
        Self {
            index,
            lane,
            parked: Some(Box::new(Parked::new())),
            rings: 0,
            ready: VecDeque::with_capacity(MAX_RINGS_PER_TENANT),
            packet_cost_cycles: 200,
            classify_cost_cycles: 100,
            listed: false,
            work_since_tsc: 0,
            packets: 0,
            exact_entries,
            active_until_tsc: 0,
            packets_seen: 0,
        }
    }

    /// Counts a ring that is polled from now on; `false` when there are too many (the list never grows
    /// on a PMD).
    #[must_use]
    pub(crate) fn add_ring(&mut self) -> bool {
        let room = self.rings < MAX_RINGS_PER_TENANT;
        self.rings += usize::from(room);
        room
    }

    pub(crate) fn remove_ring(&mut self, ring: RingRef) {
        self.rings = self.rings.saturating_sub(1);
        self.ready.retain(|ready| *ready != ring);
    }

    /// Whether a ring is known to have packets, the slow path answers, a controller has put
    /// something in, or a packet is not done with.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.lane.has_work() || self.is_parked()
    }

    /// Whether the rest of a packet's action list is still to be run.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.is_taken())
    }

    /// A ring has packets. It is not to be polled until it was served.
    #[inline]
    pub(crate) fn ring_ready(&mut self, ring: RingRef) {
        self.ready.push_back(ring);
    }

    /// The next ring with packets, in turn. Whoever takes it sees where it goes then.
    #[inline]
    pub(crate) fn next_ring(&mut self) -> Option<RingRef> {
        self.ready.pop_front()
    }

    /// Lists the tenant, if it is not; `true` if so.
    #[inline]
    pub(crate) fn list(&mut self, now_tsc: u64) -> bool {
        let is_new = !self.listed;
        if is_new {
            self.listed = true;
            self.work_since_tsc = now_tsc;
        }
        is_new
    }

    /// Whether it has had packets within `horizon_cycles`, as far as it was asked in between.
    pub(crate) fn is_active(&mut self, now_tsc: u64, horizon_cycles: u64) -> bool {
        if self.packets != self.packets_seen {
            self.packets_seen = self.packets;
            self.active_until_tsc = now_tsc.saturating_add(horizon_cycles);
        }
        now_tsc < self.active_until_tsc
    }

    /// Packets to take for a budget, by what they have cost so far. Where it is looking up that is
    /// dear, because the tables are not in the CPU's caches, a few packets at once cost little more
    /// than one: their cache misses overlap.
    #[inline]
    pub(crate) fn packets_for(&self, budget_cycles: u64) -> usize {
        let packets = budget_cycles / self.packet_cost_cycles.max(1);
        let rest_cycles = self.packet_cost_cycles.saturating_sub(self.classify_cost_cycles);
        let forwardable = budget_cycles / rest_cycles.max(1);
        let packets = packets.max(forwardable.min(OVERLAPPING_PACKETS));
        usize::try_from(packets).unwrap_or(TASK_PACKETS).clamp(1, TASK_PACKETS)
    }

    #[inline]
    pub(crate) fn learn_cost(&mut self, packets: u64, cycles: u64) {
        learn(&mut self.packet_cost_cycles, packets, cycles);
        self.packets += packets;
    }

    #[inline]
    pub(crate) fn learn_classify_cost(&mut self, packets: u64, cycles: u64) {
        learn(&mut self.classify_cost_cycles, packets, cycles);
    }
}

/// An eighth of the news: a few tasks follow a change, one odd task does not matter.
#[inline]
fn learn(mean_cycles: &mut u64, packets: u64, cycles: u64) {
    if let Some(cost_cycles) = cycles.checked_div(packets) {
        *mean_cycles = (*mean_cycles * 7 + cost_cycles) / 8;
    }
}

/// The tenants of a PMD, by [`TenantIndex`], and a dense list of them.
#[derive(Debug)]
pub(crate) struct TenantTable {
    slots: Box<[Option<Box<TenantSlot>>]>,
    present: Vec<TenantIndex>,
}

impl TenantTable {
    pub(crate) fn new() -> Self {
        let slots = (0..MAX_TENANTS).map(|_| None).collect();
        Self { slots, present: Vec::with_capacity(MAX_TENANTS) }
    }

    pub(crate) fn put(&mut self, slot: Box<TenantSlot>) -> Option<Box<TenantSlot>> {
        let index = slot.index;
        let Some(place) = self.slots.get_mut(usize::from(index.0)) else { return Some(slot) };
        let old = place.replace(slot);
        if old.is_none() {
            self.present.push(index);
        }
        old
    }

    pub(crate) fn take(&mut self, index: TenantIndex) -> Option<Box<TenantSlot>> {
        self.present.retain(|present| *present != index);
        self.slots.get_mut(usize::from(index.0)).and_then(Option::take)
    }

    #[inline]
    pub(crate) fn get(&self, index: TenantIndex) -> Option<&TenantSlot> {
        self.slots.get(usize::from(index.0)).and_then(Option::as_deref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: TenantIndex) -> Option<&mut TenantSlot> {
        self.slots.get_mut(usize::from(index.0)).and_then(Option::as_deref_mut)
    }

    /// The tenants there are.
    pub(crate) fn indices(&self) -> &[TenantIndex] {
        &self.present
    }

    /// Every tenant there is, to be changed.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut TenantSlot)) {
        for index in &self.present {
            let place = self.slots.get_mut(usize::from(index.0));
            if let Some(slot) = place.and_then(Option::as_deref_mut) {
                visit(slot);
            }
        }
    }
}
