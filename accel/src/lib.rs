//! Safe wrappers over the CPU's own instructions: prefetch, the time-stamp counter, a keyed hash,
//! comparisons of several values at once.
//!
//! Floor 1 of the workspace: nothing here knows what a packet is.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_macros))]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("tollgate needs x86-64: its clock is the invariant time-stamp counter");

pub mod hash;
pub mod lanes;
pub mod prefetch;
pub mod tsc;
