//! Which rules a command or a query is about (OpenFlow 1.3.5, section 6.4).

use std::sync::Arc;

use tollgate_classifier::ExtraMatch;
use tollgate_openflow::multipart::FlowStatsRequest;
use tollgate_openflow::port::{OFPG_ANY, OFPP_ANY, OFPTT_ALL};
use tollgate_openflow::{Action, FlowCommand, FlowMod};
use tollgate_packet::FlowMatch;

use super::bridge::Bridge;
use super::error::FlowError;
use super::matching;
use super::rule::Rule;
use super::table::Table;

/// See the module.
#[derive(Debug)]
pub(super) struct Selector {
    table_id: u8,
    out_port: u32,
    out_group: u32,
    cookie: u64,
    cookie_mask: u64,
    matcher: FlowMatch,
    extra: ExtraMatch,
    /// Strict commands are about the rule of this priority with exactly this match.
    strict_priority: Option<u16>,
}

impl Selector {
    /// The rules that a query is about.
    pub(super) fn of_request(filter: &FlowStatsRequest) -> Result<Self, FlowError> {
        let (matcher, extra) = matching::compile(&filter.matcher)?;
        Ok(Self {
            table_id: filter.table_id,
            out_port: filter.out_port,
            out_group: filter.out_group,
            cookie: filter.cookie,
            cookie_mask: filter.cookie_mask,
            matcher,
            extra,
            strict_priority: None,
        })
    }

    /// The rules that a modify or delete command is about.
    pub(super) fn of(flow_mod: &FlowMod) -> Result<Self, FlowError> {
        let (matcher, extra) = matching::compile(&flow_mod.matcher)?;
        // The restrictions by output are for deletions only.
        let deletes = flow_mod.command.is_delete();
        let strict =
            matches!(flow_mod.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        Ok(Self {
            table_id: flow_mod.table_id,
            out_port: if deletes { flow_mod.out_port } else { OFPP_ANY },
            out_group: if deletes { flow_mod.out_group } else { OFPG_ANY },
            cookie: flow_mod.cookie,
            cookie_mask: flow_mod.cookie_mask,
            matcher,
            extra,
            strict_priority: strict.then_some(flow_mod.priority),
        })
    }

    /// Whether there is at most one such rule in a table, and it is found without a search.
    pub(super) fn is_strict(&self) -> bool {
        self.strict_priority.is_some()
    }

    /// The numbers of the tables that may have such rules.
    pub(super) fn tables(&self, bridge: &Bridge) -> Vec<u8> {
        let concerned = |number: &u8| self.table_id == OFPTT_ALL || self.table_id == *number;
        bridge.tables().map(|(number, _)| number).filter(concerned).collect()
    }

    /// The rules selected, in no particular order.
    pub(super) fn select(&self, bridge: &Bridge) -> Vec<Arc<Rule>> {
        let mut selected = Vec::new();
        for number in self.tables(bridge) {
            let table = bridge.table(number).into_iter();
            table.for_each(|table| self.for_each(table, |rule| selected.push(Arc::clone(rule))));
        }
        selected
    }

    /// Calls `take` with each rule selected of one table. Loose commands are about rules that are no
    /// wider than the match.
    pub(super) fn for_each(&self, table: &Table, take: impl FnMut(&Arc<Rule>)) {
        match self.strict_priority {
            Some(priority) => table
                .get(priority, &table.matcher(&self.matcher, &self.extra))
                .into_iter()
                .filter(|rule| self.admits(rule))
                .for_each(take),
            None => table
                .iter()
                .filter(|rule| rule.matcher.is_within(&self.matcher, &self.extra))
                .filter(|rule| self.admits(rule))
                .for_each(take),
        }
    }

    fn admits(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == OFPP_ANY || outputs_to(rule, self.out_port))
            // Groups are refused, so no rule sends to one.
            && self.out_group == OFPG_ANY
    }
}

fn outputs_to(rule: &Rule, ofport: u32) -> bool {
    let instructions = &rule.behaviour.instructions;
    let names = |action: &Action| matches!(action, Action::Output { port, .. } if *port == ofport);
    instructions.apply_actions().iter().any(names) || instructions.write_actions().iter().any(names)
}
