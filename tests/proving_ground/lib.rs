//! The proving ground: what the tests and `cargo xtask` share to start a switch, its command line
//! and its real peers.
//!
//! Nothing here is part of the product. A [`Switch`] is the real daemon in a private run directory;
//! a [`testpmd::Testpmd`] or a [`vm::Vm`] is a real guest. Every process that is started is a
//! [`process::Supervised`] child: it is ended by its own process id on every way out.
//!
//! A test whose peer is not installed says `SKIP reason` and passes; with `REQUIRE_PEERS=1` (set in
//! CI) it fails instead. [`require!`] does that.

pub mod binaries;
pub mod controller;
pub mod instructions;
pub mod lab;
pub mod process;
pub mod rpc;
pub mod skip;
pub mod switch;
pub mod testpmd;
pub mod vm;

pub use switch::Switch;
