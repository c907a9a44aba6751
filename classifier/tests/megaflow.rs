//! The megaflow cache against a map.

mod common;

use std::collections::{HashMap, HashSet};

use common::{flow_match, packet};
use proptest::prelude::*;
use tollgate_accel::hash::HashSecret;
use tollgate_classifier::limits::SUBTABLES_PER_PORT_MAX;
use tollgate_classifier::{FlowSlot, InsertError, MegaflowCache};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

#[derive(Clone, Debug)]
enum Step {
    Insert(FlowMatch),
    Remove(prop::sample::Index),
    RemoveMatch(prop::sample::Index),
    RemoveGone(prop::sample::Index),
    Rank,
    Lookup(FlowKey),
}

fn with_port(matcher: FlowMatch) -> FlowMatch {
    let mut mask = *matcher.mask();
    mask.0.in_port = u32::MAX;
    FlowMatch::new(matcher.key(), mask)
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => flow_match().prop_map(|matcher| Step::Insert(with_port(matcher))),
        3 => index().prop_map(Step::Remove),
        2 => index().prop_map(Step::RemoveMatch),
        1 => index().prop_map(Step::RemoveGone),
        2 => Just(Step::Rank),
        8 => packet().prop_map(Step::Lookup),
    ]
}

const FLOWS: usize = 24;
const SUBTABLES: usize = 12;

/// The flows that should be there, and the handles of those that were.
#[derive(Default)]
struct Model {
    flows: HashMap<FlowMatch, (u32, FlowSlot)>,
    gone: Vec<FlowSlot>,
}

impl Model {
    fn subtables(&self) -> usize {
        let pairs = self.flows.keys().map(|matcher| (matcher.key().in_port, *matcher.mask()));
        pairs.collect::<HashSet<_>>().len()
    }

    fn expected_error(&self, matcher: &FlowMatch) -> Option<InsertError> {
        let is_known = self.flows.keys().any(|other| {
            (other.key().in_port, other.mask()) == (matcher.key().in_port, matcher.mask())
        });
        if self.flows.contains_key(matcher) {
            Some(InsertError::Duplicate)
        } else if self.flows.len() == FLOWS {
            Some(InsertError::Full)
        } else if !is_known && self.subtables() == SUBTABLES {
            Some(InsertError::TooManySubtables)
        } else {
            None
        }
    }

    fn nth(&self, index: &prop::sample::Index) -> Option<FlowMatch> {
        let mut matches: Vec<_> = self.flows.keys().copied().collect();
        matches.sort_by_key(|matcher| (*matcher.key().words(), *matcher.mask().words()));
        (!matches.is_empty()).then(|| matches[index.index(matches.len())])
    }
}

fn take(cache: &mut MegaflowCache<u32>, model: &mut Model, number: u32, step: &Step) {
    match step {
        Step::Insert(matcher) => {
            match (cache.insert(*matcher, number), model.expected_error(matcher)) {
                (Ok(slot), None) => {
                    model.flows.insert(*matcher, (number, slot));
                }
                (result, expected) => {
                    assert_eq!(result.err(), expected.map(|error| (error, number)))
                }
            }
        }
        Step::Remove(index) => {
            if let Some(matcher) = model.nth(index) {
                let (value, slot) = model.flows.remove(&matcher).unwrap();
                assert_eq!(cache.remove(slot), Some(value));
                model.gone.push(slot);
            }
        }
        Step::RemoveMatch(index) => {
            if let Some(matcher) = model.nth(index) {
                let (value, slot) = model.flows.remove(&matcher).unwrap();
                assert_eq!(cache.remove_match(&matcher), Some(value));
                assert_eq!(cache.remove_match(&matcher), None);
                model.gone.push(slot);
            }
        }
        Step::RemoveGone(index) => {
            if !model.gone.is_empty() {
                assert_eq!(cache.remove(model.gone[index.index(model.gone.len())]), None);
            }
        }
        Step::Rank => cache.rank(),
        Step::Lookup(key) => {
            let subtables = cache.subtables_of_port(key);
            let probes_before = cache.probes();
            let found = cache.lookup(key);
            let probes = (cache.probes() - probes_before) as usize;
            if let Some((slot, probes_to_hit)) = found {
                let value = cache.get(slot).unwrap();
                let entry = model.flows.iter().find(|(_, (_, other))| *other == slot);
                let (matcher, (expected, _)) = entry.unwrap();
                assert!(matcher.matches(key) && value == expected);
                assert!(probes_to_hit as usize == probes && probes <= subtables);
            } else {
                assert!(!model.flows.keys().any(|matcher| matcher.matches(key)));
                assert_eq!(probes, subtables);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_cache_holds_what_was_put_in_and_nothing_else(
        secret in any::<u64>(),
        steps in prop::collection::vec(step(), 1..200),
        sweep in 1..40u32,
    ) {
        let mut cache = MegaflowCache::new(FLOWS, SUBTABLES, HashSecret::from_words(secret, !secret));
        let mut model = Model::default();
        for (number, step) in steps.iter().enumerate() {
            take(&mut cache, &mut model, number as u32, step);
            prop_assert_eq!(cache.len(), model.flows.len());
            prop_assert_eq!(cache.subtables(), model.subtables());
        }
        for (value, slot) in model.flows.values() {
            prop_assert_eq!(cache.get(*slot), Some(value));
        }
        for slot in &model.gone {
            prop_assert_eq!(cache.get(*slot), None);
        }
        let (mut cursor, mut swept) = (0, Vec::new());
        loop {
            let (flows, next) = cache.iter_from(cursor, sweep);
            swept.extend(flows.map(|(slot, value)| (slot.index, *value)));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        let mut expected: Vec<_> =
            model.flows.values().map(|(value, slot)| (slot.index, *value)).collect();
        expected.sort_unstable();
        prop_assert_eq!(swept, expected);
    }
}

fn secret() -> HashSecret {
    HashSecret::from_words(1, 0x1234_5678_9abc_def1)
}

/// A match on the port, the destination's first `bits` and nothing else.
fn prefix_match(in_port: u32, bits: u32, destination: u32) -> FlowMatch {
    let mut mask = FlowMask::default();
    mask.0.in_port = u32::MAX;
    let ones = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    mask.0.ip_dst = ones.to_be_bytes();
    let mut key = FlowKey { in_port, ..FlowKey::default() };
    key.ip_dst = (u128::from(destination) << 96 | 1).to_be_bytes();
    FlowMatch::new(&key, mask)
}

#[test]
fn churn_at_full_capacity_never_runs_out_of_room() {
    const CAPACITY: u32 = 512;
    let mut cache = MegaflowCache::new(CAPACITY as usize, 4, secret());
    let mut slots: Vec<_> =
        (0..CAPACITY).map(|n| cache.insert(prefix_match(1, 32, n), n).unwrap()).collect();
    for n in CAPACITY..200_000 {
        let victim = (n.wrapping_mul(2_654_435_761) % CAPACITY) as usize;
        assert!(cache.remove(slots[victim]).is_some());
        slots[victim] = cache.insert(prefix_match(1, 32, n), n).unwrap();
        assert_eq!(cache.lookup(prefix_match(1, 32, n).key()), Some((slots[victim], 1)));
    }
    assert!(slots.iter().all(|slot| cache.get(*slot).is_some()));
}

/// CLS-01: masks made by one port's packets.
#[test]
fn one_ports_masks_are_bounded_and_do_not_lengthen_anothers_search() {
    let mut cache = MegaflowCache::new(1000, 1000, secret());
    let mut refused = 0;
    for bits in 1..=128 {
        match cache.insert(prefix_match(1, bits, u32::MAX), bits) {
            Ok(_) => {}
            Err((error, _)) => {
                assert_eq!(error, InsertError::TooManySubtables);
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 128 - SUBTABLES_PER_PORT_MAX);
    cache.insert(prefix_match(2, 8, 0), 0).unwrap();
    let (_, probes) = cache.lookup(prefix_match(2, 8, 0).key()).unwrap();
    assert_eq!(probes, 1);

    let attacker = FlowKey { in_port: 1, eth_type: 7, ..FlowKey::default() };
    let exact = FlowMatch::new(&attacker, every_bit());
    assert!(cache.insert(exact, 0).is_ok(), "exact megaflows are what is left to such a port");
    assert_eq!(cache.lookup(&attacker).map(|(_, probes)| probes as usize), Some(65));
}

fn every_bit() -> FlowMask {
    let mut mask = FlowMask::default();
    mask.0.words_mut().fill(u64::MAX);
    mask
}

#[test]
fn ranking_brings_the_most_used_subtable_of_each_port_to_the_front() {
    let mut cache = MegaflowCache::new(100, 100, secret());
    for in_port in [1, 2] {
        for bits in 1..=32 {
            let destination = 1 << (32 - bits);
            cache.insert(prefix_match(in_port, bits, destination), bits).unwrap();
        }
    }
    let used = |in_port| *prefix_match(in_port, 20, 1 << 12).key();
    let other = |in_port| *prefix_match(in_port, 9, 1 << 23).key();
    for in_port in [1, 2] {
        for _ in 0..10 {
            assert_eq!(cache.lookup(&used(in_port)).unwrap().1, 20);
        }
        for _ in 0..5 {
            assert_eq!(cache.lookup(&other(in_port)).unwrap().1, 9);
        }
    }
    for _ in 0..4 {
        cache.rank();
    }
    for in_port in [1, 2] {
        assert_eq!(cache.lookup(&used(in_port)).unwrap().1, 1);
        assert_eq!(cache.lookup(&other(in_port)).unwrap().1, 2);
    }
}

#[test]
fn old_hits_fade() {
    let mut cache = MegaflowCache::new(10, 10, secret());
    let (old, new) = (prefix_match(1, 8, 1 << 24), prefix_match(1, 16, 1 << 16));
    cache.insert(old, 0).unwrap();
    cache.insert(new, 0).unwrap();
    for _ in 0..1000 {
        assert_eq!(cache.lookup(old.key()).unwrap().1, 1);
    }
    for _ in 0..12 {
        cache.rank();
        cache.lookup(new.key()).unwrap();
    }
    assert_eq!(cache.lookup(new.key()).unwrap().1, 1);
}

#[test]
fn a_match_without_the_port_is_refused() {
    let mut cache = MegaflowCache::new(10, 10, secret());
    assert_eq!(cache.insert(FlowMatch::ANY, 1), Err((InsertError::InPortWild, 1)));
}

/// CLS-08: keys that all fall into one bucket, made by someone who knows a secret.
#[test]
fn colliding_keys_fill_only_their_own_buckets() {
    const CAPACITY: usize = 256;
    const BUCKETS: u64 = 64;
    // In a cache with this secret they collide ...
    let known = secret();
    let mut cache = MegaflowCache::new(CAPACITY, 4, known);
    let mask = *prefix_match(1, 32, 0).mask();
    let colliding: Vec<_> = (0..200_000)
        .map(|n| prefix_match(1, 32, n))
        .filter(|m| known.hash_masked(m.key().words(), mask.words()).is_multiple_of(BUCKETS))
        .take(CAPACITY)
        .collect();
    assert_eq!(colliding.len(), CAPACITY);
    let flooded: Vec<_> = colliding.iter().map(|m| cache.insert(*m, 0)).collect();
    // ... with the rest of the buckets as second homes, so they all fit or are refused; ...
    let accepted = flooded.iter().filter(|result| result.is_ok()).count();
    assert!(flooded.iter().all(|r| r.is_ok() || *r == Err((InsertError::Full, 0))));
    assert!(accepted >= 16);
    for (matcher, result) in colliding.iter().zip(&flooded) {
        assert_eq!(cache.lookup(matcher.key()).is_some(), result.is_ok());
    }
    // ... and in a cache with another secret they are like any others.
    let mut cache = MegaflowCache::new(CAPACITY, 4, HashSecret::random());
    assert!(colliding.iter().all(|matcher| cache.insert(*matcher, 0).is_ok()));
}
