//! What the control side remembers of every decision that it gave out: the rules and facts that it
//! rests on, and how much of its count has been passed on to them.
//!
//! The generation lives here too, so that one lock orders decisions and changes: a decision whose
//! generation is lower than a change's was registered before the change, and is found by it.

mod additions;
mod entry;
mod masks;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tollgate_datapath::{Megaflow, MegaflowStats};
use tollgate_packet::{FlowKey, FlowMatch};
use tollgate_policy::TenantIndex;

use self::additions::Additions;
use self::entry::{Entry, State};
use self::masks::Masks;
use super::bridge::{BridgeId, PortInfo};
use super::fdb::Station;
use super::limits::MEGAFLOW_IDLE_MS;
use super::rule::Rule;
use super::walk::Walk;

pub(super) use self::entry::Collected;

/// A map by a keyed hash that costs less than the standard library's: a walk asks for several.
type FastMap<K, V> = HashMap<K, V, ahash::RandomState>;

/// Names an entry until it is dropped; never means another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryId {
    slot: u32,
    serial: u64,
}

/// What the PMDs may hold for one tenant's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    /// Decisions, if the tenant has a limit of its own.
    pub(super) megaflows: Option<usize>,
    /// Pairs of port and mask among them.
    pub(super) subtables: usize,
}

/// Everything that changed since the PMDs were last told, for one round of telling them.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// All changes up to this generation are in this round or were in an earlier one.
    pub(super) generation: u64,
    additions: Additions,
    rules_retired: bool,
    /// Decisions that no PMD may use any longer.
    pub(super) doomed: Vec<Arc<Megaflow>>,
}

impl Round {
    /// Whether decisions must be held against changed rules.
    pub(super) fn concerns_rules(&self) -> bool {
        self.rules_retired || !self.additions.is_empty()
    }
}

/// A decision that may be stale.
#[derive(Debug)]
pub(super) struct Suspect {
    entry: EntryId,
    pub(super) bridge: BridgeId,
    /// Where its packets enter.
    pub(super) ofport: u32,
    /// Its packets.
    pub(super) matcher: FlowMatch,
}

/// A decision for whoever wants to see it.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) bridge: BridgeId,
    pub(super) ofport: u32,
    pub(super) megaflow: Arc<Megaflow>,
    /// The meters that it names, by number.
    pub(super) meters: Vec<u32>,
    pub(super) used_ms: u64,
}

/// All decisions.
#[derive(Debug)]
pub(super) struct Shadow {
    generation: u64,
    slots: Vec<Option<(u64, Entry)>>,
    vacant: Vec<u32>,
    next_serial: u64,
    by_address: FastMap<usize, u32>,
    by_station: FastMap<(BridgeId, Station), HashSet<u32>>,
    cached_of: FastMap<TenantIndex, usize>,
    limits: FastMap<TenantIndex, CacheLimits>,
    masks: Masks,
    /// Entries cached nowhere, the oldest first.
    uncached: VecDeque<EntryId>,
    additions: Additions,
    rules_retired: bool,
    doomed: Vec<Arc<Megaflow>>,
}

impl Shadow {
    pub(super) fn new() -> Self {
        Self {
            generation: 1,
            slots: Vec::new(),
            vacant: Vec::new(),
            next_serial: 0,
            by_address: FastMap::default(),
            by_station: FastMap::default(),
            cached_of: FastMap::default(),
            limits: FastMap::default(),
            masks: Masks::default(),
            uncached: VecDeque::new(),
            additions: Additions::default(),
            rules_retired: false,
            doomed: Vec::new(),
        }
    }

    /// The generation of the last change.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Sets what the PMDs may hold for a tenant's packets; `None` forgets the tenant's own limits.
    pub(super) fn set_limits(&mut self, tenant: TenantIndex, limits: Option<CacheLimits>) {
        match limits {
            Some(limits) => self.limits.insert(tenant, limits),
            None => self.limits.remove(&tenant),
        };
    }

    /// Whether PMDs may hold one more decision for a tenant's packets; `or` is how many where nothing
    /// else was set.
    pub(super) fn has_room(&self, tenant: TenantIndex, or: usize) -> bool {
        let cached = self.cached_of.get(&tenant).copied().unwrap_or(0);
        let limit = self.limits.get(&tenant).and_then(|limits| limits.megaflows);
        cached < limit.unwrap_or(or)
    }

    fn subtables_of(&self, tenant: TenantIndex) -> usize {
        self.limits.get(&tenant).map_or(usize::MAX, |limits| limits.subtables)
    }

    /// Takes a walk's decision in. Called under the locks that the walk was done under, so that
    /// it is of the present generation. `key` is the packet that was walked, `owner` who pays for its
    /// like.
    pub(super) fn register(
        &mut self,
        key: &FlowKey,
        walk: Walk,
        bridge: BridgeId,
        (ingress, owner): (&PortInfo, TenantIndex),
        cache: bool,
        now_ms: u64,
    ) -> (EntryId, Arc<Megaflow>) {
        let Walk { matcher, ops, meters, drop_reason, visits, dependencies, learned, .. } = walk;
        let megaflow = Arc::new(Megaflow {
            matcher: self.masks.fit(key, &matcher, owner, self.subtables_of(owner)),
            ops: ops.into(),
            meters: meters.into(),
            drop_reason,
            owner,
            generation: self.generation,
            stats: MegaflowStats::default(),
        });
        let entry = Entry {
            megaflow: Arc::clone(&megaflow),
            bridge,
            ofport: ingress.ofport,
            visits,
            dependencies,
            learned,
            state: State::Cached,
            valid_generation: self.generation,
            used_ms: now_ms,
            counted_packets: 0,
            counted_bytes: 0,
        };
        let id = self.insert(entry);
        if !cache {
            self.uncache(id.slot);
        }
        (id, megaflow)
    }

    fn insert(&mut self, entry: Entry) -> EntryId {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let serial = self.next_serial;
        self.next_serial += 1;
        self.by_address.insert(address(&entry.megaflow), slot);
        for station in &entry.dependencies.stations {
            self.by_station.entry((entry.bridge, *station)).or_default().insert(slot);
        }
        *self.cached_of.entry(entry.megaflow.owner).or_default() += 1;
        self.masks.add(&entry.megaflow.matcher, entry.megaflow.owner);
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some((serial, entry));
        }
        EntryId { slot, serial }
    }

    /// The decision of an entry, if it may be given out again: nothing has changed since.
    pub(super) fn reuse(&self, id: EntryId) -> Option<Arc<Megaflow>> {
        let (serial, entry) = self.slots.get(id.slot as usize)?.as_ref()?;
        let usable = *serial == id.serial
            && entry.state != State::Doomed
            && entry.megaflow.generation == self.generation;
        usable.then(|| Arc::clone(&entry.megaflow))
    }

    /// Rules were added, removed or replaced.
    pub(super) fn rules_changed<'a>(
        &mut self,
        bridge: BridgeId,
        added: impl Iterator<Item = &'a Arc<Rule>>,
        retired: bool,
    ) {
        self.generation += 1;
        added.for_each(|rule| self.additions.push(bridge, rule, self.generation));
        self.rules_retired |= retired;
    }

    /// The forwarding database answers differently about these stations. Says whether a decision
    /// rests on the old answers.
    pub(super) fn stations_changed(&mut self, bridge: BridgeId, stations: &[Station]) -> bool {
        let dependents = stations.iter().filter_map(|s| self.by_station.get(&(bridge, *s)));
        let dependents: Vec<u32> = dependents.flatten().copied().collect();
        self.doom_all(&dependents)
    }

    /// A bridge has got or lost the port `ofport`.
    pub(super) fn port_changed(&mut self, bridge: BridgeId, ofport: u32) {
        let concerns = |entry: &Entry| {
            entry.bridge == bridge
                && (entry.ofport == ofport
                    || entry.dependencies.flooded
                    || entry.dependencies.ofports.contains(&ofport))
        };
        let concerned = self.cached_where(0..self.slots.len(), concerns);
        self.doom_all(&concerned);
    }

    /// A meter has got another configuration.
    pub(super) fn meter_changed(&mut self, bridge: BridgeId, meter: u32) {
        let concerns =
            |entry: &Entry| entry.bridge == bridge && entry.dependencies.meters.contains(&meter);
        let concerned = self.cached_where(0..self.slots.len(), concerns);
        self.doom_all(&concerned);
    }

    fn doom_all(&mut self, slots: &[u32]) -> bool {
        if !slots.is_empty() {
            self.generation += 1;
        }
        slots.iter().for_each(|slot| self.doom(*slot));
        !slots.is_empty()
    }

    /// What the PMDs are to be told next.
    pub(super) fn take_round(&mut self) -> Round {
        Round {
            generation: self.generation,
            additions: std::mem::take(&mut self.additions),
            rules_retired: std::mem::take(&mut self.rules_retired),
            doomed: std::mem::take(&mut self.doomed),
        }
    }

    /// The decisions among some entries that the round's rules may concern, and whether there are
    /// more entries. Those registered since the round was taken are newer than its changes.
    pub(super) fn suspects(
        &self,
        round: &Round,
        from: usize,
        count: usize,
    ) -> (Vec<Suspect>, bool) {
        let range = from..self.slots.len().min(from + count);
        let suspected = self.cached_where(range.clone(), |entry| {
            entry.valid_generation < round.generation && entry.is_suspect(&round.additions)
        });
        let suspect = |slot: &u32| {
            let (serial, entry) = self.slots.get(*slot as usize)?.as_ref()?;
            Some(Suspect {
                entry: EntryId { slot: *slot, serial: *serial },
                bridge: entry.bridge,
                ofport: entry.ofport,
                matcher: entry.megaflow.matcher,
            })
        };
        (suspected.iter().filter_map(suspect).collect(), range.end < self.slots.len())
    }

    /// Takes in how a suspect's packets are decided now, under the locks of the walk: the decision
    /// stays, resting on other rules perhaps, or is doomed.
    pub(super) fn recheck(
        &mut self,
        suspect: &Suspect,
        walk: Walk,
        round: &mut Round,
        ms_of_tsc: impl Fn(u64) -> u64,
        mut take: impl FnMut(Collected<'_>),
    ) {
        let EntryId { slot, serial } = suspect.entry;
        let generation = self.generation;
        let Some(Some((_, entry))) = self
            .slots
            .get_mut(slot as usize)
            .map(|place| place.as_mut().filter(|(present, _)| *present == serial))
        else {
            return;
        };
        if entry.state == State::Cached && entry.agrees_with(&walk) {
            entry.collect(ms_of_tsc, &mut take);
            entry.visits = walk.visits;
            entry.valid_generation = generation;
        } else {
            round.doomed.extend(self.mark_doomed(slot));
        }
    }

    /// Dooms the decisions among some entries that no packet has used for long; `false` past the
    /// last.
    pub(super) fn expire(&mut self, now_ms: u64, from: usize, count: usize) -> bool {
        let range = from..self.slots.len().min(from + count);
        let idle = |entry: &Entry| entry.used_ms + MEGAFLOW_IDLE_MS <= now_ms;
        for slot in self.cached_where(range.clone(), idle) {
            self.doom(slot);
        }
        range.end < self.slots.len()
    }

    fn cached_where(
        &self,
        range: std::ops::Range<usize>,
        mut wanted: impl FnMut(&Entry) -> bool,
    ) -> Vec<u32> {
        let slots = self.slots.iter().enumerate().skip(range.start).take(range.len());
        slots
            .filter_map(|(slot, place)| place.as_ref().map(|(_, entry)| (slot as u32, entry)))
            .filter(|(_, entry)| entry.state == State::Cached && wanted(entry))
            .map(|(slot, _)| slot)
            .collect()
    }

    fn doom(&mut self, slot: u32) {
        if let Some(megaflow) = self.mark_doomed(slot) {
            self.doomed.push(megaflow);
        }
    }

    fn mark_doomed(&mut self, slot: u32) -> Option<Arc<Megaflow>> {
        let (_, entry) = self.slots.get_mut(slot as usize)?.as_mut()?;
        if entry.state != State::Cached {
            return None;
        }
        entry.state = State::Doomed;
        Some(Arc::clone(&entry.megaflow))
    }

    /// No PMD holds the decision any longer: it was evicted, or all were told to drop it.
    pub(super) fn left_caches(&mut self, megaflow: &Arc<Megaflow>) {
        if let Some(slot) = self.by_address.get(&address(megaflow)) {
            self.uncache(*slot);
        }
    }

    /// Passes on what a decision has counted.
    pub(super) fn settle(
        &mut self,
        megaflow: &Arc<Megaflow>,
        ms_of_tsc: impl Fn(u64) -> u64,
        mut take: impl FnMut(Collected<'_>),
    ) {
        let slot = self.by_address.get(&address(megaflow));
        let place = slot.and_then(|slot| self.slots.get_mut(*slot as usize));
        if let Some(Some((_, entry))) = place {
            entry.collect(ms_of_tsc, &mut take);
        }
    }

    fn uncache(&mut self, slot: u32) {
        let Some(Some((serial, entry))) = self.slots.get_mut(slot as usize) else { return };
        if entry.state == State::Uncached {
            return;
        }
        entry.state = State::Uncached;
        self.uncached.push_back(EntryId { slot, serial: *serial });
        for station in &entry.dependencies.stations {
            let key = (entry.bridge, *station);
            if let Some(dependents) = self.by_station.get_mut(&key) {
                dependents.remove(&slot);
                if dependents.is_empty() {
                    self.by_station.remove(&key);
                }
            }
        }
        if let Some(cached) = self.cached_of.get_mut(&entry.megaflow.owner) {
            *cached -= 1;
        }
        self.masks.remove(&entry.megaflow.matcher, entry.megaflow.owner);
    }

    /// Shows the cached ones among some entries; `false` past the last.
    pub(super) fn list(&self, from: usize, count: usize, mut take: impl FnMut(Listed)) -> bool {
        let range = from..self.slots.len().min(from + count);
        for (_, entry) in self.slots.get(range.clone()).into_iter().flatten().flatten() {
            if entry.state == State::Cached {
                take(Listed {
                    bridge: entry.bridge,
                    ofport: entry.ofport,
                    megaflow: Arc::clone(&entry.megaflow),
                    meters: entry.dependencies.meters.clone(),
                    used_ms: entry.used_ms,
                });
            }
        }
        range.end < self.slots.len()
    }

    /// Passes on what some entries have counted since the last time; `false` past the last.
    pub(super) fn collect(
        &mut self,
        from: usize,
        count: usize,
        ms_of_tsc: impl Fn(u64) -> u64,
        mut take: impl FnMut(Collected<'_>),
    ) -> bool {
        let range = from..self.slots.len().min(from + count);
        for (_, entry) in self.slots.get_mut(range.clone()).into_iter().flatten().flatten() {
            entry.collect(&ms_of_tsc, &mut take);
        }
        range.end < self.slots.len()
    }

    /// Forgets up to `count` of the oldest uncached entries whose count is final, because nobody
    /// else holds the decision, after passing it on.
    pub(super) fn forget_uncached(
        &mut self,
        count: usize,
        ms_of_tsc: impl Fn(u64) -> u64,
        mut take: impl FnMut(Collected<'_>),
    ) {
        for _ in 0..count.min(self.uncached.len()) {
            let Some(id) = self.uncached.pop_front() else { return };
            let Some(place) = self.slots.get_mut(id.slot as usize) else { continue };
            let Some((_, entry)) = place.as_mut().filter(|(serial, _)| *serial == id.serial) else {
                continue;
            };
            // Having it alone also means that every count made elsewhere is visible here.
            if Arc::get_mut(&mut entry.megaflow).is_none() {
                self.uncached.push_back(id);
                continue;
            }
            entry.collect(&ms_of_tsc, &mut take);
            self.by_address.remove(&address(&entry.megaflow));
            *place = None;
            self.vacant.push(id.slot);
        }
    }

    /// Entries of any kind.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Entries that no cache holds.
    pub(super) fn uncached_len(&self) -> usize {
        self.uncached.len()
    }
}

fn address(megaflow: &Arc<Megaflow>) -> usize {
    Arc::as_ptr(megaflow).addr()
}
