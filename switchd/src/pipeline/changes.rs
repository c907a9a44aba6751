//! What commands have done to a bridge's tables: told to whoever caches decisions and to
//! controllers, or undone.

use std::sync::Arc;

use super::bridge::Bridge;
use super::events::FlowRemovedReason;
use super::rule::Rule;

/// One rule's coming or going.
#[derive(Debug)]
enum Change {
    Added(Arc<Rule>),
    /// The one that went; what took its place is found where it was.
    Replaced(Arc<Rule>),
    Removed(Arc<Rule>, FlowRemovedReason),
}

/// Changes of one bridge, in order.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<Change>);

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a rule into its table, perhaps in the place of another one.
    pub(super) fn insert(&mut self, bridge: &mut Bridge, rule: Arc<Rule>) {
        let replaced = bridge.insert(Arc::clone(&rule));
        self.0.push(replaced.map_or(Change::Added(rule), Change::Replaced));
    }

    /// Takes a rule out of its table.
    pub(super) fn remove(&mut self, bridge: &mut Bridge, rule: &Rule, reason: FlowRemovedReason) {
        let removed = bridge.remove(rule);
        self.0.extend(removed.map(|rule| Change::Removed(rule, reason)));
    }

    /// Makes it as it was, under the same lock. (Behaviours and timers keep traces that mean
    /// nothing.)
    pub(super) fn undo(self, bridge: &mut Bridge) {
        let restore = |bridge: &mut Bridge, rule: Arc<Rule>| {
            rule.revive();
            bridge.insert(rule);
        };
        for change in self.0.into_iter().rev() {
            match change {
                Change::Added(rule) => {
                    bridge.remove(&rule);
                }
                Change::Replaced(rule) | Change::Removed(rule, _) => restore(bridge, rule),
            }
        }
    }

    /// Rules that may now match in the place of another, or of none. (One that replaces another
    /// matches what that one did.)
    pub(super) fn added(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.0.iter().filter_map(|change| match change {
            Change::Added(rule) => Some(rule),
            Change::Replaced(_) | Change::Removed(..) => None,
        })
    }

    /// Whether rules went or were replaced; each is marked.
    pub(super) fn has_retired(&self) -> bool {
        self.0.iter().any(|change| !matches!(change, Change::Added(_)))
    }

    /// Rules that went.
    pub(super) fn removed(&self) -> impl Iterator<Item = (&Arc<Rule>, FlowRemovedReason)> {
        self.0.iter().filter_map(|change| match change {
            Change::Removed(rule, reason) => Some((rule, *reason)),
            Change::Added(_) | Change::Replaced(_) => None,
        })
    }
}
