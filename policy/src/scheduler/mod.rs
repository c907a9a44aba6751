//! Whose turn it is on one PMD.

mod ready;
mod rounds;

use crate::config::{ConfigError, SchedulerConfig};
use crate::credit::{Bounds, Credit, VirtualClock};
use crate::limits::{EMPTY_TURN_CYCLES, TENANTS_MAX};
use crate::list::{Links, List};
use crate::tenant::{TenantError, TenantIndex};
use crate::weight::Weight;
use ready::{Place, Ready};
use rounds::Rounds;

/// One task: up to `budget_cycles` for `tenant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who may run.
    pub tenant: TenantIndex,
    /// When to stop, in cycles of the task; the packet that crosses it is finished and the excess
    /// is debt. `u64::MAX` while protection is off.
    pub budget_cycles: u64,
    /// Nobody with work was funded: this is time to which nobody has a prior claim, and tenants
    /// that have more work than their share divide it by weight.
    pub slack: bool,
}

/// How a tenant got and did not get its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounters {
    /// Turns taken with credit, and all turns taken while protection was off.
    pub funded_turns: u64,
    /// Turns taken without, because nobody with work had credit.
    pub slack_turns: u64,
    /// Funded turns of others that passed while this one had work and no credit.
    pub gated_turns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// No work.
    Asleep,
    /// Has work and waits for a turn.
    Waiting,
    /// Between `next` and `done`.
    Running,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    /// In thousandths.
    weight: u32,
    credit: Credit,
    rounds: Rounds,
    charged_this_turn: bool,
    /// While waiting in debt: the count of all funded turns when that began.
    parked_at_turn: Option<u64>,
    counters: TurnCounters,
}

/// Credits and turns of the tenants of one PMD.
///
/// Every call takes the PMD's clock reading in cycles, which must not go back. `charge`, `wake`,
/// `next` and `done` take at most O(log n) steps in the n tenants that wait in debt, whatever the
/// number of others; they allocate nothing. An index that was not added is ignored by them.
///
/// The virtual clock moves only while no funded tenant waits, and never past the least indebted one
/// that does. So whoever has more work than its share has no credit, and stands behind all that
/// have less.
#[derive(Clone, Debug)]
pub struct Scheduler {
    quantum_cycles: u64,
    horizon_cycles: u64,
    bounds: Bounds,
    protection: bool,
    clock: VirtualClock,
    slots: Box<[Slot]>,
    ready: Ready,
    busy_tenants: u16,
    busy_until_cycles: u64,
    funded_turns_total: u64,
    /// For reordering all that wait, without an allocation.
    spare_links: Links,
}

impl Scheduler {
    /// A scheduler with protection on, for tenant indices 1 to `max_tenants - 1`.
    ///
    /// # Errors
    /// When a knob of `config` is out of range.
    pub fn new(config: SchedulerConfig, max_tenants: u16) -> Result<Self, ConfigError> {
        config.validate()?;
        let slots = max_tenants.clamp(1, TENANTS_MAX);
        let bounds = Bounds::new(&config);
        let clock = VirtualClock::default();
        let absent = Slot {
            state: State::Absent,
            weight: 0,
            credit: Credit::full(clock.now(), bounds),
            rounds: Rounds::default(),
            charged_this_turn: false,
            parked_at_turn: None,
            counters: TurnCounters::default(),
        };
        Ok(Self {
            quantum_cycles: config.quantum_cycles,
            horizon_cycles: config.horizon_cycles,
            bounds,
            protection: true,
            clock,
            slots: vec![absent; usize::from(slots)].into(),
            ready: Ready::new(slots),
            busy_tenants: 0,
            busy_until_cycles: 0,
            funded_turns_total: 0,
            spare_links: Links::new(slots),
        })
    }

    /// Adds a tenant: asleep, with full credit.
    ///
    /// # Errors
    /// When the index is the system's, outside the table, or in use.
    pub fn tenant_add(&mut self, tenant: TenantIndex, weight: Weight) -> Result<(), TenantError> {
        let tenants = self.slots.len() as u16;
        if tenant == TenantIndex::SYSTEM {
            return Err(TenantError::System);
        }
        let slot = self
            .slots
            .get_mut(tenant.slot())
            .ok_or(TenantError::OutOfRange { index: tenant.0, tenants })?;
        if slot.state != State::Absent {
            return Err(TenantError::Exists(tenant.0));
        }
        *slot = Slot {
            state: State::Asleep,
            weight: weight.thousandths(),
            credit: Credit::full(self.clock.now(), self.bounds),
            rounds: Rounds::default(),
            charged_this_turn: false,
            parked_at_turn: None,
            counters: TurnCounters::default(),
        };
        Ok(())
    }

    /// Removes a tenant, wherever it stands; a turn it may have begun needs no `done`.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn tenant_remove(&mut self, tenant: TenantIndex) -> Result<(), TenantError> {
        let slot = self.slot_mut(tenant).ok_or(TenantError::Unknown(tenant.0))?;
        let (state, weight) = (slot.state, slot.weight);
        slot.state = State::Absent;
        if state != State::Asleep {
            self.ready.remove(tenant.0);
            self.leave_busy(weight);
        }
        Ok(())
    }

    /// Changes a tenant's weight from now on. Its credit stays, and its place unless it is in debt:
    /// debt counts by weight.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn set_weight(&mut self, tenant: TenantIndex, weight: Weight) -> Result<(), TenantError> {
        let slot = self.settle(tenant).ok_or(TenantError::Unknown(tenant.0))?;
        if slot.state != State::Asleep {
            self.clock.leave(slot.weight);
            self.clock.join(weight.thousandths());
        }
        if let Some(slot) = self.slot_mut(tenant) {
            slot.weight = weight.thousandths();
        }
        if self.ready.place(tenant.0) == Place::Debt {
            self.ready.set_debt(tenant.0, slot.credit.tag(weight.thousandths()));
        }
        Ok(())
    }

    /// Switches the gate on or off on a running switch. Off is plain round robin among tenants with
    /// work; charges and credits are kept either way.
    pub fn set_protection(&mut self, on: bool) {
        if self.protection == on {
            return;
        }
        self.protection = on;
        let mut order = List::EMPTY;
        while let Some((index, _)) = self.ready.pop() {
            self.unpark(TenantIndex(index));
            self.spare_links.push_back(&mut order, index);
        }
        while let Some(index) = self.spare_links.pop_front(&mut order) {
            self.enqueue_again(TenantIndex(index));
        }
    }

    /// Whether the gate is on.
    #[must_use]
    pub fn protection(&self) -> bool {
        self.protection
    }

    /// Says that a tenant has work; repeating it costs little and changes nothing. For the tenant
    /// whose turn it is, `done` decides.
    #[inline]
    pub fn wake(&mut self, tenant: TenantIndex, now_cycles: u64) {
        if self.slots.get(tenant.slot()).is_none_or(|slot| slot.state != State::Asleep) {
            return;
        }
        self.forget_debts_after_idling(now_cycles);
        let Some(slot) = self.settle(tenant) else { return };
        self.clock.join(slot.weight);
        self.busy_tenants += 1;
        let mut used_cycles = 0;
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.state = State::Waiting;
            used_cycles = slot.rounds.used_at_wake(&self.ready);
        }
        if self.protection && slot.credit.is_funded() && used_cycles < self.quantum_cycles {
            self.ready.push_new(tenant.0);
        } else {
            self.enqueue_again(tenant);
        }
    }

    /// The next turn; `None` only when nobody has work. Every turn is ended by `done`.
    #[inline]
    pub fn next(&mut self, _now_cycles: u64) -> Option<Turn> {
        let (index, place) = self.ready.pop()?;
        let tenant = TenantIndex(index);
        self.unpark(tenant);
        let slot = self.settle(tenant)?;
        // Start-time fair queueing: the clock follows whoever is served. Nobody has a prior claim
        // to this time, so running in it leaves no more debt than the turn itself.
        self.clock.advance_to(slot.credit.tag(slot.weight));
        let slack = place == Place::Debt;
        let budget_cycles = match place {
            _ if !self.protection => u64::MAX,
            Place::New => self.quantum_cycles.saturating_sub(slot.rounds.used_cycles()).max(1),
            Place::Old | Place::Debt | Place::Nowhere => self.quantum_cycles,
        };
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.state = State::Running;
            slot.charged_this_turn = false;
            slot.counters.funded_turns += u64::from(!slack);
            slot.counters.slack_turns += u64::from(slack);
        }
        self.funded_turns_total += u64::from(!slack);
        Some(Turn { tenant, budget_cycles, slack })
    }

    /// Charges cycles that were spent for a tenant, in its turn or not, and issues the same to the
    /// tenants with work by weight, as far as the clock may move. The system account has no credit
    /// and issues nothing.
    #[inline]
    pub fn charge(&mut self, tenant: TenantIndex, cycles: u64, now_cycles: u64) {
        if cycles == 0 || self.slot_mut(tenant).is_none() {
            return;
        }
        self.forget_debts_after_idling(now_cycles);
        let bounds = self.bounds;
        let Some(before) = self.settle(tenant) else { return };
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.credit.spend(cycles, bounds);
            if slot.state == State::Running {
                slot.charged_this_turn = true;
                slot.rounds.spent(cycles);
            }
        }
        match self.ready.place(tenant.0) {
            Place::New | Place::Old | Place::Debt => self.gate(tenant),
            Place::Nowhere => {}
        }
        if self.ready.any_listed() {
            return;
        }
        match self.ready.first_tag() {
            // Served outside of a turn, it takes the clock along as one that is picked does.
            None if before.state == State::Asleep => {
                self.clock.advance_to(before.credit.tag(before.weight));
            }
            None => {}
            Some(ceiling) => {
                if before.state == State::Asleep {
                    self.clock.advance_to(before.credit.tag(before.weight).min(ceiling));
                }
                self.clock.issue(cycles, ceiling);
            }
        }
    }

    /// Ends a turn, after its charges. For a tenant that waits, `has_more_work = false` says that
    /// its work has gone (its rings were stopped); for one without work, `true` wakes it.
    #[inline]
    pub fn done(&mut self, tenant: TenantIndex, has_more_work: bool, now_cycles: u64) {
        let Some(slot) = self.slots.get(tenant.slot()) else { return };
        let weight = slot.weight;
        match slot.state {
            State::Running if !slot.charged_this_turn => {
                self.charge(tenant, EMPTY_TURN_CYCLES, now_cycles);
            }
            State::Running => {}
            State::Waiting if !has_more_work => {
                self.ready.remove(tenant.0);
                self.unpark(tenant);
            }
            State::Asleep if has_more_work => return self.wake(tenant, now_cycles),
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
            self.leave_busy(weight);
        }
    }

    /// A tenant's credit in cycles, debt negative, rounded up; 0 for an unknown index.
    #[must_use]
    pub fn credit_cycles(&self, tenant: TenantIndex) -> i64 {
        self.settled(tenant).map_or(0, |slot| slot.credit.cycles())
    }

    /// Whether a tenant has no credit.
    #[must_use]
    pub fn in_debt(&self, tenant: TenantIndex) -> bool {
        self.settled(tenant).is_some_and(|slot| !slot.credit.is_funded())
    }

    /// Whether somebody with credit waits for a turn. Always false while protection is off: then
    /// nobody has a claim that another's packets could be dropped for.
    #[must_use]
    pub fn any_funded_with_work(&self) -> bool {
        self.protection && self.ready.any_listed()
    }

    /// Whether time spent on a tenant outside of its turns (its received packets) is at another's
    /// expense: it is in debt, and somebody waits who is not, or who owes less by weight and would
    /// get the next turn. An idle core asks nobody to yield; nor does one with protection off.
    #[must_use]
    pub fn must_yield(&self, tenant: TenantIndex) -> bool {
        let Some(slot) = self.settled(tenant).filter(|slot| !slot.credit.is_funded()) else {
            return false;
        };
        let tag = slot.credit.tag(slot.weight);
        let owes_more = || self.ready.first_tag().is_some_and(|first| first < tag);
        self.protection && (self.ready.any_listed() || owes_more())
    }

    /// How a tenant got its turns so far; zeros for an unknown index.
    #[must_use]
    pub fn counters(&self, tenant: TenantIndex) -> TurnCounters {
        let Some(slot) = self.settled(tenant) else { return TurnCounters::default() };
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
        self.settled(tenant).map(|slot| slot.credit.scaled())
    }

    fn slot_mut(&mut self, tenant: TenantIndex) -> Option<&mut Slot> {
        self.slots.get_mut(tenant.slot()).filter(|slot| slot.state != State::Absent)
    }

    /// A copy of a tenant's slot with its credit brought up to date.
    fn settled(&self, tenant: TenantIndex) -> Option<Slot> {
        let mut slot = *self.slots.get(tenant.slot())?;
        slot.credit.settle(slot.weight, self.clock.now(), self.bounds);
        (slot.state != State::Absent).then_some(slot)
    }

    fn settle(&mut self, tenant: TenantIndex) -> Option<Slot> {
        let (now, bounds) = (self.clock.now(), self.bounds);
        let slot = self.slot_mut(tenant)?;
        slot.credit.settle(slot.weight, now, bounds);
        Some(*slot)
    }

    /// Queues a waiting tenant behind those that wait already: at the end of the old list, or among
    /// those in debt.
    fn enqueue_again(&mut self, tenant: TenantIndex) {
        let Some(slot) = self.settle(tenant) else { return };
        if !self.protection || slot.credit.is_funded() {
            self.ready.push_old(tenant.0);
        } else {
            self.park(tenant, slot);
        }
    }

    /// After a charge to a waiting tenant: in debt it moves back, or leaves the lists, so that only
    /// funded ones are ever listed.
    fn gate(&mut self, tenant: TenantIndex) {
        let Some(slot) = self.settle(tenant) else { return };
        if slot.credit.is_funded() || !self.protection {
            return;
        }
        if self.ready.place(tenant.0) == Place::Debt {
            self.ready.set_debt(tenant.0, slot.credit.tag(slot.weight));
        } else {
            self.ready.remove(tenant.0);
            self.park(tenant, slot);
        }
    }

    fn park(&mut self, tenant: TenantIndex, slot: Slot) {
        self.ready.set_debt(tenant.0, slot.credit.tag(slot.weight));
        let turn = self.funded_turns_total;
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.parked_at_turn = Some(turn);
        }
    }

    /// Counts the turns that a tenant watched from debt, if that is where it stood.
    fn unpark(&mut self, tenant: TenantIndex) {
        let turn = self.funded_turns_total;
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            let parked_at_turn = slot.parked_at_turn.take().unwrap_or(turn);
            slot.counters.gated_turns += turn - parked_at_turn;
        }
    }

    fn leave_busy(&mut self, weight: u32) {
        self.clock.leave(weight);
        self.busy_tenants -= 1;
    }

    /// After a horizon in which nothing was charged and nobody had work, everybody starts afresh
    /// with full credit: the idle core has given away more than any debt (floor <= horizon).
    fn forget_debts_after_idling(&mut self, now_cycles: u64) {
        let idle_cycles = now_cycles.saturating_sub(self.busy_until_cycles);
        if self.busy_tenants == 0 && idle_cycles >= self.horizon_cycles {
            self.clock.fill_all(self.bounds);
        }
        self.busy_until_cycles = now_cycles;
    }
}
