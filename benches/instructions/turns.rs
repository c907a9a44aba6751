//! Whole turns of a PMD with one busy tenant: what its packets' decisions take, and what a hundred
//! others whose rings are started and silent add.

use gungraun::prelude::*;
use proving_ground::instructions::PACKETS;
use tollgate_datapath::bench::{self, BusyTurns};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use crate::frames::{key, udp_ipv4};

const _: () = assert!(bench::PACKETS == PACKETS, "a count is one of that many packets");

/// More than a turn's, fewer than the exact-match table holds.
const FLOWS: u16 = 256;

/// So many flows, and what their decisions look at besides the protocol.
fn turns(flows: u16, looks_at: FlowKey) -> BusyTurns {
    let frames: Vec<_> = (0..flows).map(udp_ipv4).collect();
    let mask = FlowMask(FlowKey { in_port: u32::MAX, eth_type: u16::MAX, ..looks_at });
    let mut matchers: Vec<_> = frames.iter().map(|f| FlowMatch::new(&key(f), mask)).collect();
    matchers.dedup();
    BusyTurns::of(frames, &matchers, 0)
}

fn one_flow() -> BusyTurns {
    turns(1, FlowKey::default())
}

fn flows_of_one_megaflow() -> BusyTurns {
    turns(FLOWS, FlowKey::default())
}

fn flows_with_a_megaflow_each() -> BusyTurns {
    turns(FLOWS, FlowKey { ip_proto: u8::MAX, l4_src: u16::MAX, ..FlowKey::default() })
}

fn taken(mut turns: BusyTurns) -> BusyTurns {
    assert_eq!(turns.turns(), PACKETS as u64);
    // What it is made of is given back, so that its end is not counted.
    turns
}

#[library_benchmark]
#[bench::one_flow(setup = one_flow)]
#[bench::flows_256_of_one_megaflow(setup = flows_of_one_megaflow)]
#[bench::flows_256_with_a_megaflow_each(setup = flows_with_a_megaflow_each)]
fn by_the_caches(turns: BusyTurns) -> BusyTurns {
    taken(turns)
}

library_benchmark_group!(name = burst, benchmarks = [by_the_caches]);

// The decision is one of the port.
#[library_benchmark(setup = BusyTurns::new)]
#[bench::beside_nobody(args = (0))]
#[bench::beside_100_idle(args = (100))]
fn full_bursts(turns: BusyTurns) -> BusyTurns {
    taken(turns)
}

library_benchmark_group!(name = turn, benchmarks = [full_bursts]);
