//! Whose turn it is on one PMD.

mod ready;

use crate::config::{ConfigError, SchedulerConfig};
use crate::credit::{Bounds, Credit, VirtualClock};
use crate::heap::SlotHeap;
use crate::limits::{EMPTY_TURN_CYCLES, RESTING_LOOKS_PER_CHARGE, TENANTS_MAX};
use crate::list::{Links, List};
use crate::tenant::{TenantError, TenantIndex};
use crate::weight::Weight;
use ready::{Moment, Pick, Place, Ready};

/// One task: up to `budget_cycles` for `tenant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who may run.
    pub tenant: TenantIndex,
    /// When to stop, in cycles of the task; the packet that crosses it is finished and the excess
    /// is debt. `u64::MAX` while protection is off.
    pub budget_cycles: u64,
    /// Nobody with work was funded, so this one runs in time that nobody else has a claim to.
    pub slack: bool,
}

/// How a tenant got and did not get its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounters {
    /// Turns taken with credit, and all turns taken while protection was off.
    pub funded_turns: u64,
    /// Turns taken in debt because nobody with work was funded.
    pub slack_turns: u64,
    /// Funded turns of others that passed while this one had work and stood in debt.
    pub gated_turns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// No work, and not part of the clock: its credit is full or it was quiet for the horizon.
    Asleep,
    /// No work at the moment, but its weight still shares in what the clock issues.
    Resting,
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
    emptied: Option<Moment>,
    quiet_since_cycles: u64,
    charged_this_turn: bool,
    /// While parked in debt: the count of all funded turns when that began.
    parked_at_turn: Option<u64>,
    counters: TurnCounters,
}

/// Credits and turns of the tenants of one PMD.
///
/// Every call takes the PMD's clock reading in cycles, which must not go back. `charge`, `wake`,
/// `next` and `done` cost O(log n) in the n tenants that have work, whatever the number that has
/// none; they allocate nothing. An index that was not added is ignored by them.
#[derive(Clone, Debug)]
pub struct Scheduler {
    quantum_cycles: u64,
    horizon_cycles: u64,
    bounds: Bounds,
    protection: bool,
    clock: VirtualClock,
    slots: Box<[Slot]>,
    ready: Ready,
    /// Tenants with work (waiting or running), by the virtual time at which they reach the cap.
    full: SlotHeap,
    resting: List,
    resting_links: Links,
    funded_turns_total: u64,
    busy_until_cycles: u64,
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
        let clock = VirtualClock::new(bounds);
        let absent = Slot {
            state: State::Absent,
            weight: 0,
            credit: Credit::full(clock.now(), bounds),
            emptied: None,
            quiet_since_cycles: 0,
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
            full: SlotHeap::new(slots),
            resting: List::EMPTY,
            resting_links: Links::new(slots),
            funded_turns_total: 0,
            busy_until_cycles: 0,
        })
    }

    /// Adds a tenant: asleep, with full credit.
    ///
    /// # Errors
    /// When the index is the system's, outside the table, or in use.
    pub fn tenant_add(&mut self, tenant: TenantIndex, weight: Weight) -> Result<(), TenantError> {
        let tenants = self.slots.len() as u16;
        let (now, bounds) = (self.clock.now(), self.bounds);
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
        slot.state = State::Asleep;
        slot.weight = weight.thousandths();
        slot.credit = Credit::full(now, bounds);
        slot.emptied = None;
        slot.counters = TurnCounters::default();
        Ok(())
    }

    /// Removes a tenant, wherever it stands; a turn it may have begun needs no `done`.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn tenant_remove(&mut self, tenant: TenantIndex) -> Result<(), TenantError> {
        let slot = self.known(tenant).ok_or(TenantError::Unknown(tenant.0))?;
        match slot.state {
            State::Resting => self.resting_links.remove(&mut self.resting, tenant.0),
            State::Waiting | State::Running => {
                self.ready.remove(tenant.0);
                self.full.remove(tenant.0);
            }
            State::Asleep | State::Absent => {}
        }
        if slot.state != State::Asleep {
            self.clock.leave(slot.weight);
        }
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.state = State::Absent;
        }
        Ok(())
    }

    /// Changes a tenant's weight from now on; its credit and its place stay.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn set_weight(&mut self, tenant: TenantIndex, weight: Weight) -> Result<(), TenantError> {
        let slot = self.settle(tenant).ok_or(TenantError::Unknown(tenant.0))?;
        if slot.state != State::Asleep {
            self.clock.leave(slot.weight);
            self.clock.join(weight.thousandths());
        }
        let slot = Slot { weight: weight.thousandths(), ..slot };
        if let Some(kept) = self.slots.get_mut(tenant.slot()) {
            *kept = slot;
        }
        self.reorder(tenant, slot);
        Ok(())
    }

    /// Switches the gate on or off on a running switch. Off is plain round robin among tenants with
    /// work; charges and credits are kept either way.
    pub fn set_protection(&mut self, on: bool) {
        if self.protection == on {
            return;
        }
        self.protection = on;
        // Whoever has work does not rest, so those links are free to hold the order meanwhile.
        let mut order = List::EMPTY;
        while let Some(index) = self.ready.pop_any() {
            self.unpark(TenantIndex(index));
            self.resting_links.push_back(&mut order, index);
        }
        while let Some(index) = self.resting_links.pop_front(&mut order) {
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
        let Some(slot) = self.slots.get(tenant.slot()) else { return };
        match slot.state {
            State::Waiting | State::Running | State::Absent => return,
            State::Resting => self.resting_links.remove(&mut self.resting, tenant.0),
            State::Asleep => self.clock.join(slot.weight),
        }
        self.forget_debts_after_idling(now_cycles);
        let Some(slot) = self.settle(tenant) else { return };
        self.set_state(tenant, State::Waiting);
        self.full.set(tenant.0, slot.credit.full_at(slot.weight, self.bounds));
        let waited_for = slot.emptied.is_some_and(|moment| self.ready.waits_since(moment));
        if self.protection && slot.credit.is_funded() && !waited_for {
            self.ready.push_new(tenant.0);
        } else {
            self.enqueue_again(tenant);
        }
    }

    /// The next turn; `None` only when nobody has work. Every turn is ended by `done`.
    #[inline]
    pub fn next(&mut self, _now_cycles: u64) -> Option<Turn> {
        if !self.protection {
            let index = self.ready.pick_in_order()?;
            return Some(self.begin(TenantIndex(index), u64::MAX, false));
        }
        Some(match self.ready.pick(self.clock.now())? {
            Pick::Funded(index) => self.begin(TenantIndex(index), self.quantum_cycles, false),
            Pick::Slack(index, funded_at) => {
                // Start-time fair queueing: the clock follows whoever is served. Nobody with work
                // has a claim to this time, so running in it must not leave debt behind.
                self.clock.advance_to(funded_at);
                self.begin(TenantIndex(index), self.quantum_cycles, true)
            }
        })
    }

    fn begin(&mut self, tenant: TenantIndex, budget_cycles: u64, slack: bool) -> Turn {
        self.unpark(tenant);
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.state = State::Running;
            slot.charged_this_turn = false;
            let turns = &mut slot.counters;
            let taken = if slack { &mut turns.slack_turns } else { &mut turns.funded_turns };
            *taken += 1;
        }
        self.funded_turns_total += u64::from(!slack);
        Turn { tenant, budget_cycles, slack }
    }

    /// Charges cycles that were spent for a tenant, in its turn or not, and issues the same to the
    /// active tenants by weight. The system account has no credit and issues nothing.
    #[inline]
    pub fn charge(&mut self, tenant: TenantIndex, cycles: u64, now_cycles: u64) {
        let Some(slot) = self.known(tenant) else { return };
        if cycles == 0 {
            return;
        }
        self.forget_debts_after_idling(now_cycles);
        self.spend(tenant, cycles);
        match slot.state {
            State::Asleep => {
                self.clock.join(slot.weight);
                self.rest(tenant, now_cycles);
            }
            State::Resting => self.set_quiet_since(tenant, now_cycles),
            State::Waiting | State::Running | State::Absent => {}
        }
        self.clock.issue(cycles, self.full.first().map(|(full_at, _)| full_at));
        self.gate(tenant);
        self.drop_quiet_tenants(now_cycles);
    }

    /// Ends a turn, after its charges. For a tenant that waits, `has_more_work = false` says that
    /// its work has gone (its rings were stopped); for one without work, `true` wakes it.
    #[inline]
    pub fn done(&mut self, tenant: TenantIndex, has_more_work: bool, now_cycles: u64) {
        let Some(slot) = self.known(tenant) else { return };
        match slot.state {
            State::Running if !slot.charged_this_turn => {
                self.charge(tenant, EMPTY_TURN_CYCLES, now_cycles);
            }
            State::Running => {}
            State::Waiting if !has_more_work => {
                self.unpark(tenant);
                self.ready.remove(tenant.0);
            }
            State::Asleep | State::Resting if has_more_work => {
                return self.wake(tenant, now_cycles);
            }
            State::Waiting | State::Asleep | State::Resting | State::Absent => return,
        }
        self.busy_until_cycles = now_cycles;
        if has_more_work {
            self.set_state(tenant, State::Waiting);
            self.enqueue_again(tenant);
        } else {
            self.full.remove(tenant.0);
            let moment = self.ready.moment(self.clock.now());
            if let Some(slot) = self.slots.get_mut(tenant.slot()) {
                slot.emptied = Some(moment);
            }
            self.rest(tenant, now_cycles);
        }
    }

    /// A tenant's credit in cycles, debt negative, rounded up; 0 for an unknown index.
    #[must_use]
    pub fn credit_cycles(&self, tenant: TenantIndex) -> i64 {
        self.settled(tenant).map_or(0, |slot| slot.credit.cycles())
    }

    /// Whether a tenant has no credit: what decides, together with
    /// [`any_funded_with_work`](Self::any_funded_with_work), if its received packets are dropped.
    #[must_use]
    pub fn in_debt(&self, tenant: TenantIndex) -> bool {
        self.settled(tenant).is_some_and(|slot| !slot.credit.is_funded())
    }

    /// Whether somebody with credit waits for a turn. Always false while protection is off: then
    /// nobody has a claim that another's packets could be dropped for.
    #[must_use]
    pub fn any_funded_with_work(&self) -> bool {
        self.protection && self.ready.any_funded(self.clock.now())
    }

    /// How a tenant got its turns so far; zeros for an unknown index.
    #[must_use]
    pub fn counters(&self, tenant: TenantIndex) -> TurnCounters {
        let Some(slot) = self.known(tenant) else { return TurnCounters::default() };
        let watching = slot.parked_at_turn.map_or(0, |turn| self.funded_turns_total - turn);
        let gated_turns = slot.counters.gated_turns + watching;
        TurnCounters { gated_turns, ..slot.counters }
    }

    fn known(&self, tenant: TenantIndex) -> Option<Slot> {
        self.slots.get(tenant.slot()).filter(|slot| slot.state != State::Absent).copied()
    }

    fn settled(&self, tenant: TenantIndex) -> Option<Slot> {
        let mut slot = self.known(tenant)?;
        slot.credit.settle(slot.weight, self.clock.now(), self.bounds);
        Some(slot)
    }

    fn settle(&mut self, tenant: TenantIndex) -> Option<Slot> {
        let slot = self.slots.get_mut(tenant.slot())?;
        if slot.state == State::Absent {
            return None;
        }
        slot.credit.settle(slot.weight, self.clock.now(), self.bounds);
        Some(*slot)
    }

    /// Takes cycles off a tenant's credit and moves it in the heaps; what they are ordered by does
    /// not change when the clock moves.
    fn spend(&mut self, tenant: TenantIndex, cycles: u64) {
        let Some(slot) = self.slots.get_mut(tenant.slot()) else { return };
        slot.credit.settle(slot.weight, self.clock.now(), self.bounds);
        slot.credit.spend(cycles, self.bounds);
        slot.charged_this_turn = true;
        let slot = *slot;
        self.reorder(tenant, slot);
    }

    fn reorder(&mut self, tenant: TenantIndex, slot: Slot) {
        if matches!(slot.state, State::Waiting | State::Running) {
            self.full.set(tenant.0, slot.credit.full_at(slot.weight, self.bounds));
        }
        if self.ready.place(tenant.0) == Place::Debt {
            self.ready.set_debt(tenant.0, slot.credit.funded_at(slot.weight));
        }
    }

    /// After a charge was issued: a listed tenant that it left without credit goes to the others in
    /// debt, so that only funded ones are ever listed.
    fn gate(&mut self, tenant: TenantIndex) {
        let Some(slot) = self.settle(tenant) else { return };
        if self.full.len() == 0 {
            // Nobody has work, so nobody has a claim to this time: as with a slack turn.
            self.clock.advance_to(slot.credit.funded_at(slot.weight));
            return;
        }
        let listed = matches!(self.ready.place(tenant.0), Place::New | Place::Old);
        if listed && self.protection && !slot.credit.is_funded() {
            self.ready.remove(tenant.0);
            self.park(tenant, slot);
        }
    }

    /// Queues a waiting tenant behind those that wait already: at the end of the old list, or among
    /// those in debt.
    fn enqueue_again(&mut self, tenant: TenantIndex) {
        let Some(slot) = self.settle(tenant) else { return };
        if !self.protection || slot.credit.is_funded() {
            self.ready.push_old(tenant.0, self.clock.now());
        } else {
            self.park(tenant, slot);
        }
    }

    fn park(&mut self, tenant: TenantIndex, slot: Slot) {
        self.ready.set_debt(tenant.0, slot.credit.funded_at(slot.weight));
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.parked_at_turn = Some(self.funded_turns_total);
        }
    }

    /// Counts the turns that a tenant watched from debt, if that is where it stood.
    fn unpark(&mut self, tenant: TenantIndex) {
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.counters.gated_turns += slot
                .parked_at_turn
                .take()
                .map_or(0, |parked_at_turn| self.funded_turns_total - parked_at_turn);
        }
    }

    fn set_state(&mut self, tenant: TenantIndex, state: State) {
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.state = state;
        }
    }

    fn set_quiet_since(&mut self, tenant: TenantIndex, now_cycles: u64) {
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.quiet_since_cycles = now_cycles;
        }
    }

    /// A tenant that counts as active has no work now.
    fn rest(&mut self, tenant: TenantIndex, now_cycles: u64) {
        self.set_state(tenant, State::Resting);
        self.set_quiet_since(tenant, now_cycles);
        self.resting_links.push_back(&mut self.resting, tenant.0);
    }

    /// Looks at a few tenants without work and takes those out of the clock that have been quiet
    /// for the horizon or are full: what they are issued would be lost to the others.
    fn drop_quiet_tenants(&mut self, now_cycles: u64) {
        for _ in 0..RESTING_LOOKS_PER_CHARGE {
            let Some(index) = self.resting_links.pop_front(&mut self.resting) else { return };
            let Some(slot) = self.settle(TenantIndex(index)) else { continue };
            let quiet_cycles = now_cycles.saturating_sub(slot.quiet_since_cycles);
            if slot.credit.is_full(self.bounds) || quiet_cycles >= self.horizon_cycles {
                self.clock.leave(slot.weight);
                self.set_state(TenantIndex(index), State::Asleep);
            } else {
                self.resting_links.push_back(&mut self.resting, index);
            }
        }
    }

    /// After a horizon in which nothing was charged and nobody had work, everybody starts afresh
    /// with full credit: the idle core has given away more than any debt (floor <= horizon).
    fn forget_debts_after_idling(&mut self, now_cycles: u64) {
        let idle_cycles = now_cycles.saturating_sub(self.busy_until_cycles);
        if self.full.len() == 0 && idle_cycles >= self.horizon_cycles {
            self.clock.fill_all();
        }
        self.busy_until_cycles = now_cycles;
    }
}
