//! Notes of what a walk did, table by table, for whoever asks why.

use std::sync::Arc;

use tollgate_openflow::Action;

use super::super::rule::Rule;

/// One look-up, or a list that belongs to none, and what was done then.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "the trace is to read them")]
pub(in super::super) struct Recorded {
    /// Resubmits that led here and are not finished.
    pub(in super::super) depth: usize,
    /// `None` for the action set and the list of a packet-out.
    pub(in super::super) table: Option<u8>,
    /// `None` for a miss.
    pub(in super::super) rule: Option<Arc<Rule>>,
    /// What was executed; instructions that are no actions are the rule's.
    pub(in super::super) actions: Vec<Action>,
}

/// Where notes go.
#[derive(Clone, Debug)]
pub(in super::super) enum Record {
    /// Nobody asks.
    Nothing,
    #[expect(dead_code, reason = "the trace is to ask for it")]
    Everything(Vec<Recorded>),
}

impl Record {
    /// Begins a new entry, and gives its place.
    pub(super) fn begin(
        &mut self,
        depth: usize,
        table: Option<u8>,
        rule: Option<&Arc<Rule>>,
    ) -> usize {
        let Self::Everything(entries) = self else { return 0 };
        entries.push(Recorded { depth, table, rule: rule.cloned(), actions: Vec::new() });
        entries.len() - 1
    }

    pub(super) fn action(&mut self, entry: usize, action: &Action) {
        if let Self::Everything(entries) = self
            && let Some(entry) = entries.get_mut(entry)
        {
            entry.actions.push(action.clone());
        }
    }
}
