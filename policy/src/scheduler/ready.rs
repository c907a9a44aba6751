//! Tenants that wait for a turn, in the order in which they get it.
//!
//! FQ-CoDel's two lists (RFC 8290, section 4.2): newly woken tenants before those that had a turn
//! already. Only funded ones stand in a list; those in debt stand in a heap by their start tags. So
//! no turn is spent on skipping them, and the first of the heap is the least indebted by weight.

use crate::credit::VirtualTime;
use crate::heap::SlotHeap;
use crate::list::{Links, List, copy_prefix};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nowhere,
    New,
    Old,
    Debt,
}

/// A moment, as the number of tenants that had joined the old list by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) u64);

#[derive(Clone, Copy, Debug)]
struct Wait {
    place: Place,
    /// When it joined the old list.
    since: Moment,
}

#[derive(Clone, Debug)]
pub(super) struct Ready {
    links: Links,
    new: List,
    old: List,
    debt: SlotHeap,
    waits: Box<[Wait]>,
    now: Moment,
}

impl Ready {
    pub(super) fn new(slots: u16) -> Self {
        let nowhere = Wait { place: Place::Nowhere, since: Moment(0) };
        Self {
            links: Links::new(slots),
            new: List::EMPTY,
            old: List::EMPTY,
            debt: SlotHeap::new(slots),
            waits: vec![nowhere; usize::from(slots)].into(),
            now: Moment(0),
        }
    }

    /// Becomes a copy of one whose slots from `end` on are as they were at first, and so are this
    /// one's; without an allocation.
    pub(super) fn copy_from(&mut self, other: &Self, end: usize) {
        self.links.copy_from(&other.links, end);
        (self.new, self.old, self.now) = (other.new, other.old, other.now);
        self.debt.copy_from(&other.debt, end);
        copy_prefix(&mut self.waits, &other.waits, end);
    }

    /// Goes on from a moment that was written down.
    pub(super) fn resume(&mut self, now: Moment) {
        self.now = now;
    }

    /// Who waits in the new list, first to last.
    pub(super) fn new_list(&self) -> impl Iterator<Item = u16> {
        self.links.iter(&self.new)
    }

    /// The same of the old list, and when each joined it.
    pub(super) fn old_list(&self) -> impl Iterator<Item = (u16, Moment)> {
        let since = |slot| self.waits.get(usize::from(slot)).map_or(Moment(0), |wait| wait.since);
        self.links.iter(&self.old).map(move |slot| (slot, since(slot)))
    }

    /// Who waits in debt, in order.
    pub(super) fn in_debt(&self) -> Vec<(u16, VirtualTime)> {
        self.debt.in_order()
    }

    pub(super) fn place(&self, slot: u16) -> Place {
        self.waits.get(usize::from(slot)).map_or(Place::Nowhere, |wait| wait.place)
    }

    fn set_place(&mut self, slot: u16, place: Place) {
        if let Some(wait) = self.waits.get_mut(usize::from(slot)) {
            *wait = Wait { place, since: self.now };
        }
    }

    pub(super) fn push_new(&mut self, slot: u16) {
        self.links.push_back(&mut self.new, slot);
        self.set_place(slot, Place::New);
    }

    pub(super) fn push_old(&mut self, slot: u16) {
        self.links.push_back(&mut self.old, slot);
        self.set_place(slot, Place::Old);
        self.now.0 += 1;
    }

    /// Puts a tenant among those in debt, or moves it there.
    pub(super) fn set_debt(&mut self, slot: u16, tag: VirtualTime) {
        self.debt.set(slot, tag);
        self.set_place(slot, Place::Debt);
    }

    pub(super) fn remove(&mut self, slot: u16) {
        match self.place(slot) {
            Place::New => self.links.remove(&mut self.new, slot),
            Place::Old => self.links.remove(&mut self.old, slot),
            Place::Debt => self.debt.remove(slot),
            Place::Nowhere => {}
        }
        self.set_place(slot, Place::Nowhere);
    }

    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// Whether a tenant waits in the old list that waited there before `moment`.
    pub(super) fn waits_since_before(&self, moment: Moment) -> bool {
        let first = self.old.head().and_then(|slot| self.waits.get(usize::from(slot)));
        first.is_some_and(|wait| wait.since < moment)
    }

    /// Whether a funded tenant waits (any tenant while protection is off).
    pub(super) fn any_listed(&self) -> bool {
        !self.new.is_empty() || !self.old.is_empty()
    }

    /// The tag of the least indebted tenant of those that wait in debt.
    pub(super) fn first_tag(&self) -> Option<VirtualTime> {
        self.debt.first().map(|(tag, _)| tag)
    }

    /// Takes the next tenant out, and where it stood.
    pub(super) fn pop(&mut self) -> Option<(u16, Place)> {
        let slot =
            self.new.head().or(self.old.head()).or(self.debt.first().map(|(_, slot)| slot))?;
        let place = self.place(slot);
        self.remove(slot);
        Some((slot, place))
    }

    #[cfg(test)]
    pub(super) fn debt_exchanges(&self) -> u64 {
        self.debt.exchanges
    }
}
