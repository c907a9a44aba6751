//! What is taken off credits, and what is given.

use crate::tenant::TenantIndex;

use super::Scheduler;
use super::ready::Place;
use super::slot::State;

impl Scheduler {
    #[inline]
    pub(super) fn charge_and_issue(&mut self, tenant: TenantIndex, cycles: u64, now_cycles: u64) {
        if cycles == 0 || self.slot(tenant).is_none() {
            return;
        }
        self.forget_debts_after_idling(now_cycles);
        let (local, now) = (self.is_local(), self.clock.now());
        let Some(slot) = self.slots.get_mut(tenant.slot()) else { return };
        slot.settle(now);
        let (state, weight, before) = (slot.state, slot.weight, slot.credit);
        if state == State::Running {
            slot.charged_this_turn = true;
            slot.rounds.spent(cycles);
        }
        // A coordinator has granted nobody the time of a slack turn, so nobody pays for it: debts
        // would grow for as long as the core is full.
        if local || state != State::Running || !slot.in_slack {
            slot.credit.spend(cycles, slot.bounds);
        }
        let funded = slot.credit.is_funded();
        if state == State::Asleep {
            self.clock.owed_at_rest(slot.credit.tag(weight));
        }
        if state == State::Waiting && !funded && self.protection {
            self.gate(tenant);
        }
        if !local || self.ready.any_listed() {
            return;
        }
        match self.ready.first_tag() {
            // Served outside of a turn, it takes the clock along as one that is picked does.
            None if state == State::Asleep => self.clock.advance_to(before.tag(weight)),
            None => {}
            Some(ceiling) => {
                if state == State::Asleep {
                    self.clock.advance_to(before.tag(weight).min(ceiling));
                }
                self.clock.issue(cycles, ceiling);
            }
        }
    }

    #[inline]
    pub(super) fn add_grant(&mut self, tenant: TenantIndex, cycles: i64) {
        let Ok(cycles @ 1..) = u64::try_from(cycles) else { return };
        if self.is_local() {
            return;
        }
        let Some(slot) = self.slot_mut(tenant) else { return };
        slot.credit.grant(cycles, slot.bounds);
        if slot.credit.is_funded() && self.ready.place(tenant.0) == Place::Debt {
            self.ready.remove(tenant.0);
            self.unpark(tenant);
            self.ready.push_old(tenant.0);
        }
    }

    /// After a charge to a waiting tenant that leaves it in debt: there it moves back, or it leaves
    /// the lists, so that only funded ones are ever listed.
    fn gate(&mut self, tenant: TenantIndex) {
        if self.ready.place(tenant.0) == Place::Debt {
            self.replace_in_debt(tenant);
        } else {
            self.ready.remove(tenant.0);
            self.park(tenant);
        }
    }
}
