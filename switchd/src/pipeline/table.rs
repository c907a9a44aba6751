//! One OpenFlow table of a bridge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_classifier::{ExtraKey, ExtraMatch, RuleMatch, RuleTable};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use super::rule::Rule;
use super::timers::Timers;

/// The rules of a table.
#[derive(Debug, Default)]
pub(super) struct Table {
    rules: RuleTable<Arc<Rule>>,
    timers: Timers,
}

impl Table {
    /// See [`RuleTable::lookup`].
    pub(super) fn lookup(
        &self,
        key: &FlowKey,
        extra: &ExtraKey,
        looked_at: &mut FlowMask,
    ) -> Option<&Arc<Rule>> {
        self.rules.lookup(key, extra, looked_at)
    }

    /// See [`RuleTable::matcher`].
    pub(super) fn matcher(&self, flow: &FlowMatch, extra: &ExtraMatch) -> RuleMatch {
        self.rules.matcher(flow, extra)
    }

    pub(super) fn get(&self, priority: u16, matcher: &RuleMatch) -> Option<&Arc<Rule>> {
        self.rules.get(priority, matcher)
    }

    /// See [`RuleTable::overlapping`].
    pub(super) fn overlapping(&self, priority: u16, matcher: &RuleMatch) -> Option<&Arc<Rule>> {
        self.rules.overlapping(priority, matcher)
    }

    /// Puts a rule in. The one in its place, if any, is retired and returned.
    pub(super) fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let replaced = self.rules.insert(Arc::clone(&rule));
        if let Some(replaced) = &replaced {
            replaced.retire();
            self.timers.rule_removed(replaced);
        }
        self.timers.rule_added(&rule);
        replaced
    }

    /// Takes a rule out and retires it.
    pub(super) fn remove(&mut self, rule: &Rule) -> Option<Arc<Rule>> {
        let removed = self.rules.remove(rule.priority, &rule.matcher)?;
        removed.retire();
        self.timers.rule_removed(&removed);
        Some(removed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }

    pub(super) fn timers_mut(&mut self) -> &mut Timers {
        &mut self.timers
    }
}

/// Look-ups in a table, whether or not it has rules.
#[derive(Debug, Default)]
pub(super) struct TableCounters {
    lookups: AtomicU64,
    matches: AtomicU64,
}

impl TableCounters {
    /// Counts look-ups of packets, with or without a rule found.
    pub(super) fn add(&self, packets: u64, matched: bool) {
        self.lookups.fetch_add(packets, Ordering::Relaxed);
        if matched {
            self.matches.fetch_add(packets, Ordering::Relaxed);
        }
    }

    pub(super) fn lookups(&self) -> u64 {
        self.lookups.load(Ordering::Relaxed)
    }

    pub(super) fn matches(&self) -> u64 {
        self.matches.load(Ordering::Relaxed)
    }
}
