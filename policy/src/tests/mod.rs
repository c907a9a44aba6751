//! Tests by promise.

mod books;
mod settings;
mod turns;

use crate::{Scheduler, SchedulerConfig, TenantIndex, Weight};

pub(crate) const A: TenantIndex = TenantIndex(1);
pub(crate) const B: TenantIndex = TenantIndex(2);
pub(crate) const C: TenantIndex = TenantIndex(3);

pub(crate) fn weight(text: &str) -> Weight {
    text.parse().unwrap()
}

/// A scheduler with default knobs and tenants 1.. of these weights.
pub(crate) fn scheduler(weights: &[&str]) -> Scheduler {
    let slots = weights.len() as u16 + 1;
    let mut scheduler = Scheduler::new(SchedulerConfig::default(), slots).unwrap();
    for (index, text) in (1..).zip(weights) {
        scheduler.tenant_add(TenantIndex(index), weight(text)).unwrap();
    }
    scheduler
}

/// One whole turn that costs `cycles`; who took it.
pub(crate) fn turn(scheduler: &mut Scheduler, cycles: u64, more: bool) -> Option<TenantIndex> {
    let turn = scheduler.next(0)?;
    scheduler.charge(turn.tenant, cycles, 0);
    scheduler.done(turn.tenant, more, 0);
    Some(turn.tenant)
}
