//! What the steps of a packet's way cost: `cargo bench --bench packet_path`. Wall-clock figures of
//! one machine, for comparing a change with its base on that machine.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use etherparse::PacketBuilder;
use tollgate_accel::hash::HashSecret;
use tollgate_classifier::{ExactTable, MegaflowCache};
use tollgate_packet::edit::{self, Edit};
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, HeaderBuf, HeaderField, PortIndex};
use tollgate_policy::{Scheduler, SchedulerConfig, TenantIndex, Weight};

fn frame(port: u16) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(port, 9);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18]).expect("a vector takes every byte");
    frame
}

fn key(port: u16) -> FlowKey {
    let frame = frame(port);
    parse(&frame, frame.len() as u32, PortIndex(1)).key
}

fn headers(c: &mut Criterion) {
    let frame = frame(7);
    let mut group = c.benchmark_group("header");
    group.throughput(Throughput::Elements(1));
    group.bench_function("parse udp over ipv4", |b| {
        b.iter(|| parse(black_box(&frame), frame.len() as u32, PortIndex(1)));
    });
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
        let keys: Vec<FlowKey> = (0..flows).map(key).collect();
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

fn turns(c: &mut Criterion) {
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

criterion_group!(benches, headers, lookups, turns);
criterion_main!(benches);
