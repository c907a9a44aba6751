//! What a table of a million rules costs: putting them in, taking them out, finding one.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tollgate_classifier::{ExtraKey, ExtraMatch, Rule, RuleMatch, RuleTable};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

const RULES: u32 = 1_000_000;

struct Acl {
    priority: u16,
    matcher: RuleMatch,
}

impl Rule for Acl {
    fn priority(&self) -> u16 {
        self.priority
    }

    fn matcher(&self) -> &RuleMatch {
        &self.matcher
    }
}

/// A TCP packet to one of many hosts.
fn packet(n: u32) -> FlowKey {
    let mut key = FlowKey { eth_type: 0x800, ip_proto: 6, ..FlowKey::default() };
    key.ip_dst[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
    key.l4_dst = (n % 7) as u16 * 1000;
    key
}

/// One of `masks` masks: a prefix of the destination and one of the port.
fn mask(n: u32, masks: u32) -> FlowMask {
    let n = n % masks;
    let mut mask = FlowKey { eth_type: u16::MAX, ip_proto: u8::MAX, ..FlowKey::default() };
    let address = u32::MAX << (n % 24);
    mask.ip_dst[..4].copy_from_slice(&address.to_be_bytes());
    mask.l4_dst = u16::MAX << (n / 24 % 16);
    FlowMask(mask)
}

fn insert(table: &mut RuleTable<Arc<Acl>>, n: u32, masks: u32) {
    let matcher = table.matcher(&FlowMatch::new(&packet(n), mask(n, masks)), &ExtraMatch::ANY);
    table.insert(Arc::new(Acl { priority: (n % 100) as u16, matcher }));
}

fn table(rules: u32, masks: u32) -> RuleTable<Arc<Acl>> {
    let mut table = RuleTable::new();
    (0..rules).for_each(|n| insert(&mut table, n, masks));
    table
}

fn rule_table(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rule_table");
    group.sample_size(10);
    group.throughput(Throughput::Elements(u64::from(RULES)));
    for masks in [1, 200] {
        group.bench_function(format!("insert 1M rules of {masks} masks"), |bencher| {
            bencher.iter_with_large_drop(|| table(RULES, masks));
        });
        group.bench_function(format!("remove 1M rules of {masks} masks"), |bencher| {
            let full = || {
                let table = table(RULES, masks);
                let rules: Vec<_> = table.iter().cloned().collect();
                (table, rules)
            };
            let empty = |(mut table, rules): (RuleTable<Arc<Acl>>, Vec<Arc<Acl>>)| {
                for rule in &rules {
                    table.remove(rule.priority, &rule.matcher);
                }
                (table, rules)
            };
            bencher.iter_batched(full, empty, BatchSize::PerIteration);
        });
    }
    group.throughput(Throughput::Elements(1));
    for (rules, masks) in [(RULES, 1), (RULES, 20), (10_000, 20), (10_000, 300)] {
        let table = table(rules, masks);
        let mut n = 0;
        let mut lookup = |known: bool| {
            n += 1;
            let key = packet(if known { n % rules } else { n | 1 << 31 });
            let mut looked_at = FlowMask::default();
            black_box(table.lookup(&key, &ExtraKey::ZERO, &mut looked_at).is_some());
            looked_at
        };
        group.bench_function(format!("find among {rules} rules of {masks} masks"), |bencher| {
            bencher.iter(|| lookup(true));
        });
        group.bench_function(format!("miss among {rules} rules of {masks} masks"), |bencher| {
            bencher.iter(|| lookup(false));
        });
    }
    group.finish();
}

criterion_group!(benches, rule_table);
criterion_main!(benches);
