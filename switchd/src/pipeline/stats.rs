//! What clients ask about a bridge's tables.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tollgate_openflow::multipart::{AggregateStats, FlowStats, FlowStatsRequest, TableStats};

use super::bridge::BridgeId;
use super::core::Core;
use super::error::FlowError;
use super::flow_mod::Selector;
use super::tables::Rule;

impl Core {
    /// The rules selected, by table and descending priority, with their counts of this moment.
    pub(super) fn flow_stats(
        &self,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<Vec<FlowStats>, FlowError> {
        let mut rules = self.select(bridge, request)?;
        rules.sort_by_key(|rule| (rule.table, Reverse(rule.priority)));
        let now_ms = self.now_ms();
        Ok(rules.iter().map(|rule| rule.stats(now_ms)).collect())
    }

    pub(super) fn aggregate(
        &self,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<AggregateStats, FlowError> {
        let rules = self.select(bridge, request)?;
        Ok(AggregateStats {
            packet_count: rules.iter().map(|rule| rule.counters.packets()).sum(),
            byte_count: rules.iter().map(|rule| rule.counters.bytes()).sum(),
            flow_count: u32::try_from(rules.len()).unwrap_or(u32::MAX),
        })
    }

    fn select(
        &self,
        bridge: BridgeId,
        request: &FlowStatsRequest,
    ) -> Result<Vec<Arc<Rule>>, FlowError> {
        let selector = Selector::of_request(request)?;
        self.collect();
        Ok(selector.select(self.read().bridge(bridge)?))
    }

    /// Counters of every table.
    pub(super) fn table_stats(&self, bridge: BridgeId) -> Result<Vec<TableStats>, FlowError> {
        self.collect();
        let state = self.read();
        let tables = state.bridge(bridge)?.tables();
        let stats = tables.map(|(table_id, table)| TableStats {
            table_id,
            active_count: u32::try_from(table.len()).unwrap_or(u32::MAX),
            lookup_count: table.lookups(),
            matched_count: table.matches(),
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
            instructions: self.instructions.clone(),
        }
    }
}
