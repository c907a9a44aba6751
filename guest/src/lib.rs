//! A VM's network card without the VM: a virtio-net driver behind a vhost-user frontend, and a load
//! generator on top of it.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod checksum;
mod congestion;
pub mod endpoint;
mod exchange;
pub mod flows;
mod frame;
pub mod generator;
pub mod histogram;
pub mod limits;
pub mod memory;
pub mod options;
pub mod pair;
pub mod port;
pub mod queue;
mod racing;
pub mod report;
pub mod ring;
mod schedule;
pub mod session;
mod traffic;
pub mod virtio;
mod wait;
