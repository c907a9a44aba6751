//! Network cards: queues of DPDK ethdevs that a PMD polls.
//!
//! A [`Device`] is opened and closed by the control side. Its queues are the PMDs': an [`RxQueue`] fills
//! bursts with header copies and references to its mbufs, a [`TxQueue`] copies frames into new mbufs, or
//! sends those that a burst was lent.
//!
//! Without the feature `dpdk` the same types exist and none of them can be had: [`Eal::init`] says what
//! to build with.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(not(feature = "dpdk"))]
mod absent;
mod config;
#[cfg(feature = "dpdk")]
mod dpdk;
mod error;
pub mod limits;

#[cfg(not(feature = "dpdk"))]
pub use absent::{Device, Eal, RxQueue, TxQueue, register_polling_thread};
pub use config::{DeviceConfig, Link, Queues, Unsent};
#[cfg(feature = "dpdk")]
pub use dpdk::{Device, Eal, RxQueue, TxQueue, register_polling_thread};
pub use error::NicError;
