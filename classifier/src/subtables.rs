//! The megaflow cache's subtables: per ingress port, a list of the masks to try, the most used
//! first. Linked through a fixed pool.

use std::cmp::Reverse;

use tollgate_accel::hash::HashSecret;
use tollgate_packet::{FlowKey, FlowMask};

use crate::limits::{RANK_SCAN_SUBTABLES, SUBTABLES_PER_PORT_MAX};

const NONE: u16 = u16::MAX;
const PORTS: usize = 1 << 16;

/// One mask of one ingress port.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Subtable {
    mask: FlowMask,
    /// Keeps flows of different subtables whose masked words hash alike out of the same buckets.
    salt: u64,
    /// Lookups that ended here, halved at each ranking.
    hits: u32,
    /// Zero when the subtable is free.
    flows: u32,
    next: u16,
    port: u16,
}

impl Subtable {
    pub(crate) fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// The hash under which a packet with this key would be found here.
    #[inline]
    pub(crate) fn hash(&self, key: &FlowKey, secret: &HashSecret) -> u64 {
        secret.hash_masked(key.words(), self.mask.words()) ^ self.salt
    }

    #[inline]
    pub(crate) fn count_hit(&mut self) {
        self.hits = self.hits.saturating_add(1);
    }
}

#[derive(Debug)]
pub(crate) struct Subtables {
    pool: Box<[Subtable]>,
    free: Vec<u16>,
    /// First subtable of each port.
    heads: Box<[u16]>,
    rank_cursor: usize,
}

impl Subtables {
    pub(crate) fn new(capacity: usize, secret: &HashSecret) -> Self {
        let capacity = capacity.min(usize::from(NONE));
        let pool = (0..capacity).map(|number| Subtable {
            mask: FlowMask::default(),
            salt: secret.hash(&[number as u64]),
            hits: 0,
            flows: 0,
            next: NONE,
            port: 0,
        });
        Self {
            pool: pool.collect(),
            free: (0..capacity as u16).rev().collect(),
            heads: vec![NONE; PORTS].into_boxed_slice(),
            rank_cursor: 0,
        }
    }

    /// Subtables in use.
    pub(crate) fn len(&self) -> usize {
        self.pool.len() - self.free.len()
    }

    /// The subtable that packets with this key are looked up in first.
    #[inline]
    pub(crate) fn first(&self, key: &FlowKey) -> u16 {
        self.heads.get(usize::from(key.in_port as u16)).copied().unwrap_or(NONE)
    }

    #[inline]
    pub(crate) fn next(&self, number: u16) -> u16 {
        self.get(number).map_or(NONE, |subtable| subtable.next)
    }

    #[inline]
    pub(crate) fn get(&self, number: u16) -> Option<&Subtable> {
        self.pool.get(usize::from(number))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u16) -> Option<&mut Subtable> {
        self.pool.get_mut(usize::from(number))
    }

    /// The subtables of the key's port, in order.
    pub(crate) fn of_port(&self, key: &FlowKey) -> impl Iterator<Item = u16> {
        let some = |number| (number != NONE).then_some(number);
        std::iter::successors(some(self.first(key)), move |number| some(self.next(*number)))
    }

    pub(crate) fn with_mask(&self, key: &FlowKey, mask: &FlowMask) -> Option<u16> {
        self.of_port(key).find(|number| self.get(*number).is_some_and(|s| s.mask == *mask))
    }

    /// A new subtable at the end of its port's list; `None` when the port or the pool has no more.
    pub(crate) fn add(&mut self, key: &FlowKey, mask: &FlowMask) -> Option<u16> {
        let is_exact = |mask: &FlowMask| mask.words().iter().all(|word| *word == u64::MAX);
        let counted =
            self.of_port(key).filter(|n| self.get(*n).is_some_and(|s| !is_exact(&s.mask)));
        if counted.count() >= SUBTABLES_PER_PORT_MAX && !is_exact(mask) {
            return None;
        }
        let number = self.free.pop()?;
        let last = self.of_port(key).last();
        let subtable = self.get_mut(number)?;
        *subtable = Subtable {
            mask: *mask,
            salt: subtable.salt,
            hits: 0,
            flows: 0,
            next: NONE,
            port: key.in_port as u16,
        };
        self.link(key.in_port as u16, last, number);
        Some(number)
    }

    pub(crate) fn flow_added(&mut self, number: u16) {
        if let Some(subtable) = self.get_mut(number) {
            subtable.flows += 1;
        }
    }

    /// One flow less; a subtable without flows is given back.
    pub(crate) fn flow_removed(&mut self, number: u16) {
        if let Some(subtable) = self.get_mut(number) {
            subtable.flows = subtable.flows.saturating_sub(1);
            if subtable.flows == 0 {
                self.release_if_empty(number);
            }
        }
    }

    pub(crate) fn release_if_empty(&mut self, number: u16) {
        let Some(&Subtable { flows: 0, next, port, .. }) = self.get(number) else { return };
        let key = FlowKey { in_port: u32::from(port), ..FlowKey::default() };
        let previous = self.of_port(&key).take_while(|other| *other != number).last();
        self.link(port, previous, next);
        self.free.push(number);
    }

    /// Makes `number` follow `previous`, or stand first when there is none.
    fn link(&mut self, port: u16, previous: Option<u16>, number: u16) {
        let link = match previous {
            Some(previous) => self.get_mut(previous).map(|subtable| &mut subtable.next),
            None => self.heads.get_mut(usize::from(port)),
        };
        if let Some(link) = link {
            *link = number;
        }
    }

    /// Sorts the list of the next port by hits and lets the hits fade.
    pub(crate) fn rank(&mut self) {
        let scanned = RANK_SCAN_SUBTABLES.min(self.pool.len());
        for _ in 0..scanned {
            let number = self.rank_cursor as u16;
            self.rank_cursor = (self.rank_cursor + 1) % self.pool.len();
            let Some(subtable) = self.get(number) else { return };
            let (port, flows) = (subtable.port, subtable.flows);
            // Each list has one head, so a round over the pool ranks each about once.
            if flows > 0 && self.heads.get(usize::from(port)) == Some(&number) {
                return self.rank_port(port);
            }
        }
    }

    fn rank_port(&mut self, port: u16) {
        const LIST_MAX: usize = SUBTABLES_PER_PORT_MAX + 1;
        let key = FlowKey { in_port: u32::from(port), ..FlowKey::default() };
        let mut order = [(Reverse(0), 0, NONE); LIST_MAX];
        let mut subtables = 0;
        for (position, (place, number)) in order.iter_mut().zip(self.of_port(&key)).enumerate() {
            let hits = self.get(number).map_or(0, |subtable| subtable.hits);
            *place = (Reverse(hits), position, number);
            subtables = position + 1;
        }
        let list = order.get_mut(..subtables).unwrap_or_default();
        // With the position in the key, equals keep their order; a stable sort may allocate.
        list.sort_unstable();
        let mut previous = None;
        for &mut (Reverse(hits), _, number) in list {
            self.link(port, previous, number);
            if let Some(subtable) = self.get_mut(number) {
                subtable.hits = hits / 2;
                subtable.next = NONE;
            }
            previous = Some(number);
        }
    }
}
