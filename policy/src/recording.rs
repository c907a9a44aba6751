//! What a running scheduler was told and what it said, and the same put to another.

use std::collections::BTreeMap;

use crate::config::{ConfigError, SchedulerConfig};
use crate::scheduler::{Scheduler, Turn};
use crate::tenant::TenantIndex;

/// One call, with the PMD's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// [`Scheduler::wake`].
    Wake {
        /// Who has work.
        tenant: TenantIndex,
        /// When.
        now_cycles: u64,
    },
    /// What [`Scheduler::next`] answered. That nobody has work is not noted: nothing follows from it.
    Turn {
        /// Who may run, and for how long.
        turn: Turn,
        /// Its credit when the turn began.
        credit_cycles: i64,
        /// When.
        now_cycles: u64,
    },
    /// [`Scheduler::charge`].
    Charge {
        /// Who pays.
        tenant: TenantIndex,
        /// How much.
        cycles: u64,
        /// When.
        now_cycles: u64,
    },
    /// [`Scheduler::done`].
    Done {
        /// Whose turn ends.
        tenant: TenantIndex,
        /// Whether it waits for another.
        has_more_work: bool,
        /// When.
        now_cycles: u64,
    },
    /// [`Scheduler::refill_grant`].
    Grant {
        /// Who is granted.
        tenant: TenantIndex,
        /// How much.
        cycles: i64,
    },
}

/// Why a recording notes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It holds as many events as it was made for.
    Full,
    /// A tenant, a knob or the protection was changed.
    Settings,
}

/// The state of a scheduler at one time, and the calls from then on. Its memory is taken when it is
/// made, so that a PMD may fill it.
#[derive(Clone, Debug)]
pub struct Recording {
    start: Scheduler,
    events: Vec<Event>,
    events_max: usize,
    ended: Option<Ended>,
}

impl Recording {
    /// Room for `events_max` calls on a scheduler for `max_tenants`.
    ///
    /// # Errors
    /// Never with the default knobs that it begins with; those of the scheduler take their place.
    pub fn new(max_tenants: u16, events_max: usize) -> Result<Self, ConfigError> {
        Ok(Self {
            start: Scheduler::new(SchedulerConfig::default(), max_tenants)?,
            events: Vec::with_capacity(events_max),
            events_max,
            ended: None,
        })
    }

    /// What was noted, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The same, to be altered.
    pub fn events_mut(&mut self) -> &mut [Event] {
        &mut self.events
    }

    /// Why nothing more is noted; `None` when it was stopped by the caller, or goes on.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    pub(crate) fn begin(&mut self, scheduler: &Scheduler) -> bool {
        self.events.clear();
        self.ended = None;
        self.start.copy_from(scheduler)
    }

    #[inline]
    pub(crate) fn note(&mut self, event: Event) {
        if self.ended.is_some() {
            return;
        }
        if self.events.len() >= self.events_max {
            self.ended = Some(Ended::Full);
            return;
        }
        self.events.push(event);
    }

    pub(crate) fn end(&mut self, why: Ended) {
        self.ended.get_or_insert(why);
    }

    /// Tells another scheduler the same from the same start on. It chooses the turns itself: what it
    /// is told of a tenant that it did not choose is as if it had come outside of a turn.
    #[must_use]
    pub fn replay(&self) -> Replay {
        let mut scheduler = self.start.clone();
        let mut replay = Replay::default();
        for (at, event) in self.events.iter().enumerate() {
            match *event {
                Event::Wake { tenant, now_cycles } => scheduler.wake(tenant, now_cycles),
                Event::Charge { tenant, cycles, now_cycles } => {
                    *replay.cycles.entry(tenant).or_default() += u128::from(cycles);
                    scheduler.charge(tenant, cycles, now_cycles);
                }
                Event::Done { tenant, has_more_work, now_cycles } => {
                    scheduler.done(tenant, has_more_work, now_cycles);
                }
                Event::Grant { tenant, cycles } => scheduler.refill_grant(tenant, cycles),
                Event::Turn { turn, credit_cycles, now_cycles } => {
                    replay.compare(at, &mut scheduler, turn, credit_cycles, now_cycles);
                }
            }
        }
        replay
    }
}

/// The first turn on which the two disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The event's place, from 0.
    pub event: usize,
    /// The turn that was recorded, and the tenant's credit.
    pub recorded: (Turn, i64),
    /// The turn that the replay gives, and the credit of its tenant.
    pub replayed: Option<(Turn, i64)>,
}

/// How a replay went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Turns that were compared.
    pub turns: u64,
    /// Of those, the ones on which the two disagree in tenant, kind, budget or credit.
    pub differing_turns: u64,
    /// The first of them.
    pub first_difference: Option<Difference>,
    /// What each tenant was charged.
    pub cycles: BTreeMap<TenantIndex, u128>,
    recorded_turns: BTreeMap<TenantIndex, u64>,
    replayed_turns: BTreeMap<TenantIndex, u64>,
}

impl Replay {
    fn compare(
        &mut self,
        event: usize,
        scheduler: &mut Scheduler,
        turn: Turn,
        credit_cycles: i64,
        now_cycles: u64,
    ) {
        self.turns += 1;
        let recorded = (turn, credit_cycles);
        let chosen = scheduler.next(now_cycles);
        let replayed = chosen.map(|turn| (turn, scheduler.credit_cycles(turn.tenant)));
        *self.recorded_turns.entry(turn.tenant).or_default() += 1;
        if let Some(chosen) = chosen {
            *self.replayed_turns.entry(chosen.tenant).or_default() += 1;
            if chosen.tenant != turn.tenant {
                // Nobody says that its turn is over; it has work as before.
                scheduler.done(chosen.tenant, true, now_cycles);
            }
        }
        if replayed != Some(recorded) {
            self.differing_turns += 1;
            self.first_difference.get_or_insert(Difference { event, recorded, replayed });
        }
    }

    /// Whether every turn was the same, and so were the credits.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.first_difference.is_none()
    }

    /// A tenant's part of all cycles that were charged, 0 to 1.
    #[must_use]
    pub fn share(&self, tenant: TenantIndex) -> f64 {
        let all: u128 = self.cycles.values().sum();
        self.cycles.get(&tenant).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }

    /// The largest difference, over all tenants, between the part of the turns that was recorded and
    /// the part that the replay gives; 0 to 1.
    #[must_use]
    pub fn turn_share_difference(&self) -> f64 {
        let part = |turns: &BTreeMap<TenantIndex, u64>, tenant| {
            turns.get(tenant).copied().unwrap_or(0) as f64 / self.turns.max(1) as f64
        };
        let tenants = self.recorded_turns.keys().chain(self.replayed_turns.keys());
        let differences = tenants.map(|tenant| {
            (part(&self.recorded_turns, tenant) - part(&self.replayed_turns, tenant)).abs()
        });
        differences.fold(0.0, f64::max)
    }
}
