//! Rules that were added since the PMDs were last told, as far as cached decisions ask about them.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_classifier::{ExtraKey, ExtraMatch};
use tollgate_packet::FlowMatch;

use super::super::bridge::BridgeId;
use super::super::limits::ADDITIONS_COMPARED;
use super::super::rule::Rule;
use super::super::walk::Visit;

/// By table.
#[derive(Debug, Default)]
pub(super) struct Additions(HashMap<(BridgeId, u8), TableAdditions>);

#[derive(Debug, Default)]
struct TableAdditions {
    max_priority: u16,
    /// Of the last one.
    generation: u64,
    /// Each of them; none if there were too many to compare every decision with.
    compared: Option<Vec<Addition>>,
}

#[derive(Debug)]
struct Addition {
    rule: Arc<Rule>,
    generation: u64,
}

impl Additions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, bridge: BridgeId, rule: &Arc<Rule>, generation: u64) {
        let table = self.0.entry((bridge, rule.table)).or_insert_with(|| TableAdditions {
            compared: Some(Vec::new()),
            ..TableAdditions::default()
        });
        table.max_priority = table.max_priority.max(rule.priority);
        table.generation = generation;
        let Some(compared) = &mut table.compared else { return };
        if compared.len() >= ADDITIONS_COMPARED {
            table.compared = None;
            return;
        }
        compared.push(Addition { rule: Arc::clone(rule), generation });
    }

    /// Whether some packet of a decision that was valid at the generation `since` may find one of
    /// the rules in this visit. `whole` is what the decision matches.
    pub(super) fn may_win(
        &self,
        bridge: BridgeId,
        visit: &Visit,
        whole: &FlowMatch,
        since: u64,
    ) -> bool {
        let Some(table) = self.0.get(&(bridge, visit.table)) else { return false };
        let beats = |priority: u16| visit.rule.as_ref().is_none_or(|r| r.priority <= priority);
        if table.generation <= since || !beats(table.max_priority) {
            return false;
        }
        let Some(compared) = &table.compared else { return true };
        // If no edit had changed the packet, the table saw it as it came.
        let seen = visit.edited.as_deref().unwrap_or(whole);
        let extra = visit.extra.as_deref().copied().unwrap_or(ExtraKey::ZERO);
        let extra = ExtraMatch::new(&extra, ExtraKey::ONES);
        compared.iter().any(|Addition { rule, generation }| {
            *generation > since && beats(rule.priority) && rule.matcher.overlaps(seen, &extra)
        })
    }
}
