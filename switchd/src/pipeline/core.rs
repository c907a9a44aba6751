//! The pipeline's state and its locks.
//!
//! Locks are taken in this order: tables, then a bridge's forwarding database, then the shadow. A
//! walk holds all three until its decision is registered, so a change either precedes the walk or
//! finds its decision. Nothing is locked while PMDs are waited for, except `telling`, which only
//! those who wait take.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tollgate_datapath::{Datapath, Megaflow, MegaflowStats, Verdict};
use tollgate_frame::DropReason;
use tollgate_openflow::{ErrorCode, FlowMod};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};
use tollgate_policy::TenantIndex;

use super::bridge::{Bridge, BridgeId};
use super::clock::Clock;
use super::error::FlowError;
use super::events::{Event, EventSink};
use super::fdb::Station;
use super::flow_mod::{self, Changes};
use super::limits::{FORGET_PER_WALK, SHADOW_CHUNK};
use super::shadow::{Collected, EntryId, Round, Shadow};
use super::tables::Rule;
use super::walk::walk;

/// What caches decisions: the PMDs, or a stand-in for them in tests.
pub trait Caches: Send + Sync {
    /// Returns when no cache holds any of `stale` and none will take in a decision of a generation
    /// below `generation`.
    fn tables_changed(&self, generation: u64, stale: &[Arc<Megaflow>]);
}

impl Caches for Datapath {
    fn tables_changed(&self, generation: u64, stale: &[Arc<Megaflow>]) {
        // PMDs that have stopped use no decision.
        let _ = Datapath::tables_changed(self, generation, stale);
    }
}

/// Bridges, their ports and tables.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) bridges: BTreeMap<BridgeId, Bridge>,
    /// Where each of the datapath's ports is: bridge and OpenFlow number.
    pub(super) ports: HashMap<PortIndex, (BridgeId, u32)>,
    pub(super) next_bridge: u32,
    /// Rules that go by themselves, and some that have gone.
    timed: Vec<(BridgeId, Arc<Rule>)>,
}

/// See the module.
pub(super) struct Core {
    state: RwLock<State>,
    shadow: Mutex<Shadow>,
    telling: Mutex<()>,
    caches: Arc<dyn Caches>,
    clock: Clock,
    events: Arc<dyn EventSink>,
    megaflows_per_tenant: usize,
}

/// An answer to a miss, and what to look it up by for the packets that follow.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) entry: Option<EntryId>,
    /// Decisions have become stale: the PMDs should be told soon.
    pub(super) stale: bool,
}

impl Core {
    pub(super) fn new(
        caches: Arc<dyn Caches>,
        clock: Clock,
        events: Arc<dyn EventSink>,
        megaflows_per_tenant: usize,
    ) -> Self {
        Self {
            state: RwLock::default(),
            shadow: Mutex::new(Shadow::new()),
            telling: Mutex::new(()),
            caches,
            clock,
            events,
            megaflows_per_tenant,
        }
    }

    pub(super) fn tell(&self, bridge: BridgeId, event: Event) {
        self.events.event(bridge, event);
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Decides a packet that entered through `port`.
    pub(super) fn answer(&self, port: PortIndex, key: &FlowKey) -> Answer {
        let state = self.read();
        let bridge = state.ports.get(&port).and_then(|(id, ofport)| {
            let bridge = state.bridges.get(id)?;
            Some((*id, bridge, bridge.port(*ofport)?))
        });
        let Some((id, bridge, ingress)) = bridge else {
            return self.refuse(port, key);
        };
        let now_ms = self.now_ms();
        let mut fdb = bridge.fdb();
        let walk = walk(bridge, &fdb, ingress, key);
        let learned = walk.learned.iter();
        let moved: Vec<Station> =
            learned.flat_map(|station| fdb.learn(*station, ingress.ofport, now_ms)).collect();
        let mut shadow = self.shadow();
        let stale = shadow.stations_changed(id, &moved);
        let install = shadow.cached_of(ingress.tenant) < self.megaflows_per_tenant;
        let (entry, megaflow) = shadow.register(walk, id, ingress, install, now_ms);
        shadow.forget_uncached(
            FORGET_PER_WALK,
            |tsc| self.clock.ms_of_tsc(tsc),
            |counts| state.count(&counts),
        );
        Answer { verdict: Verdict { megaflow, install }, entry: Some(entry), stale }
    }

    /// The answer for a port that is on no bridge (any more).
    fn refuse(&self, port: PortIndex, key: &FlowKey) -> Answer {
        let key = FlowKey { in_port: u32::from(port.0), ..*key };
        let megaflow = Arc::new(Megaflow {
            matcher: FlowMatch::new(
                &key,
                FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() }),
            ),
            ops: Box::default(),
            meters: Box::default(),
            drop_reason: DropReason::NoSuchPort,
            owner: TenantIndex::SYSTEM,
            generation: self.shadow().generation(),
            stats: MegaflowStats::default(),
        });
        Answer { verdict: Verdict { megaflow, install: false }, entry: None, stale: false }
    }

    /// The decision given to an earlier packet of the same flow, if nothing has changed since.
    pub(super) fn repeat(&self, entry: EntryId) -> Option<Verdict> {
        let megaflow = self.shadow().reuse(entry)?;
        Some(Verdict { megaflow, install: false })
    }

    /// A PMD has given a decision back.
    pub(super) fn evicted(&self, megaflow: &Arc<Megaflow>) {
        self.shadow().left_caches(megaflow);
    }

    pub(super) fn flow_mod(&self, bridge: BridgeId, flow_mod: &FlowMod) -> Result<(), FlowError> {
        let now_ms = self.now_ms();
        let mut state = self.write();
        let Changes { added, retired } =
            flow_mod::apply(state.bridge_mut(bridge)?, flow_mod, now_ms)?;
        let timed = added.iter().filter(|rule| rule.expires_ms().is_some());
        let timed: Vec<_> = timed.map(|rule| (bridge, Arc::clone(rule))).collect();
        state.timed.extend(timed);
        if retired || !added.is_empty() {
            self.shadow().rules_changed(bridge, &added, retired);
        }
        Ok(())
    }

    /// Returns when no PMD uses a decision that rests on tables, ports or stations as they were
    /// before a change made before the call.
    pub(super) fn tell_pmds(&self) {
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut round = self.shadow().take_round();
        self.in_chunks(|from| self.shadow().revalidate(&mut round, from, SHADOW_CHUNK));
        let Round { generation, doomed, .. } = round;
        if doomed.is_empty() {
            return;
        }
        self.caches.tables_changed(generation, &doomed);
        for chunk in doomed.chunks(SHADOW_CHUNK) {
            let mut shadow = self.shadow();
            chunk.iter().for_each(|megaflow| shadow.left_caches(megaflow));
        }
    }

    /// Calls `step` with the start of one chunk of the shadow after the other, so that no lock is
    /// held for long, until it says that there are no more.
    fn in_chunks(&self, mut step: impl FnMut(usize) -> bool) {
        let mut from = 0;
        while step(from) {
            from += SHADOW_CHUNK;
        }
    }

    /// Brings the counters of rules and tables, and the ages of stations, up to date with what
    /// PMDs have forwarded so far.
    pub(super) fn collect(&self) {
        let state = self.read();
        let ms_of_tsc = |tsc| self.clock.ms_of_tsc(tsc);
        let mut heard = Vec::new();
        self.in_chunks(|from| {
            self.shadow().collect(from, SHADOW_CHUNK, ms_of_tsc, |counts| {
                state.count(&counts);
                let stations = counts.learned.iter();
                heard.extend(stations.map(|s| (counts.bridge, *s, counts.ofport, counts.used_ms)));
            })
        });
        for (bridge, station, ofport, used_ms) in heard {
            if let Some(bridge) = state.bridges.get(&bridge) {
                bridge.fdb().refresh(station, ofport, used_ms);
            }
        }
        let uncached = self.shadow().uncached_len();
        for _ in 0..uncached.div_ceil(SHADOW_CHUNK) {
            self.shadow().forget_uncached(SHADOW_CHUNK, ms_of_tsc, |counts| state.count(&counts));
        }
    }

    /// What falls due with time: counts, idle decisions, silent stations, rules' timeouts. The PMDs
    /// are still to be told.
    pub(super) fn sweep(&self) {
        self.collect();
        let now_ms = self.now_ms();
        self.in_chunks(|from| self.shadow().expire(now_ms, from, SHADOW_CHUNK));
        for (id, bridge) in &self.read().bridges {
            let mut fdb = bridge.fdb();
            let silent = fdb.expire(now_ms);
            self.shadow().stations_changed(*id, &silent);
        }
        self.expire_rules(now_ms);
    }

    fn expire_rules(&self, now_ms: u64) {
        let due = |rule: &Rule| rule.expires_ms().is_some_and(|at_ms| at_ms <= now_ms);
        let over = |(_, rule): &(BridgeId, Arc<Rule>)| rule.is_retired() || due(rule);
        if !self.read().timed.iter().any(over) {
            return;
        }
        let mut state = self.write();
        let expired: Vec<_> = state.timed.extract_if(.., |timed| over(timed)).collect();
        for (id, rule) in expired {
            let bridge = state.bridges.get_mut(&id).filter(|_| !rule.is_retired());
            if let Some(bridge) = bridge {
                flow_mod::remove(bridge, &rule);
                self.shadow().rules_changed(id, &[], true);
            }
        }
    }
}

const NO_BRIDGE: FlowError = FlowError::new(ErrorCode::OFPBRC_EPERM, "the bridge has been removed");

impl State {
    pub(super) fn bridge(&self, id: BridgeId) -> Result<&Bridge, FlowError> {
        self.bridges.get(&id).ok_or(NO_BRIDGE)
    }

    fn bridge_mut(&mut self, id: BridgeId) -> Result<&mut Bridge, FlowError> {
        self.bridges.get_mut(&id).ok_or(NO_BRIDGE)
    }

    /// Passes a decision's packets on to the rules and tables that it rests on.
    fn count(&self, counts: &Collected<'_>) {
        let bridge = self.bridges.get(&counts.bridge);
        for visit in counts.visits {
            if let Some(table) = bridge.and_then(|bridge| bridge.table(visit.table)) {
                table.count(counts.packets, visit.rule.is_some());
            }
            if let Some(rule) = &visit.rule {
                rule.counters.add(counts.packets, counts.bytes, counts.used_ms);
            }
        }
    }
}
