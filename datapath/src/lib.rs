//! The datapath: polling threads (PMDs) that own their ports' rings, their flow caches and their
//! credits, and the handle by which the rest of the daemon reaches them.
//!
//! A PMD never locks, allocates, frees, logs, or makes a system call that a peer can stall. What
//! it is given comes by mail ([`Datapath`]); what it no longer needs goes back by lossless rings.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "test-utils")]
pub mod bench;
mod byte_ring;
mod control;
mod coordinator;
mod counters;
mod grants;
mod handoff;
mod histogram;
mod kept_frames;
mod lane;
pub mod limits;
mod mail;
mod megaflow;
mod meter;
mod pmd;
mod ring_host;
mod settings;
mod shared;
mod slow_path;
mod stage_sampling;
mod stages;
mod token_bucket;
mod waker;

pub use control::{ControlError, Datapath, DatapathConfig, PortHandle, StartError};
pub use counters::{PortCounters, PortSnapshot};
pub use histogram::Histogram;
pub use megaflow::{Megaflow, MegaflowStats, Op};
pub use meter::{BandStats, Meter, MeterBand, MeterConfig, MeterStats, MeterUnit, TooManyBands};
pub use settings::{PortSettings, TenantSettings};
pub use shared::{PmdSnapshot, TenantSnapshot};
pub use slow_path::{Evicted, EvictionCause, InjectError, Miss, MissKind, SlowPathEnd, Verdict};
pub use stage_sampling::StageSampling;
pub use stages::{Stage, StageCount, StageSnapshot};
