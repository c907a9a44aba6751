//! What the control side remembers of every decision that it gave out: the rules and facts that it
//! rests on, and how much of its count has been passed on to them.
//!
//! The generation lives here too, so that one lock orders decisions and changes: a decision whose
//! generation is lower than a change's was registered before the change, and is found by it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tollgate_classifier::{ExtraKey, ExtraMatch};
use tollgate_datapath::{Megaflow, MegaflowStats};
use tollgate_packet::FlowMatch;
use tollgate_policy::TenantIndex;

use super::bridge::{BridgeId, PortInfo};
use super::fdb::Station;
use super::limits::MEGAFLOW_IDLE_MS;
use super::tables::Rule;
use super::walk::{Dependencies, Visit, Walk, with_port};

/// Whether PMDs may hold a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Given to a PMD to be cached.
    Cached,
    /// Stale or idle: the PMDs are to be told.
    Doomed,
    /// Cached nowhere, but an answer that uses it may be on its way: kept for its count.
    Uncached,
}

/// One decision. A PMD that needs it too gets one of its own, for its counts have one writer.
#[derive(Debug)]
struct Entry {
    megaflow: Arc<Megaflow>,
    bridge: BridgeId,
    /// The ingress port's OpenFlow number.
    ofport: u32,
    visits: Vec<Visit>,
    dependencies: Dependencies,
    learned: Vec<Station>,
    state: State,
    used_ms: u64,
    counted_packets: u64,
    counted_bytes: u64,
}

/// A rule that was added: it may take packets from decisions made before.
#[derive(Debug)]
pub(super) struct Addition {
    bridge: BridgeId,
    rule: Arc<Rule>,
    generation: u64,
}

/// Names an entry until it is dropped; never means another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryId {
    slot: u32,
    serial: u64,
}

/// Everything that changed since the PMDs were last told, for one round of telling them.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// All changes up to this generation are in this round or were in an earlier one.
    pub(super) generation: u64,
    additions: Vec<Addition>,
    rules_retired: bool,
    /// Decisions that no PMD may use any longer.
    pub(super) doomed: Vec<Arc<Megaflow>>,
}

/// Packets of a decision that were not passed on before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collected<'a> {
    pub(super) bridge: BridgeId,
    pub(super) ofport: u32,
    pub(super) visits: &'a [Visit],
    /// Stations behind the ingress port, as every packet shows.
    pub(super) learned: &'a [Station],
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) used_ms: u64,
}

/// All decisions.
#[derive(Debug)]
pub(super) struct Shadow {
    generation: u64,
    slots: Vec<Option<(u64, Entry)>>,
    vacant: Vec<u32>,
    next_serial: u64,
    by_address: HashMap<usize, u32>,
    by_station: HashMap<(BridgeId, Station), HashSet<u32>>,
    cached_of: HashMap<TenantIndex, usize>,
    /// Entries cached nowhere, the oldest first.
    uncached: VecDeque<EntryId>,
    additions: Vec<Addition>,
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
            by_address: HashMap::new(),
            by_station: HashMap::new(),
            cached_of: HashMap::new(),
            uncached: VecDeque::new(),
            additions: Vec::new(),
            rules_retired: false,
            doomed: Vec::new(),
        }
    }

    /// The generation of the last change.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Decisions that PMDs may hold for a tenant's packets.
    pub(super) fn cached_of(&self, tenant: TenantIndex) -> usize {
        self.cached_of.get(&tenant).copied().unwrap_or(0)
    }

    /// Takes a walk's decision in. Called under the locks that the walk was done under, so that
    /// it is of the present generation.
    pub(super) fn register(
        &mut self,
        walk: Walk,
        bridge: BridgeId,
        ingress: &PortInfo,
        cache: bool,
        now_ms: u64,
    ) -> (EntryId, Arc<Megaflow>) {
        let Walk { matcher, ops, drop_reason, visits, dependencies, learned } = walk;
        let megaflow = Arc::new(Megaflow {
            matcher,
            ops: ops.into(),
            meters: Box::default(),
            drop_reason,
            owner: ingress.tenant,
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
    pub(super) fn rules_changed(&mut self, bridge: BridgeId, added: &[Arc<Rule>], retired: bool) {
        self.generation += 1;
        let generation = self.generation;
        let added =
            added.iter().map(|rule| Addition { bridge, rule: Arc::clone(rule), generation });
        self.additions.extend(added);
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

    /// Moves the stale decisions among some entries into `round`; `false` past the last. Entries
    /// registered since the round was taken are newer than its changes.
    pub(super) fn revalidate(&mut self, round: &mut Round, from: usize, count: usize) -> bool {
        if round.additions.is_empty() && !round.rules_retired {
            return false;
        }
        let range = from..self.slots.len().min(from + count);
        let stale = self.cached_where(range.clone(), |entry| {
            entry.megaflow.generation < round.generation && entry.is_stale(&round.additions)
        });
        for slot in stale {
            if let Some(megaflow) = self.mark_doomed(slot) {
                round.doomed.push(megaflow);
            }
        }
        range.end < self.slots.len()
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

impl Entry {
    /// Whether the tables may now decide otherwise about some packet of this decision.
    fn is_stale(&self, additions: &[Addition]) -> bool {
        let retired = |visit: &Visit| visit.rule.as_ref().is_some_and(|rule| rule.is_retired());
        if self.visits.iter().any(retired) {
            return true;
        }
        let relevant = additions.iter().filter(|addition| {
            addition.bridge == self.bridge && addition.generation > self.megaflow.generation
        });
        let whole = with_port(&self.megaflow.matcher, self.ofport);
        relevant.into_iter().any(|addition| {
            self.visits.iter().any(|visit| visit.may_lose_to(&addition.rule, &whole))
        })
    }

    fn collect(&mut self, ms_of_tsc: impl Fn(u64) -> u64, take: &mut impl FnMut(Collected<'_>)) {
        let stats = &self.megaflow.stats;
        let (packets, bytes) = (stats.packets(), stats.bytes());
        let used_ms = self.used_ms.max(ms_of_tsc(stats.last_used_tsc()));
        // The three are written one after the other: what is missed now is found the next time.
        if (packets, bytes, used_ms) == (self.counted_packets, self.counted_bytes, self.used_ms) {
            return;
        }
        self.used_ms = used_ms;
        take(Collected {
            bridge: self.bridge,
            ofport: self.ofport,
            visits: &self.visits,
            learned: &self.learned,
            packets: packets.wrapping_sub(self.counted_packets),
            bytes: bytes.wrapping_sub(self.counted_bytes),
            used_ms,
        });
        (self.counted_packets, self.counted_bytes) = (packets, bytes);
    }
}

impl Visit {
    /// Whether some packet that was looked up here (`whole`, if no edit had changed it) would now
    /// find `rule` instead.
    fn may_lose_to(&self, rule: &Rule, whole: &FlowMatch) -> bool {
        let seen = self.edited.as_deref().unwrap_or(whole);
        let found = self.rule.as_ref();
        let extra =
            ExtraMatch::new(self.extra.as_deref().unwrap_or(&ExtraKey::ZERO), ExtraKey::ONES);
        rule.table == self.table
            && found.is_none_or(|found| found.priority <= rule.priority)
            && rule.overlaps(seen, &extra)
    }
}

fn address(megaflow: &Arc<Megaflow>) -> usize {
    Arc::as_ptr(megaflow).addr()
}
