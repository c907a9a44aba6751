//! From ring to ring: fetch and delivery of full bursts, with nothing in between.

use gungraun::prelude::*;
use proving_ground::instructions::PACKETS;

use crate::rings::Rings;

#[library_benchmark(setup = Rings::new)]
#[bench::of_60_bytes(args = (60))]
#[bench::of_1496_bytes(args = (1496))]
fn copies(mut rings: Rings) -> Rings {
    assert_eq!(rings.copy(), PACKETS);
    rings
}

library_benchmark_group!(name = ring, benchmarks = [copies]);
