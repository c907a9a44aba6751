//! Prioritised rules with wildcards, as in an OpenFlow table.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use tollgate_packet::{FLOW_WORDS, FlowKey, FlowMask, FlowMatch};

use crate::extra::{ExtraKey, ExtraMatch};
use crate::stages::Stage;

/// A rule as it stands in the table.
#[derive(Clone, Copy, Debug)]
pub struct RuleRef<'a, R> {
    /// The highest wins.
    pub priority: u16,
    /// Packet fields.
    pub matcher: FlowMatch,
    /// Pipeline fields.
    pub extra: ExtraMatch,
    /// Payload.
    pub rule: &'a R,
}

/// A table of rules.
///
/// A tuple space: the rules with one mask form a subtable, a hash table in which a packet finds
/// its rule in one step. Subtables are searched from the highest priority in them downwards, until
/// none of the rest could win.
#[derive(Debug)]
pub struct RuleTable<R> {
    /// By highest priority, descending; equals in the order in which they came.
    subtables: Vec<Subtable<R>>,
    len: usize,
}

#[derive(Debug)]
struct Subtable<R> {
    mask: FlowMask,
    extra_mask: ExtraKey,
    rules: HashMap<MaskedKey, Vec<Prioritised<R>>, ahash::RandomState>,
    /// How many rules have each priority.
    priorities: BTreeMap<u16, usize>,
    stages: Vec<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MaskedKey {
    words: [u64; FLOW_WORDS],
    extra: ExtraKey,
}

/// Of the rules with one match, each has its own priority; the highest stands first.
#[derive(Debug)]
struct Prioritised<R> {
    priority: u16,
    rule: R,
}

impl<R> RuleTable<R> {
    /// A table without rules.
    pub const fn new() -> Self {
        Self { subtables: Vec::new(), len: 0 }
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
        self.subtables.len()
    }

    /// Adds a rule, or replaces the one with the same priority and match, which is returned.
    pub fn insert(
        &mut self,
        priority: u16,
        matcher: FlowMatch,
        extra: ExtraMatch,
        rule: R,
    ) -> Option<R> {
        let position = self.position(&matcher, &extra).unwrap_or_else(|| {
            self.subtables.push(Subtable::new(*matcher.mask(), *extra.mask()));
            self.subtables.len() - 1
        });
        let subtable = self.subtables.get_mut(position)?;
        let max_priority = subtable.max_priority();
        let replaced = subtable.insert(priority, &matcher, &extra, rule);
        self.len += usize::from(replaced.is_none());
        if priority > max_priority {
            self.sort();
        }
        replaced
    }

    /// Removes the rule with exactly this priority and match.
    pub fn remove(&mut self, priority: u16, matcher: &FlowMatch, extra: &ExtraMatch) -> Option<R> {
        let position = self.position(matcher, extra)?;
        let subtable = self.subtables.get_mut(position)?;
        let removed = subtable.remove(priority, matcher, extra)?;
        self.len -= 1;
        if subtable.is_empty() || subtable.max_priority() < priority {
            self.sort();
        }
        Some(removed)
    }

    /// The rule with exactly this priority and match.
    pub fn get(&self, priority: u16, matcher: &FlowMatch, extra: &ExtraMatch) -> Option<&R> {
        let subtable = self.subtables.get(self.position(matcher, extra)?)?;
        let rules = subtable.rules.get(&MaskedKey::of_match(matcher, extra))?;
        rules.iter().find(|entry| entry.priority == priority).map(|entry| &entry.rule)
    }

    /// All rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = RuleRef<'_, R>> {
        self.subtables.iter().flat_map(Subtable::iter)
    }

    /// Removes the rules for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(RuleRef<'_, R>) -> bool) {
        for subtable in &mut self.subtables {
            self.len -= subtable.retain(&mut keep);
        }
        self.sort();
    }

    /// The rule of the highest priority that the packet matches; of several with that priority,
    /// always the same one as long as the table is unchanged.
    ///
    /// Adds to `looked_at` every bit of the packet that the answer depends on: as long as the table
    /// is unchanged, a packet that agrees in those bits (and has the same `extra`) gets the same
    /// answer.
    pub fn lookup(&self, key: &FlowKey, extra: &ExtraKey, looked_at: &mut FlowMask) -> Option<&R> {
        let mut best: Option<&Prioritised<R>> = None;
        for subtable in &self.subtables {
            let could_win = best.is_none_or(|best| subtable.max_priority() > best.priority);
            if !could_win {
                break;
            }
            let found = subtable.find(key, extra, looked_at);
            if found.is_some_and(|found| best.is_none_or(|best| found.priority > best.priority)) {
                best = found;
            }
        }
        best.map(|best| &best.rule)
    }

    fn position(&self, matcher: &FlowMatch, extra: &ExtraMatch) -> Option<usize> {
        self.subtables.iter().position(|subtable| {
            subtable.mask == *matcher.mask() && subtable.extra_mask == *extra.mask()
        })
    }

    fn sort(&mut self) {
        self.subtables.retain(|subtable| !subtable.is_empty());
        self.subtables.sort_by_key(|subtable| std::cmp::Reverse(subtable.max_priority()));
    }
}

impl<R> Default for RuleTable<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl MaskedKey {
    fn of_match(matcher: &FlowMatch, extra: &ExtraMatch) -> Self {
        Self { words: *matcher.key().words(), extra: *extra.key() }
    }

    fn flow_key(&self) -> FlowKey {
        let mut key = FlowKey::default();
        *key.words_mut() = self.words;
        key
    }
}

impl<R> Subtable<R> {
    fn new(mask: FlowMask, extra_mask: ExtraKey) -> Self {
        Self {
            mask,
            extra_mask,
            rules: HashMap::default(),
            priorities: BTreeMap::new(),
            stages: Stage::of_mask(&mask, &extra_mask),
        }
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn max_priority(&self) -> u16 {
        self.priorities.last_key_value().map_or(0, |(priority, _)| *priority)
    }

    fn find(
        &self,
        key: &FlowKey,
        extra: &ExtraKey,
        looked_at: &mut FlowMask,
    ) -> Option<&Prioritised<R>> {
        let extra = extra.masked(&self.extra_mask);
        for stage in &self.stages {
            *looked_at |= stage.mask();
            if !stage.may_match(key, &extra) {
                return None;
            }
        }
        *looked_at |= self.mask;
        let key = MaskedKey { words: *key.masked(&self.mask).words(), extra };
        self.rules.get(&key)?.first()
    }

    fn insert(
        &mut self,
        priority: u16,
        matcher: &FlowMatch,
        extra: &ExtraMatch,
        rule: R,
    ) -> Option<R> {
        let key = MaskedKey::of_match(matcher, extra);
        let rules = self.rules.entry(key).or_default();
        let position = rules.partition_point(|entry| entry.priority > priority);
        match rules.get_mut(position) {
            Some(entry) if entry.priority == priority => {
                Some(std::mem::replace(&mut entry.rule, rule))
            }
            _ => {
                rules.insert(position, Prioritised { priority, rule });
                *self.priorities.entry(priority).or_default() += 1;
                for stage in &mut self.stages {
                    stage.rule_added(matcher.key(), &key.extra);
                }
                None
            }
        }
    }

    fn remove(&mut self, priority: u16, matcher: &FlowMatch, extra: &ExtraMatch) -> Option<R> {
        let key = MaskedKey::of_match(matcher, extra);
        let rules = self.rules.get_mut(&key)?;
        let position = rules.iter().position(|entry| entry.priority == priority)?;
        let removed = rules.remove(position);
        if rules.is_empty() {
            self.rules.remove(&key);
        }
        forget(&mut self.priorities, &mut self.stages, &key, priority);
        Some(removed.rule)
    }

    /// Returns how many rules were removed.
    fn retain(&mut self, keep: &mut impl FnMut(RuleRef<'_, R>) -> bool) -> usize {
        let Self { mask, extra_mask, rules, priorities, stages } = self;
        let mut removed = 0;
        rules.retain(|key, rules| {
            rules.retain(|entry| {
                let keep = keep(rule_ref(key, mask, extra_mask, entry));
                if !keep {
                    forget(priorities, stages, key, entry.priority);
                    removed += 1;
                }
                keep
            });
            !rules.is_empty()
        });
        removed
    }

    fn iter(&self) -> impl Iterator<Item = RuleRef<'_, R>> {
        self.rules.iter().flat_map(move |(key, rules)| {
            rules.iter().map(move |entry| rule_ref(key, &self.mask, &self.extra_mask, entry))
        })
    }
}

fn rule_ref<'a, R>(
    key: &MaskedKey,
    mask: &FlowMask,
    extra_mask: &ExtraKey,
    entry: &'a Prioritised<R>,
) -> RuleRef<'a, R> {
    RuleRef {
        priority: entry.priority,
        matcher: FlowMatch::new(&key.flow_key(), *mask),
        extra: ExtraMatch::new(&key.extra, *extra_mask),
        rule: &entry.rule,
    }
}

/// Takes one rule out of what is counted beside the rules.
fn forget(
    priorities: &mut BTreeMap<u16, usize>,
    stages: &mut [Stage],
    key: &MaskedKey,
    priority: u16,
) {
    if let Some(rules) = priorities.get_mut(&priority) {
        *rules -= 1;
        if *rules == 0 {
            priorities.remove(&priority);
        }
    }
    let flow_key = key.flow_key();
    for stage in stages {
        stage.rule_removed(&flow_key, &key.extra);
    }
}
