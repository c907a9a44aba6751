//! FLOW_MOD (OpenFlow 1.3.5, sections 6.4 and 7.3.4.1): what each command does to a bridge's
//! tables. Everything is checked before anything is changed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tollgate_classifier::ExtraMatch;
use tollgate_openflow::multipart::FlowStatsRequest;
use tollgate_openflow::port::{OFP_NO_BUFFER, OFPG_ANY, OFPP_ANY, OFPTT_ALL};
use tollgate_openflow::{ErrorCode, FlowCommand, FlowFlags, FlowMod};
use tollgate_packet::FlowMatch;

use super::bridge::Bridge;
use super::error::FlowError;
use super::limits::{RULES_PER_TABLE, TABLES};
use super::program::Program;
use super::tables::{Rule, RuleCounters};
use super::{compile, matching};

/// What a flow-mod changed, as far as cached decisions are concerned.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Rules that may now match in the place of another, or of none.
    pub(super) added: Vec<Arc<Rule>>,
    /// Whether rules went or were replaced; each is marked.
    pub(super) retired: bool,
}

/// Which rules a command or a query is about.
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
    fn of(flow_mod: &FlowMod) -> Result<Self, FlowError> {
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

    /// The rules selected, in no particular order.
    pub(super) fn select(&self, bridge: &Bridge) -> Vec<Arc<Rule>> {
        let tables = bridge
            .tables()
            .filter(|(number, _)| self.table_id == OFPTT_ALL || self.table_id == *number);
        let mut selected = Vec::new();
        for (_, table) in tables {
            match self.strict_priority {
                Some(priority) => {
                    let rule = table.get(priority, &table.matcher(&self.matcher, &self.extra));
                    selected.extend(rule.filter(|rule| self.admits(rule)).cloned());
                }
                None => selected.extend(
                    table
                        .iter()
                        .filter(|r| r.is_within(&self.matcher, &self.extra) && self.admits(r))
                        .cloned(),
                ),
            }
        }
        selected
    }

    fn admits(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == OFPP_ANY || outputs_to(rule, self.out_port))
            // Groups are refused, so no rule sends to one.
            && self.out_group == OFPG_ANY
    }
}

fn outputs_to(rule: &Rule, ofport: u32) -> bool {
    use tollgate_openflow::Action;
    let names = |action: &Action| matches!(action, Action::Output { port, .. } if *port == ofport);
    rule.instructions.apply_actions().iter().any(names)
        || rule.instructions.write_actions().iter().any(names)
}

/// Carries out a flow-mod.
pub(super) fn apply(
    bridge: &mut Bridge,
    flow_mod: &FlowMod,
    now_ms: u64,
) -> Result<Changes, FlowError> {
    check_table(flow_mod)?;
    if flow_mod.command.is_delete() {
        return delete(bridge, &Selector::of(flow_mod)?);
    }
    if flow_mod.buffer_id != OFP_NO_BUFFER {
        return Err(FlowError::new(ErrorCode::OFPBRC_BUFFER_UNKNOWN, "no packets are buffered"));
    }
    let program = compile::compile(flow_mod.table_id, &flow_mod.matcher, &flow_mod.instructions)?;
    match flow_mod.command {
        FlowCommand::Add => add(bridge, flow_mod, program, now_ms),
        _ => modify(bridge, flow_mod, &program),
    }
}

fn check_table(flow_mod: &FlowMod) -> Result<(), FlowError> {
    let all_allowed = flow_mod.command.is_delete();
    if flow_mod.table_id < TABLES || (all_allowed && flow_mod.table_id == OFPTT_ALL) {
        return Ok(());
    }
    Err(FlowError::new(ErrorCode::OFPFMFC_BAD_TABLE_ID, "there is no such table"))
}

fn add(
    bridge: &mut Bridge,
    flow_mod: &FlowMod,
    program: Program,
    now_ms: u64,
) -> Result<Changes, FlowError> {
    let (matcher, extra) = matching::compile(&flow_mod.matcher)?;
    let Some(table) = bridge.table_mut(flow_mod.table_id) else {
        return Err(FlowError::new(ErrorCode::OFPFMFC_BAD_TABLE_ID, "there is no such table"));
    };
    let matcher = table.matcher(&matcher, &extra);
    let replaced = table.get(flow_mod.priority, &matcher).cloned();
    if replaced.is_none() {
        let check_overlap = flow_mod.flags.contains(FlowFlags::CHECK_OVERLAP);
        if check_overlap && table.overlapping(flow_mod.priority, &matcher).is_some() {
            return Err(FlowError::new(
                ErrorCode::OFPFMFC_OVERLAP,
                "a rule of the same priority overlaps",
            ));
        }
        if table.len() >= RULES_PER_TABLE {
            return Err(FlowError::new(ErrorCode::OFPFMFC_TABLE_FULL, "the table is full"));
        }
    }
    let kept = replaced.as_ref().map(|rule| Arc::clone(&rule.counters));
    let reset = flow_mod.flags.contains(FlowFlags::RESET_COUNTS);
    let rule = Arc::new(Rule {
        table: flow_mod.table_id,
        priority: flow_mod.priority,
        cookie: flow_mod.cookie,
        flags: flow_mod.flags,
        idle_timeout_s: flow_mod.idle_timeout_s,
        hard_timeout_s: flow_mod.hard_timeout_s,
        source: flow_mod.matcher.clone(),
        instructions: flow_mod.instructions.clone(),
        matcher,
        program,
        created_ms: now_ms,
        counters: kept.filter(|_| !reset).unwrap_or_default(),
        retired: AtomicBool::new(false),
    });
    table.insert(Arc::clone(&rule));
    Ok(Changes { added: vec![rule], retired: replaced.is_some() })
}

/// Changes what the selected rules do; it is no error if there is none.
fn modify(
    bridge: &mut Bridge,
    flow_mod: &FlowMod,
    program: &Program,
) -> Result<Changes, FlowError> {
    let reset = flow_mod.flags.contains(FlowFlags::RESET_COUNTS);
    let selected = Selector::of(flow_mod)?.select(bridge);
    for rule in &selected {
        let counters =
            if reset { Arc::new(RuleCounters::default()) } else { Arc::clone(&rule.counters) };
        let modified = rule.modified(flow_mod.instructions.clone(), program.clone(), counters);
        if let Some(table) = bridge.table_mut(rule.table) {
            table.insert(Arc::new(modified));
        }
    }
    // The new rules match what the old ones did: whoever they concern rests on a retired rule.
    Ok(Changes { added: Vec::new(), retired: !selected.is_empty() })
}

fn delete(bridge: &mut Bridge, selector: &Selector) -> Result<Changes, FlowError> {
    let deleted = selector.select(bridge);
    for rule in &deleted {
        remove(bridge, rule);
    }
    Ok(Changes { added: Vec::new(), retired: !deleted.is_empty() })
}

/// Takes one rule out.
pub(super) fn remove(bridge: &mut Bridge, rule: &Rule) {
    if let Some(table) = bridge.table_mut(rule.table) {
        table.remove(rule);
    }
}
