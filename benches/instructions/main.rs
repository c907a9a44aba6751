//! What the steps of a packet's way execute, in instructions, by callgrind: `cargo xtask bench`, which
//! compares with what is stored in `expected.toml`.
//!
//! The counts do not depend on the machine's mood, but say nothing of cache misses: they find what a
//! change adds, and wall-clock figures (`packet_path`, `floor`, `cargo xtask compare`) judge it. Each
//! module has one group; add a step by adding a module. Every case deals with as many packets
//! ([`PACKETS`](proving_ground::instructions::PACKETS)), so that its count is one of packets.
#![allow(missing_docs)]

mod copies;
mod exact_hits;
#[path = "../shared/frames.rs"]
mod frames;
mod megaflow_hits;
mod parsing;
#[path = "../shared/rings.rs"]
mod rings;
mod turns;

use copies::ring;
use exact_hits::exact;
use megaflow_hits::megaflow;
use parsing::parse;
use turns::{burst, turn};

gungraun::main!(library_benchmark_groups = parse, exact, megaflow, ring, burst, turn);
