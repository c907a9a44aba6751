//! Bytes to meaning and back.
//!
//! [`parse`](parse::parse) reads a header copy once and yields a [`FlowKey`] and the [`Layout`] of
//! what it found; [`Edit`] changes the header copy and keeps checksums right. Pure: no I/O, no
//! clock, no unsafe code, and no panic for any input.
#![forbid(unsafe_code)]

pub mod header;
pub mod key;
pub mod limits;
pub mod mac;

pub use header::HeaderBuf;
pub use key::{FLOW_WORDS, FlowKey, FlowMask, FlowMatch, PortIndex};
pub use mac::MacAddr;
