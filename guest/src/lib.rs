//! A VM's network card without the VM: a virtio-net driver behind a vhost-user frontend, and a load
//! generator on top of it.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod endpoint;
pub mod limits;
pub mod memory;
pub mod port;
pub mod queue;
mod racing;
pub mod ring;
pub mod session;
pub mod virtio;
