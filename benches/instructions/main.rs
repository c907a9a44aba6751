//! What the steps of a packet's way execute, in instructions, by callgrind: `cargo xtask bench`.
//!
//! The counts do not depend on the machine's mood, but say nothing of cache misses: they find what a
//! change adds, and wall-clock figures (`packet_path`, `cargo xtask compare`) judge it. Each module
//! has one group; add a step by adding a module.
#![allow(missing_docs)]

mod turns;

use turns::turn;

gungraun::main!(library_benchmark_groups = turn);
