//! What is kept of one tenant.

use crate::credit::{Bounds, Credit, VirtualTime};
use crate::verdict::RxRule;

use super::TurnCounters;
use super::rounds::Rounds;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    /// No work.
    Asleep,
    /// Has work and waits for a turn.
    Waiting,
    /// Between `next` and `done`.
    Running,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    pub(super) charged_this_turn: bool,
    /// The turn it is in was given without credit.
    pub(super) in_slack: bool,
    /// In thousandths.
    pub(super) weight: u32,
    pub(super) credit: Credit,
    pub(super) bounds: Bounds,
    pub(super) rounds: Rounds,
    pub(super) rx: RxRule,
    /// While waiting in debt: the count of all funded turns when that began.
    pub(super) parked_at_turn: Option<u64>,
    pub(super) counters: TurnCounters,
}

impl Slot {
    /// A tenant without work, with full credit.
    pub(super) fn new(
        state: State,
        weight: u32,
        now: VirtualTime,
        bounds: Bounds,
        rx: RxRule,
    ) -> Self {
        Self {
            state,
            charged_this_turn: false,
            in_slack: false,
            weight,
            credit: Credit::full(now, bounds),
            bounds,
            rounds: Rounds::default(),
            rx,
            parked_at_turn: None,
            counters: TurnCounters::default(),
        }
    }

    /// Takes in what the clock moved since the last look.
    #[inline]
    pub(super) fn settle(&mut self, now: VirtualTime) {
        self.credit.settle(self.weight, now, self.bounds);
    }

    /// Its credit as it is now.
    #[inline]
    pub(super) fn credit_at(&self, now: VirtualTime) -> Credit {
        let mut credit = self.credit;
        credit.settle(self.weight, now, self.bounds);
        credit
    }

    /// Counts the turns that it watched from debt, if that is where it stood.
    #[inline]
    pub(super) fn unpark(&mut self, funded_turns_total: u64) {
        if let Some(parked_at_turn) = self.parked_at_turn.take() {
            self.counters.gated_turns += funded_turns_total - parked_at_turn;
        }
    }
}
