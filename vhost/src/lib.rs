//! vhost-user ports.
//!
//! A [`PortSocket`] waits for (or looks for) a frontend and serves it ([`session`]): it maps the
//! guest's memory, checks what the frontend says about its rings and hands running rings
//! ([`ActiveVring`]) to their PMD through a [`RingHost`]. The PMD fetches and delivers frames and
//! signals the guest through a [`Notifier`].
//!
//! Guest and frontend are hostile. See README.md for what holds against them and where.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod chain;
mod deliver;
mod features;
mod fetch;
pub mod limits;
pub mod memory;
#[cfg(feature = "test-utils")]
pub mod mock;
mod notify;
mod pages;
mod ring;
pub mod session;
mod shared;
pub mod socket;
mod status;

pub use features::Features;
pub use notify::{CallFd, NotAnEventFd, Notifier};
pub use ring::ActiveVring;
pub use session::{HostGone, RingHost, SessionConfig, SessionEnd, serve};
pub use shared::{AvailPeek, RingPlaceError};
pub use socket::{PortSocket, SocketError, SocketMode};
pub use status::{PortStatus, RingFault};
pub use tollgate_frame::FetchStats;
