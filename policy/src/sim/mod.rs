//! Polling cores in miniature: synthetic tenants, a fake clock, and the very scheduler and books
//! that the PMD uses. Deterministic: the same input gives the same figures on every machine.

mod outcome;
mod pmd;
mod receive;
pub mod sweep;
mod switch;
mod trace;
mod traffic;
mod wire;

pub use outcome::{Longest, Outcome};
pub use pmd::{Simulation, TURN_PACKETS_MAX};
pub use receive::{Received, Sender, StreamSpec};
pub use switch::{PortSpec, Switch};
pub use trace::{Trace, TraceError, TraceProblem};
pub use traffic::{Arrivals, RecordedPacket, TenantSpec};
pub use wire::{Disagreement, Figures, disagreements};
