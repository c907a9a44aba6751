//! Hits of the exact-match table: hash and look-up, a burst at a time as a PMD does it.

use gungraun::prelude::*;
use proving_ground::instructions::PACKETS;
use tollgate_accel::hash::HashSecret;
use tollgate_classifier::{ExactTable, MegaflowCache};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use crate::frames::{key, udp_ipv4};
use crate::rings::BURST_PACKETS;

/// Fixed, so that the same keys share buckets in every run.
const SECRET: HashSecret = HashSecret::from_words(1, 2);

struct Flows {
    table: ExactTable,
    keys: Vec<FlowKey>,
    found: usize,
}

/// A flow for each packet; the table has room to spare, so that none is put out.
fn flows() -> Flows {
    let keys: Vec<FlowKey> = (0..PACKETS as u16).map(|port| key(&udp_ipv4(port))).collect();
    let mut megaflows = MegaflowCache::new(1, 1, SECRET);
    let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
    let slot = megaflows.insert(FlowMatch::new(&keys[0], mask), ()).expect("there is room");
    let mut table = ExactTable::new(16 * PACKETS, 1, SECRET);
    for key in &keys {
        assert!(table.insert(table.hash(key), key, slot, 0));
    }
    Flows { table, keys, found: 0 }
}

#[library_benchmark(setup = flows)]
#[bench::a_flow_for_each_packet()]
fn hits(mut flows: Flows) -> Flows {
    let Flows { table, keys, found } = &mut flows;
    let mut hashes = [0; BURST_PACKETS];
    for burst in keys.chunks(BURST_PACKETS) {
        for (hash, key) in hashes.iter_mut().zip(burst) {
            *hash = table.hash(key);
            table.prefetch_bucket(*hash);
        }
        hashes.iter().for_each(|hash| table.prefetch(*hash));
        let looked_up = hashes.iter().zip(burst).map(|(hash, key)| table.lookup(*hash, key));
        *found += looked_up.flatten().count();
    }
    assert_eq!(*found, PACKETS);
    flows
}

library_benchmark_group!(name = exact, benchmarks = [hits]);
