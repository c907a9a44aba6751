//! Which flow a packet belongs to.
//!
//! Three tables, from the slowest and richest to the fastest:
//! - [`RuleTable`]: prioritised wildcard rules, as OpenFlow has them. Control side.
//! - [`MegaflowCache`]: disjoint wildcard flows without priorities. Owned by one PMD.
//! - [`ExactTable`]: whole keys. Owned by one PMD.
//!
//! The two caches allocate nothing after construction and do a bounded amount of work per call,
//! whatever the packets look like: guests choose the keys, so every hash is keyed with a secret
//! and every probe sequence has a fixed end. Nobody's entries make somebody else's lookups longer:
//! megaflow subtables belong to one ingress port, exact-match entries count against a quota.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod exact;
pub mod extra;
pub mod limits;
pub mod megaflow;
pub mod rules;

mod compact;
mod index;
mod prefixes;
mod stages;
mod subtable;
mod subtables;
mod tags;

pub use compact::RuleMatch;
pub use exact::ExactTable;
pub use extra::{ExtraKey, ExtraMatch};
pub use megaflow::{FlowSlot, InsertError, MegaflowCache};
pub use rules::{Rule, RuleTable};
