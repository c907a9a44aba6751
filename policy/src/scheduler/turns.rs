//! Who has work, who runs next, and where a turn ends.

use crate::limits::EMPTY_TURN_CYCLES;
use crate::tenant::TenantIndex;

use super::ready::Place;
use super::slot::State;
use super::{Scheduler, Turn};
use crate::credit::VirtualTime;

impl Scheduler {
    #[inline]
    pub(super) fn join_waiting(&mut self, tenant: TenantIndex, now_cycles: u64) {
        if self.slots.get(tenant.slot()).is_none_or(|slot| slot.state != State::Asleep) {
            return;
        }
        self.forget_debts_after_idling(now_cycles);
        let now = self.clock.now();
        let Some(slot) = self.slots.get_mut(tenant.slot()) else { return };
        slot.settle(now);
        slot.state = State::Waiting;
        let used_cycles = slot.rounds.used_at_wake(&self.ready);
        let (weight, funded) = (slot.weight, slot.credit.is_funded());
        self.clock.join(weight);
        self.busy_tenants += 1;
        let may_pass = funded && used_cycles < self.config.quantum_cycles;
        if may_pass && self.protection && self.is_local() {
            self.ready.push_new(tenant.0);
        } else {
            self.enqueue_again(tenant);
        }
    }

    #[inline]
    pub(super) fn begin_turn(&mut self) -> Option<Turn> {
        let (index, place) = self.ready.pop()?;
        let tenant = TenantIndex(index);
        let (local, protection) = (self.is_local(), self.protection);
        let quantum_cycles = self.config.quantum_cycles;
        let now = self.clock.now();
        let slack = place == Place::Debt;
        let slot = self.slots.get_mut(tenant.slot())?;
        slot.unpark(self.funded_turns_total);
        slot.settle(now);
        if local {
            // Start-time fair queueing: the clock follows whoever is served. Nobody has a prior
            // claim to this time, so running in it leaves no more debt than the turn itself.
            self.clock.advance_to(slot.credit.tag(slot.weight));
        }
        let budget_cycles = match place {
            _ if !protection => u64::MAX,
            Place::New => quantum_cycles.saturating_sub(slot.rounds.used_cycles()).max(1),
            Place::Old | Place::Debt | Place::Nowhere => quantum_cycles,
        };
        slot.state = State::Running;
        slot.charged_this_turn = false;
        slot.in_slack = slack;
        slot.counters.funded_turns += u64::from(!slack);
        slot.counters.slack_turns += u64::from(slack);
        self.funded_turns_total += u64::from(!slack);
        Some(Turn { tenant, budget_cycles, slack })
    }

    #[inline]
    pub(super) fn end_turn(&mut self, tenant: TenantIndex, has_more_work: bool, now_cycles: u64) {
        let Some(slot) = self.slots.get(tenant.slot()) else { return };
        let weight = slot.weight;
        match slot.state {
            State::Running if !slot.charged_this_turn => {
                self.charge_and_issue(tenant, EMPTY_TURN_CYCLES, now_cycles);
            }
            State::Running => {}
            State::Waiting if !has_more_work => {
                self.ready.remove(tenant.0);
                self.unpark(tenant);
            }
            State::Asleep if has_more_work => return self.join_waiting(tenant, now_cycles),
            State::Waiting | State::Asleep | State::Absent => return,
        }
        self.busy_until_cycles = now_cycles;
        let moment = self.ready.now();
        let Some(slot) = self.slots.get_mut(tenant.slot()) else { return };
        if has_more_work {
            slot.state = State::Waiting;
            self.enqueue_again(tenant);
        } else {
            slot.state = State::Asleep;
            slot.rounds.emptied(moment);
            let now = self.clock.now();
            self.clock.owed_at_rest(slot.credit_at(now).tag(weight));
            self.leave_busy(weight);
        }
    }

    /// Queues a waiting tenant behind those that wait already: at the end of the old list, or among
    /// those in debt.
    pub(super) fn enqueue_again(&mut self, tenant: TenantIndex) {
        let now = self.clock.now();
        let Some(slot) = self.slots.get_mut(tenant.slot()) else { return };
        slot.settle(now);
        if !self.protection || slot.credit.is_funded() {
            self.ready.push_old(tenant.0);
        } else {
            self.park(tenant);
        }
    }

    /// Puts a settled tenant among those in debt: the least indebted by weight is the first of them,
    /// or under a coordinator whoever came first.
    pub(super) fn park(&mut self, tenant: TenantIndex) {
        let (local, turns) = (self.is_local(), self.funded_turns_total);
        let Some(slot) = self.slots.get_mut(tenant.slot()) else { return };
        slot.parked_at_turn = Some(turns);
        let tag = if local {
            slot.credit.tag(slot.weight)
        } else {
            self.parked_total += 1;
            VirtualTime::nth(self.parked_total)
        };
        self.ready.set_debt(tenant.0, tag);
    }

    /// Nobody has work: what the core does not do now was nobody's. So a debt ends that somebody ran up
    /// outside of turns, while others waited; else, on a core with time to spare, it could be dropped
    /// for again and again whenever its packets come together with another's.
    ///
    /// Says whether that has changed anything.
    #[inline]
    pub(super) fn end_busy_period(&mut self) -> bool {
        self.busy_tenants == 0 && self.is_local() && self.clock.end_busy_period()
    }

    /// After a horizon in which nothing was charged and nobody had work, everybody starts afresh
    /// with full credit: the idle core has given away more than any debt (floor <= horizon).
    pub(super) fn forget_debts_after_idling(&mut self, now_cycles: u64) {
        let idle_cycles = now_cycles.saturating_sub(self.busy_until_cycles);
        if self.busy_tenants == 0 && self.is_local() && idle_cycles >= self.config.horizon_cycles {
            self.clock.fill_all();
        }
        self.busy_until_cycles = now_cycles;
    }
}
