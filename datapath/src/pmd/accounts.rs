//! The PMD's clock and its books: every cycle since the start is in exactly one account.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use rustix::time::{ClockId, clock_gettime};
use tollgate_accel::tsc;
use tollgate_policy::{Account, Books, Scheduler, TenantIndex};

use crate::limits::{LONG_GAP_US, MAX_TENANTS};
use crate::shared::PmdShared;

/// Books, credits and the clock that both are fed from.
#[derive(Debug)]
pub(crate) struct Accounts {
    pub(crate) scheduler: Scheduler,
    books: Books,
    /// What earlier holders of an index had spent, and the sum of that.
    baselines: Box<[u64]>,
    retired_cycles: u64,
    shared: Arc<PmdShared>,
    /// The last boundary: everything before it is charged.
    last_tsc: u64,
    long_gap_cycles: u64,
    evidence: CpuTimeEvidence,
}

impl Accounts {
    pub(crate) fn new(
        scheduler: Scheduler,
        books: Books,
        shared: Arc<PmdShared>,
        tsc_hz: u64,
    ) -> Self {
        let evidence = CpuTimeEvidence { tsc_hz, ..CpuTimeEvidence::default() };
        let long_gap_cycles = tsc_hz / 1_000_000 * LONG_GAP_US;
        Self {
            scheduler,
            books,
            baselines: vec![0; MAX_TENANTS].into(),
            retired_cycles: 0,
            shared,
            last_tsc: 0,
            long_gap_cycles,
            evidence,
        }
    }

    /// Starts the clock, on the PMD's own thread.
    pub(crate) fn start(&mut self) {
        self.evidence.refresh(tsc::now());
        self.last_tsc = tsc::now();
        self.shared.started_tsc.store(self.last_tsc, Relaxed);
        self.shared.now_tsc.store(self.last_tsc, Relaxed);
    }

    /// For tests and benches whose clock is not this machine's, so that there is no evidence.
    #[cfg(any(test, feature = "test-utils"))]
    pub(crate) fn suspect_no_gap(&mut self) {
        self.long_gap_cycles = u64::MAX;
    }

    /// The last boundary.
    #[inline]
    pub(crate) fn last_tsc(&self) -> u64 {
        self.last_tsc
    }

    /// Charges what has passed since the last boundary and makes now the next one. Returns the
    /// cycles that `account` was charged.
    #[inline]
    pub(crate) fn lap(&mut self, account: Account) -> u64 {
        self.lap_until(account, tsc::now())
    }

    /// As [`lap`](Self::lap), with the boundary at `now`, which has just passed.
    #[inline]
    pub(crate) fn lap_until(&mut self, account: Account, now: u64) -> u64 {
        // A counter that steps back (a migrated VM) must not charge an age.
        let mut cycles = now.saturating_sub(self.last_tsc);
        self.last_tsc = now;
        if cycles > self.long_gap_cycles {
            let stolen = self.evidence.stolen_within(cycles, now);
            self.enter(Account::Stolen, stolen);
            cycles -= stolen;
        }
        self.enter(account, cycles);
        self.shared.now_tsc.store(now, Release);
        cycles
    }

    /// As [`lap`](Self::lap) for work done on a tenant's behalf: its credit falls too.
    #[inline]
    pub(crate) fn lap_tenant(&mut self, tenant: TenantIndex) -> u64 {
        let cycles = self.lap(Account::Tenant(tenant));
        self.scheduler.charge(tenant, cycles, self.last_tsc);
        cycles
    }

    /// As [`lap_tenant`](Self::lap_tenant) for work done for several tenants alike: each pays its part, the
    /// last the remainder.
    pub(crate) fn lap_shared(&mut self, tenants: &[TenantIndex]) {
        let Some(last) = tenants.last() else { return };
        let now = tsc::now();
        let part = now.saturating_sub(self.last_tsc) / tenants.len() as u64;
        let mut runs = tenants.chunk_by(|a, b| a == b).peekable();
        while let Some(run) = runs.next()
            && let Some(tenant) = run.first()
            && runs.peek().is_some()
        {
            let cycles = part * run.len() as u64;
            self.enter(Account::Tenant(*tenant), cycles);
            self.scheduler.charge(*tenant, cycles, now);
            self.last_tsc += cycles;
        }
        self.lap_tenant(*last);
    }

    /// Charges receivers what they have cost of the time since the last boundary; the rest of it is
    /// still to be charged. Who is in debt pays nothing here: nothing gates a receiver, so the sender
    /// that goes on would take others' time on its account. Preemption, of which there may be evidence
    /// as at any boundary, comes first.
    pub(crate) fn lap_receivers(&mut self, receivers: &[(TenantIndex, u64)]) {
        let now = tsc::now();
        let elapsed = now.saturating_sub(self.last_tsc);
        if elapsed > self.long_gap_cycles {
            let stolen = self.evidence.stolen_within(elapsed, now);
            self.enter(Account::Stolen, stolen);
            self.last_tsc += stolen;
        }
        for (tenant, cycles) in receivers {
            if self.scheduler.credit_cycles(*tenant) <= 0 {
                continue;
            }
            let cycles = (*cycles).min(now.saturating_sub(self.last_tsc));
            self.enter(Account::Tenant(*tenant), cycles);
            self.scheduler.charge(*tenant, cycles, now);
            self.last_tsc += cycles;
        }
    }

    /// A tenant goes: what was spent for it is shown as `system`'s from now on, so that the sum
    /// stays and whoever gets the index next starts at zero.
    pub(crate) fn retire(&mut self, tenant: TenantIndex) {
        let spent = self.books.of(Account::Tenant(tenant));
        if let Some(baseline) = self.baselines.get_mut(usize::from(tenant.0)) {
            self.retired_cycles += spent - *baseline;
            *baseline = spent;
        }
        self.enter(Account::Tenant(tenant), 0);
        self.enter(Account::Tenant(TenantIndex::SYSTEM), 0);
    }

    #[inline]
    fn enter(&mut self, account: Account, cycles: u64) {
        self.books.charge(account, cycles);
        let total = self.books.of(account);
        match account {
            Account::Idle => self.shared.idle_cycles.store(total, Relaxed),
            Account::Stolen => self.shared.stolen_cycles.store(total, Relaxed),
            Account::Tenant(tenant) => {
                let index = usize::from(tenant.0);
                let baseline = self.baselines.get(index).copied().unwrap_or_default();
                let retired = if tenant == TenantIndex::SYSTEM { self.retired_cycles } else { 0 };
                if let Some(cells) = self.shared.tenants.get(index) {
                    cells.cycles.store(total - baseline + retired, Relaxed);
                }
            }
        }
    }

    /// What was spent on no tenant's behalf so far.
    #[inline]
    pub(crate) fn system_cycles(&self) -> u64 {
        self.books.of(Account::Tenant(TenantIndex::SYSTEM))
    }

    /// Time in which the kernel ran something else so far.
    #[inline]
    pub(crate) fn stolen_cycles(&self) -> u64 {
        self.books.of(Account::Stolen)
    }

    /// Whether work for a tenant that cannot wait is to be dropped: it would be at the expense of
    /// one who has a better claim. An idle core drops nothing, nor does one without protection.
    pub(crate) fn is_over_share(&self, tenant: TenantIndex) -> bool {
        self.scheduler.must_yield(tenant)
    }

    /// Renews the evidence of preemption; one system call.
    pub(crate) fn refresh_evidence(&mut self) {
        self.evidence.refresh(self.last_tsc);
    }
}

/// What the kernel says about the time it gave this thread: without it a long gap is the tenant's
/// own (a page fault, a cold buffer), not theft.
#[derive(Debug, Default)]
struct CpuTimeEvidence {
    tsc_hz: u64,
    seen_tsc: u64,
    seen_cpu_ns: u64,
}

impl CpuTimeEvidence {
    fn refresh(&mut self, now_tsc: u64) {
        self.seen_tsc = now_tsc;
        self.seen_cpu_ns = thread_cpu_ns();
    }

    /// How much of a gap of `gap_cycles` that ends now the thread did not run.
    #[cold]
    fn stolen_within(&mut self, gap_cycles: u64, now_tsc: u64) -> u64 {
        let (then_tsc, then_ns) = (self.seen_tsc, self.seen_cpu_ns);
        self.refresh(now_tsc);
        let elapsed = now_tsc.saturating_sub(then_tsc);
        let ran_ns = u128::from(self.seen_cpu_ns.saturating_sub(then_ns));
        let ran =
            u64::try_from(ran_ns * u128::from(self.tsc_hz) / 1_000_000_000).unwrap_or(u64::MAX);
        elapsed.saturating_sub(ran).min(gap_cycles)
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
