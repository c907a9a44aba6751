//! What a coordinator has granted and a PMD has not taken in yet.
//!
//! A tenant's credit itself is the PMD's alone. The coordinator only adds to a cell, and the PMD
//! only empties it; each is one atomic operation, and the cap is applied by the one thread that
//! also spends. So no race can lift a credit over its cap, lose a grant, or forgive a debt.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tollgate_policy::TenantIndex;

use crate::limits::MAX_TENANTS;

/// One PMD's cells.
#[derive(Debug)]
pub(crate) struct Grants {
    /// Rounds of grants, so that a PMD sees in one load whether there is anything new.
    rounds: AtomicU64,
    cells: Box<[AtomicI64]>,
}

impl Grants {
    pub(crate) fn new() -> Self {
        let cells = (0..MAX_TENANTS).map(|_| AtomicI64::new(0)).collect();
        Self { rounds: AtomicU64::new(0), cells }
    }

    /// Adds to what a tenant is granted. A sum cannot overflow: it grows by at most twice the time
    /// that elapses, and 2^63 cycles are a century.
    pub(crate) fn add(&self, tenant: TenantIndex, cycles: i64) {
        if let Some(cell) = self.cells.get(usize::from(tenant.0)) {
            cell.fetch_add(cycles, Ordering::Relaxed);
        }
    }

    /// After all tenants have got theirs.
    pub(crate) fn end_round(&self) {
        self.rounds.fetch_add(1, Ordering::Release);
    }

    /// Rounds so far.
    #[inline]
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Empties a tenant's cell.
    #[inline]
    pub(crate) fn take(&self, tenant: TenantIndex) -> i64 {
        let cell = self.cells.get(usize::from(tenant.0));
        cell.map_or(0, |cell| cell.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_policy::{Scheduler, SchedulerConfig, Weight};

    const TENANT: TenantIndex = TenantIndex(1);
    const CAP_CYCLES: i64 = 15_000;

    /// Fault 13 of earlier implementations: read, compare with the cap and add were steps of their
    /// own, and what was spent meanwhile was lost or the cap exceeded.
    #[test]
    fn f13_no_race_lifts_a_credit_over_its_cap_or_loses_a_grant() {
        const ROUNDS: u64 = 200_000;
        let grants = Grants::new();
        let config = SchedulerConfig {
            cap_cycles: CAP_CYCLES as u64,
            ..SchedulerConfig::coordinated(2_500_000_000)
        };
        let mut scheduler = Scheduler::new(config, 4).unwrap();
        scheduler.tenant_add(TENANT, Weight::ONE).unwrap();
        let mut granted = 0;
        let (mut taken, mut lost_at_cap, mut spent) = (0, 0, 0);
        std::thread::scope(|scope| {
            let coordinator = scope.spawn(|| {
                let mut sum = 0;
                for round in 0..ROUNDS {
                    let cycles = (round % 700) as i64;
                    sum += cycles;
                    grants.add(TENANT, cycles);
                    grants.end_round();
                }
                sum
            });
            while !coordinator.is_finished() || grants.rounds() < ROUNDS {
                let before = scheduler.credit_cycles(TENANT);
                let cycles = grants.take(TENANT);
                scheduler.refill_grant(TENANT, cycles);
                let after = scheduler.credit_cycles(TENANT);
                assert!(after <= CAP_CYCLES);
                taken += cycles;
                lost_at_cap += cycles - (after - before);
                // As much as there is, now and then more.
                let cost = after.max(0) as u64 / 2 + 1;
                scheduler.charge(TENANT, cost, 0);
                spent += cost as i64;
            }
            granted = coordinator.join().unwrap();
        });
        taken += grants.take(TENANT);
        assert_eq!(taken, granted);
        let left = grants.take(TENANT);
        assert_eq!(left, 0);
        assert!(lost_at_cap >= 0);
        assert!(scheduler.credit_cycles(TENANT) <= CAP_CYCLES - spent + taken - lost_at_cap);
    }
}
