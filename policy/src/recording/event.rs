//! One call on a scheduler, and how it is written down:
//!
//! ```text
//! 120 wake 3
//! 130 turn 3 budget 5000 funded credit 20000
//! 850 charge 3 720
//! 850 done 3 empty
//! 900 rest
//! grant 3 2000
//! ```
//!
//! First the PMD's clock, then the call and the tenant. `done` says `more` or `empty`, a turn `funded`
//! or `slack`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::scheduler::Turn;
use crate::tenant::TenantIndex;

/// One call, with the PMD's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Event {
    /// [`Scheduler::wake`](crate::Scheduler::wake).
    Wake {
        /// Who has work.
        tenant: TenantIndex,
        /// When.
        now_cycles: u64,
    },
    /// What [`Scheduler::next`](crate::Scheduler::next) answered.
    Turn {
        /// Who may run, and for how long.
        turn: Turn,
        /// Its credit when the turn began.
        credit_cycles: i64,
        /// When.
        now_cycles: u64,
    },
    /// The same: nobody has work, for the first time since somebody was left in debt. The other times
    /// are not noted: nothing follows from them.
    Rest {
        /// When.
        now_cycles: u64,
    },
    /// [`Scheduler::charge`](crate::Scheduler::charge).
    Charge {
        /// Who pays.
        tenant: TenantIndex,
        /// How much.
        cycles: u64,
        /// When.
        now_cycles: u64,
    },
    /// [`Scheduler::done`](crate::Scheduler::done).
    Done {
        /// Whose turn ends.
        tenant: TenantIndex,
        /// Whether it waits for another.
        has_more_work: bool,
        /// When.
        now_cycles: u64,
    },
    /// [`Scheduler::refill_grant`](crate::Scheduler::refill_grant).
    Grant {
        /// Who is granted.
        tenant: TenantIndex,
        /// How much.
        cycles: i64,
    },
}

impl Event {
    /// When, unless the call does not depend on it.
    #[must_use]
    pub fn now_cycles(&self) -> Option<u64> {
        match *self {
            Self::Wake { now_cycles, .. }
            | Self::Turn { now_cycles, .. }
            | Self::Rest { now_cycles }
            | Self::Charge { now_cycles, .. }
            | Self::Done { now_cycles, .. } => Some(now_cycles),
            Self::Grant { .. } => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Wake { tenant, now_cycles } => write!(f, "{now_cycles} wake {}", tenant.0),
            Self::Turn { turn, credit_cycles, now_cycles } => {
                let Turn { tenant, budget_cycles, .. } = turn;
                let kind = if turn.slack { "slack" } else { "funded" };
                write!(
                    f,
                    "{now_cycles} turn {} budget {budget_cycles} {kind} credit {credit_cycles}",
                    tenant.0
                )
            }
            Self::Rest { now_cycles } => write!(f, "{now_cycles} rest"),
            Self::Charge { tenant, cycles, now_cycles } => {
                write!(f, "{now_cycles} charge {} {cycles}", tenant.0)
            }
            Self::Done { tenant, has_more_work, now_cycles } => {
                let work = if has_more_work { "more" } else { "empty" };
                write!(f, "{now_cycles} done {} {work}", tenant.0)
            }
            Self::Grant { tenant, cycles } => write!(f, "grant {} {cycles}", tenant.0),
        }
    }
}

/// The text is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no event, such as \"120 wake 3\" or \"850 charge 3 720\"")]
pub struct EventError {
    given: String,
}

impl FromStr for Event {
    type Err = EventError;

    fn from_str(text: &str) -> Result<Self, EventError> {
        // Enough to find it by; the text may be a stranger's.
        parse(text).ok_or_else(|| EventError { given: text.chars().take(64).collect() })
    }
}

impl TryFrom<String> for Event {
    type Error = EventError;

    fn try_from(text: String) -> Result<Self, EventError> {
        text.parse()
    }
}

impl From<Event> for String {
    fn from(event: Event) -> Self {
        event.to_string()
    }
}

fn parse(text: &str) -> Option<Event> {
    let words: Vec<&str> = text.split(' ').take(9).collect();
    let tenant = |text: &str| text.parse().ok().map(TenantIndex);
    let event = match *words.as_slice() {
        ["grant", of, cycles] => Event::Grant { tenant: tenant(of)?, cycles: cycles.parse().ok()? },
        [now, "wake", of] => Event::Wake { tenant: tenant(of)?, now_cycles: now.parse().ok()? },
        [now, "rest"] => Event::Rest { now_cycles: now.parse().ok()? },
        [now, "charge", of, cycles] => {
            let cycles = cycles.parse().ok()?;
            Event::Charge { tenant: tenant(of)?, cycles, now_cycles: now.parse().ok()? }
        }
        [now, "done", of, work @ ("more" | "empty")] => {
            let has_more_work = work == "more";
            Event::Done { tenant: tenant(of)?, has_more_work, now_cycles: now.parse().ok()? }
        }
        [now, "turn", of, "budget", budget, kind @ ("slack" | "funded"), "credit", credit] => {
            let (tenant, budget_cycles) = (tenant(of)?, budget.parse().ok()?);
            let turn = Turn { tenant, budget_cycles, slack: kind == "slack" };
            let (credit_cycles, now_cycles) = (credit.parse().ok()?, now.parse().ok()?);
            Event::Turn { turn, credit_cycles, now_cycles }
        }
        _ => return None,
    };
    Some(event)
}
