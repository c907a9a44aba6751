//! Turns of a PMD with one busy tenant: beside nobody, and beside a hundred whose rings are started
//! and silent.

use gungraun::prelude::*;
use tollgate_datapath::bench::BusyTurns;

#[library_benchmark]
#[bench::beside_nobody(args = (0), setup = BusyTurns::new)]
#[bench::beside_100_idle(args = (100), setup = BusyTurns::new)]
fn full_bursts(mut turns: BusyTurns) -> (u64, BusyTurns) {
    // What it is made of is given back, so that its end is not counted.
    (turns.turns(), turns)
}

library_benchmark_group!(name = turn, benchmarks = [full_bursts]);
