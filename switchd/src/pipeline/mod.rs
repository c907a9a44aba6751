//! The flow pipeline: bridges, OpenFlow tables, the walk that decides a packet, and the upkeep of
//! the decisions that PMDs cache.
//!
//! ```text
//! miss -> slowpath -> walk (tables, fdb) -> Megaflow -> PMD       shadow: what was given out, and why
//! flow_mod, port, station changes -> shadow -> stale decisions -> PMDs (rounds; barrier waits)
//! PMD's counts -> sweep -> rules, tables, ages of stations
//! ```

mod behaviours;
mod bridge;
mod changes;
mod changing;
mod clock;
mod compile;
mod compose;
mod core;
mod describe;
mod error;
mod events;
mod fdb;
mod features;
mod fields;
mod flow_mod;
mod gone;
pub mod limits;
mod listing;
mod matching;
mod metering;
mod meters;
mod packet_in;
mod packet_out;
mod port_mod;
mod program;
mod registry;
mod revalidator;
mod rounds;
mod rule;
mod selector;
mod shadow;
mod slowpath;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod texts;
mod timers;
mod trace;
mod tracker;
mod upkeep;
mod walk;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::{JoinHandle, Thread};

use tollgate_accel::tsc;
use tollgate_datapath::{SlowPathEnd, TenantSettings};
use tollgate_openflow::FlowMod;
use tollgate_openflow::meter::{MeterConfig, MeterMod, MeterStats};
use tollgate_openflow::multipart::{AggregateStats, FlowStats, FlowStatsRequest, TableStats};
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::table_features::TableFeatures;
use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;

pub use self::bridge::{BridgeId, Overflow, PortInfo, TableLimits};
pub use self::core::Caches;
pub use self::error::{BridgeError, FlowError};
pub use self::events::{
    Event, EventSink, FlowRemovedEvent, FlowRemovedReason, NoEvents, PacketInEvent, PacketInReason,
    PortReason, PortStatusEvent,
};
pub use self::listing::{MegaflowInfo, StationInfo};
pub use self::meters::meter_features;
pub use self::stats::FlowDump;
pub use self::trace::{Trace, TraceError, TraceOutput, TraceRequest, TraceStep};

use self::bridge::Bridge;
use self::clock::Clock;
use self::core::Core;
use self::limits::{ERRANDS_WAITING, MEGAFLOWS_PER_TENANT};
use self::packet_out::{Errand, Outgoing};
use self::shadow::CacheLimits;
use self::slowpath::{Ledger, Order, SlowPath, SlowPathParts};

/// What an operator may choose about the pipeline.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    /// Frequency of the cycle counter, as the datapath measured it.
    pub tsc_hz: u64,
    /// Cached decisions that one tenant may have on all PMDs together.
    pub megaflows_per_tenant: usize,
}

impl PipelineConfig {
    /// The defaults, on a machine with this cycle counter.
    pub fn new(tsc_hz: u64) -> Self {
        Self { tsc_hz, megaflows_per_tenant: MEGAFLOWS_PER_TENANT }
    }
}

/// A bridge as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSummary {
    /// Its number.
    pub id: BridgeId,
    /// Its name.
    pub name: String,
    /// Its ports in the order of their OpenFlow numbers.
    pub ports: Vec<PortInfo>,
    /// Rules in all its tables.
    pub flows: usize,
}

/// The pipeline with its two threads, until [`stop`](Self::stop). Calls may block for as long as a
/// PMD takes to read its mail, or another change takes.
pub struct Pipeline {
    core: Arc<Core>,
    ledger: Arc<Ledger>,
    orders: Mutex<mpsc::Sender<Order>>,
    errands: mpsc::SyncSender<Errand>,
    /// Packets of controllers, and how many of them a barrier has seen through.
    packets_sent: AtomicU64,
    packets_decided: AtomicU64,
    stopping: Arc<AtomicBool>,
    revalidator: Thread,
    slow_path: OnceLock<Thread>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pipeline {
    /// Starts the slow path and the revalidator, without bridges. What controllers should hear of
    /// goes to `events`.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        caches: Arc<dyn Caches>,
        end: SlowPathEnd,
        events: Arc<dyn EventSink>,
        config: &PipelineConfig,
    ) -> io::Result<Self> {
        let clock = Clock::new(config.tsc_hz, tsc::now);
        let core = Arc::new(Core::new(caches, clock, events, config.megaflows_per_tenant));
        let stopping = Arc::new(AtomicBool::new(false));
        let ledger = Arc::new(Ledger::new());
        let (orders, order_receiver) = mpsc::channel();
        let (errands, errand_receiver) = mpsc::sync_channel(ERRANDS_WAITING);
        let (revalidated, is_stopping) = (Arc::clone(&core), Arc::clone(&stopping));
        let revalidator = std::thread::Builder::new()
            .name("revalidator".to_owned())
            .spawn(move || revalidator::run(&revalidated, &is_stopping))?;
        let pipeline = Self {
            core: Arc::clone(&core),
            ledger: Arc::clone(&ledger),
            orders: Mutex::new(orders),
            errands,
            packets_sent: AtomicU64::new(0),
            packets_decided: AtomicU64::new(0),
            slow_path: OnceLock::new(),
            stopping: Arc::clone(&stopping),
            revalidator: revalidator.thread().clone(),
            threads: Mutex::new(vec![revalidator]),
        };
        let parts = SlowPathParts {
            core,
            end,
            orders: order_receiver,
            errands: errand_receiver,
            stopping,
            revalidator: pipeline.revalidator.clone(),
            ledger,
            tsc_hz: config.tsc_hz,
        };
        let slow_path = SlowPath::new(parts).map_err(io::Error::other).and_then(|mut slow_path| {
            std::thread::Builder::new().name("slow-path".to_owned()).spawn(move || slow_path.run())
        });
        match slow_path {
            Ok(thread) => {
                pipeline.slow_path.get_or_init(|| thread.thread().clone());
                pipeline.threads().push(thread);
                Ok(pipeline)
            }
            Err(error) => {
                pipeline.stop();
                Err(error)
            }
        }
    }

    /// Ends the threads and waits for them. Misses are answered no more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for thread in self.threads().drain(..) {
            thread.thread().unpark();
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a receiver the slow path has stopped, and the order has no object.
        let _ = orders.send(order);
    }

    /// Gives the slow path something to do for a controller, when it has room. Says whether it
    /// will.
    fn errand(&self, errand: Errand) -> bool {
        // Without a receiver the slow path has stopped.
        let taken = self.errands.send(errand).is_ok();
        if let Some(slow_path) = self.slow_path.get() {
            slow_path.unpark();
        }
        taken
    }

    /// Sets a tenant's weight in the slow path, and how many decisions and masks it may have cached.
    /// What is cached already stays.
    pub fn tenant_set(&self, tenant: TenantIndex, settings: &TenantSettings) {
        let limits = CacheLimits {
            megaflows: settings.megaflows.map(|count| count as usize),
            subtables: settings.subtables as usize,
        };
        self.core.shadow().set_limits(tenant, Some(limits));
        self.order(Order::TenantSet(tenant, settings.weight));
    }

    /// Decisions that a tenant may have cached unless it was given a number of its own.
    pub fn megaflows_per_tenant(&self) -> usize {
        self.core.megaflows_per_tenant()
    }

    /// Forgets a tenant whose ports are gone.
    pub fn tenant_remove(&self, tenant: TenantIndex) {
        self.core.shadow().set_limits(tenant, None);
        self.order(Order::TenantRemove(tenant));
    }

    /// Switches the scheduler of the slow path between credit and round robin.
    pub fn set_protection(&self, on: bool) {
        self.order(Order::Protection(on));
    }

    /// Cycles that the slow path has spent for a tenant; for [`TenantIndex::SYSTEM`], those that
    /// are nobody's.
    pub fn slow_path_cycles(&self, tenant: TenantIndex) -> u64 {
        self.ledger.of(tenant)
    }

    /// Adds a bridge with empty tables, which take so many rules: it drops everything.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn bridge_add(&self, name: &str, limits: TableLimits) -> Result<BridgeId, BridgeError> {
        self.core.bridge_add(name, limits)
    }

    /// Removes a bridge and its rules.
    ///
    /// # Errors
    /// When there is no such bridge, or while it has ports.
    pub fn bridge_remove(&self, bridge: BridgeId) -> Result<(), BridgeError> {
        self.core.bridge_remove(bridge)
    }

    /// All bridges.
    pub fn bridges(&self) -> Vec<BridgeSummary> {
        let state = self.core.read();
        let summary = |(id, bridge): (&BridgeId, &Bridge)| BridgeSummary {
            id: *id,
            name: bridge.name.clone(),
            ports: bridge.ports().cloned().collect(),
            flows: bridge.flow_count(),
        };
        state.bridges.iter().map(summary).collect()
    }

    /// The ports of a bridge in the order of their OpenFlow numbers; none when it is gone.
    pub fn ports(&self, bridge: BridgeId) -> Vec<PortInfo> {
        let state = self.core.read();
        state
            .bridges
            .get(&bridge)
            .map(|bridge| bridge.ports().cloned().collect())
            .unwrap_or_default()
    }

    /// Puts a port of the datapath on a bridge. Returns when every PMD has dropped the decisions
    /// that the new port changes (floods).
    ///
    /// # Errors
    /// When the OpenFlow number is bad or taken, or the port is on a bridge already.
    pub fn port_attach(&self, bridge: BridgeId, port: PortInfo) -> Result<(), BridgeError> {
        self.order(Order::TenantSeen(port.tenant));
        self.core.port_attach(bridge, port)?;
        self.core.tell_pmds();
        Ok(())
    }

    /// Takes a port off its bridge. Returns when no PMD has a decision left that concerns it.
    ///
    /// # Errors
    /// When it is on none.
    pub fn port_detach(&self, port: PortIndex) -> Result<PortInfo, BridgeError> {
        let detached = self.core.port_detach(port)?;
        self.core.tell_pmds();
        Ok(detached)
    }

    /// Changes a bridge's tables. The PMDs follow within milliseconds; [`barrier`](Self::barrier)
    /// waits for them.
    ///
    /// # Errors
    /// What the OpenFlow specification asks for; nothing is changed then.
    pub fn flow_mod(&self, bridge: BridgeId, flow_mod: &FlowMod) -> Result<(), FlowError> {
        self.core.flow_mod(bridge, flow_mod)?;
        self.revalidator.unpark();
        Ok(())
    }

    /// Changes a bridge's tables as [`flow_mod`](Self::flow_mod) does, in order. One that is refused
    /// does not keep the others from being carried out.
    ///
    /// # Errors
    /// For each, what the OpenFlow specification asks for.
    pub fn flow_mods(&self, bridge: BridgeId, flow_mods: &[FlowMod]) -> Vec<Result<(), FlowError>> {
        let outcomes = self.core.flow_mods(bridge, flow_mods);
        self.revalidator.unpark();
        outcomes
    }

    /// Carries out all of `flow_mods` or, if one is refused, none of them. No packet meets some of
    /// them only.
    ///
    /// # Errors
    /// As [`flow_mod`](Self::flow_mod), with the place of what was refused.
    pub fn bundle(
        &self,
        bridge: BridgeId,
        flow_mods: impl IntoIterator<Item = FlowMod>,
    ) -> Result<(), (usize, FlowError)> {
        self.core.bundle(bridge, flow_mods)?;
        self.revalidator.unpark();
        Ok(())
    }

    /// What a bridge's tables can match and do; nothing if it is gone.
    pub fn table_features(&self, bridge: BridgeId) -> Vec<TableFeatures> {
        let state = self.core.read();
        let limits = state.bridges.get(&bridge).map(|bridge| bridge.limits);
        limits.map_or_else(Vec::new, |limits| features::table_features(limits.rules))
    }

    /// Adds, changes or removes a meter, and with it the flows that use it.
    ///
    /// # Errors
    /// What the OpenFlow specification asks for; nothing is changed then.
    pub fn meter_mod(&self, bridge: BridgeId, request: &MeterMod) -> Result<(), FlowError> {
        self.core.meter_mod(bridge, request)?;
        self.revalidator.unpark();
        Ok(())
    }

    /// The configuration of one meter, or of all (`OFPM_ALL`).
    ///
    /// # Errors
    /// When there is no such meter, or the bridge is gone.
    pub fn meter_configs(
        &self,
        bridge: BridgeId,
        meter: u32,
    ) -> Result<Vec<MeterConfig>, FlowError> {
        self.core.meter_configs(bridge, meter)
    }

    /// The counters of one meter, or of all (`OFPM_ALL`).
    ///
    /// # Errors
    /// As [`meter_configs`](Self::meter_configs).
    pub fn meter_stats(&self, bridge: BridgeId, meter: u32) -> Result<Vec<MeterStats>, FlowError> {
        self.core.meter_stats(bridge, meter)
    }

    /// Configures a port. Whether `hw_addr` is the port's address is for the caller to check.
    /// Returns when no PMD uses a decision of before.
    ///
    /// # Errors
    /// What the OpenFlow specification asks for; nothing is changed then.
    pub fn port_mod(&self, bridge: BridgeId, request: &PortMod) -> Result<(), FlowError> {
        self.core.port_mod(bridge, request)?;
        self.core.tell_pmds();
        Ok(())
    }

    /// The rules that `request` selects, to be taken in pieces.
    ///
    /// # Errors
    /// When the match is not supported, or the bridge is gone.
    pub fn flow_dump(
        &self,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<FlowDump, FlowError> {
        self.core.flow_dump(bridge, request)
    }

    /// As [`flow_dump`](Self::flow_dump), all at once.
    ///
    /// # Errors
    /// As there.
    pub fn flow_stats(
        &self,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<Vec<FlowStats>, FlowError> {
        Ok(self.flow_dump(bridge, request)?.all())
    }

    /// The sums over the rules that `request` selects.
    ///
    /// # Errors
    /// As [`flow_stats`](Self::flow_stats).
    pub fn aggregate(
        &self,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<AggregateStats, FlowError> {
        self.core.aggregate(bridge, request)
    }

    /// Counters of every table.
    ///
    /// # Errors
    /// When the bridge is gone.
    pub fn table_stats(&self, bridge: BridgeId) -> Result<Vec<TableStats>, FlowError> {
        self.core.table_stats(bridge)
    }

    /// Sends a controller's packet. It is on its way when [`barrier`](Self::barrier) returns.
    ///
    /// # Errors
    /// What the OpenFlow specification asks for.
    pub fn packet_out(&self, bridge: BridgeId, request: &PacketOut) -> Result<(), FlowError> {
        let outgoing = Outgoing::new(bridge, request)?;
        self.errand(Errand::Send(Box::new(outgoing)));
        self.packets_sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The cached decisions of one bridge, or of all; at most `count`, and whether there are more.
    pub fn megaflows(&self, only: Option<BridgeId>, count: usize) -> (Vec<MegaflowInfo>, bool) {
        self.core.megaflows(only, count)
    }

    /// The stations that a bridge has learned, by VLAN and address; `None` if it is gone.
    pub fn fdb(&self, bridge: BridgeId) -> Option<Vec<StationInfo>> {
        self.core.stations(bridge)
    }

    /// Has a bridge forget the stations that it has learned, and says how many; `None` if it is
    /// gone. Returns when no PMD knows them any longer.
    pub fn fdb_flush(&self, bridge: BridgeId) -> Option<usize> {
        let forgotten = self.core.forget_stations(bridge)?;
        self.core.tell_pmds();
        Some(forgotten)
    }

    /// Says what would become of a packet and why, without any consequence.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn trace(&self, bridge: BridgeId, request: &TraceRequest) -> Result<Trace, TraceError> {
        self.core.trace(bridge, request)
    }

    /// Returns when every PMD has taken in all changes made before the call, and the packets of
    /// controllers have been decided.
    pub fn barrier(&self) {
        self.core.tell_pmds();
        let sent = self.packets_sent.load(Ordering::Relaxed);
        if sent == self.packets_decided.load(Ordering::Relaxed) {
            // Most barriers follow flow-mods only: the slow path need not be waited for.
            return;
        }
        let (fence, passed) = mpsc::channel();
        if self.errand(Errand::Fence(fence)) {
            // Fails when the slow path has stopped.
            let _ = passed.recv();
            self.packets_decided.fetch_max(sent, Ordering::Relaxed);
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}
