//! Prioritised rules with wildcards, as in an OpenFlow table.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use crate::compact::{RuleMask, RuleMatch, Words};
use crate::extra::{ExtraKey, ExtraMatch};
use crate::stages::Fingerprint;
use crate::subtable::{Miss, Subtable};

const NONE: u32 = u32::MAX;

/// A rule, as far as its table is concerned. Neither changes while it is in one.
pub trait Rule {
    /// The highest wins.
    fn priority(&self) -> u16;

    /// What it matches.
    fn matcher(&self) -> &RuleMatch;
}

impl<R: Rule> Rule for Arc<R> {
    fn priority(&self) -> u16 {
        (**self).priority()
    }

    fn matcher(&self) -> &RuleMatch {
        (**self).matcher()
    }
}

/// A table of rules.
///
/// A tuple space: the rules with one mask form a subtable, a hash table in which a packet finds
/// its rule in one step. Subtables are searched from the highest priority in them downwards, until
/// none of the rest could win.
#[derive(Debug)]
pub struct RuleTable<R> {
    places: Vec<Place<R>>,
    /// The first of the free places.
    free: u32,
    len: usize,
    subtables: Vec<Option<Subtable>>,
    vacant: Vec<u32>,
    by_mask: HashMap<Arc<RuleMask>, u32, ahash::RandomState>,
    /// Subtables by highest priority, descending; equals in the order in which they came.
    order: BTreeSet<(Reverse<u16>, u64, u32)>,
    next_age: u64,
}

/// Where a rule stands, or nothing.
#[derive(Debug)]
struct Place<R> {
    rule: Option<R>,
    /// The next rule with the same match, by descending priority, or the next free place.
    next: u32,
}

impl<R> Default for RuleTable<R> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: NONE,
            len: 0,
            subtables: Vec::new(),
            vacant: Vec::new(),
            by_mask: HashMap::default(),
            order: BTreeSet::new(),
            next_age: 0,
        }
    }
}

impl<R: Rule> RuleTable<R> {
    /// A table without rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rules in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Different masks in the table: how many steps a lookup may take.
    pub fn subtables(&self) -> usize {
        self.order.len()
    }

    /// A match that shares its mask with the rules that have the same.
    pub fn matcher(&self, flow: &FlowMatch, extra: &ExtraMatch) -> RuleMatch {
        let known =
            |mask: &RuleMask| self.by_mask.get_key_value(mask).map(|(mask, _)| Arc::clone(mask));
        RuleMatch::sharing(flow, extra, known)
    }

    /// Adds a rule, or replaces the one with the same priority and match, which is returned.
    pub fn insert(&mut self, rule: R) -> Option<R> {
        let (priority, words) = (rule.priority(), rule.matcher().words());
        let id = self.subtable_for(rule.matcher());
        let hash = self.subtable(id)?.fingerprint(&words);
        let head = self.head(id, hash, rule.matcher());
        let (before, at) = self.position(head, priority);
        if let Some(place) = self.place_mut(at)
            && place.rule.as_ref().is_some_and(|old| old.priority() == priority)
        {
            return place.rule.replace(rule);
        }
        let new = self.fill_place(rule, at);
        match before {
            NONE => self.subtable_mut(id)?.set_place(hash, head, new),
            _ => self.place_mut(before)?.next = new,
        }
        self.len += 1;
        self.change_subtable(id, |subtable| subtable.rule_added(priority, &words));
        None
    }

    /// Removes the rule with exactly this priority and match.
    pub fn remove(&mut self, priority: u16, matcher: &RuleMatch) -> Option<R> {
        let id = *self.by_mask.get(matcher.mask())?;
        let words = matcher.words();
        let hash = self.subtable(id)?.fingerprint(&words);
        let head = self.head(id, hash, matcher);
        let (before, at) = self.position(head, priority);
        let free = self.free;
        let place = self.place_mut(at)?;
        let rule = place.rule.take_if(|rule| rule.priority() == priority)?;
        let next = std::mem::replace(&mut place.next, free);
        self.free = at;
        match (before, next) {
            (NONE, NONE) => self.subtable_mut(id)?.clear_place(hash, at),
            (NONE, next) => self.subtable_mut(id)?.set_place(hash, Some(at), next),
            (before, next) => self.place_mut(before)?.next = next,
        }
        self.len -= 1;
        self.change_subtable(id, |subtable| subtable.rule_removed(priority, &words));
        Some(rule)
    }

    /// The rule with exactly this priority and match.
    pub fn get(&self, priority: u16, matcher: &RuleMatch) -> Option<&R> {
        let id = *self.by_mask.get(matcher.mask())?;
        let hash = self.subtable(id)?.fingerprint(&matcher.words());
        let (_, at) = self.position(self.head(id, hash, matcher), priority);
        self.rule(at).filter(|rule| rule.priority() == priority)
    }

    /// All rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.places.iter().filter_map(|place| place.rule.as_ref())
    }

    /// The rules in `places` places from `cursor` on, and the cursor with which to go on (zero
    /// after the last place). A rule that is there all the time is met once, whatever is added and
    /// removed meanwhile.
    pub fn iter_from(&self, cursor: u32, places: u32) -> (impl Iterator<Item = &R>, u32) {
        let window = self.places.iter().skip(cursor as usize).take(places as usize);
        let end = cursor.saturating_add(places);
        let next = if (end as usize) < self.places.len() { end } else { 0 };
        (window.filter_map(|place| place.rule.as_ref()), next)
    }

    /// A rule of this priority with another match that some packet matches, too.
    pub fn overlapping(&self, priority: u16, matcher: &RuleMatch) -> Option<&R> {
        let others = self.subtables.iter().flatten().filter(|subtable| {
            // Rules with one mask match the same packets only if they are the same.
            subtable.has_priority(priority) && subtable.mask() != matcher.mask()
        });
        let mut rules = others.flat_map(|subtable| subtable.places()).filter_map(|at| {
            let (_, at) = self.position(Some(at), priority);
            self.rule(at).filter(|rule| rule.priority() == priority)
        });
        rules.find(|rule| rule.matcher().overlaps_rule(matcher))
    }

    /// The rule of the highest priority that the packet matches; of several with that priority,
    /// always the same one as long as the table is unchanged.
    ///
    /// Adds to `looked_at` every bit of the packet that the answer depends on: as long as the table
    /// is unchanged, a packet that agrees in those bits (and has the same `extra`) gets the same
    /// answer. Where there is a choice, bits that `looked_at` has already are preferred.
    pub fn lookup(&self, key: &FlowKey, extra: &ExtraKey, looked_at: &mut FlowMask) -> Option<&R> {
        let packet = Words::new(key, extra);
        let mut best: Option<&R> = None;
        let mut narrowable: Vec<(&Subtable, Miss)> = Vec::new();
        for (Reverse(max_priority), _, id) in &self.order {
            if best.is_some_and(|best| best.priority() >= *max_priority) {
                break;
            }
            let Some(subtable) = self.subtable(*id) else { continue };
            match subtable.find(&packet, |at| self.values(at)) {
                Ok(at) => {
                    *looked_at |= subtable.flow_mask();
                    let found = self.rule(at);
                    if best.map(R::priority) < found.map(R::priority) {
                        best = found;
                    }
                }
                Err(miss) if subtable.may_narrow(&miss) => narrowable.push((subtable, miss)),
                Err(miss) => *looked_at |= miss.mask(),
            }
        }
        // When everything else is known, the least has to be added; where there is the most
        // choice, last.
        narrowable.sort_by_key(|(_, miss)| miss.has_most_choice());
        for (subtable, miss) in narrowable {
            *looked_at |= subtable.telling_bits(&miss, key, looked_at);
        }
        best
    }

    fn subtable(&self, id: u32) -> Option<&Subtable> {
        self.subtables.get(id as usize)?.as_ref()
    }

    fn subtable_mut(&mut self, id: u32) -> Option<&mut Subtable> {
        self.subtables.get_mut(id as usize)?.as_mut()
    }

    /// The subtable of a mask, made if there is none.
    fn subtable_for(&mut self, matcher: &RuleMatch) -> u32 {
        if let Some(id) = self.by_mask.get(matcher.mask()) {
            return *id;
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.subtables.push(None);
            self.subtables.len() as u32 - 1
        });
        let subtable = Subtable::new(Arc::clone(matcher.mask()), self.next_age);
        self.next_age += 1;
        self.by_mask.insert(Arc::clone(matcher.mask()), id);
        if let Some(place) = self.subtables.get_mut(id as usize) {
            *place = Some(subtable);
        }
        id
    }

    /// Changes what a subtable counts, and its place in the order with it.
    fn change_subtable(&mut self, id: u32, change: impl FnOnce(&mut Subtable)) {
        let Some(subtable) = self.subtables.get_mut(id as usize).and_then(Option::as_mut) else {
            return;
        };
        let rank = |subtable: &Subtable| (Reverse(subtable.max_priority()), subtable.age, id);
        let before = rank(subtable);
        let was_empty = subtable.is_empty();
        change(subtable);
        let after = rank(subtable);
        if before != after || was_empty || subtable.is_empty() {
            self.order.remove(&before);
            if subtable.is_empty() {
                self.by_mask.remove(subtable.mask());
                self.subtables.get_mut(id as usize).map(Option::take);
                self.vacant.push(id);
            } else {
                self.order.insert(after);
            }
        }
    }

    fn rule(&self, at: u32) -> Option<&R> {
        self.places.get(at as usize)?.rule.as_ref()
    }

    fn place_mut(&mut self, at: u32) -> Option<&mut Place<R>> {
        self.places.get_mut(at as usize)
    }

    fn values(&self, at: u32) -> &[u64] {
        self.rule(at).map(|rule| rule.matcher().values()).unwrap_or_default()
    }

    /// The place of the first rule with this match.
    fn head(&self, id: u32, hash: Fingerprint, matcher: &RuleMatch) -> Option<u32> {
        self.subtable(id)?.place_of(hash, matcher.values(), |at| self.values(at))
    }

    /// Among the rules from `head` on, which have one match: the place of the first whose priority
    /// is not higher than `priority`, and the one before it.
    fn position(&self, head: Option<u32>, priority: u16) -> (u32, u32) {
        let (mut before, mut at) = (NONE, head.unwrap_or(NONE));
        while let Some(place) = self.places.get(at as usize)
            && place.rule.as_ref().is_some_and(|rule| rule.priority() > priority)
        {
            (before, at) = (at, place.next);
        }
        (before, at)
    }

    /// Puts a rule into a free place.
    fn fill_place(&mut self, rule: R, next: u32) -> u32 {
        let at = self.free;
        let place = Place { rule: Some(rule), next };
        match self.places.get_mut(at as usize) {
            Some(free) => {
                self.free = std::mem::replace(free, place).next;
                at
            }
            None => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
        }
    }
}
