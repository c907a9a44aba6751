//! Hits of the megaflow cache in the last subtable of some: the difference between two cases, over the
//! difference of their subtables, is what one more costs.

use gungraun::prelude::*;
use proving_ground::instructions::PACKETS;
use tollgate_accel::hash::HashSecret;
use tollgate_classifier::MegaflowCache;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use crate::frames::{key, udp_ipv4};

/// Fixed, so that the same keys share buckets in every run.
const SECRET: HashSecret = HashSecret::from_words(1, 2);

struct Flows {
    cache: MegaflowCache<()>,
    keys: Vec<FlowKey>,
    probes: usize,
}

/// Source port, protocol and a prefix of the destination.
fn mask(prefix_bits: u32) -> FlowMask {
    let mut mask = FlowKey {
        in_port: u32::MAX,
        eth_type: u16::MAX,
        ip_proto: u8::MAX,
        l4_src: u16::MAX,
        ..FlowKey::default()
    };
    let prefix = u32::MAX << (32 - prefix_bits);
    mask.ip_dst[..4].copy_from_slice(&prefix.to_be_bytes());
    FlowMask(mask)
}

/// A flow for each packet in the last of `subtables`, and one of another protocol in each before it.
fn flows(subtables: u32) -> Flows {
    let keys: Vec<FlowKey> = (0..PACKETS as u16).map(|port| key(&udp_ipv4(port))).collect();
    let mut cache = MegaflowCache::new(2 * PACKETS, 64, SECRET);
    let other = FlowKey { ip_proto: 6, ..keys[0] };
    for prefix_bits in 1..subtables {
        cache.insert(FlowMatch::new(&other, mask(prefix_bits)), ()).expect("there is room");
    }
    for key in &keys {
        cache.insert(FlowMatch::new(key, mask(subtables)), ()).expect("there is room");
    }
    assert_eq!(cache.subtables(), subtables as usize);
    // Each packet tries all of them.
    let probes = subtables as usize * PACKETS;
    Flows { cache, keys, probes }
}

#[library_benchmark(setup = flows)]
#[bench::of_1_subtable(args = (1))]
#[bench::of_5_subtables(args = (5))]
#[bench::of_20_subtables(args = (20))]
fn hits(mut flows: Flows) -> Flows {
    let Flows { cache, keys, probes } = &mut flows;
    let looked_up = keys.iter().filter_map(|key| cache.lookup(key));
    assert_eq!(looked_up.map(|(_, probes)| probes as usize).sum::<usize>(), *probes);
    flows
}

library_benchmark_group!(name = megaflow, benchmarks = [hits]);
