//! What the steps of a packet's way cost: `cargo bench --bench packet_path`. Wall-clock figures of
//! one machine, for comparing a change with its base on that machine.
#![allow(missing_docs)]

#[path = "shared/frames.rs"]
mod frames;
#[path = "shared/rings.rs"]
mod rings;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use proving_ground::instructions::PACKETS;
use tollgate_accel::hash::HashSecret;
use tollgate_classifier::{ExactTable, MegaflowCache};
use tollgate_datapath::bench::BusyTurns;
use tollgate_packet::edit::{self, Edit};
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, HeaderBuf, HeaderField, PortIndex};
use tollgate_policy::{Scheduler, SchedulerConfig, TenantIndex, Weight};

use frames::{key, tcp_ipv6, udp_ipv4, udp_ipv4_in_vlan};
use rings::Rings;

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("header");
    group.throughput(Throughput::Elements(1));
    for (kind, frame) in [
        ("udp over ipv4", udp_ipv4(7)),
        ("udp over ipv4 in a vlan", udp_ipv4_in_vlan(7)),
        ("tcp over ipv6", tcp_ipv6(7)),
    ] {
        group.bench_function(format!("parse {kind}"), |b| {
            b.iter(|| parse(black_box(&frame), frame.len() as u32, PortIndex(1)));
        });
    }
    let frame = udp_ipv4(7);
    let parsed = parse(&frame, frame.len() as u32, PortIndex(1));
    group.bench_function("set_field ip_dst with checksums", |b| {
        let mut header = HeaderBuf::from_frame(&frame);
        let mut layout = parsed.layout;
        let edit = Edit::set(HeaderField::Ipv4Dst, 0x0a09_0909);
        b.iter(|| edit::apply(black_box(&edit), &mut header, &mut layout, &parsed.key));
    });
    group.finish();
}

fn lookups(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    group.throughput(Throughput::Elements(1));
    for flows in [1_u16, 1000, 50_000] {
        let mut megaflows = MegaflowCache::new(65_536, 64, HashSecret::random());
        let mut exact = ExactTable::new(131_072, 2, HashSecret::random());
        let keys: Vec<FlowKey> = (0..flows).map(|port| key(&udp_ipv4(port))).collect();
        let mask = FlowMask(FlowKey {
            in_port: u32::MAX,
            eth_type: u16::MAX,
            ip_proto: u8::MAX,
            l4_src: u16::MAX,
            ..FlowKey::default()
        });
        for key in &keys {
            let inserted = megaflows.insert(FlowMatch::new(key, mask), ());
            let slot = inserted.expect("all of them fit");
            exact.insert(exact.hash(key), key, slot, 1);
        }
        let mut at = keys.iter().cycle();
        group.bench_function(format!("exact match, {flows} flows"), |b| {
            b.iter(|| at.next().map(|key| exact.lookup(exact.hash(key), key)));
        });
        group.bench_function(format!("megaflow, {flows} flows, one mask"), |b| {
            b.iter(|| at.next().map(|key| megaflows.lookup(key)));
        });
    }
    group.finish();
}

/// The time of `step` alone, `rounds` times, each after `refill`.
fn timed<T>(
    of: &mut T,
    rounds: u64,
    refill: impl Fn(&mut T),
    step: impl Fn(&mut T) -> u64,
) -> Duration {
    let round = |_| {
        refill(of);
        let start = Instant::now();
        assert_eq!(step(of), PACKETS as u64);
        start.elapsed()
    };
    (0..rounds).map(round).sum()
}

fn bursts(c: &mut Criterion) {
    let mut group = c.benchmark_group("bursts");
    group.throughput(Throughput::Elements(PACKETS as u64));
    for frame_bytes in [60, 1496] {
        let mut rings = Rings::new(frame_bytes);
        rings.copy();
        group.bench_function(format!("from ring to ring, {frame_bytes} bytes"), |b| {
            b.iter_custom(|n| timed(&mut rings, n, Rings::refill, |rings| rings.copy() as u64));
        });
    }
    for idle in [0, 100] {
        let mut turns = BusyTurns::new(idle);
        turns.turns();
        group.bench_function(format!("decided by the port, beside {idle} idle"), |b| {
            b.iter_custom(|n| timed(&mut turns, n, BusyTurns::refill, BusyTurns::turns));
        });
    }
    group.finish();
}

fn schedules(c: &mut Criterion) {
    let mut group = c.benchmark_group("scheduler");
    for tenants in [2_u16, 100] {
        let config = SchedulerConfig::default();
        let mut scheduler = Scheduler::new(config, 128).expect("the defaults are valid");
        for tenant in 1..=tenants {
            scheduler.tenant_add(TenantIndex(tenant), Weight::ONE).expect("there is room");
            scheduler.wake(TenantIndex(tenant), 0);
        }
        let mut now = 0;
        group.bench_function(format!("turn, {tenants} saturated tenants"), |b| {
            b.iter(|| {
                let turn = scheduler.next(now).expect("all of them have work");
                now += 5000;
                scheduler.charge(turn.tenant, 5000, now);
                scheduler.done(turn.tenant, true, now);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, headers, lookups, bursts, schedules);
criterion_main!(benches);
