//! The daemon: bridges and tables, slow path, OpenFlow server, JSON-RPC.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod acceptor;
pub mod cli;
pub mod config;
pub mod control;
mod cores;
pub mod daemon;
mod dpdk;
mod identity;
pub mod limits;
pub mod logging;
pub mod methods;
pub mod names;
pub mod openflow;
pub mod pipeline;
mod ratelimit;
pub mod rpc;
pub mod rundir;
