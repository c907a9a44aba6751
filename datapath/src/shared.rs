//! What a PMD publishes: plain counters that it alone writes and anybody reads.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use tollgate_policy::TenantIndex;

use crate::grants::Grants;
use crate::histogram::{Histogram, HistogramCells};
use crate::limits::MAX_TENANTS;
use crate::megaflow::single_writer_add;
use crate::stages::{StageCells, StageSnapshot};

/// One tenant's figures on one PMD.
#[derive(Debug, Default)]
pub(crate) struct TenantCells {
    pub(crate) cycles: AtomicU64,
    pub(crate) credit_cycles: AtomicI64,
    pub(crate) funded_turns: AtomicU64,
    pub(crate) slack_turns: AtomicU64,
    pub(crate) gated_turns: AtomicU64,
    pub(crate) packets: AtomicU64,
    pub(crate) waits: HistogramCells,
    pub(crate) over_share_drops: AtomicU64,
    pub(crate) early_drops: AtomicU64,
    pub(crate) marks: AtomicU64,
}

impl TenantCells {
    pub(crate) fn dropped_over_share(&self) {
        single_writer_add(&self.over_share_drops, 1);
    }

    fn snapshot(&self) -> TenantSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TenantSnapshot {
            cycles: load(&self.cycles),
            credit_cycles: self.credit_cycles.load(Ordering::Relaxed),
            funded_turns: load(&self.funded_turns),
            slack_turns: load(&self.slack_turns),
            gated_turns: load(&self.gated_turns),
            packets: load(&self.packets),
            wait_cycles: self.waits.snapshot(),
            over_share_drops: load(&self.over_share_drops),
            early_drops: load(&self.early_drops),
            marks: load(&self.marks),
        }
    }

    /// The tenant goes: the next one with its index starts at zero.
    pub(crate) fn clear(&self) {
        self.waits.clear();
        self.credit_cycles.store(0, Ordering::Relaxed);
        for counter in [&self.over_share_drops, &self.early_drops, &self.marks] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// One PMD's figures.
#[derive(Debug)]
pub(crate) struct PmdShared {
    pub(crate) stopped: AtomicBool,
    pub(crate) heartbeat: AtomicU64,
    pub(crate) started_tsc: AtomicU64,
    pub(crate) now_tsc: AtomicU64,
    pub(crate) idle_cycles: AtomicU64,
    pub(crate) stolen_cycles: AtomicU64,
    pub(crate) tenants: Box<[TenantCells]>,
    /// Accounts from this on were never used.
    pub(crate) tenants_end: AtomicUsize,
    /// From the coordinator, for this PMD to take in.
    pub(crate) grants: Grants,
    pub(crate) task_cycles: HistogramCells,
    pub(crate) rx_cycles: HistogramCells,
    pub(crate) system_cycles: HistogramCells,
    pub(crate) scan_cycles: HistogramCells,
    /// Of sampled tasks, while somebody asks.
    pub(crate) stages: StageCells,
    pub(crate) tasks: AtomicU64,
    pub(crate) cut_tasks: AtomicU64,
    pub(crate) packets: AtomicU64,
    pub(crate) ring_looks: AtomicU64,
    pub(crate) port_hits: AtomicU64,
    pub(crate) exact_hits: AtomicU64,
    pub(crate) megaflow_hits: AtomicU64,
    pub(crate) subtable_probes: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) megaflows: AtomicU64,
    pub(crate) subtables: AtomicU64,
    pub(crate) notifications: AtomicU64,
    pub(crate) forgotten: AtomicU64,
    pub(crate) forgotten_per_turn_max: AtomicU64,
}

impl PmdShared {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            stopped: AtomicBool::new(false),
            heartbeat: zero(),
            started_tsc: zero(),
            now_tsc: zero(),
            idle_cycles: zero(),
            stolen_cycles: zero(),
            tenants: (0..MAX_TENANTS).map(|_| TenantCells::default()).collect(),
            tenants_end: AtomicUsize::new(1),
            grants: Grants::new(),
            task_cycles: HistogramCells::default(),
            rx_cycles: HistogramCells::default(),
            system_cycles: HistogramCells::default(),
            scan_cycles: HistogramCells::default(),
            stages: StageCells::default(),
            tasks: zero(),
            cut_tasks: zero(),
            packets: zero(),
            ring_looks: zero(),
            port_hits: zero(),
            exact_hits: zero(),
            megaflow_hits: zero(),
            subtable_probes: zero(),
            misses: zero(),
            megaflows: zero(),
            subtables: zero(),
            notifications: zero(),
            forgotten: zero(),
            forgotten_per_turn_max: zero(),
        }
    }

    /// A tenant's credit when it was last published.
    pub(crate) fn credit_cycles(&self, tenant: TenantIndex) -> i64 {
        let cells = self.tenants.get(usize::from(tenant.0));
        cells.map_or(0, |cells| cells.credit_cycles.load(Ordering::Relaxed))
    }

    pub(crate) fn snapshot(&self, pmd: usize, core: usize) -> PmdSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Those that were never used are left out: most of a snapshot would be zeros.
        let used = self.tenants_end.load(Ordering::Relaxed);
        let tenants = self.tenants.iter().take(used).map(TenantCells::snapshot);
        PmdSnapshot {
            pmd,
            core,
            elapsed_cycles: load(&self.now_tsc).saturating_sub(load(&self.started_tsc)),
            idle_cycles: load(&self.idle_cycles),
            stolen_cycles: load(&self.stolen_cycles),
            tenants: tenants.collect(),
            task_cycles: self.task_cycles.snapshot(),
            rx_cycles: self.rx_cycles.snapshot(),
            system_cycles_per_turn: self.system_cycles.snapshot(),
            scan_cycles: self.scan_cycles.snapshot(),
            stages: self.stages.snapshot(),
            heartbeat: load(&self.heartbeat),
            tasks: load(&self.tasks),
            cut_tasks: load(&self.cut_tasks),
            packets: load(&self.packets),
            ring_looks: load(&self.ring_looks),
            port_hits: load(&self.port_hits),
            exact_hits: load(&self.exact_hits),
            megaflow_hits: load(&self.megaflow_hits),
            subtable_probes: load(&self.subtable_probes),
            misses: load(&self.misses),
            megaflows: load(&self.megaflows),
            subtables: load(&self.subtables),
            notifications: load(&self.notifications),
            forgotten: load(&self.forgotten),
            forgotten_per_turn_max: load(&self.forgotten_per_turn_max),
        }
    }
}

/// One tenant on one PMD at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantSnapshot {
    /// Cycles spent for it, ever.
    pub cycles: u64,
    /// Its credit; negative is debt.
    pub credit_cycles: i64,
    /// Tasks run within its credit.
    pub funded_turns: u64,
    /// Tasks run in debt, because no funded tenant had work.
    pub slack_turns: u64,
    /// Funded turns of others that passed while it had work and stood in debt.
    pub gated_turns: u64,
    /// Packets taken from its ports.
    pub packets: u64,
    /// How long its turns within its credit were waited for: from when its work was seen, or its
    /// turn before ended with some left.
    pub wait_cycles: Histogram,
    /// Its packets that were dropped, after their owner was found, because it was over its share.
    pub over_share_drops: u64,
    /// The same, by configured addresses before classification.
    pub early_drops: u64,
    /// Its packets that were marked (ECN CE) instead.
    pub marks: u64,
}

/// One PMD at one moment. Counters never go back while the PMD runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmdSnapshot {
    /// Its number, from 0.
    pub pmd: usize,
    /// The core it is pinned to.
    pub core: usize,
    /// TSC cycles since it started; all accounts together.
    pub elapsed_cycles: u64,
    /// Cycles of turns that had nothing to do.
    pub idle_cycles: u64,
    /// Cycles in which the kernel ran something else, with evidence.
    pub stolen_cycles: u64,
    /// Every account that was ever used, by [`TenantIndex`]; the first is `system`.
    pub tenants: Vec<TenantSnapshot>,
    /// Tasks.
    pub task_cycles: Histogram,
    /// Service to packets whose owner shows only later: one burst from an uplink, or what other PMDs
    /// have handed over by one turn.
    pub rx_cycles: Histogram,
    /// What lay before a task, when there was mail, housekeeping, or a frame of nobody's; the look at
    /// quiet tenants included.
    pub system_cycles_per_turn: Histogram,
    /// What lay before any other task: a look at quiet tenants, and the choice of the next.
    pub scan_cycles: Histogram,
    /// Where the cycles of sampled tasks went; nothing is added unless
    /// [`Datapath::sample_stages`](crate::Datapath::sample_stages) asks.
    pub stages: StageSnapshot,
    /// Turns of the poll loop.
    pub heartbeat: u64,
    /// Tasks run.
    pub tasks: u64,
    /// Tasks that ended at their cycle budget with packets left.
    pub cut_tasks: u64,
    /// Packets taken from ports.
    pub packets: u64,
    /// Looks at rings that were not known to have work, without those of turns that had nothing else
    /// to do.
    pub ring_looks: u64,
    /// Packets decided on by their port of entry alone: the rules look at nothing else.
    pub port_hits: u64,
    /// Packets decided by the exact-match table.
    pub exact_hits: u64,
    /// Packets decided by a megaflow lookup.
    pub megaflow_hits: u64,
    /// Subtables looked at by megaflow lookups.
    pub subtable_probes: u64,
    /// Packets sent to the slow path or lost on the way to it.
    pub misses: u64,
    /// Megaflows cached.
    pub megaflows: u64,
    /// Distinct masks among them.
    pub subtables: u64,
    /// Interrupts sent to guests.
    pub notifications: u64,
    /// Stale megaflows that it was told to forget.
    pub forgotten: u64,
    /// The most of them in one turn.
    pub forgotten_per_turn_max: u64,
}

impl PmdSnapshot {
    /// Cycles of `system`: mail, polling, what belongs to no tenant.
    pub fn system_cycles(&self) -> u64 {
        self.tenant(TenantIndex::SYSTEM).cycles
    }

    /// One account.
    pub fn tenant(&self, tenant: TenantIndex) -> TenantSnapshot {
        self.tenants.get(usize::from(tenant.0)).copied().unwrap_or_default()
    }

    /// Cycles of turns that moved something, over packets: OVS's measure of its own PMD, but for time in
    /// which the kernel ran something else.
    pub fn cycles_per_packet(&self) -> Option<f64> {
        let busy = self.elapsed_cycles.saturating_sub(self.idle_cycles + self.stolen_cycles);
        (self.packets > 0).then(|| busy as f64 / self.packets as f64)
    }
}
