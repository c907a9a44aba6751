//! From a hash to the few entries that may have it: a hash index of fixed size with two buckets
//! per hash.
//!
//! An entry lies in its home bucket or, when that was full, in its second one; the home bucket
//! counts the entries that went there. So a search reads one bucket, rarely two, never more; a
//! removal leaves nothing behind; and no history of inserts and removals makes a search longer.

use tollgate_accel::prefetch::prefetch_read;

use crate::tags::{Tags, WAYS, tag_of};

/// One cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket {
    tags: Tags,
    entries: [u32; WAYS],
    /// Entries whose home this is and that lie in their second bucket.
    away: u32,
}

#[derive(Debug)]
pub(crate) struct HashIndex {
    buckets: Box<[Bucket]>,
    bucket_mask: u64,
}

/// Where an entry lies or may go.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    way: usize,
}

impl HashIndex {
    /// Room for `capacity` entries at half load, where both buckets and everything that could be
    /// moved aside being full is practically impossible for hashes that nobody can steer.
    pub(crate) fn new(capacity: usize) -> Self {
        let buckets = (capacity * 2).div_ceil(WAYS).next_power_of_two().max(2);
        Self {
            buckets: vec![Bucket::default(); buckets].into_boxed_slice(),
            bucket_mask: buckets as u64 - 1,
        }
    }

    /// Asks for the bucket in which an entry with this hash most likely is, or will be put.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(home) = self.buckets.get(self.home(hash)) {
            prefetch_read(&raw const *home);
        }
    }

    /// The first entry with this hash's tag for which `is_it` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let home = self.buckets.get(self.home(hash))?;
        let found = home.find(hash, &is_it);
        if found.is_some() || home.away == 0 {
            return found;
        }
        self.buckets.get(self.second(hash))?.find(hash, &is_it)
    }

    /// Puts `entry` in; `hash_of` gives the hashes of entries that are in already. `false`, and
    /// nothing changed, when there is no room.
    #[must_use]
    pub(crate) fn insert(&mut self, hash: u64, entry: u32, hash_of: impl Fn(u32) -> u64) -> bool {
        let (home, second) = (self.home(hash), self.second(hash));
        let free = self.free_place(home).or_else(|| self.free_place(second));
        let free = free.or_else(|| self.make_room(home, &hash_of));
        let Some(free) = free.or_else(|| self.make_room(second, &hash_of)) else { return false };
        self.put(free, hash, entry);
        true
    }

    /// Takes `entry` out.
    pub(crate) fn remove(&mut self, hash: u64, entry: u32) {
        let places = [self.home(hash), self.second(hash)];
        if let Some(place) = places.into_iter().find_map(|bucket| self.place_of(bucket, entry)) {
            self.take(place, hash);
        }
    }

    /// Moves one entry of a full bucket to its other bucket, if one of them can.
    fn make_room(&mut self, bucket: usize, hash_of: impl Fn(u32) -> u64) -> Option<Place> {
        (0..WAYS).find_map(|way| {
            let entry = *self.buckets.get(bucket)?.entries.get(way)?;
            let hash = hash_of(entry);
            let (home, second) = (self.home(hash), self.second(hash));
            let other = self.free_place(if bucket == home { second } else { home })?;
            let place = Place { bucket, way };
            self.take(place, hash);
            self.put(other, hash, entry);
            Some(place)
        })
    }

    fn free_place(&self, bucket: usize) -> Option<Place> {
        let way = self.buckets.get(bucket)?.tags.empty().next()?;
        Some(Place { bucket, way })
    }

    fn place_of(&self, bucket: usize, entry: u32) -> Option<Place> {
        let Bucket { tags, entries, .. } = self.buckets.get(bucket)?;
        let way = tags.used().find(|way| entries.get(*way) == Some(&entry))?;
        Some(Place { bucket, way })
    }

    fn put(&mut self, place: Place, hash: u64, entry: u32) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket) {
            bucket.tags.set(place.way, tag_of(hash));
            if let Some(slot) = bucket.entries.get_mut(place.way) {
                *slot = entry;
            }
        }
        self.count_away(place, hash, 1);
    }

    fn take(&mut self, place: Place, hash: u64) {
        if let Some(bucket) = self.buckets.get_mut(place.bucket) {
            bucket.tags.clear(place.way);
        }
        self.count_away(place, hash, -1);
    }

    fn count_away(&mut self, place: Place, hash: u64, change: i32) {
        let home = self.home(hash);
        if place.bucket != home
            && let Some(bucket) = self.buckets.get_mut(home)
        {
            bucket.away = bucket.away.saturating_add_signed(change);
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash & self.bucket_mask) as usize
    }

    /// Another bucket than [`home`](Self::home), from other bits.
    #[inline]
    fn second(&self, hash: u64) -> usize {
        let second = (hash.rotate_right(24) & self.bucket_mask) as usize;
        if second == self.home(hash) { second ^ 1 } else { second }
    }
}

impl Bucket {
    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.tags.matching(tag_of(hash)).find_map(|way| {
            let entry = *self.entries.get(way)?;
            is_it(entry).then_some(entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    impl HashIndex {
        fn assert_consistent(&self, hashes: &[Option<u64>]) {
            let mut away = vec![0; self.buckets.len()];
            let mut seen = 0;
            for (number, bucket) in self.buckets.iter().enumerate() {
                for way in bucket.tags.used() {
                    let hash = hashes[bucket.entries[way] as usize].expect("entry is in");
                    let (home, second) = (self.home(hash), self.second(hash));
                    assert!(number == home || number == second);
                    away[home] += u32::from(number != home);
                    seen += 1;
                }
            }
            assert_eq!(seen, hashes.iter().flatten().count());
            let counted: Vec<_> = self.buckets.iter().map(|bucket| bucket.away).collect();
            assert_eq!(counted, away);
        }
    }

    proptest! {
        // Hashes from few bits, so that buckets overflow all the time.
        #[test]
        fn entries_are_found_until_removed_and_leave_nothing_behind(
            steps in prop::collection::vec((0..64usize, 0..8u64, 0..8u64), 1..400),
        ) {
            let mut index = HashIndex::new(40);
            let mut hashes = vec![None; 64];
            for (entry, home, second) in steps {
                if let Some(hash) = hashes[entry] {
                    index.remove(hash, entry as u32);
                    hashes[entry] = None;
                } else {
                    let hash = home | second << 24 | (entry as u64 % 3) << 48;
                    let hash_of = |other: u32| hashes[other as usize].unwrap();
                    if index.insert(hash, entry as u32, hash_of) {
                        hashes[entry] = Some(hash);
                    }
                }
                index.assert_consistent(&hashes);
                for (entry, hash) in hashes.iter().enumerate() {
                    let Some(hash) = *hash else { continue };
                    let found = index.find(hash, |other| other == entry as u32);
                    prop_assert_eq!(found, Some(entry as u32));
                }
            }
            for (entry, hash) in hashes.iter_mut().enumerate() {
                if let Some(hash) = hash.take() {
                    index.remove(hash, entry as u32);
                }
            }
            index.assert_consistent(&hashes);
        }
    }

    #[test]
    fn a_full_bucket_gives_an_entry_to_that_entrys_other_bucket() {
        // Four buckets; which of the new entry's two buckets can give way decides.
        let hash = |home: u64, second: u64| home | second << 24;
        let ways = WAYS as u32;
        for (home, second) in [(0, 1), (1, 0)] {
            let mut index = HashIndex::new(4 * WAYS / 2);
            let hash_of = |entry: u32| match entry {
                0..8 => hash(0, 2),
                8..16 => hash(1, 0),
                _ => hash(home, second),
            };
            let inserted = (0..2 * ways).all(|entry| index.insert(hash_of(entry), entry, hash_of));
            assert!(inserted && index.free_place(0).is_none() && index.free_place(1).is_none());
            assert!(index.insert(hash_of(16), 16, hash_of));
            let hashes: Vec<_> = (0..=2 * ways).map(|entry| Some(hash_of(entry))).collect();
            index.assert_consistent(&hashes);
            assert!(index.free_place(2).is_some_and(|place| place.way == 1));
        }
    }

    #[test]
    fn a_search_compares_at_most_two_buckets_of_equal_hashes() {
        let mut index = HashIndex::new(1000);
        let accepted = (0..1000).filter(|entry| index.insert(7, *entry, |_| 7)).count();
        assert_eq!(accepted, 2 * WAYS);
        let compared = Cell::new(0);
        let found = index.find(7, |_| {
            compared.set(compared.get() + 1);
            false
        });
        assert_eq!((found, compared.get()), (None, 2 * WAYS));
    }
}
