//! The megaflow cache: flows with wildcards and without priorities, of one PMD.
//!
//! A tuple space search: all flows with the same mask form a subtable, in which a packet is
//! looked up by hashing its masked key. The flows of all subtables lie in one table of fixed size.

use tollgate_accel::hash::HashSecret;
use tollgate_accel::prefetch::{prefetch_read, prefetch_write};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use crate::index::HashIndex;
use crate::subtables::Subtables;

/// Names a flow of one [`MegaflowCache`]. It does not keep the flow alive: once the flow is
/// removed, the handle finds nothing, also when the place is used again (until the version wraps,
/// after 2^32 uses of one place).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowSlot {
    /// Place in the cache.
    pub index: u32,
    /// Which of the flows that were in that place.
    pub version: u32,
}

/// Why a flow was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// No place for another flow.
    Full,
    /// The flow's mask is new, and its ingress port has
    /// [`SUBTABLES_PER_PORT_MAX`](crate::limits::SUBTABLES_PER_PORT_MAX) masks already or all
    /// ports together have as many as the cache was made for. A flow with a mask of all ones has
    /// only the second limit.
    TooManySubtables,
    /// A flow with the same match is there.
    Duplicate,
    /// The mask leaves bits of the ingress port out.
    InPortWild,
}

#[derive(Debug)]
struct Entry<V> {
    key: FlowKey,
    hash: u64,
    version: u32,
    subtable: u16,
    value: Option<V>,
}

/// A table from flow matches to values, looked up by packet.
///
/// The flows must be disjoint where it matters: a packet that matches several may get any.
#[derive(Debug)]
pub struct MegaflowCache<V> {
    subtables: Subtables,
    index: HashIndex,
    entries: Box<[Entry<V>]>,
    free: Vec<u32>,
    secret: HashSecret,
    probes: u64,
}

impl<V> MegaflowCache<V> {
    /// A cache for `capacity_flows` flows with `capacity_subtables` pairs of ingress port and
    /// mask. All its memory is allocated here.
    pub fn new(capacity_flows: usize, capacity_subtables: usize, secret: HashSecret) -> Self {
        let capacity = u32::try_from(capacity_flows).unwrap_or(u32::MAX);
        let entry =
            |_| Entry { key: FlowKey::default(), hash: 0, version: 0, subtable: 0, value: None };
        Self {
            subtables: Subtables::new(capacity_subtables, &secret),
            index: HashIndex::new(capacity as usize),
            entries: (0..capacity).map(entry).collect(),
            free: (0..capacity).rev().collect(),
            secret,
            probes: 0,
        }
    }

    /// Flows in the cache.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pairs of ingress port and mask in use.
    pub fn subtables(&self) -> usize {
        self.subtables.len()
    }

    /// Masks in use for packets of the key's ingress port: what a miss has to probe.
    pub fn subtables_of_port(&self, key: &FlowKey) -> usize {
        self.subtables.of_port(key).count()
    }

    /// Subtables probed by all lookups so far.
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// The flow that the packet matches, and how many subtables were probed for it.
    #[inline]
    pub fn lookup(&mut self, key: &FlowKey) -> Option<(FlowSlot, u32)> {
        let mut probes = 0;
        let mut number = self.subtables.first(key);
        let mut found = None;
        while let Some(subtable) = self.subtables.get_mut(number) {
            probes += 1;
            let hash = subtable.hash(key, &self.secret);
            let mask = subtable.mask();
            let entries = &self.entries;
            let index = self.index.find(hash, |index| {
                entries.get(index as usize).is_some_and(|entry| {
                    entry.subtable == number && differs(key, mask, &entry.key) == 0
                })
            });
            if let Some(index) = index {
                subtable.count_hit();
                found = self.slot(index).map(|slot| (slot, probes));
                break;
            }
            number = self.subtables.next(number);
        }
        self.probes += u64::from(probes);
        found
    }

    /// Asks for the memory that [`get`](Self::get) will read.
    #[inline]
    pub fn prefetch(&self, slot: FlowSlot) {
        if let Some(entry) = self.entries.get(slot.index as usize) {
            prefetch_read(&raw const entry.version);
            prefetch_read(&raw const entry.value);
        }
    }

    /// The value of a flow that is still there.
    #[inline]
    pub fn get(&self, slot: FlowSlot) -> Option<&V> {
        let entry = self.entries.get(slot.index as usize)?;
        entry.value.as_ref().filter(|_| entry.version == slot.version)
    }

    /// Asks for the memory that [`insert`](Self::insert) will touch for a flow before which `ahead`
    /// others are inserted.
    pub fn prefetch_insert(&self, matcher: &FlowMatch, ahead: usize) {
        let number = self.subtables.with_mask(matcher.key(), matcher.mask());
        if let Some(hash) = number.and_then(|number| self.hash(number, matcher.key())) {
            self.index.prefetch(hash);
        }
        let free = self.free.len().checked_sub(ahead + 1).and_then(|at| self.free.get(at));
        if let Some(entry) = free.and_then(|index| self.entries.get(*index as usize)) {
            prefetch_write(&raw const entry.key);
            prefetch_write(&raw const entry.version);
            prefetch_write(&raw const entry.value);
        }
    }

    /// Adds a flow.
    ///
    /// # Errors
    /// Gives the value back with the reason.
    pub fn insert(&mut self, matcher: FlowMatch, value: V) -> Result<FlowSlot, (InsertError, V)> {
        if matcher.mask().0.in_port != u32::MAX {
            return Err((InsertError::InPortWild, value));
        }
        let (key, mask) = (matcher.key(), matcher.mask());
        let known = self.subtables.with_mask(key, mask).and_then(|n| Some((n, self.hash(n, key)?)));
        if known.is_some_and(|(number, hash)| self.find(number, hash, &matcher).is_some()) {
            return Err((InsertError::Duplicate, value));
        }
        let Some(&index) = self.free.last() else { return Err((InsertError::Full, value)) };
        let added = || self.subtables.add(key, mask);
        let Some(number) = known.map(|(number, _)| number).or_else(added) else {
            return Err((InsertError::TooManySubtables, value));
        };
        let hash = known.map(|(_, hash)| hash).or_else(|| self.hash(number, key));
        match hash.and_then(|hash| self.place(index, number, hash, key)) {
            Some(entry) => {
                entry.value = Some(value);
                let version = entry.version;
                self.free.pop();
                self.subtables.flow_added(number);
                Ok(FlowSlot { index, version })
            }
            None => {
                self.subtables.release_if_empty(number);
                Err((InsertError::Full, value))
            }
        }
    }

    /// Removes a flow, if it is still there.
    pub fn remove(&mut self, slot: FlowSlot) -> Option<V> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.version != slot.version {
            return None;
        }
        let value = entry.value.take()?;
        entry.version = entry.version.wrapping_add(1);
        self.index.remove(entry.hash, slot.index);
        self.subtables.flow_removed(entry.subtable);
        self.free.push(slot.index);
        Some(value)
    }

    /// Removes the flow with exactly this match.
    pub fn remove_match(&mut self, matcher: &FlowMatch) -> Option<V> {
        let number = self.subtables.with_mask(matcher.key(), matcher.mask())?;
        let index = self.find(number, self.hash(number, matcher.key())?, matcher)?;
        self.remove(self.slot(index)?)
    }

    /// Moves the subtables that were hit most to the front, for one ingress port: a bounded step,
    /// to be repeated from time to time.
    pub fn rank(&mut self) {
        self.subtables.rank();
    }

    /// The flows in `places` places from `cursor` on, and the cursor with which to go on (zero
    /// after the last place).
    pub fn iter_from(
        &self,
        cursor: u32,
        places: u32,
    ) -> (impl Iterator<Item = (FlowSlot, &V)>, u32) {
        let end = cursor.saturating_add(places);
        let next = if (end as usize) < self.entries.len() { end } else { 0 };
        let window = (cursor..end).zip(self.entries.iter().skip(cursor as usize));
        let flows = window.filter_map(|(index, entry)| {
            let slot = FlowSlot { index, version: entry.version };
            entry.value.as_ref().map(|value| (slot, value))
        });
        (flows, next)
    }

    fn slot(&self, index: u32) -> Option<FlowSlot> {
        let version = self.entries.get(index as usize)?.version;
        Some(FlowSlot { index, version })
    }

    /// The hash of a flow in a subtable.
    fn hash(&self, number: u16, key: &FlowKey) -> Option<u64> {
        Some(self.subtables.get(number)?.hash(key, &self.secret))
    }

    fn find(&self, number: u16, hash: u64, matcher: &FlowMatch) -> Option<u32> {
        self.index.find(hash, |index| {
            self.entries
                .get(index as usize)
                .is_some_and(|entry| entry.subtable == number && entry.key == *matcher.key())
        })
    }

    /// Makes the free entry `index` one of the subtable's.
    fn place(
        &mut self,
        index: u32,
        number: u16,
        hash: u64,
        key: &FlowKey,
    ) -> Option<&mut Entry<V>> {
        let entries = &self.entries;
        let hash_of = |other: u32| entries.get(other as usize).map_or(0, |entry| entry.hash);
        if !self.index.insert(hash, index, hash_of) {
            return None;
        }
        let entry = self.entries.get_mut(index as usize)?;
        (entry.key, entry.hash, entry.subtable) = (*key, hash, number);
        Some(entry)
    }
}

/// Non-zero where the packet disagrees with an entry of a subtable with this mask.
#[inline]
fn differs(packet: &FlowKey, mask: &FlowMask, entry: &FlowKey) -> u64 {
    let words = packet.words().iter().zip(mask.words()).zip(entry.words());
    words.fold(0, |differ, ((packet, mask), entry)| differ | ((packet & mask) ^ entry))
}
