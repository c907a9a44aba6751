//! Who pays for the cycles of a polling core, and who runs next.
//!
//! [`Books`] record what was spent. A [`Scheduler`] keeps each tenant's credit by a virtual clock
//! and hands out turns: funded tenants first, in two lists, and when none is funded the least
//! indebted. Pure: cycles and the time are arguments, nothing is allocated after construction, and
//! everything is integer arithmetic. One instance belongs to one PMD.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod backoff;
pub mod books;
mod boost;
mod bucket;
mod config;
pub mod coordinator;
mod credit;
mod heap;
mod knobs;
pub mod limits;
mod list;
mod recording;
mod scheduler;
mod tenant;
mod verdict;
mod weight;

#[cfg(any(test, feature = "sim"))]
pub mod sim;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use books::{Account, Books};
pub use boost::{Boost, BoostError};
pub use bucket::SetupBucket;
pub use config::{ConfigError, KnobRange, Refill, SchedulerConfig};
pub use knobs::TenantKnobs;
pub use recording::{Difference, Ended, Event, EventError, Recording, Replay};
pub use scheduler::{Scheduler, StateError, Turn, TurnCounters};
pub use tenant::{TenantError, TenantIndex};
pub use verdict::{RxOverrun, RxOverrunError, Stage, Verdict};
pub use weight::{Weight, WeightError};
