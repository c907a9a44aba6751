//! The pipeline's state and its locks.
//!
//! Locks are taken in this order: tables, then a bridge's forwarding database, then the shadow. A
//! walk holds all three until its decision is registered, so a change either precedes the walk or
//! finds its decision. `changing` comes before them all: those who change rules take turns, so that
//! what one of them has looked up stays true until it has changed it. Nothing is locked while PMDs
//! are waited for, except `telling`, which only those who wait take.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tollgate_datapath::{Datapath, Megaflow, MegaflowStats, Op, Verdict};
use tollgate_frame::DropReason;
use tollgate_openflow::ErrorCode;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};
use tollgate_policy::TenantIndex;

use super::bridge::{Bridge, BridgeId, PortInfo};
use super::clock::Clock;
use super::error::FlowError;
use super::events::{Event, EventSink};
use super::fdb::Station;
use super::gone::Gone;
use super::limits::FORGET_PER_WALK;
use super::meters::MeterClock;
use super::shadow::{Collected, EntryId, Shadow};
use super::walk::{Punt, Walk, walk};

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
}

/// See the module.
pub(super) struct Core {
    state: RwLock<State>,
    shadow: Mutex<Shadow>,
    changing: Mutex<()>,
    telling: Mutex<()>,
    /// Rules that went, and of which controllers are to hear once their counts are final.
    pub(super) gone: Mutex<Vec<Gone>>,
    pub(super) caches: Arc<dyn Caches>,
    clock: Clock,
    events: Arc<dyn EventSink>,
    megaflows_per_tenant: usize,
}

/// An answer to a miss.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    /// What to look it up by for the packets that follow, if they may have the same.
    pub(super) entry: Option<EntryId>,
    /// Decisions have become stale: the PMDs should be told soon.
    pub(super) stale: bool,
    /// Copies for controllers of a bridge.
    pub(super) copies: Option<(BridgeId, Vec<Punt>)>,
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
            changing: Mutex::new(()),
            telling: Mutex::new(()),
            gone: Mutex::default(),
            caches,
            clock,
            events,
            megaflows_per_tenant,
        }
    }

    /// Decisions that a tenant may have cached unless it was given a number of its own.
    pub(super) fn megaflows_per_tenant(&self) -> usize {
        self.megaflows_per_tenant
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

    /// The right to change rules.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to tell the PMDs.
    pub(super) fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(super) fn meter_clock(&self) -> MeterClock {
        MeterClock { tsc_hz: self.clock.tsc_hz(), now_tsc: self.clock.now_tsc() }
    }

    pub(super) fn ms_of_tsc(&self, tsc: u64) -> u64 {
        self.clock.ms_of_tsc(tsc)
    }

    /// Decides a packet that entered through `port`.
    pub(super) fn answer(&self, port: PortIndex, key: &FlowKey, frame_bytes: u32) -> Answer {
        let state = self.read();
        let Some((id, bridge, ingress)) = state.locate(port) else {
            return self.refuse(port, key);
        };
        let now_ms = self.now_ms();
        let mut fdb = bridge.fdb();
        let mut walk = walk(bridge, &fdb, ingress, key);
        let learned = walk.learned.iter();
        let moved: Vec<Station> =
            learned.flat_map(|(station, ofport)| fdb.learn(*station, *ofport, now_ms)).collect();
        // What the packet itself taught may have changed an answer that its walk had got before.
        let asked = std::mem::take(&mut walk.asked);
        let is_outdated = asked.iter().any(|(station, ofport)| fdb.lookup(*station) != *ofport);
        let metered_copies = walk.has_metered_copies();
        if metered_copies {
            walk.pass_meters(frame_bytes, self.clock.now_tsc());
        }
        let punts = std::mem::take(&mut walk.punts);
        let alike = !metered_copies && !is_outdated && punts.is_empty();
        let mut shadow = self.shadow();
        let stale = shadow.stations_changed(id, &moved);
        let owner = owner_of(bridge, ingress, &walk);
        let install =
            !metered_copies && !is_outdated && shadow.has_room(owner, self.megaflows_per_tenant);
        let (entry, megaflow) = shadow.register(key, walk, id, (ingress, owner), install, now_ms);
        shadow.forget_uncached(
            FORGET_PER_WALK,
            |tsc| self.ms_of_tsc(tsc),
            |counts| state.count(&counts),
        );
        Answer {
            verdict: Verdict { megaflow, install },
            entry: alike.then_some(entry),
            stale,
            copies: (!punts.is_empty()).then_some((id, punts)),
        }
    }

    /// The copies for controllers of a packet whose decision is cached.
    pub(super) fn copies_of(
        &self,
        port: PortIndex,
        key: &FlowKey,
    ) -> Option<(BridgeId, Vec<Punt>)> {
        let state = self.read();
        let (id, bridge, ingress) = state.locate(port)?;
        let fdb = bridge.fdb();
        Some((id, walk(bridge, &fdb, ingress, key).punts))
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
        let verdict = Verdict { megaflow, install: false };
        Answer { verdict, entry: None, stale: false, copies: None }
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
}

/// Who pays for a decision's packets: the tenant of their port; of those from an uplink, the tenant
/// to whose ports they go. What goes to several tenants, or to nobody, stays the uplink's.
pub(super) fn owner_of(bridge: &Bridge, ingress: &PortInfo, walk: &Walk) -> TenantIndex {
    if !ingress.uplink {
        return ingress.tenant;
    }
    let outputs = walk.ops.iter().filter_map(|op| match op {
        Op::Output(index) => bridge.ports().find(|port| port.index == *index),
        _ => None,
    });
    let mut tenants = outputs.map(|port| port.tenant);
    match tenants.next() {
        Some(first) if tenants.all(|tenant| tenant == first) => first,
        _ => ingress.tenant,
    }
}

const NO_BRIDGE: FlowError = FlowError::new(ErrorCode::OFPBRC_EPERM, "the bridge has been removed");

impl State {
    pub(super) fn bridge(&self, id: BridgeId) -> Result<&Bridge, FlowError> {
        self.bridges.get(&id).ok_or(NO_BRIDGE)
    }

    /// The bridge that one of the datapath's ports is on, and the port there.
    fn locate(&self, port: PortIndex) -> Option<(BridgeId, &Bridge, &PortInfo)> {
        let (id, ofport) = self.ports.get(&port)?;
        let bridge = self.bridges.get(id)?;
        Some((*id, bridge, bridge.port(*ofport)?))
    }

    pub(super) fn bridge_mut(&mut self, id: BridgeId) -> Result<&mut Bridge, FlowError> {
        self.bridges.get_mut(&id).ok_or(NO_BRIDGE)
    }

    /// Passes a decision's packets on to the rules and tables that it rests on.
    pub(super) fn count(&self, counts: &Collected<'_>) {
        let bridge = self.bridges.get(&counts.bridge);
        for visit in counts.visits {
            if let Some(bridge) = bridge {
                bridge.count(visit.table, counts.packets, visit.rule.is_some());
            }
            if let Some(rule) = &visit.rule {
                rule.counters.add(counts.packets, counts.bytes, counts.used_ms);
            }
        }
    }
}
