//! The scheduler's knobs, on the running switch.

use tollgate_datapath::ControlError;
use tollgate_policy::{Boost, SchedulerConfig, TenantIndex};

use super::{Refusal, Switch};
use crate::config::{RefillKind, SchedulerSection};

/// What is to change about the scheduler; the rest stays. The knobs are those of
/// [`SchedulerSection`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SchedulerChange {
    /// What one turn may cost.
    pub quantum_cycles: Option<u64>,
    /// Most credit.
    pub cap_cycles: Option<u64>,
    /// Most debt.
    pub floor_cycles: Option<u64>,
    /// The idle spell that forgives debts.
    pub horizon_cycles: Option<u64>,
    /// Who gives tenants their credit.
    pub refill: Option<RefillKind>,
    /// A coordinator's period.
    pub period_us: Option<u64>,
    /// A coordinator's boost.
    pub boost: Option<Boost>,
}

impl SchedulerChange {
    fn apply(self, to: SchedulerSection) -> SchedulerSection {
        SchedulerSection {
            protection: to.protection,
            quantum_cycles: self.quantum_cycles.unwrap_or(to.quantum_cycles),
            cap_cycles: self.cap_cycles.or(to.cap_cycles),
            floor_cycles: self.floor_cycles.or(to.floor_cycles),
            horizon_cycles: self.horizon_cycles.or(to.horizon_cycles),
            refill: self.refill.unwrap_or(to.refill),
            period_us: self.period_us.unwrap_or(to.period_us),
            boost: self.boost.unwrap_or(to.boost),
        }
    }
}

impl Switch {
    /// The scheduler's knobs as they were set, and as they are in force.
    pub fn scheduler(&self) -> (SchedulerSection, SchedulerConfig) {
        (self.registry().scheduler.clone(), self.datapath.scheduler())
    }

    /// Changes what is given; in force on every PMD when it returns.
    ///
    /// # Errors
    /// When a knob is out of range, or would put one that was set for a tenant out of it; then
    /// nothing is changed.
    pub fn scheduler_set(&self, change: SchedulerChange) -> Result<(), Refusal> {
        let _change = self.change()?;
        let section = change.apply(self.registry().scheduler.clone());
        self.replace_scheduler(section)
    }

    /// As [`scheduler_set`](Self::scheduler_set), all of them. The caller holds the change lock.
    pub(super) fn replace_scheduler(&self, section: SchedulerSection) -> Result<(), Refusal> {
        section.check().map_err(ControlError::Knob)?;
        let config = section.policy(self.datapath.tsc_hz());
        if config != self.datapath.scheduler() {
            self.datapath.set_scheduler(config).map_err(|error| match error {
                ControlError::KnobOfTenant { tenant, source } => {
                    Refusal::KnobOfTenant { tenant: self.tenant_name(tenant), source }
                }
                other => other.into(),
            })?;
        }
        self.registry_mut().scheduler = section;
        Ok(())
    }

    fn tenant_name(&self, index: TenantIndex) -> String {
        let registry = self.registry();
        let named = registry.tenants.iter().find(|(_, entry)| entry.index == index);
        named.map_or_else(|| index.0.to_string(), |(name, _)| name.clone())
    }
}
