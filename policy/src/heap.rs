//! A binary heap of tenant slots by virtual time, smallest first and then by slot, in which a key
//! can change and a slot can leave from anywhere: O(log n) each, nothing allocated after
//! construction.

use crate::credit::VirtualTime;
use crate::list::copy_prefix;

const ABSENT: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: VirtualTime,
    slot: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct SlotHeap {
    entries: Vec<Entry>,
    /// Where each slot's entry is, or `ABSENT`.
    position: Box<[u16]>,
    /// Exchanges made so far: what a call costs, for the tests that bound it.
    #[cfg(test)]
    pub(crate) exchanges: u64,
}

impl SlotHeap {
    pub(crate) fn new(slots: u16) -> Self {
        Self {
            entries: Vec::with_capacity(usize::from(slots)),
            position: vec![ABSENT; usize::from(slots)].into(),
            #[cfg(test)]
            exchanges: 0,
        }
    }

    /// Becomes a copy of a heap for as many slots, both of which have none from `end` on; without an
    /// allocation.
    pub(crate) fn copy_from(&mut self, other: &Self, end: usize) {
        self.entries.clone_from(&other.entries);
        copy_prefix(&mut self.position, &other.position, end);
    }

    /// All slots and their keys, smallest first.
    pub(crate) fn in_order(&self) -> Vec<(u16, VirtualTime)> {
        let mut entries = self.entries.clone();
        entries.sort_unstable();
        entries.into_iter().map(|entry| (entry.slot, entry.key)).collect()
    }

    pub(crate) fn first(&self) -> Option<(VirtualTime, u16)> {
        self.entries.first().map(|entry| (entry.key, entry.slot))
    }

    /// Puts a slot in, or changes the key it is in with.
    pub(crate) fn set(&mut self, slot: u16, key: VirtualTime) {
        let Some(&position) = self.position.get(usize::from(slot)) else { return };
        let mut at = usize::from(position);
        if position == ABSENT {
            at = self.entries.len();
            self.entries.push(Entry { key, slot });
            self.note(at);
        } else if let Some(entry) = self.entries.get_mut(at) {
            entry.key = key;
        }
        let at = self.sift_up(at);
        self.sift_down(at);
    }

    /// Takes a slot out; no effect when it is not in.
    pub(crate) fn remove(&mut self, slot: u16) {
        let Some(&position) = self.position.get(usize::from(slot)) else { return };
        let at = usize::from(position);
        if at >= self.entries.len() {
            return;
        }
        self.entries.swap_remove(at);
        if let Some(position) = self.position.get_mut(usize::from(slot)) {
            *position = ABSENT;
        }
        if at < self.entries.len() {
            self.note(at);
            let at = self.sift_up(at);
            self.sift_down(at);
        }
    }

    fn note(&mut self, at: usize) {
        let Some(slot) = self.entries.get(at).map(|entry| entry.slot) else { return };
        if let Some(position) = self.position.get_mut(usize::from(slot)) {
            // Never truncates: there are at most as many entries as 16-bit slots.
            *position = at as u16;
        }
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.note(a);
        self.note(b);
        #[cfg(test)]
        {
            self.exchanges += 1;
        }
    }

    fn sift_up(&mut self, mut at: usize) -> usize {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entries.get(parent) <= self.entries.get(at) {
                break;
            }
            self.exchange(parent, at);
            at = parent;
        }
        at
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.entries.len() {
                return;
            }
            let right_first =
                right < self.entries.len() && self.entries.get(right) < self.entries.get(left);
            let child = if right_first { right } else { left };
            if self.entries.get(at) <= self.entries.get(child) {
                return;
            }
            self.exchange(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn heap_keeps_the_smallest_first_under_any_change(
            ops in prop::collection::vec((any::<bool>(), 0u16..20, 0u64..50), 0..300)
        ) {
            let mut heap = SlotHeap::new(20);
            let mut model: BTreeMap<u16, VirtualTime> = BTreeMap::new();
            for (put, slot, key) in ops {
                let key = VirtualTime::from_raw(u128::from(key));
                if put {
                    heap.set(slot, key);
                    model.insert(slot, key);
                } else {
                    heap.remove(slot);
                    model.remove(&slot);
                }
                prop_assert_eq!(heap.entries.len(), model.len());
                let first = model.iter().map(|(slot, key)| (*key, *slot)).min();
                prop_assert_eq!(heap.first(), first);
            }
        }
    }
}
