//! The name of a tenant inside the datapath.

use crate::config::ConfigError;

/// A tenant's place in every per-tenant table; given out densely by the control side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantIndex(pub u16);

impl TenantIndex {
    /// The switch itself: mail, housekeeping, what cannot be attributed. An account in the books,
    /// never a scheduled tenant.
    pub const SYSTEM: Self = Self(0);

    pub(crate) fn slot(self) -> usize {
        usize::from(self.0)
    }
}

/// Why a tenant could not be added or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// Index 0 is the system account, which has no weight and takes no turns.
    #[error("tenant 0 is the system account and is not scheduled")]
    System,
    /// The scheduler was built for fewer tenants.
    #[error("tenant index {index} is outside this scheduler's table of {tenants}")]
    OutOfRange {
        /// The index asked for.
        index: u16,
        /// How many the scheduler was built for.
        tenants: u16,
    },
    /// The index is in use; its credit is not to be reset by adding it again.
    #[error("tenant {0} exists already")]
    Exists(u16),
    /// No tenant has this index.
    #[error("tenant {0} does not exist")]
    Unknown(u16),
    /// One of its knobs is out of range.
    #[error(transparent)]
    Knob(#[from] ConfigError),
}
