//! Tests by promise.

mod backoff;
mod books;
mod coordinator;
mod faults;
mod golden;
mod leads;
mod model;
mod promise;
mod quotas;
mod recordings;
mod scale;
mod settings;
mod shares;
mod starvation;
mod traces;
mod turns;
mod verdicts;
mod waiting;
mod written;

use proptest::prelude::*;

use crate::{Scheduler, SchedulerConfig, TenantIndex, Weight};

pub(crate) const A: TenantIndex = TenantIndex(1);
pub(crate) const B: TenantIndex = TenantIndex(2);
pub(crate) const C: TenantIndex = TenantIndex(3);

pub(crate) fn index(tenant: u16) -> TenantIndex {
    TenantIndex(tenant)
}

pub(crate) fn config() -> SchedulerConfig {
    SchedulerConfig::default()
}

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

pub(crate) fn any_weight() -> impl Strategy<Value = Weight> {
    prop_oneof![1u32..=5000, Just(1), Just(1_000_000), 1u32..=1_000_000]
        .prop_map(|thousandths| Weight::from_thousandths(thousandths).unwrap())
}
