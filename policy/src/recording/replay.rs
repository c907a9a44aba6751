//! What was recorded, put to another scheduler.

use std::collections::BTreeMap;

use crate::limits::DIFFERENCES_KEPT;
use crate::scheduler::{Scheduler, Turn};
use crate::tenant::TenantIndex;

use super::{Event, Recording};

impl Recording {
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
                    replay.turns += 1;
                    replay.slack_turns += u64::from(turn.slack);
                    *replay.recorded_turns.entry(turn.tenant).or_default() += 1;
                    replay.compare(at, &mut scheduler, Some((turn, credit_cycles)), now_cycles);
                }
                Event::Rest { now_cycles } => {
                    replay.compare(at, &mut scheduler, None, now_cycles);
                }
            }
        }
        replay
    }
}

/// A turn on which the two disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The event's place, from 0.
    pub event: usize,
    /// The turn that was recorded, and the tenant's credit; `None` if nobody had work.
    pub recorded: Option<(Turn, i64)>,
    /// The same of the replay.
    pub replayed: Option<(Turn, i64)>,
}

/// How a replay went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Turns that were compared.
    pub turns: u64,
    /// Of those, the ones that were given without credit.
    pub slack_turns: u64,
    /// Answers, with those that nobody has work, on which the two disagree: in tenant, kind, budget or
    /// credit.
    pub differing_turns: u64,
    /// The first of them. Later ones may only follow from the first.
    pub differences: Vec<Difference>,
    /// What each tenant was charged.
    pub cycles: BTreeMap<TenantIndex, u128>,
    /// Turns of each tenant, as recorded.
    pub recorded_turns: BTreeMap<TenantIndex, u64>,
    /// Turns of each tenant, as replayed.
    pub replayed_turns: BTreeMap<TenantIndex, u64>,
}

impl Replay {
    fn compare(
        &mut self,
        event: usize,
        scheduler: &mut Scheduler,
        recorded: Option<(Turn, i64)>,
        now_cycles: u64,
    ) {
        let chosen = scheduler.next(now_cycles);
        let replayed = chosen.map(|turn| (turn, scheduler.credit_cycles(turn.tenant)));
        if let Some(chosen) = chosen {
            *self.replayed_turns.entry(chosen.tenant).or_default() += 1;
            if recorded.is_none_or(|(turn, _)| turn.tenant != chosen.tenant) {
                // Nobody says that its turn is over; it has work as before.
                scheduler.done(chosen.tenant, true, now_cycles);
            }
        }
        if replayed != recorded {
            self.differing_turns += 1;
            if self.differences.len() < DIFFERENCES_KEPT {
                self.differences.push(Difference { event, recorded, replayed });
            }
        }
    }

    /// Whether every turn was the same, and so were the credits.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.differing_turns == 0
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
