//! A rule: where it stands, what it does, what it has matched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate_classifier::{self as classifier, RuleMatch};
use tollgate_openflow::{FlowFlags, Instructions, Match};

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
    /// The match as it was sent, for whoever asks.
    pub(super) source: Match,
    pub(super) matcher: RuleMatch,
    pub(super) behaviour: Arc<Behaviour>,
    pub(super) created_ms: u64,
    /// Shared with the rule that replaces this one, unless that one starts from zero.
    pub(super) counters: Arc<RuleCounters>,
    pub(super) retired: AtomicBool,
}

/// What rules do; one for all rules of a bridge that do the same.
#[derive(Debug)]
pub(super) struct Behaviour {
    /// As they were sent.
    pub(super) instructions: Instructions,
    pub(super) program: Program,
}

/// What a rule has matched, cached packets included as of the last collection.
#[derive(Debug, Default)]
pub(super) struct RuleCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    last_used_ms: AtomicU64,
}

impl RuleCounters {
    /// From zero, for a rule that has been used: it is not idle because its counts are reset.
    pub(super) fn reset(&self) -> Self {
        Self { last_used_ms: AtomicU64::new(self.last_used_ms()), ..Self::default() }
    }

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
    pub(super) fn program(&self) -> &Program {
        &self.behaviour.program
    }

    /// Whether it is the rule for what no other rule of its table matches (OpenFlow 1.3.5, section
    /// 5.4).
    pub(super) fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.source.iter().next().is_none()
    }

    /// The rule that a modification puts in this one's place: all but what it does, and perhaps the
    /// counters, stays (OpenFlow 1.3.5, section 6.4).
    pub(super) fn modified(&self, behaviour: Arc<Behaviour>, counters: Arc<RuleCounters>) -> Self {
        Self {
            source: self.source.clone(),
            matcher: self.matcher.clone(),
            behaviour,
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

    /// Called under the tables' write lock, when the rule's end is undone.
    pub(super) fn revive(&self) {
        self.retired.store(false, Ordering::Release);
    }

    /// Whether it goes by itself.
    pub(super) fn is_timed(&self) -> bool {
        self.idle_timeout_s != 0 || self.hard_timeout_s != 0
    }

    /// When it goes because of its age.
    pub(super) fn hard_end_ms(&self) -> Option<u64> {
        end_ms(self.created_ms, self.hard_timeout_s)
    }

    /// When it goes by itself, if no packet comes.
    pub(super) fn expires_ms(&self) -> Option<u64> {
        let used_ms = self.counters.last_used_ms().max(self.created_ms);
        let idle = end_ms(used_ms, self.idle_timeout_s);
        self.hard_end_ms().into_iter().chain(idle).min()
    }
}

fn end_ms(start_ms: u64, timeout_s: u16) -> Option<u64> {
    (timeout_s != 0).then(|| start_ms + u64::from(timeout_s) * 1000)
}
