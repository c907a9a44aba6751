//! Whose turn it is on one PMD.

mod calls;
mod charges;
mod claims;
mod ready;
mod rounds;
mod slot;
mod state;
mod turns;

use crate::config::{ConfigError, Refill, SchedulerConfig};
use crate::credit::{Bounds, VirtualClock};
use crate::knobs::TenantKnobs;
use crate::limits::TENANTS_MAX;
use crate::list::{Links, List};
use crate::recording::Recording;
use crate::tenant::{TenantError, TenantIndex};
use crate::verdict::{RxOverrun, RxRule};
use crate::weight::Weight;
use ready::{Place, Ready};
use slot::{Slot, State};
pub(crate) use state::SchedulerState;
pub use state::StateError;

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

/// Credits and turns of the tenants of one PMD.
///
/// Every call takes the PMD's clock reading in cycles, which must not go back. `charge`, `wake`,
/// `next`, `done` and `refill_grant` take at most O(log n) steps in the n tenants that wait in debt,
/// whatever the number of others; they allocate nothing. An index that was not added is ignored by
/// them.
///
/// With [`Refill::Local`], the virtual clock moves only while no funded tenant waits, and never past
/// the least indebted one that does. So whoever has more work than its share has no credit, and
/// stands behind all that have less.
///
/// With [`Refill::Coordinator`] the clock stands still and credit comes by
/// [`refill_grant`](Self::refill_grant). Funded tenants take turns round robin; when none has work,
/// those without credit do, and what they use then is not charged to their credit.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    protection: bool,
    clock: VirtualClock,
    slots: Box<[Slot]>,
    /// Slots from this one on were never used.
    slots_end: u16,
    ready: Ready,
    busy_tenants: u16,
    busy_until_cycles: u64,
    funded_turns_total: u64,
    /// Turns that were waited for without credit, for their order under a coordinator.
    parked_total: u64,
    /// For reordering all that wait, without an allocation.
    spare_links: Links,
    /// What is said from here on is noted in this one.
    recording: Option<Box<Recording>>,
}

impl Scheduler {
    /// A scheduler with protection on, for tenant indices 1 to `max_tenants - 1`.
    ///
    /// # Errors
    /// When a knob of `config` is out of range.
    pub fn new(config: SchedulerConfig, max_tenants: u16) -> Result<Self, ConfigError> {
        config.validate()?;
        let slots = max_tenants.clamp(1, TENANTS_MAX);
        let clock = VirtualClock::default();
        let absent = new_slot(&config, &clock, State::Absent, Weight::ONE);
        Ok(Self {
            config,
            protection: true,
            clock,
            slots: vec![absent; usize::from(slots)].into(),
            slots_end: 0,
            ready: Ready::new(slots),
            busy_tenants: 0,
            busy_until_cycles: 0,
            funded_turns_total: 0,
            parked_total: 0,
            spare_links: Links::new(slots),
            recording: None,
        })
    }

    /// Adds a tenant: asleep, with full credit, the scheduler's cap and floor, and
    /// [`RxOverrun::Drop`].
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
        *slot = new_slot(&self.config, &self.clock, State::Asleep, weight);
        self.slots_end = self.slots_end.max(tenant.0 + 1);
        self.settings_changed();
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
        self.settings_changed();
        Ok(())
    }

    /// Changes a tenant's weight from now on. Its credit stays, and its place unless it is in debt:
    /// debt counts by weight.
    ///
    /// # Errors
    /// When there is no such tenant.
    pub fn set_weight(&mut self, tenant: TenantIndex, weight: Weight) -> Result<(), TenantError> {
        let now = self.clock.now();
        let slot = self.slot_mut(tenant).ok_or(TenantError::Unknown(tenant.0))?;
        slot.settle(now);
        let (state, before) = (slot.state, slot.weight);
        slot.weight = weight.thousandths();
        let tag = slot.credit.tag(slot.weight);
        if state == State::Asleep {
            self.clock.owed_at_rest(tag);
        } else {
            self.clock.leave(before);
            self.clock.join(weight.thousandths());
        }
        self.replace_in_debt(tenant);
        self.settings_changed();
        Ok(())
    }

    /// Changes what of a tenant's knobs concerns the scheduler: weight, cap, floor, and the rule for
    /// received packets. Its credit stays as far as it lies between the new cap and floor.
    ///
    /// # Errors
    /// When there is no such tenant, or a knob is out of range; then nothing is changed.
    pub fn set_knobs(
        &mut self,
        tenant: TenantIndex,
        knobs: &TenantKnobs,
    ) -> Result<(), TenantError> {
        knobs.validate(&self.config)?;
        let now = self.clock.now();
        let slot = self.slot_mut(tenant).ok_or(TenantError::Unknown(tenant.0))?;
        slot.settle(now);
        slot.bounds = Bounds::new(knobs.cap_cycles, knobs.floor_cycles);
        slot.credit.confine(slot.bounds);
        let (overrun, mark_depth_cycles) = (knobs.rx_overrun, knobs.mark_depth_cycles);
        slot.rx = RxRule { overrun, mark_depth_cycles };
        self.set_weight(tenant, knobs.weight)
    }

    /// Switches the gate on or off on a running switch. Off is plain round robin among tenants with
    /// work; charges and credits are kept either way.
    pub fn set_protection(&mut self, on: bool) {
        if self.protection == on {
            return;
        }
        self.protection = on;
        self.reorder();
        self.settings_changed();
    }

    /// Puts other knobs in force on a running switch, another refill included. Tenants' credits
    /// stay, and so do the caps and floors that they have: [`set_knobs`](Self::set_knobs) sets those.
    ///
    /// # Errors
    /// When a knob is out of range; then nothing is changed.
    pub fn set_config(&mut self, config: SchedulerConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.config = config;
        // Debts are waited for in another order under a coordinator.
        self.reorder();
        self.settings_changed();
        Ok(())
    }

    /// Queues all that wait anew, by the rules that hold now.
    fn reorder(&mut self) {
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

    /// The knobs in force.
    #[must_use]
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    fn is_local(&self) -> bool {
        self.config.refill == Refill::Local
    }

    fn slot_mut(&mut self, tenant: TenantIndex) -> Option<&mut Slot> {
        self.slots.get_mut(tenant.slot()).filter(|slot| slot.state != State::Absent)
    }

    fn slot(&self, tenant: TenantIndex) -> Option<&Slot> {
        self.slots.get(tenant.slot()).filter(|slot| slot.state != State::Absent)
    }

    /// Renews the place of a tenant that waits in debt, after its weight or credit has changed.
    fn replace_in_debt(&mut self, tenant: TenantIndex) {
        let now = self.clock.now();
        if self.is_local()
            && self.ready.place(tenant.0) == Place::Debt
            && let Some(slot) = self.slot(tenant)
        {
            let tag = slot.credit_at(now).tag(slot.weight);
            self.ready.set_debt(tenant.0, tag);
        }
    }

    fn unpark(&mut self, tenant: TenantIndex) {
        let turns = self.funded_turns_total;
        if let Some(slot) = self.slots.get_mut(tenant.slot()) {
            slot.unpark(turns);
        }
    }

    fn leave_busy(&mut self, weight: u32) {
        self.clock.leave(weight);
        self.busy_tenants -= 1;
    }
}

fn new_slot(config: &SchedulerConfig, clock: &VirtualClock, state: State, weight: Weight) -> Slot {
    let bounds = Bounds::new(config.cap_cycles, config.floor_cycles);
    let rx = RxRule { overrun: RxOverrun::Drop, mark_depth_cycles: 0 };
    Slot::new(state, weight.thousandths(), clock.now(), bounds, rx)
}
