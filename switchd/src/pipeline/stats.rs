//! What clients ask about a bridge's tables.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_openflow::multipart::{AggregateStats, FlowStats, FlowStatsRequest, TableStats};

use super::bridge::BridgeId;
use super::core::Core;
use super::error::FlowError;
use super::rule::Rule;
use super::selector::Selector;

/// The answer to a query for flows, to be taken in pieces: it holds no more than references to the
/// rules of one table, as they were when its turn came.
pub struct FlowDump {
    core: Arc<Core>,
    bridge: BridgeId,
    selector: Selector,
    tables: std::vec::IntoIter<u8>,
    rules: std::vec::IntoIter<Arc<Rule>>,
}

impl FlowDump {
    /// The next flows, by table and descending priority; at most `count`, and none only at the end.
    /// Their counts are of this moment, cached packets included as of the dump's beginning.
    pub fn next_flows(&mut self, count: usize) -> Vec<FlowStats> {
        let now_ms = self.core.now_ms();
        let mut flows = Vec::new();
        while flows.len() < count {
            if self.rules.as_slice().is_empty() {
                let Some(table) = self.tables.next() else { break };
                self.rules = self.rules_of(table).into_iter();
            }
            let wanted = count - flows.len();
            flows.extend(self.rules.by_ref().take(wanted).map(|rule| rule.stats(now_ms)));
        }
        flows
    }

    /// All the rest.
    pub(super) fn all(mut self) -> Vec<FlowStats> {
        let mut all = Vec::new();
        loop {
            let some = self.next_flows(usize::MAX);
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }

    fn rules_of(&self, table: u8) -> Vec<Arc<Rule>> {
        let mut rules = Vec::new();
        let state = self.core.read();
        let bridge = state.bridges.get(&self.bridge);
        if let Some(table) = bridge.and_then(|bridge| bridge.table(table)) {
            self.selector.for_each(table, |rule| rules.push(Arc::clone(rule)));
        }
        drop(state);
        rules.sort_by_key(|rule| Reverse(rule.priority));
        rules
    }
}

impl fmt::Debug for FlowDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowDump").field("selector", &self.selector).finish_non_exhaustive()
    }
}

impl Core {
    /// The rules selected.
    pub(super) fn flow_dump(
        self: &Arc<Self>,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<FlowDump, FlowError> {
        let selector = Selector::of_request(request)?;
        self.collect();
        let tables = selector.tables(self.read().bridge(bridge)?).into_iter();
        let core = Arc::clone(self);
        Ok(FlowDump { core, bridge, selector, tables, rules: Vec::new().into_iter() })
    }

    pub(super) fn aggregate(
        &self,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<AggregateStats, FlowError> {
        let selector = Selector::of_request(request)?;
        self.collect();
        let mut sum = AggregateStats::default();
        let state = self.read();
        let bridge = state.bridge(bridge)?;
        for table in selector.tables(bridge) {
            let table = bridge.table(table).into_iter();
            let mut add = |rule: &Arc<Rule>| {
                sum.packet_count = sum.packet_count.wrapping_add(rule.counters.packets());
                sum.byte_count = sum.byte_count.wrapping_add(rule.counters.bytes());
                sum.flow_count = sum.flow_count.saturating_add(1);
            };
            table.for_each(|table| selector.for_each(table, &mut add));
        }
        Ok(sum)
    }

    /// Counters of every table.
    pub(super) fn table_stats(&self, bridge: BridgeId) -> Result<Vec<TableStats>, FlowError> {
        self.collect();
        let state = self.read();
        let bridge = state.bridge(bridge)?;
        let rules = |table: u8| bridge.table(table).map_or(0, |table| table.len());
        let stats = bridge.counters().map(|(table_id, counters)| TableStats {
            table_id,
            active_count: u32::try_from(rules(table_id)).unwrap_or(u32::MAX),
            lookup_count: counters.lookups(),
            matched_count: counters.matches(),
        });
        Ok(stats.collect())
    }
}

impl Rule {
    fn stats(&self, now_ms: u64) -> FlowStats {
        FlowStats {
            table_id: self.table,
            duration: Duration::from_millis(now_ms.saturating_sub(self.created_ms)),
            priority: self.priority,
            idle_timeout_s: self.idle_timeout_s,
            hard_timeout_s: self.hard_timeout_s,
            flags: self.flags,
            cookie: self.cookie,
            packet_count: self.counters.packets(),
            byte_count: self.counters.bytes(),
            matcher: self.source.clone(),
            instructions: self.behaviour.instructions.clone(),
        }
    }
}
