//! The books: every cycle of a PMD, by who it was spent for. Only ever added to.

use crate::tenant::TenantIndex;

/// Where a cycle goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// Spent for a tenant; [`TenantIndex::SYSTEM`] for the switch itself.
    Tenant(TenantIndex),
    /// Polled and found nothing.
    Idle,
    /// The core ran something else meanwhile, on evidence.
    Stolen,
}

/// Cycles per account since the PMD started. The sum over all accounts is the elapsed time,
/// because the PMD charges every difference between two clock readings to exactly one of them.
#[derive(Clone, Debug)]
pub struct Books {
    tenants: Box<[u64]>,
    tenants_total: u64,
    idle: u64,
    stolen: u64,
}

impl Books {
    /// Empty books for tenant indices below `max_tenants` (the system account is one of them).
    #[must_use]
    pub fn new(max_tenants: u16) -> Self {
        let accounts = usize::from(max_tenants.max(1));
        Self { tenants: vec![0; accounts].into(), tenants_total: 0, idle: 0, stolen: 0 }
    }

    /// Adds `cycles` to an account. An index outside the table goes to the system account: the
    /// time was spent, so the sum must contain it.
    #[inline]
    pub fn charge(&mut self, account: Account, cycles: u64) {
        match account {
            Account::Idle => self.idle += cycles,
            Account::Stolen => self.stolen += cycles,
            Account::Tenant(tenant) => {
                let known = tenant.slot() < self.tenants.len();
                let payer = if known { tenant } else { TenantIndex::SYSTEM };
                if payer != TenantIndex::SYSTEM {
                    self.tenants_total += cycles;
                }
                if let Some(spent) = self.tenants.get_mut(payer.slot()) {
                    *spent += cycles;
                }
            }
        }
    }

    /// Cycles charged to an account so far; 0 for an index outside the table.
    #[must_use]
    pub fn of(&self, account: Account) -> u64 {
        match account {
            Account::Idle => self.idle,
            Account::Stolen => self.stolen,
            Account::Tenant(tenant) => self.tenants.get(tenant.slot()).copied().unwrap_or(0),
        }
    }

    /// Cycles charged to tenants, the system account not among them.
    #[must_use]
    pub fn tenants_total(&self) -> u64 {
        self.tenants_total
    }

    /// Cycles charged to all accounts: tenants, system, idle and stolen.
    #[must_use]
    pub fn total(&self) -> u64 {
        let system = self.of(Account::Tenant(TenantIndex::SYSTEM));
        self.tenants_total + system + self.idle + self.stolen
    }
}
