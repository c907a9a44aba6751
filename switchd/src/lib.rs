//! The daemon: bridges and tables, slow path, OpenFlow server, JSON-RPC.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod acceptor;
pub mod config;
pub mod limits;
pub mod names;
mod ratelimit;
pub mod rpc;
pub mod rundir;
