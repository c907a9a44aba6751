//! The handle by which the daemon starts, feeds, asks and stops the PMDs.
#![allow(clippy::disallowed_methods)] // control side

mod recordings;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use rtrb::RingBuffer;
use tollgate_accel::tsc::{self, TscNotInvariant};
use tollgate_nic::Queues;
use tollgate_packet::PortIndex;
use tollgate_policy::{ConfigError, Refill, SchedulerConfig, TenantIndex};
use tollgate_vhost::{Notifier, RingHost};

use crate::byte_ring::byte_ring;
use crate::coordinator::Coordinator;
use crate::counters::{PortCounters, PortSnapshot};
use crate::handoff::handoff_mesh;
use crate::lane::{LaneBell, lane};
use crate::limits::{
    INJECTION_SLOTS, MAX_PORTS, MAX_PORTS_PER_TENANT, MAX_TENANTS, RETURN_SLOTS, STALE_PER_MAIL,
};
use crate::mail::{Mail, Mailbox, PmdGone, StaleFlow, TenantUpdate, mailbox};
use crate::megaflow::Megaflow;
use crate::pmd::{Pmd, PmdParts, PortSlot, TenantSlot};
use crate::ring_host::PortRings;
use crate::settings::{PortSettings, TenantSettings};
use crate::shared::{PmdShared, PmdSnapshot};
use crate::slow_path::{LaneChange, SlowPathEnd};
use crate::stage_sampling::{StageSamplers, StageSampling};
use crate::waker::Waker;

/// What the datapath is made of. Sizes are per PMD and allocated at start.
#[derive(Clone, Debug)]
pub struct DatapathConfig {
    /// One PMD is pinned to each of these cores.
    pub pmd_cores: Vec<usize>,
    /// Quantum, cap, floor, horizon and refill, in cycles.
    pub scheduler: SchedulerConfig,
    /// Megaflows that fit.
    pub megaflows_max: usize,
    /// Pairs of ingress port and mask that fit.
    pub subtables_max: usize,
    /// Entries of the exact-match table.
    pub exact_entries: usize,
    /// Look packets up in the exact-match table from the start.
    pub exact_match: bool,
    /// Gate transmit by credit from the start.
    pub protection: bool,
}

impl Default for DatapathConfig {
    fn default() -> Self {
        Self {
            pmd_cores: vec![0],
            scheduler: SchedulerConfig::default(),
            megaflows_max: 64 * 1024,
            subtables_max: 4096,
            exact_entries: 64 * 1024,
            exact_match: true,
            protection: true,
        }
    }
}

/// A port as the datapath knows it.
#[derive(Clone, Debug)]
pub struct PortHandle {
    /// Its number in megaflows.
    pub index: PortIndex,
    /// The PMD that polls it.
    pub pmd: usize,
    counters: Vec<Arc<PortCounters>>,
}

impl PortHandle {
    /// The port's counters now; they outlive it.
    pub fn counters(&self) -> PortSnapshot {
        PortSnapshot::of(&self.counters)
    }
}

/// Why the datapath did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The clock is of no use.
    #[error(transparent)]
    Tsc(#[from] TscNotInvariant),
    /// Quantum, cap, floor or horizon.
    #[error("scheduler: {0}")]
    Scheduler(#[from] ConfigError),
    /// No PMD.
    #[error("pmd cores: the list is empty; name at least one core")]
    NoCores,
    /// The same core twice.
    #[error("pmd cores: core {0} is named twice; a PMD needs a core to itself")]
    CoreTwice(usize),
    /// Pinning failed.
    #[error(
        "pmd cores: cannot pin a thread to core {core}: {source}; `nproc --all` says how many there are, cgroups may allow fewer"
    )]
    Pin {
        /// The core asked for.
        core: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// Interrupts to guests cannot be sent.
    #[error("cannot set up guest notifications (Linux AIO): {0}; see fs.aio-max-nr")]
    Notifier(std::io::Error),
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Why an order was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The table of tenants is full.
    #[error("there are {MAX_TENANTS} tenants already")]
    TooManyTenants,
    /// The table of ports is full.
    #[error("there are {MAX_PORTS} ports already")]
    TooManyPorts,
    /// The tenant has as many ports as one may have.
    #[error("the tenant has {MAX_PORTS_PER_TENANT} ports already")]
    TooManyPortsOfTenant,
    /// No such tenant.
    #[error("there is no such tenant")]
    NoSuchTenant,
    /// No such port.
    #[error("there is no such port")]
    NoSuchPort,
    /// No such PMD.
    #[error("there is no PMD {0}")]
    NoSuchPmd(usize),
    /// The tenant still has ports.
    #[error("the tenant still has ports")]
    TenantHasPorts,
    /// A PMD notes in one recording at a time.
    #[error("PMD {0} has a recording already, going on or full: read it first")]
    Recording(usize),
    /// There is none to read.
    #[error("PMD {0} records nothing, so there is nothing to read: start a recording first")]
    NotRecording(usize),
    /// A setting of a tenant is out of range.
    #[error(transparent)]
    Knob(#[from] ConfigError),
    /// A scheduler's knob would put one that was set for a tenant out of range.
    #[error("tenant {}: {source}", tenant.0)]
    KnobOfTenant {
        /// Whose.
        tenant: TenantIndex,
        /// Which, and the range that it would have.
        source: ConfigError,
    },
    /// The coordinator's thread cannot be had; the refill is local now.
    #[error("cannot start the coordinator's thread: {0}")]
    Coordinator(std::io::ErrorKind),
    /// Of a network card, only an uplink's are polled, and one card's for each port.
    #[error("the port is no uplink, or has the queues of another card")]
    QueuesRefused,
    /// The datapath has stopped.
    #[error("the datapath has stopped")]
    Stopped,
}

impl From<PmdGone> for ControlError {
    fn from(_: PmdGone) -> Self {
        Self::Stopped
    }
}

/// The running datapath.
#[derive(Debug)]
pub struct Datapath {
    pmds: Vec<PmdHandle>,
    registry: Mutex<Registry>,
    lane_changes: mpsc::Sender<LaneChange>,
    portless: Vec<Arc<PortCounters>>,
    protection: AtomicBool,
    exact_match: AtomicBool,
    scheduling: Mutex<Scheduling>,
    tsc_hz: u64,
}

/// The knobs in force, and who carries them out beside the PMDs. Locked after the registry.
#[derive(Debug)]
struct Scheduling {
    config: SchedulerConfig,
    coordinator: Option<Coordinator>,
}

#[derive(Debug)]
struct PmdHandle {
    core: usize,
    mailbox: Arc<Mailbox>,
    /// For what must not wait behind other mail.
    urgent: Arc<Mailbox>,
    shared: Arc<PmdShared>,
    bell: Arc<LaneBell>,
    stage_samplers: Arc<StageSamplers>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Registry {
    tenants: Vec<Option<TenantSettings>>,
    ports: Vec<Option<PortEntry>>,
    /// First freed, last used again: an answer that is still under way to a removed port must not
    /// meet a new one.
    free_ports: VecDeque<u16>,
}

#[derive(Clone, Copy, Debug)]
struct PortEntry {
    tenant: TenantIndex,
    pmd: usize,
    uplink: bool,
    /// A network card's queues have been handed to its PMDs.
    has_queues: bool,
}

impl Datapath {
    /// Allocates every table and starts one pinned thread per core.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(config: &DatapathConfig) -> Result<(Arc<Self>, SlowPathEnd), StartError> {
        check_cores(&config.pmd_cores)?;
        let tsc_hz = tsc::calibrate_hz()?;
        let waker = Arc::new(Waker::default());
        let (lane_changes, changes) = mpsc::channel();
        let mut homebound = Vec::new();
        let mut pmds = Vec::new();
        let (portless_in, portless_out) = RingBuffer::new(INJECTION_SLOTS);
        // The first PMD takes it.
        let mut portless_out = Some(portless_out);
        let mut portless = Vec::new();
        let mesh = handoff_mesh(config.pmd_cores.len());
        for (index, (&core, handoff)) in config.pmd_cores.iter().zip(mesh).enumerate() {
            let shared = Arc::new(PmdShared::new());
            let (urgent, urgent_mail) = mailbox(Arc::clone(&shared));
            let (mailbox, mail) = mailbox(Arc::clone(&shared));
            let (homeward, home) = RingBuffer::new(RETURN_SLOTS);
            homebound.push(home);
            let portless_counters = Arc::new(PortCounters::default());
            portless.push(Arc::clone(&portless_counters));
            let bell = Arc::<LaneBell>::default();
            let notifier = Notifier::new().map_err(StartError::Notifier)?;
            let parts = PmdParts {
                index,
                config,
                handoff,
                tsc_hz,
                shared: Arc::clone(&shared),
                mail,
                urgent_mail,
                homeward,
                portless: portless_out.take(),
                portless_counters,
                waker: Arc::clone(&waker),
                bell: Arc::clone(&bell),
                notifier,
            };
            let thread = spawn_pinned(index, core, Pmd::new(parts)?)?;
            let thread = Mutex::new(Some(thread));
            let (mailbox, urgent) = (Arc::new(mailbox), Arc::new(urgent));
            let stage_samplers = Arc::new(StageSamplers::new(Arc::clone(&mailbox)));
            pmds.push(PmdHandle { core, mailbox, urgent, shared, bell, stage_samplers, thread });
        }
        let registry = Registry {
            tenants: vec![None; MAX_TENANTS],
            ports: vec![None; MAX_PORTS],
            free_ports: (0..MAX_PORTS as u16).collect(),
        };
        let shared = pmds.iter().map(|pmd: &PmdHandle| Arc::clone(&pmd.shared)).collect();
        let coordinator = Coordinator::start(config.scheduler.refill, tsc_hz, shared, []);
        let coordinator = coordinator.map_err(StartError::Thread)?;
        let datapath = Self {
            pmds,
            registry: Mutex::new(registry),
            lane_changes,
            portless,
            protection: AtomicBool::new(config.protection),
            exact_match: AtomicBool::new(config.exact_match),
            scheduling: Mutex::new(Scheduling { config: config.scheduler, coordinator }),
            tsc_hz,
        };
        Ok((Arc::new(datapath), SlowPathEnd::new(changes, homebound, portless_in, waker)))
    }

    /// Ends the PMDs and waits for their threads. Rings and mappings that they still held are
    /// dropped with them; stop the sessions first.
    pub fn stop(&self) {
        self.scheduling().coordinator = None;
        for pmd in &self.pmds {
            // An error means that it has stopped already.
            let _ = pmd.urgent.call([Mail::Stop]);
            let thread = pmd.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        }
    }

    /// PMDs, stopped or not.
    pub fn pmd_count(&self) -> usize {
        self.pmds.len()
    }

    /// Frequency of the cycle counter, measured at start.
    pub fn tsc_hz(&self) -> u64 {
        self.tsc_hz
    }

    /// The knobs of every PMD's scheduler.
    pub fn scheduler(&self) -> SchedulerConfig {
        self.scheduling().config
    }

    /// Puts other knobs in force on every running PMD before it returns, another refill included.
    /// Credits stay; caps and floors that were not set for a tenant follow.
    ///
    /// # Errors
    /// When a knob is out of range, or would put one of a tenant's out of it; then nothing is
    /// changed.
    pub fn set_scheduler(&self, config: SchedulerConfig) -> Result<(), ControlError> {
        config.validate()?;
        let registry = self.registry();
        let mut tenants = Vec::new();
        for (index, settings) in (0..).map(TenantIndex).zip(&registry.tenants) {
            let Some(settings) = settings else { continue };
            let knobs = settings.knobs(&config);
            let knobs =
                knobs.map_err(|source| ControlError::KnobOfTenant { tenant: index, source })?;
            tenants.push((index, knobs));
        }
        let mut scheduling = self.scheduling();
        // Nobody grants while the PMDs change over, and what was granted before is void.
        scheduling.coordinator = None;
        scheduling.config = config;
        for handle in &self.pmds {
            let knobs = tenants.iter().map(|(tenant, knobs)| Mail::TenantKnobs(*tenant, *knobs));
            handle.mailbox.call(std::iter::once(Mail::Scheduler(config)).chain(knobs))?;
        }
        let weights = tenants.iter().map(|(tenant, knobs)| (*tenant, knobs.weight));
        let shared = self.pmds.iter().map(|pmd| Arc::clone(&pmd.shared)).collect();
        match Coordinator::start(config.refill, self.tsc_hz, shared, weights) {
            Ok(coordinator) => scheduling.coordinator = coordinator,
            Err(error) => {
                scheduling.config = SchedulerConfig { refill: Refill::Local, ..config };
                let config = scheduling.config;
                self.tell_all(|| Mail::Scheduler(config))?;
                return Err(ControlError::Coordinator(error.kind()));
            }
        }
        Ok(())
    }

    /// Opens a tenant's account on every PMD.
    ///
    /// # Errors
    /// When there are too many, or a setting is out of range.
    pub fn tenant_add(&self, settings: TenantSettings) -> Result<TenantIndex, ControlError> {
        let mut registry = self.registry();
        let scheduling = self.scheduling();
        let knobs = settings.knobs(&scheduling.config)?;
        let mut accounts = registry.tenants.iter().enumerate().skip(1);
        let free = accounts.find(|(_, account)| account.is_none()).map(|(index, _)| index);
        let tenant = TenantIndex(free.ok_or(ControlError::TooManyTenants)? as u16);
        let limits = settings.lane_limits(&knobs, self.tsc_hz);
        for (pmd, handle) in self.pmds.iter().enumerate() {
            let (limits, bell) = (Arc::clone(&limits), Arc::clone(&handle.bell));
            let (pmd_end, slow_end) = lane(pmd, tenant, limits, bell, knobs.arena_bytes as usize);
            // The slow path hears of the lane before the first miss can be in it.
            let _ = self.lane_changes.send(LaneChange::Add(slow_end));
            let slot = TenantSlot::new(tenant, pmd_end, settings.exact_entries);
            handle.mailbox.call([Mail::TenantAdd(knobs, Box::new(slot))])?;
        }
        if let Some(account) = registry.tenants.get_mut(usize::from(tenant.0)) {
            *account = Some(settings);
        }
        if let Some(coordinator) = &scheduling.coordinator {
            coordinator.register(tenant, settings.weight);
        }
        Ok(tenant)
    }

    /// Changes a tenant's settings on every running PMD before it returns.
    ///
    /// # Errors
    /// When there is no such tenant, or a setting is out of range; then nothing is changed.
    pub fn tenant_set(
        &self,
        tenant: TenantIndex,
        settings: TenantSettings,
    ) -> Result<(), ControlError> {
        let mut registry = self.registry();
        let scheduling = self.scheduling();
        let knobs = settings.knobs(&scheduling.config)?;
        let account = registry.tenants.get_mut(usize::from(tenant.0)).and_then(Option::as_mut);
        let before = std::mem::replace(account.ok_or(ControlError::NoSuchTenant)?, settings);
        let limits = settings.lane_limits(&knobs, self.tsc_hz);
        let _ = self.lane_changes.send(LaneChange::Limits(tenant, Arc::clone(&limits)));
        for (pmd, handle) in self.pmds.iter().enumerate() {
            let arena = (before.arena_bytes != settings.arena_bytes).then(|| {
                let (arena, misses) = byte_ring(knobs.arena_bytes as usize);
                // The slow path has the other end before anything can be in it.
                let _ = self.lane_changes.send(LaneChange::Arena(tenant, pmd, misses));
                arena
            });
            let exact_entries = settings.exact_entries;
            let update = TenantUpdate { knobs, exact_entries, limits: Arc::clone(&limits), arena };
            handle.mailbox.call([Mail::TenantSet(tenant, Box::new(update))])?;
        }
        if let Some(coordinator) = &scheduling.coordinator {
            coordinator.register(tenant, settings.weight);
        }
        Ok(())
    }

    /// Closes a tenant's account. Its books are forgotten with it.
    ///
    /// # Errors
    /// While it has ports.
    pub fn tenant_remove(&self, tenant: TenantIndex) -> Result<(), ControlError> {
        let mut registry = self.registry();
        if registry.ports.iter().flatten().any(|port| port.tenant == tenant) {
            return Err(ControlError::TenantHasPorts);
        }
        let account = registry.tenants.get_mut(usize::from(tenant.0)).filter(|a| a.is_some());
        *account.ok_or(ControlError::NoSuchTenant)? = None;
        if let Some(coordinator) = &self.scheduling().coordinator {
            coordinator.unregister(tenant);
        }
        self.tell_all(|| Mail::TenantRemove(tenant))?;
        let _ = self.lane_changes.send(LaneChange::Remove(tenant));
        Ok(())
    }

    /// Whether a tenant is in debt on some PMD. Of one whose port was just removed it is exact;
    /// otherwise as of the PMD's last look at that tenant.
    pub fn tenant_owes(&self, tenant: TenantIndex) -> bool {
        let cells = |pmd: &PmdHandle| pmd.shared.credit_cycles(tenant) < 0;
        self.pmds.iter().any(cells)
    }

    /// Makes a port known to every PMD and polled by one of them.
    ///
    /// # Errors
    /// When there are too many, or no such tenant or PMD.
    pub fn port_add(
        &self,
        tenant: TenantIndex,
        settings: PortSettings,
    ) -> Result<PortHandle, ControlError> {
        let mut registry = self.registry();
        if registry.tenants.get(usize::from(tenant.0)).is_none_or(Option::is_none) {
            return Err(ControlError::NoSuchTenant);
        }
        let of_tenant =
            registry.ports.iter().flatten().filter(|port| port.tenant == tenant).count();
        if of_tenant >= MAX_PORTS_PER_TENANT {
            return Err(ControlError::TooManyPortsOfTenant);
        }
        let pmd = match settings.pmd {
            Some(pmd) if pmd >= self.pmds.len() => return Err(ControlError::NoSuchPmd(pmd)),
            Some(pmd) => pmd,
            None => registry.emptiest_pmd(self.pmds.len()),
        };
        let index = PortIndex(registry.free_ports.pop_front().ok_or(ControlError::TooManyPorts)?);
        let shard = || Arc::new(PortCounters::default());
        let counters: Vec<_> = self.pmds.iter().map(|_| shard()).collect();
        let _ = self.lane_changes.send(LaneChange::PortAdd(index, tenant, pmd));
        for (handle, counters) in self.pmds.iter().zip(&counters) {
            let slot = PortSlot::new(index, tenant, pmd, Arc::clone(counters), &settings);
            handle.mailbox.call([Mail::PortAdd(Box::new(slot))])?;
        }
        if let Some(entry) = registry.ports.get_mut(usize::from(index.0)) {
            let uplink = settings.uplink;
            *entry = Some(PortEntry { tenant, pmd, uplink, has_queues: false });
        }
        Ok(PortHandle { index, pmd, counters })
    }

    /// Makes every PMD forget a port; when it returns none touches it. Its session must have ended
    /// (or is refused from now on), and no megaflow may output to it any more.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn port_remove(&self, port: PortIndex) -> Result<(), ControlError> {
        let mut registry = self.registry();
        let entry = registry.ports.get_mut(usize::from(port.0)).filter(|entry| entry.is_some());
        *entry.ok_or(ControlError::NoSuchPort)? = None;
        registry.free_ports.push_back(port.0);
        let _ = self.lane_changes.send(LaneChange::PortRemove(port));
        self.tell_all(|| Mail::PortRemove(port))
    }

    /// Has the queues of a network card polled, as those of a port that is an uplink: the first receive
    /// queue and the transmit queue by the port's PMD, the others by the PMDs after it in turn.
    ///
    /// # Errors
    /// When there is no such port, it is no uplink or has queues already, or the datapath has stopped.
    /// The queues that come back are polled by nobody.
    pub fn queues_start(
        &self,
        port: PortIndex,
        mut queues: Box<Queues>,
    ) -> Result<(), (Box<Queues>, ControlError)> {
        let entry = match self.claim_for_queues(port) {
            Ok(entry) => entry,
            Err(error) => return Err((queues, error)),
        };
        let mut share = Box::<Queues>::default();
        share.tx = queues.tx.take();
        for number in 0..queues.rx.len() {
            let queue = queues.rx.get_mut(number).and_then(Option::take);
            let Some(place) = share.rx.get_mut(number).filter(|_| queue.is_some()) else {
                continue;
            };
            *place = queue;
            let handle = self.pmds.get((entry.pmd + number) % self.pmds.len());
            let order = Mail::QueuesStart(port, std::mem::take(&mut share));
            let returned = handle.ok_or(PmdGone).and_then(|handle| handle.urgent.call([order]));
            let is_taken = match returned {
                Ok(returned) => put_back(&mut queues, returned.queues) == 0,
                Err(PmdGone) => return Err((queues, ControlError::Stopped)),
            };
            if !is_taken {
                // The port has gone in between, or its places are taken by rings.
                put_back(&mut queues, Some(self.queues_stop(port)));
                return Err((queues, ControlError::QueuesRefused));
            }
        }
        Ok(())
    }

    /// Takes a network card's queues back from the PMDs: none of them touches one when it returns. Those
    /// of a PMD that has stopped are gone with it.
    pub fn queues_stop(&self, port: PortIndex) -> Box<Queues> {
        let mut queues = Box::default();
        for handle in &self.pmds {
            let order = Mail::QueuesStop(port, Box::default());
            if let Ok(returned) = handle.urgent.call([order]) {
                put_back(&mut queues, returned.queues);
            }
        }
        if let Some(Some(entry)) = self.registry().ports.get_mut(usize::from(port.0)) {
            entry.has_queues = false;
        }
        queues
    }

    /// The port, once it is known to be an uplink that has no queues; from now on it has.
    fn claim_for_queues(&self, port: PortIndex) -> Result<PortEntry, ControlError> {
        let mut registry = self.registry();
        let entry = registry.ports.get_mut(usize::from(port.0)).and_then(Option::as_mut);
        let entry = entry.ok_or(ControlError::NoSuchPort)?;
        if !entry.uplink || std::mem::replace(&mut entry.has_queues, true) {
            return Err(ControlError::QueuesRefused);
        }
        Ok(*entry)
    }

    fn port_entry(&self, port: PortIndex) -> Option<PortEntry> {
        self.registry().ports.get(usize::from(port.0)).copied().flatten()
    }

    /// Where the sessions of a port put their rings.
    ///
    /// # Errors
    /// When there is no such port.
    pub fn ring_host(&self, port: PortIndex) -> Result<Arc<dyn RingHost>, ControlError> {
        let pmd = self.port_entry(port).and_then(|entry| self.pmds.get(entry.pmd));
        let mailbox = Arc::clone(&pmd.ok_or(ControlError::NoSuchPort)?.urgent);
        Ok(Arc::new(PortRings { mailbox, port }))
    }

    /// Tells every PMD that the tables have changed. When it returns, no PMD uses any of `stale`,
    /// and none will accept a megaflow walked under a generation before `generation`.
    ///
    /// # Errors
    /// When the datapath has stopped.
    pub fn tables_changed(
        &self,
        generation: u64,
        stale: &[Arc<Megaflow>],
    ) -> Result<(), ControlError> {
        self.tell_all(|| Mail::Generation(generation))?;
        // From here on none of them is put into a cache, so what is in none stays out.
        for (pmd, handle) in self.pmds.iter().enumerate() {
            handle.mailbox.call(forget_orders(pmd, stale))?;
        }
        Ok(())
    }

    /// Turns the gate on or off on the running PMDs; accounting goes on either way.
    ///
    /// # Errors
    /// When the datapath has stopped.
    pub fn set_protection(&self, on: bool) -> Result<(), ControlError> {
        self.tell_all(|| Mail::Protection(on))?;
        self.protection.store(on, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the gate is on.
    pub fn protection(&self) -> bool {
        self.protection.load(Ordering::Relaxed)
    }

    /// Turns the exact-match table on or off on the running PMDs. While it is off every packet that
    /// is looked up at all is looked up among the megaflows.
    ///
    /// # Errors
    /// When the datapath has stopped.
    pub fn set_exact_match(&self, on: bool) -> Result<(), ControlError> {
        self.tell_all(|| Mail::ExactMatch(on))?;
        self.exact_match.store(on, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the exact-match table is on.
    pub fn exact_match(&self) -> bool {
        self.exact_match.load(Ordering::Relaxed)
    }

    /// Counters of what controllers have put in at no port.
    pub fn portless_counters(&self) -> PortSnapshot {
        PortSnapshot::of(&self.portless)
    }

    /// Every PMD's figures.
    pub fn pmd_snapshots(&self) -> Vec<PmdSnapshot> {
        let snapshot = |(index, pmd): (usize, &PmdHandle)| pmd.shared.snapshot(index, pmd.core);
        self.pmds.iter().enumerate().map(snapshot).collect()
    }

    /// Has one PMD or all of them time the stages of some of their tasks
    /// ([`PmdSnapshot::stages`]) until the result is dropped.
    ///
    /// # Errors
    /// When there is no such PMD, or the datapath has stopped.
    pub fn sample_stages(&self, pmd: Option<usize>) -> Result<StageSampling, ControlError> {
        if let Some(pmd) = pmd.filter(|pmd| *pmd >= self.pmds.len()) {
            return Err(ControlError::NoSuchPmd(pmd));
        }
        let wanted = |(index, _): &(usize, &PmdHandle)| pmd.is_none_or(|pmd| pmd == *index);
        let handles = self.pmds.iter().enumerate().filter(wanted);
        Ok(StageSampling::start(handles.map(|(_, handle)| &handle.stage_samplers))?)
    }

    fn tell_all(&self, order: impl Fn() -> Mail) -> Result<(), ControlError> {
        for handle in &self.pmds {
            handle.mailbox.call([order()])?;
        }
        Ok(())
    }

    fn scheduling(&self) -> MutexGuard<'_, Scheduling> {
        self.scheduling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Datapath {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Adds those that have come back; how many those are.
fn put_back(queues: &mut Queues, returned: Option<Box<Queues>>) -> usize {
    let Some(mut returned) = returned else { return 0 };
    let mut count = 0;
    for (place, queue) in queues.rx.iter_mut().zip(&mut returned.rx).filter(|(_, q)| q.is_some()) {
        *place = queue.take();
        count += 1;
    }
    if let Some(queue) = returned.tx {
        queues.tx = Some(queue);
        count += 1;
    }
    count
}

/// The orders that make a PMD forget those of the megaflows that it has cached.
pub(crate) fn forget_orders(pmd: usize, stale: &[Arc<Megaflow>]) -> impl Iterator<Item = Mail> {
    let mut held = stale.iter().filter(move |megaflow| megaflow.stats.slot_at(pmd).is_some());
    std::iter::from_fn(move || {
        let chunk: Box<[_]> = held.by_ref().take(STALE_PER_MAIL).map(StaleFlow::of).collect();
        (!chunk.is_empty()).then_some(Mail::Stale(chunk))
    })
}

impl Registry {
    fn emptiest_pmd(&self, pmds: usize) -> usize {
        let ports_of = |pmd: &usize| self.ports.iter().flatten().filter(|p| p.pmd == *pmd).count();
        (0..pmds).min_by_key(ports_of).unwrap_or(0)
    }
}

fn check_cores(cores: &[usize]) -> Result<(), StartError> {
    match cores {
        [] => Err(StartError::NoCores),
        [first, rest @ ..] if rest.contains(first) => Err(StartError::CoreTwice(*first)),
        [_, rest @ ..] => {
            if rest.is_empty() {
                Ok(())
            } else {
                check_cores(rest)
            }
        }
    }
}

fn spawn_pinned(index: usize, core: usize, mut pmd: Pmd) -> Result<JoinHandle<()>, StartError> {
    let (pinned, outcome) = mpsc::channel();
    let body = move || {
        let result = pin_to_core(core)
            .and_then(|()| tollgate_nic::register_polling_thread().map_err(std::io::Error::other));
        let failed = result.is_err();
        let _ = pinned.send(result);
        if !failed {
            pmd.run();
        }
    };
    let thread = std::thread::Builder::new().name(format!("pmd-{index}")).spawn(body);
    let thread = thread.map_err(StartError::Thread)?;
    match outcome.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(source)) => Err(StartError::Pin { core, source }),
        Err(_) => Err(StartError::Thread(std::io::ErrorKind::BrokenPipe.into())),
    }
}

fn pin_to_core(core: usize) -> std::io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if core >= CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}
