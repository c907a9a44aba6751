//! The exact-match table: whole keys to megaflows, of one PMD.

use tollgate_accel::hash::HashSecret;
use tollgate_accel::prefetch::prefetch_read;
use tollgate_packet::FlowKey;

use crate::limits::TRIM_PER_INSERT;
use crate::megaflow::FlowSlot;
use crate::tags::{Tags, WAYS, tag_of};

const NONE: u32 = u32::MAX;

/// Two cache lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Entry {
    key: FlowKey,
    slot: FlowSlot,
    /// Neighbours in the list of the owner's entries, by age.
    older: u32,
    newer: u32,
    owner: u16,
}

#[derive(Clone, Debug)]
struct Owner {
    quota: u32,
    occupancy: u32,
    oldest: u32,
    newest: u32,
}

/// A cache from keys to flows. An entry belongs to an owner (a tenant), which has a quota.
///
/// An owner at its quota evicts its own oldest entries; an owner under it takes free places and
/// stale ones. Nobody evicts another's live entry: where that would be needed, the insert is
/// skipped. All memory is allocated by [`new`](Self::new).
#[derive(Debug)]
pub struct ExactTable {
    /// Bucket b has the entries b * WAYS .. (b + 1) * WAYS.
    buckets: Box<[Tags]>,
    entries: Box<[Entry]>,
    owners: Box<[Owner]>,
    bucket_mask: u64,
    secret: HashSecret,
}

impl ExactTable {
    /// A table for `capacity` entries, rounded up to a power of two, and owners 0 to
    /// `owners_max - 1`, each with the whole table as its quota until
    /// [`set_quota`](Self::set_quota).
    pub fn new(capacity: usize, owners_max: usize, secret: HashSecret) -> Self {
        let capacity = capacity.clamp(WAYS, 1 << 31).next_power_of_two();
        let entry = Entry {
            key: FlowKey::default(),
            slot: FlowSlot::default(),
            older: NONE,
            newer: NONE,
            owner: 0,
        };
        let owner = Owner { quota: capacity as u32, occupancy: 0, oldest: NONE, newest: NONE };
        Self {
            buckets: vec![Tags::default(); capacity / WAYS].into_boxed_slice(),
            entries: vec![entry; capacity].into_boxed_slice(),
            owners: vec![owner; owners_max].into_boxed_slice(),
            bucket_mask: (capacity / WAYS) as u64 - 1,
            secret,
        }
    }

    /// The hash that the other calls take, so that it is computed once per packet.
    ///
    /// Reading a key's words right after its fields were written stalls (20 cycles): parse a whole
    /// burst first, then hash it, then prefetch.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.secret.hash(key.words())
    }

    /// Asks for the tags that say where a lookup of this hash will read.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        if let Some(tags) = self.buckets.get(self.bucket(hash)) {
            prefetch_read(&raw const *tags);
        }
    }

    /// Asks for the entry that a lookup of this hash will read, once its tags are there.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let bucket = self.bucket(hash);
        let Some(tags) = self.buckets.get(bucket) else { return };
        if let Some(way) = tags.matching(tag_of(hash)).next()
            && let Some(entry) = self.entries.get(bucket * WAYS + way)
        {
            prefetch_read(&raw const entry.key);
            prefetch_read(&raw const entry.slot);
        }
    }

    /// The flow of this key, which may have been removed from its cache since.
    #[inline]
    pub fn lookup(&self, hash: u64, key: &FlowKey) -> Option<FlowSlot> {
        self.find(hash, key).and_then(|place| self.entries.get(place)).map(|entry| entry.slot)
    }

    /// [`insert_over_stale`](Self::insert_over_stale) where no entry is known to be stale.
    pub fn insert(&mut self, hash: u64, key: &FlowKey, slot: FlowSlot, owner: u16) -> bool {
        self.insert_over_stale(hash, key, slot, owner, |_| false)
    }

    /// Makes `slot` the flow of this key, in the place of an entry for which `is_stale` says that
    /// its flow is gone if need be. Returns whether there was a place.
    pub fn insert_over_stale(
        &mut self,
        hash: u64,
        key: &FlowKey,
        slot: FlowSlot,
        owner: u16,
        is_stale: impl Fn(FlowSlot) -> bool,
    ) -> bool {
        self.trim(owner, TRIM_PER_INSERT);
        if let Some(place) = self.find(hash, key) {
            match self.entries.get_mut(place) {
                Some(entry) if entry.owner == owner => {
                    entry.slot = slot;
                    return true;
                }
                // The key has changed hands: its port was given to another tenant.
                _ => self.clear(place),
            }
        }
        let Some(&Owner { quota, occupancy, .. }) = self.owners.get(usize::from(owner)) else {
            return false;
        };
        let own = self.place_where(hash, |entry| entry.owner == owner);
        let place = if occupancy > quota || quota == 0 {
            None
        } else if occupancy == quota {
            // The entry's own bucket if possible: then it stays as it is for all others.
            own.or_else(|| {
                let place = self.free_or_stale(hash, &is_stale)?;
                self.clear_oldest(owner);
                Some(place)
            })
        } else {
            self.free_or_stale(hash, &is_stale).or(own)
        };
        let Some(place) = place else { return false };
        self.clear(place);
        self.put(place, hash, key, slot, owner);
        true
    }

    /// Forgets a key. Returns whether it was there.
    pub fn remove(&mut self, hash: u64, key: &FlowKey) -> bool {
        let found = self.find(hash, key);
        if let Some(place) = found {
            self.clear(place);
        }
        found.is_some()
    }

    /// How many entries the owner may have. An owner that has more gives the oldest up bit by bit:
    /// at each insert, or by [`trim`](Self::trim).
    pub fn set_quota(&mut self, owner: u16, entries: u32) {
        if let Some(owner) = self.owners.get_mut(usize::from(owner)) {
            owner.quota = entries;
        }
    }

    /// Entries that there is room for.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Entries that the owner has.
    pub fn occupancy(&self, owner: u16) -> u32 {
        self.owners.get(usize::from(owner)).map_or(0, |owner| owner.occupancy)
    }

    /// Evicts the oldest entries of an owner that has more than its quota, at most `evictions`.
    /// Returns how many it still has too many.
    pub fn trim(&mut self, owner: u16, evictions: usize) -> u32 {
        let excess = |table: &Self| {
            let owner = table.owners.get(usize::from(owner));
            owner.map_or(0, |owner| owner.occupancy.saturating_sub(owner.quota))
        };
        for _ in 0..evictions {
            if excess(self) == 0 {
                break;
            }
            self.clear_oldest(owner);
        }
        excess(self)
    }

    /// Frees the stale ones of `places` places from `cursor` on. Returns the cursor with which to
    /// go on.
    pub fn sweep(&mut self, cursor: u32, places: u32, is_stale: impl Fn(FlowSlot) -> bool) -> u32 {
        let end = (cursor.saturating_add(places) as usize).min(self.entries.len());
        for place in cursor as usize..end {
            if self.is_live(place) && self.entries.get(place).is_some_and(|e| is_stale(e.slot)) {
                self.clear(place);
            }
        }
        if end < self.entries.len() { end as u32 } else { 0 }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        (hash & self.bucket_mask) as usize
    }

    #[inline]
    fn find(&self, hash: u64, key: &FlowKey) -> Option<usize> {
        let bucket = self.bucket(hash);
        let ways = self.buckets.get(bucket)?.matching(tag_of(hash));
        ways.map(|way| bucket * WAYS + way)
            .find(|place| self.entries.get(*place).is_some_and(|entry| entry.key == *key))
    }

    fn is_live(&self, place: usize) -> bool {
        self.buckets.get(place / WAYS).is_some_and(|tags| tags.used().contains(place % WAYS))
    }

    /// A live entry of the hash's bucket for which `is_it` holds. The search starts at a way that
    /// the hash chooses, so that no way is preferred.
    fn place_where(&self, hash: u64, is_it: impl Fn(&Entry) -> bool) -> Option<usize> {
        let bucket = self.bucket(hash);
        let used = self.buckets.get(bucket)?.used();
        let first = (hash >> 40) as usize;
        let ways = (first..first + WAYS).map(|way| way % WAYS).filter(|way| used.contains(*way));
        ways.map(|way| bucket * WAYS + way)
            .find(|place| self.entries.get(*place).is_some_and(&is_it))
    }

    fn free_or_stale(&self, hash: u64, is_stale: impl Fn(FlowSlot) -> bool) -> Option<usize> {
        let bucket = self.bucket(hash);
        let free = self.buckets.get(bucket)?.empty().next();
        free.map(|way| bucket * WAYS + way)
            .or_else(|| self.place_where(hash, |entry| is_stale(entry.slot)))
    }

    fn put(&mut self, place: usize, hash: u64, key: &FlowKey, slot: FlowSlot, owner: u16) {
        let Some(account) = self.owners.get_mut(usize::from(owner)) else { return };
        let older = std::mem::replace(&mut account.newest, place as u32);
        account.occupancy += 1;
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = Entry { key: *key, slot, older, newer: NONE, owner };
        }
        match self.entries.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = place as u32,
            None => account.oldest = place as u32,
        }
        if let Some(tags) = self.buckets.get_mut(place / WAYS) {
            tags.set(place % WAYS, tag_of(hash));
        }
    }

    fn clear_oldest(&mut self, owner: u16) {
        if let Some(owner) = self.owners.get(usize::from(owner)) {
            self.clear(owner.oldest as usize);
        }
    }

    /// Frees a place, if it is not free.
    fn clear(&mut self, place: usize) {
        if !self.is_live(place) {
            return;
        }
        let Some(&Entry { older, newer, owner, .. }) = self.entries.get(place) else { return };
        if let Some(tags) = self.buckets.get_mut(place / WAYS) {
            tags.clear(place % WAYS);
        }
        let Some(account) = self.owners.get_mut(usize::from(owner)) else { return };
        account.occupancy = account.occupancy.saturating_sub(1);
        match self.entries.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => account.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => account.newest = older,
        }
    }
}
