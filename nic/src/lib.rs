//! NIC ports.
//!
//! With the feature `dpdk`: one queue pair of a DPDK ethdev that fills a burst with header copies
//! and references to its mbufs, and takes frames by copying them into new ones. No PMD polls such
//! a port yet, and the daemon refuses `type = "dpdk"`: what is here is the device, not the port.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(feature = "dpdk")]
mod ethdev;
#[cfg(feature = "dpdk")]
mod limits;

#[cfg(feature = "dpdk")]
pub use ethdev::{Eal, EthDev, EthDevError};
