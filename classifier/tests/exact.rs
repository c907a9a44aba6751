//! The exact-match table: what is found is right, quotas hold, nobody evicts another's entries.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use tollgate_accel::hash::HashSecret;
use tollgate_classifier::limits::TRIM_PER_INSERT;
use tollgate_classifier::{ExactTable, FlowSlot};
use tollgate_packet::FlowKey;

const OWNERS: u16 = 4;
const CAPACITY: u32 = 64;

#[derive(Clone, Debug)]
enum Step {
    Insert {
        key: u16,
        owner: u16,
    },
    /// The key's flow is gone from the megaflow cache.
    Expire {
        key: u16,
    },
    Remove {
        key: u16,
    },
    Quota {
        owner: u16,
        entries: u32,
    },
    Sweep {
        cursor: u32,
        places: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (key, owner) = (|| 0..300u16, || 0..OWNERS);
    prop_oneof![
        20 => (key(), owner()).prop_map(|(key, owner)| Step::Insert { key, owner }),
        2 => key().prop_map(|key| Step::Expire { key }),
        2 => key().prop_map(|key| Step::Remove { key }),
        1 => (owner(), 0..CAPACITY).prop_map(|(owner, entries)| Step::Quota { owner, entries }),
        1 => (0..CAPACITY, 0..80u32).prop_map(|(cursor, places)| Step::Sweep { cursor, places }),
    ]
}

fn flow_key(number: u16) -> FlowKey {
    FlowKey { in_port: 1, l4_dst: number, ..FlowKey::default() }
}

/// Every entry that the table should have, found by asking for all keys that were ever used.
struct Harness {
    table: ExactTable,
    quotas: [u32; OWNERS as usize],
    stale: HashSet<FlowSlot>,
    known: HashMap<u16, (FlowSlot, u16)>,
    next_slot: u32,
}

impl Harness {
    fn new(secret: u64) -> Self {
        let secret = HashSecret::from_words(secret, !secret);
        Self {
            table: ExactTable::new(CAPACITY as usize, usize::from(OWNERS), secret),
            quotas: [CAPACITY; OWNERS as usize],
            stale: HashSet::new(),
            known: HashMap::new(),
            next_slot: 0,
        }
    }

    fn lookup(&self, number: u16) -> Option<FlowSlot> {
        let key = flow_key(number);
        self.table.lookup(self.table.hash(&key), &key)
    }

    /// Forgets what is no longer in the table, and returns it.
    fn lost(&mut self) -> Vec<(FlowSlot, u16)> {
        let known = std::mem::take(&mut self.known);
        let (kept, lost) = known.into_iter().partition(|(key, (slot, _))| {
            let found = self.lookup(*key);
            assert!(found.is_none() || found == Some(*slot), "a lookup found another flow");
            found.is_some()
        });
        self.known = kept;
        HashMap::into_values(lost).collect()
    }

    fn entries(&self, owner: u16) -> u32 {
        self.known.values().filter(|(_, other)| *other == owner).count() as u32
    }

    fn insert(&mut self, number: u16, owner: u16) {
        let before = self.entries(owner);
        let previous = self.known.remove(&number);
        let slot = FlowSlot { index: self.next_slot, version: 0 };
        self.next_slot += 1;
        let (key, stale) = (flow_key(number), &self.stale);
        let hash = self.table.hash(&key);
        self.table.prefetch(hash);
        let done =
            self.table.insert_over_stale(hash, &key, slot, owner, |slot| stale.contains(&slot));
        assert_eq!(self.lookup(number), done.then_some(slot));
        let lost = self.lost();
        if done {
            self.known.insert(number, (slot, owner));
        }
        for (slot, other) in &lost {
            assert!(*other == owner || self.stale.contains(slot), "a live entry was evicted");
        }
        assert!(lost.iter().filter(|(_, other)| *other == owner).count() <= TRIM_PER_INSERT + 1);
        let quota = self.quotas[usize::from(owner)];
        let after = self.entries(owner);
        assert!(after <= quota || after < before, "{before} -> {after} of {quota}");
        let is_new = previous.is_none_or(|(_, other)| other != owner);
        if !done && is_new && quota > 0 && before <= quota {
            self.assert_no_place(&lost);
        }
    }

    /// A refused insert lost nothing, and what is there is not stale: it was not refused for
    /// nothing. (That the bucket is full cannot be seen from outside.)
    fn assert_no_place(&self, lost: &[(FlowSlot, u16)]) {
        assert!(lost.is_empty());
        assert!(self.known.len() >= 8, "refused in a table that has no full bucket");
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Insert { key, owner } => self.insert(key, owner),
            Step::Expire { key } => {
                self.stale.extend(self.known.get(&key).map(|(slot, _)| *slot));
            }
            Step::Remove { key } => {
                let flow = flow_key(key);
                let hash = self.table.hash(&flow);
                assert_eq!(self.table.remove(hash, &flow), self.known.remove(&key).is_some());
                assert_eq!(self.lookup(key), None);
            }
            Step::Quota { owner, entries } => {
                self.table.set_quota(owner, entries);
                self.quotas[usize::from(owner)] = entries;
            }
            Step::Sweep { cursor, places } => {
                let stale = &self.stale;
                let next = self.table.sweep(cursor, places, |slot| stale.contains(&slot));
                assert!(next == 0 || next == cursor + places);
                let lost = self.lost();
                assert!(lost.iter().all(|(slot, _)| self.stale.contains(slot)));
                if (cursor, next) == (0, 0) && places > 0 {
                    let known = self.known.values();
                    assert!(!known.into_iter().any(|(slot, _)| self.stale.contains(slot)));
                }
            }
        }
        assert!(self.lost().is_empty());
        for owner in 0..OWNERS {
            assert_eq!(self.table.occupancy(owner), self.entries(owner));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn quotas_hold_and_nobody_evicts_anothers_live_entry(
        secret in any::<u64>(),
        quotas in prop::collection::vec(1..CAPACITY, usize::from(OWNERS)),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut harness = Harness::new(secret);
        for (owner, entries) in quotas.into_iter().enumerate() {
            harness.take(&Step::Quota { owner: owner as u16, entries });
        }
        for step in &steps {
            harness.take(step);
        }
    }
}

#[test]
fn an_owner_at_its_quota_gives_up_its_oldest_entry() {
    // One entry in each of many buckets: the new key's bucket hardly ever has an own entry.
    let mut table = ExactTable::new(1 << 16, 1, HashSecret::random());
    table.set_quota(0, 4);
    let insert = |table: &mut ExactTable, number| {
        let key = flow_key(number);
        let slot = FlowSlot { index: u32::from(number), version: 0 };
        assert!(table.insert(table.hash(&key), &key, slot, 0));
    };
    for number in 0..100 {
        insert(&mut table, number);
    }
    assert_eq!(table.occupancy(0), 4);
    let found = |number| {
        let key = flow_key(number);
        table.lookup(table.hash(&key), &key).is_some()
    };
    assert!((96..100).filter(|number| found(*number)).count() >= 3);
    assert!(!(0..90).any(found));
}

#[test]
fn a_lowered_quota_is_reached_by_trimming_or_inserting() {
    let mut table = ExactTable::new(1024, 2, HashSecret::random());
    for number in 0..100 {
        let key = flow_key(number);
        table.insert(table.hash(&key), &key, FlowSlot::default(), 1);
    }
    table.set_quota(1, 50);
    assert_eq!(table.occupancy(1), 100);
    assert_eq!(table.trim(1, 10), 40);
    let key = flow_key(1000);
    let mut inserts = 0;
    while !table.insert(table.hash(&key), &key, FlowSlot::default(), 1) {
        inserts += 1;
    }
    assert_eq!(inserts, 40 / TRIM_PER_INSERT - 1);
    assert_eq!(table.occupancy(1), 50);
}

#[test]
fn an_unknown_owner_gets_nothing() {
    let mut table = ExactTable::new(64, 2, HashSecret::random());
    let key = flow_key(1);
    assert!(!table.insert(table.hash(&key), &key, FlowSlot::default(), 2));
    assert_eq!(table.occupancy(2), 0);
}

/// CLS-08: a flood of keys made for one bucket, by someone who knows the secret.
#[test]
fn a_collision_flood_evicts_nobody_else() {
    let secret = HashSecret::from_words(1, 0x1234_5678_9abc_def1);
    let mut table = ExactTable::new(64, 2, secret);
    let key_of = |number: u32| FlowKey { in_port: 1, ipv6_label: number, ..FlowKey::default() };
    let in_first_bucket = |key: &FlowKey| secret.hash(key.words()).is_multiple_of(8);
    let mut keys = (0..).map(key_of).filter(in_first_bucket);
    let victim = keys.next().unwrap();
    table.insert(table.hash(&victim), &victim, FlowSlot { index: 7, version: 7 }, 0);
    for key in keys.take(1000) {
        table.insert(table.hash(&key), &key, FlowSlot::default(), 1);
        assert!(table.occupancy(1) <= 7);
    }
    let found = table.lookup(table.hash(&victim), &victim);
    assert_eq!(found, Some(FlowSlot { index: 7, version: 7 }));
}

/// A million flows of two owners, in a table that has as many places and in one of twice as many.
#[test]
fn a_million_entries_are_found_or_gave_way_to_their_own_owners() {
    const KEYS: u32 = 1_000_000;
    let flow_key = |n: u32| FlowKey { in_port: n, l4_dst: n as u16, ..FlowKey::default() };
    for (capacity, found_min) in [(1 << 20, 800_000), (1 << 21, 980_000)] {
        let mut table = ExactTable::new(capacity, 2, HashSecret::from_words(3, 4));
        let slot = |n: u32| FlowSlot { index: n, version: !n };
        let mut skipped = 0;
        for n in 0..KEYS {
            let key = flow_key(n);
            let placed = table.insert(table.hash(&key), &key, slot(n), (n % 2) as u16);
            skipped += u32::from(!placed);
        }
        let mut found = [0, 0];
        for n in 0..KEYS {
            let key = flow_key(n);
            if let Some(other) = table.lookup(table.hash(&key), &key) {
                assert_eq!(other, slot(n));
                found[n as usize % 2] += 1;
            }
        }
        assert_eq!(found, [table.occupancy(0), table.occupancy(1)]);
        assert!(found[0] + found[1] >= found_min, "{found:?} found");
        assert!(skipped < KEYS / 100, "{skipped} skipped");
        // Sweeping goes through all places in bounded steps and leaves nothing that is stale.
        let (mut cursor, mut steps) = (0, 0);
        loop {
            cursor = table.sweep(cursor, 4096, |slot| slot.index % 2 == 1);
            steps += 1;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(steps, capacity / 4096);
        assert_eq!([table.occupancy(0), table.occupancy(1)], [found[0], 0]);
    }
}
