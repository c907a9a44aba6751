//! What a running scheduler was told and what it said, to be put to another.
//!
//! Written down (by `serde`), a recording has the state of the scheduler when it began, one text for
//! each [`Event`], and why it ended. What is read back is checked.

mod event;
mod replay;

use serde::{Deserialize, Serialize, Serializer};

use crate::config::{ConfigError, KnobRange, SchedulerConfig};
use crate::limits::RECORDED_EVENTS_MAX;
use crate::scheduler::{Scheduler, SchedulerState, StateError};
use crate::tenant::TenantIndex;

pub use event::{Event, EventError};
pub use replay::{Difference, Replay};

/// Why a recording notes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It holds as many events as it was made for.
    Full,
    /// A tenant, a knob or the protection was changed.
    Settings,
}

/// The state of a scheduler at one time, and the calls from then on. Its memory is taken when it is
/// made, so that a PMD may fill it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written<Vec<Event>>")]
pub struct Recording {
    start: Scheduler,
    events: Vec<Event>,
    events_max: usize,
    ended: Option<Ended>,
}

/// A recording as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<Events> {
    start: SchedulerState,
    events: Events,
    ended: Option<Ended>,
}

impl Serialize for Recording {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { start, events, ended, .. } = self;
        let events = events.as_slice();
        Written { start: start.state(), events, ended: *ended }.serialize(serializer)
    }
}

impl TryFrom<Written<Vec<Event>>> for Recording {
    type Error = StateError;

    fn try_from(written: Written<Vec<Event>>) -> Result<Self, StateError> {
        let Written { start, events, ended } = written;
        KnobRange::new(0, RECORDED_EVENTS_MAX).check("number of events", events.len() as u64)?;
        Ok(Self { start: start.scheduler()?, events_max: events.len(), events, ended })
    }
}

impl Recording {
    /// Room for `events_max` calls on a scheduler for `max_tenants`.
    ///
    /// # Errors
    /// When there is no room for any, or for more than [`RECORDED_EVENTS_MAX`].
    pub fn new(max_tenants: u16, events_max: u64) -> Result<Self, ConfigError> {
        KnobRange::new(1, RECORDED_EVENTS_MAX).check("events", events_max)?;
        let events_max = events_max as usize;
        // Written to here, or the PMD would wait for the kernel to find each page when it first writes.
        let blank = Event::Wake { tenant: TenantIndex::SYSTEM, now_cycles: 1 };
        let mut events = vec![blank; events_max];
        events.clear();
        let start = Scheduler::new(SchedulerConfig::default(), max_tenants)?;
        Ok(Self { start, events, events_max, ended: None })
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

    /// Cycles from the first event to the last.
    #[must_use]
    pub fn span_cycles(&self) -> u64 {
        let first = self.events.iter().find_map(Event::now_cycles);
        let last = self.events.iter().rev().find_map(Event::now_cycles);
        last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
    }

    pub(crate) fn begin(&mut self, scheduler: &Scheduler) -> bool {
        self.events.clear();
        self.ended = None;
        self.start.copy_from(scheduler)
    }

    pub(crate) fn note(&mut self, event: Event) {
        if self.ended.is_some() {
            return;
        }
        self.events.push(event);
        if self.events.len() >= self.events_max {
            self.ended = Some(Ended::Full);
        }
    }

    pub(crate) fn end(&mut self, why: Ended) {
        self.ended.get_or_insert(why);
    }
}
