//! All of a scheduler that its next turns follow from, as numbers and texts that can be written
//! down and read again. What is read is a stranger's: nothing is taken on that a scheduler could not
//! be in. Counters and the rules for received packets are left out; no turn follows from them.

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, KnobRange, Refill, SchedulerConfig};
use crate::credit::{Bounds, Credit, VirtualTime};
use crate::limits::{CREDIT_CYCLES_MAX, RECORDED_COUNT_MAX};
use crate::tenant::{TenantError, TenantIndex};
use crate::weight::{Weight, WeightError};

use super::Scheduler;
use super::ready::{Moment, Place};
use super::rounds::Rounds;
use super::slot::{Slot, State};

/// A scheduler at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SchedulerState {
    max_tenants: u16,
    protection: bool,
    quantum_cycles: u64,
    cap_cycles: u64,
    floor_cycles: u64,
    horizon_cycles: u64,
    /// With a coordinator: its period in cycles and its boost in thousandths.
    coordinator: Option<(u64, u32)>,
    virtual_time: VirtualTime,
    /// Where that goes when nobody has work.
    furthest_tag: VirtualTime,
    /// Scaled cycles that are part of the next issue.
    remainder: u64,
    busy_until_cycles: u64,
    parked_total: u64,
    /// Tenants that had joined the old list.
    joined_total: u64,
    /// Who waits there, first to last.
    new_list: Vec<u16>,
    /// The same, and how many had joined the list before.
    old_list: Vec<(u16, u64)>,
    /// Who waits in debt, and in what order they will be served.
    debt: Vec<(u16, VirtualTime)>,
    tenants: Vec<TenantState>,
}

/// A tenant at that time. It waits if it stands in a list, and sleeps if it neither does nor runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantState {
    tenant: u16,
    weight_thousandths: u32,
    cap_cycles: u64,
    floor_cycles: u64,
    /// With 32 fraction bits.
    credit_scaled: i64,
    settled_at: VirtualTime,
    running: Option<RunningState>,
    /// How many had joined the old list when it ran out of work.
    emptied_at: Option<u64>,
    used_cycles: u64,
    later: Option<(u64, u64)>,
}

/// The turn that a tenant is in.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunningState {
    charged: bool,
    slack: bool,
}

/// No scheduler can be in the state that was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// A knob or a count.
    #[error(transparent)]
    Knob(#[from] ConfigError),
    /// A tenant that is none.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// A tenant's weight.
    #[error("tenant {0}: {1}")]
    Weight(u16, WeightError),
    /// One of a tenant's numbers.
    #[error("tenant {0}: {1}")]
    OfTenant(u16, ConfigError),
    /// A credit beyond the tenant's cap or floor.
    #[error("tenant {0}: credit_scaled is {1}; it must be between the floor and the cap")]
    Credit(u16, i64),
    /// A virtual time that cannot have come.
    #[error("{0} is later than a clock can be")]
    Late(&'static str),
    /// A list names somebody who does not exist, runs, or stands in a list already.
    #[error("tenant {0} cannot wait in {1}: it does not exist, has the turn, or waits already")]
    Listed(u16, &'static str),
    /// Only one can have the turn.
    #[error("tenants {0} and {1} both have the turn")]
    TwoTurns(u16, u16),
}

impl Scheduler {
    /// What is to be written down.
    pub(crate) fn state(&self) -> SchedulerState {
        // Whole, so that what a scheduler gets anew is not forgotten here.
        let Self {
            config,
            protection,
            clock,
            slots,
            slots_end: _,
            ready,
            busy_tenants: _,
            busy_until_cycles,
            funded_turns_total: _,
            parked_total,
            spare_links: _,
            recording: _,
        } = self;
        let (virtual_time, furthest_tag, remainder) = clock.parts();
        let coordinator = match config.refill {
            Refill::Local => None,
            Refill::Coordinator { period_cycles, boost_thousandths } => {
                Some((period_cycles, boost_thousandths))
            }
        };
        let present = (0..).zip(slots).filter(|(_, slot)| slot.state != State::Absent);
        let tenants = present.map(|(tenant, slot)| slot.written(tenant));
        SchedulerState {
            max_tenants: slots.len() as u16,
            protection: *protection,
            quantum_cycles: config.quantum_cycles,
            cap_cycles: config.cap_cycles,
            floor_cycles: config.floor_cycles,
            horizon_cycles: config.horizon_cycles,
            coordinator,
            virtual_time,
            furthest_tag,
            remainder,
            busy_until_cycles: *busy_until_cycles,
            parked_total: *parked_total,
            joined_total: ready.now().0,
            new_list: ready.new_list().collect(),
            old_list: ready.old_list().map(|(tenant, Moment(count))| (tenant, count)).collect(),
            debt: ready.in_debt(),
            tenants: tenants.collect(),
        }
    }
}

impl Slot {
    fn written(&self, tenant: u16) -> TenantState {
        let Self {
            state,
            charged_this_turn,
            in_slack,
            weight,
            credit,
            bounds,
            rounds,
            rx: _,
            parked_at_turn: _,
            counters: _,
        } = self;
        let (cap_cycles, floor_cycles) = bounds.cycles();
        let (credit_scaled, settled_at) = credit.parts();
        let (emptied, used_cycles, later) = rounds.parts();
        let running = RunningState { charged: *charged_this_turn, slack: *in_slack };
        TenantState {
            tenant,
            weight_thousandths: *weight,
            cap_cycles,
            floor_cycles,
            credit_scaled,
            settled_at,
            running: (*state == State::Running).then_some(running),
            emptied_at: emptied.map(|Moment(count)| count),
            used_cycles,
            later: later.map(|(Moment(count), cycles)| (count, cycles)),
        }
    }
}

impl SchedulerState {
    fn config(&self) -> SchedulerConfig {
        SchedulerConfig {
            quantum_cycles: self.quantum_cycles,
            cap_cycles: self.cap_cycles,
            floor_cycles: self.floor_cycles,
            horizon_cycles: self.horizon_cycles,
            refill: match self.coordinator {
                None => Refill::Local,
                Some((period_cycles, boost_thousandths)) => {
                    Refill::Coordinator { period_cycles, boost_thousandths }
                }
            },
        }
    }

    /// The scheduler that was in this state.
    pub(crate) fn scheduler(&self) -> Result<Scheduler, StateError> {
        let mut scheduler = Scheduler::new(self.config(), self.max_tenants)?;
        scheduler.protection = self.protection;
        check_count("parked_total", self.parked_total)?;
        check_count("joined_total", self.joined_total)?;
        let times = [("virtual_time", self.virtual_time), ("furthest_tag", self.furthest_tag)];
        if let Some((name, _)) = times.iter().find(|(_, time)| !time.is_plausible()) {
            return Err(StateError::Late(name));
        }
        scheduler.clock.resume(self.virtual_time, self.furthest_tag, self.remainder);
        scheduler.busy_until_cycles = self.busy_until_cycles;
        scheduler.parked_total = self.parked_total;
        let mut running = None;
        for tenant in &self.tenants {
            tenant.restore(&mut scheduler, self.virtual_time, self.joined_total)?;
            if tenant.running.is_some()
                && let Some(other) = running.replace(tenant.tenant)
            {
                return Err(StateError::TwoTurns(other, tenant.tenant));
            }
        }
        self.restore_lists(&mut scheduler)?;
        Ok(scheduler)
    }

    fn restore_lists(&self, scheduler: &mut Scheduler) -> Result<(), StateError> {
        for tenant in &self.new_list {
            scheduler.restore_waiting(*tenant, "new_list")?;
            scheduler.ready.push_new(*tenant);
        }
        for (tenant, joined) in &self.old_list {
            check_up_to("old_list", *joined, self.joined_total)?;
            scheduler.restore_waiting(*tenant, "old_list")?;
            scheduler.ready.resume(Moment(*joined));
            scheduler.ready.push_old(*tenant);
        }
        scheduler.ready.resume(Moment(self.joined_total));
        for (tenant, tag) in &self.debt {
            if !tag.is_plausible() {
                return Err(StateError::Late("debt"));
            }
            scheduler.restore_waiting(*tenant, "debt")?;
            scheduler.ready.set_debt(*tenant, *tag);
        }
        Ok(())
    }
}

impl TenantState {
    fn restore(
        &self,
        scheduler: &mut Scheduler,
        now: VirtualTime,
        joined_total: u64,
    ) -> Result<(), StateError> {
        let of = |source| StateError::OfTenant(self.tenant, source);
        let weight = Weight::from_thousandths(self.weight_thousandths);
        let weight = weight.map_err(|source| StateError::Weight(self.tenant, source))?;
        let config = *scheduler.config();
        config.cap_range().check("cap_cycles", self.cap_cycles).map_err(of)?;
        let floor = config.floor_range(CREDIT_CYCLES_MAX);
        floor.check("floor_cycles", self.floor_cycles).map_err(of)?;
        let bounds = Bounds::new(self.cap_cycles, self.floor_cycles);
        let credit = Credit::from_parts(self.credit_scaled, self.settled_at);
        if !credit.is_within(bounds) {
            return Err(StateError::Credit(self.tenant, self.credit_scaled));
        }
        if self.settled_at > now {
            return Err(StateError::Late("settled_at"));
        }
        let later = self.later.map(|(count, cycles)| (Moment(count), cycles));
        for moment in self.emptied_at.iter().chain(self.later.iter().map(|(count, _)| count)) {
            check_up_to("emptied_at, later", *moment, joined_total).map_err(of)?;
        }
        scheduler.tenant_add(TenantIndex(self.tenant), weight)?;
        let Some(slot) = scheduler.slots.get_mut(usize::from(self.tenant)) else { return Ok(()) };
        (slot.bounds, slot.credit) = (bounds, credit);
        slot.rounds = Rounds::from_parts(self.emptied_at.map(Moment), self.used_cycles, later);
        if let Some(RunningState { charged, slack }) = self.running {
            slot.state = State::Running;
            (slot.charged_this_turn, slot.in_slack) = (charged, slack);
            scheduler.clock.join(weight.thousandths());
            scheduler.busy_tenants += 1;
        }
        Ok(())
    }
}

impl Scheduler {
    /// A tenant is to be put in a list.
    fn restore_waiting(&mut self, tenant: u16, list: &'static str) -> Result<(), StateError> {
        let refused = StateError::Listed(tenant, list);
        let nowhere = self.ready.place(tenant) == Place::Nowhere;
        let Some(slot) = self.slots.get_mut(usize::from(tenant)) else { return Err(refused) };
        if slot.state != State::Asleep || !nowhere {
            return Err(refused);
        }
        slot.state = State::Waiting;
        let weight = slot.weight;
        self.clock.join(weight);
        self.busy_tenants += 1;
        Ok(())
    }
}

/// A count that goes on from here must not run over.
fn check_count(name: &'static str, given: u64) -> Result<(), ConfigError> {
    check_up_to(name, given, RECORDED_COUNT_MAX)
}

fn check_up_to(name: &'static str, given: u64, most: u64) -> Result<(), ConfigError> {
    KnobRange::new(0, most).check(name, given)
}
