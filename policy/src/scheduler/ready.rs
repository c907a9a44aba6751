//! Tenants that wait for a turn, in the order in which they get it.
//!
//! FQ-CoDel's two lists (RFC 8290, section 4.2): newly woken tenants before those that had a turn
//! already. Only funded ones stand in a list; those in debt stand in a heap by the virtual time at
//! which they will be funded. So no turn is spent on skipping them, and the first of the heap is
//! the least indebted by weight.

use crate::credit::VirtualTime;
use crate::heap::SlotHeap;
use crate::list::{Links, List};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nowhere,
    New,
    Old,
    Debt,
}

/// When a tenant ran out of work, in terms of who was waiting then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: VirtualTime,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    place: Place,
    /// Virtual time and count of arrivals when it joined the old list.
    since: VirtualTime,
    sequence: u64,
}

/// Who runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    Funded(u16),
    /// Nobody is funded; this one will be first, at that virtual time.
    Slack(u16, VirtualTime),
}

#[derive(Clone, Debug)]
pub(super) struct Ready {
    links: Links,
    new: List,
    old: List,
    debt: SlotHeap,
    waits: Box<[Wait]>,
    sequence: u64,
}

impl Ready {
    pub(super) fn new(slots: u16) -> Self {
        let since = VirtualTime::default();
        let nowhere = Wait { place: Place::Nowhere, since, sequence: 0 };
        Self {
            links: Links::new(slots),
            new: List::EMPTY,
            old: List::EMPTY,
            debt: SlotHeap::new(slots),
            waits: vec![nowhere; usize::from(slots)].into(),
            sequence: 0,
        }
    }

    pub(super) fn place(&self, slot: u16) -> Place {
        self.waits.get(usize::from(slot)).map_or(Place::Nowhere, |wait| wait.place)
    }

    fn set_place(&mut self, slot: u16, place: Place) {
        if let Some(wait) = self.waits.get_mut(usize::from(slot)) {
            wait.place = place;
        }
    }

    pub(super) fn push_new(&mut self, slot: u16) {
        self.links.push_back(&mut self.new, slot);
        self.set_place(slot, Place::New);
    }

    pub(super) fn push_old(&mut self, slot: u16, now: VirtualTime) {
        self.links.push_back(&mut self.old, slot);
        if let Some(wait) = self.waits.get_mut(usize::from(slot)) {
            *wait = Wait { place: Place::Old, since: now, sequence: self.sequence };
        }
        self.sequence += 1;
    }

    /// Puts a tenant among those in debt, or moves it there.
    pub(super) fn set_debt(&mut self, slot: u16, funded_at: VirtualTime) {
        self.debt.set(slot, funded_at);
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

    /// The moment now, for a tenant that has just run out of work.
    pub(super) fn moment(&self, now: VirtualTime) -> Moment {
        Moment { at: now, sequence: self.sequence }
    }

    /// Whether a funded tenant waits that waited already at `moment`. While one does, a tenant that
    /// emptied then and woke again may not pass it: flapping would gain a turn.
    pub(super) fn waits_since(&self, moment: Moment) -> bool {
        let in_old = self.old_head().is_some_and(|(_, wait)| wait.sequence < moment.sequence);
        in_old || self.debt.first().is_some_and(|(funded_at, _)| funded_at <= moment.at)
    }

    fn old_head(&self) -> Option<(u16, Wait)> {
        let slot = self.old.head()?;
        Some((slot, *self.waits.get(usize::from(slot))?))
    }

    pub(super) fn any_funded(&self, now: VirtualTime) -> bool {
        !self.new.is_empty()
            || !self.old.is_empty()
            || self.debt.first().is_some_and(|(funded_at, _)| funded_at <= now)
    }

    /// Takes the next tenant out. Between the old list and a debtor that has become funded
    /// meanwhile, whoever was funded and waiting first.
    pub(super) fn pick(&mut self, now: VirtualTime) -> Option<Pick> {
        let debtor = self.debt.first();
        let pick = match (self.new.head(), self.old_head(), debtor) {
            (Some(slot), _, _) => Pick::Funded(slot),
            (None, Some((_, wait)), Some((funded_at, slot)))
                if funded_at <= now && funded_at <= wait.since =>
            {
                Pick::Funded(slot)
            }
            (None, Some((slot, _)), _) => Pick::Funded(slot),
            (None, None, Some((funded_at, slot))) if funded_at <= now => Pick::Funded(slot),
            (None, None, Some((funded_at, slot))) => Pick::Slack(slot, funded_at),
            (None, None, None) => return None,
        };
        let (Pick::Funded(slot) | Pick::Slack(slot, _)) = pick;
        self.remove(slot);
        Some(pick)
    }

    /// Takes the first of the old list out, whatever its credit.
    pub(super) fn pick_in_order(&mut self) -> Option<u16> {
        let slot = self.old.head()?;
        self.remove(slot);
        Some(slot)
    }

    /// Takes out anybody: the new list first, then the old, then by debt.
    pub(super) fn pop_any(&mut self) -> Option<u16> {
        let slot = self.new.head().or(self.old.head()).or(self.debt.first().map(|(_, s)| s))?;
        self.remove(slot);
        Some(slot)
    }

    #[cfg(test)]
    pub(super) fn debt_exchanges(&self) -> u64 {
        self.debt.exchanges
    }
}
