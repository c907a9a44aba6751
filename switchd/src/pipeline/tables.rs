//! The rules of a bridge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate_classifier::{self as classifier, ExtraKey, ExtraMatch, RuleMatch, RuleTable};
use tollgate_openflow::{FlowFlags, Instructions, Match};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

use super::program::Program;

/// A rule. Nothing of it changes but its counters: a modification puts a new rule in its place.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) table: u8,
    pub(super) priority: u16,
    pub(super) cookie: u64,
    pub(super) flags: FlowFlags,
    /// Seconds without a packet after which it goes; 0 is never.
    pub(super) idle_timeout_s: u16,
    /// Seconds after which it goes; 0 is never.
    pub(super) hard_timeout_s: u16,
    /// The match and instructions as they were sent, for whoever asks.
    pub(super) source: Match,
    pub(super) instructions: Instructions,
    pub(super) matcher: RuleMatch,
    pub(super) program: Program,
    pub(super) created_ms: u64,
    /// Shared with the rule that replaces this one, unless that one starts from zero.
    pub(super) counters: Arc<RuleCounters>,
    pub(super) retired: AtomicBool,
}

/// What a rule has matched, cached packets included as of the last collection.
#[derive(Debug, Default)]
pub(super) struct RuleCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_used_ms: AtomicU64,
}

impl RuleCounters {
    pub(super) fn add(&self, packets: u64, bytes: u64, used_ms: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last_used_ms.fetch_max(used_ms, Ordering::Relaxed);
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When the last packet was seen, in milliseconds of the pipeline's clock; 0 is never.
    pub(super) fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }
}

impl classifier::Rule for Rule {
    fn priority(&self) -> u16 {
        self.priority
    }

    fn matcher(&self) -> &RuleMatch {
        &self.matcher
    }
}

impl Rule {
    /// The rule that a modification puts in this one's place: all but what it does, and perhaps the
    /// counters, stays (OpenFlow 1.3.5, section 6.4).
    pub(super) fn modified(
        &self,
        instructions: Instructions,
        program: Program,
        counters: Arc<RuleCounters>,
    ) -> Self {
        Self {
            source: self.source.clone(),
            matcher: self.matcher.clone(),
            instructions,
            program,
            counters,
            retired: AtomicBool::new(false),
            ..*self
        }
    }

    /// Whether the rule was removed or replaced: decisions that rest on it are stale.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Called under the tables' write lock, once the rule can be found no more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Whether the rule is no wider than a match: what loose commands select by (OpenFlow 1.3.5,
    /// section 6.4).
    pub(super) fn is_within(&self, matcher: &FlowMatch, extra: &ExtraMatch) -> bool {
        self.matcher.is_within(matcher, extra)
    }

    /// Whether some packet could match both the rule and a match.
    pub(super) fn overlaps(&self, matcher: &FlowMatch, extra: &ExtraMatch) -> bool {
        self.matcher.overlaps(matcher, extra)
    }

    /// When it goes by itself, if no packet comes.
    pub(super) fn expires_ms(&self) -> Option<u64> {
        let after = |start_ms: u64, timeout_s: u16| {
            (timeout_s != 0).then(|| start_ms + u64::from(timeout_s) * 1000)
        };
        let used_ms = self.counters.last_used_ms().max(self.created_ms);
        let hard = after(self.created_ms, self.hard_timeout_s);
        hard.into_iter().chain(after(used_ms, self.idle_timeout_s)).min()
    }
}

/// One OpenFlow table.
#[derive(Debug, Default)]
pub(super) struct Table {
    rules: RuleTable<Arc<Rule>>,
    lookups: AtomicU64,
    matches: AtomicU64,
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

    /// Puts a rule in, and retires the one in its place.
    pub(super) fn insert(&mut self, rule: Arc<Rule>) {
        if let Some(replaced) = self.rules.insert(rule) {
            replaced.retire();
        }
    }

    /// Takes a rule out and retires it.
    pub(super) fn remove(&mut self, rule: &Rule) {
        if let Some(removed) = self.rules.remove(rule.priority, &rule.matcher) {
            removed.retire();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Counts look-ups of packets, with or without a rule found.
    pub(super) fn count(&self, packets: u64, matched: bool) {
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
