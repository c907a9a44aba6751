//! Who has a claim to the core, and what that means for others.

use crate::credit::Credit;
use crate::tenant::TenantIndex;
use crate::verdict::{Stage, Verdict};

use super::{Scheduler, TurnCounters};

impl Scheduler {
    /// A tenant's credit in cycles, debt negative, rounded up; 0 for an unknown index.
    #[must_use]
    pub fn credit_cycles(&self, tenant: TenantIndex) -> i64 {
        self.credit(tenant).map_or(0, |credit| credit.cycles())
    }

    /// Whether a tenant has no credit.
    #[must_use]
    pub fn in_debt(&self, tenant: TenantIndex) -> bool {
        self.credit(tenant).is_some_and(|credit| !credit.is_funded())
    }

    /// Whether somebody with credit waits for a turn. Always false while protection is off: then
    /// nobody has a claim that another's packets could be dropped for.
    #[must_use]
    pub fn any_funded_with_work(&self) -> bool {
        self.protection && self.ready.any_listed()
    }

    /// Whether time spent on a tenant outside of its turns (its received packets) is at another's
    /// expense: it owes a quantum, and somebody waits who is funded, or who owes less by weight and
    /// would get the next turn. An idle core asks nobody to yield; nor does one with protection off.
    ///
    /// A quantum, because packets that come together with another's are no sign of more than a share:
    /// it is what the other would wait for in any case. Under a coordinator, as its authors have it, any
    /// debt is enough.
    #[inline]
    #[must_use]
    pub fn must_yield(&self, tenant: TenantIndex) -> bool {
        let Some(slot) = self.slot(tenant).filter(|_| self.protection) else { return false };
        let credit = slot.credit_at(self.clock.now());
        let tolerated_cycles = if self.is_local() { self.config.quantum_cycles } else { 0 };
        if !credit.owes(tolerated_cycles) {
            return false;
        }
        self.ready.any_listed()
            || self.is_local()
                && self.ready.first_tag().is_some_and(|first| first < credit.tag(slot.weight))
    }

    /// What to do with a received packet of a tenant, by the rule that was set for it: anything but
    /// [`Verdict::Deliver`] only when it must yield ([`must_yield`](Self::must_yield)). `ecn_capable`
    /// is whether the packet's IP header carries ECT(0), ECT(1) or CE.
    ///
    /// To be asked when the packets before it were charged, but not yet the packet itself: to be
    /// looked at must not condemn it, or a tenant near zero would pay for all and receive none.
    #[inline]
    #[must_use]
    pub fn verdict(&self, tenant: TenantIndex, stage: Stage, ecn_capable: bool) -> Verdict {
        if !self.must_yield(tenant) {
            return Verdict::Deliver;
        }
        let Some(slot) = self.slot(tenant) else { return Verdict::Deliver };
        slot.rx
            .over_share(stage, ecn_capable, |cycles| slot.credit_at(self.clock.now()).owes(cycles))
    }

    /// How a tenant got its turns so far; zeros for an unknown index.
    #[must_use]
    pub fn counters(&self, tenant: TenantIndex) -> TurnCounters {
        let Some(slot) = self.slot(tenant) else { return TurnCounters::default() };
        let watching = slot.parked_at_turn.map_or(0, |turn| self.funded_turns_total - turn);
        let gated_turns = slot.counters.gated_turns + watching;
        TurnCounters { gated_turns, ..slot.counters }
    }

    /// Steps taken in the heap so far, for the tests that bound them.
    #[cfg(test)]
    pub(crate) fn heap_exchanges(&self) -> u64 {
        self.ready.debt_exchanges()
    }

    #[cfg(test)]
    pub(crate) fn credit_scaled(&self, tenant: TenantIndex) -> Option<i64> {
        self.credit(tenant).map(|credit| credit.scaled())
    }

    /// A tenant's credit, brought up to date.
    fn credit(&self, tenant: TenantIndex) -> Option<Credit> {
        self.slot(tenant).map(|slot| slot.credit_at(self.clock.now()))
    }
}
