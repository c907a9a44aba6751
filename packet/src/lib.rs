//! Bytes to meaning and back.
//!
//! [`parse`](parse::parse) reads a header copy once and yields a [`FlowKey`] and the [`Layout`] of
//! what it found; [`Edit`] changes the header copy and keeps checksums right; [`tunnel`] puts an
//! outer header in front of a frame and finds the frame behind one. Pure: no I/O, no clock, no
//! unsafe code, and no panic for any input.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod checksum;
pub mod edit;
pub mod field;
pub mod header;
mod ipv6;
pub mod key;
pub mod limits;
pub mod mac;
mod nd;
pub mod parse;
pub mod tunnel;
mod wire;

pub use edit::{Edit, EditError};
pub use field::HeaderField;
pub use header::HeaderBuf;
pub use key::{FLOW_WORDS, FlowKey, FlowMask, FlowMatch, PortIndex};
pub use mac::MacAddr;
pub use parse::{Layout, Parsed};
pub use wire::is_vlan_tpid;
