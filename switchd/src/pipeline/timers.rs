//! Which rules go by themselves, the soonest first.
//!
//! Packets put an idle timeout off without anybody looking here: a rule's time is looked up again
//! when it seems to have come.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::limits::{TIMERS_LOOKED_AT, TIMERS_SLACK};
use super::rule::Rule;

/// Timed rules of one table.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    /// Timed rules in the table; the others in the heap have gone.
    live: usize,
    next_serial: u64,
}

#[derive(Debug)]
struct Timer {
    due_ms: u64,
    serial: u64,
    rule: Arc<Rule>,
}

impl Timers {
    /// A rule came into the table.
    pub(super) fn rule_added(&mut self, rule: &Arc<Rule>) {
        let Some(due_ms) = rule.expires_ms() else { return };
        self.live += 1;
        if self.heap.len() > 2 * self.live + TIMERS_SLACK {
            self.heap.retain(|Reverse(timer)| !timer.rule.is_retired());
        }
        self.push(due_ms, Arc::clone(rule));
    }

    /// A rule that was added went; it is marked as retired.
    pub(super) fn rule_removed(&mut self, rule: &Rule) {
        self.live -= usize::from(rule.is_timed());
    }

    /// When the next rule goes, unless a packet puts it off.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(timer)| timer.due_ms)
    }

    /// A rule whose time has come.
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<Arc<Rule>> {
        while self.next_due_ms()? <= now_ms {
            let Reverse(timer) = self.heap.pop()?;
            let at_ms = timer.rule.expires_ms().filter(|_| !timer.rule.is_retired());
            match at_ms {
                Some(at_ms) if at_ms > now_ms => self.push(at_ms, timer.rule),
                Some(_) => return Some(timer.rule),
                None => {}
            }
        }
        None
    }

    /// The rule that would go soonest, to be removed by the caller. If very many have been put off
    /// since it was last looked, one of those that are next.
    pub(super) fn pop_soonest(&mut self) -> Option<Arc<Rule>> {
        for looked_at in 0.. {
            let Reverse(timer) = self.heap.pop()?;
            let at_ms = timer.rule.expires_ms().filter(|_| !timer.rule.is_retired());
            match at_ms {
                Some(at_ms) if at_ms > timer.due_ms && looked_at < TIMERS_LOOKED_AT => {
                    self.push(at_ms, timer.rule);
                }
                Some(_) => return Some(timer.rule),
                None => {}
            }
        }
        None
    }

    fn push(&mut self, due_ms: u64, rule: Arc<Rule>) {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.heap.push(Reverse(Timer { due_ms, serial, rule }));
    }
}

impl Timer {
    fn key(&self) -> (u64, u64) {
        (self.due_ms, self.serial)
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
