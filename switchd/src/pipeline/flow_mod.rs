//! FLOW_MOD (OpenFlow 1.3.5, sections 6.4 and 7.3.4.1): what each command does to a bridge's
//! tables. Everything is checked before anything is changed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tollgate_classifier::ExtraMatch;
use tollgate_openflow::port::{OFP_NO_BUFFER, OFPTT_ALL};
use tollgate_openflow::{ErrorCode, FlowCommand, FlowFlags, FlowMod, Instructions, Match};
use tollgate_packet::FlowMatch;

use super::bridge::{Bridge, Overflow};
use super::changes::Changes;
use super::error::FlowError;
use super::events::FlowRemovedReason;
use super::limits::TABLES;
use super::program::Program;
use super::rule::Rule;
use super::selector::Selector;
use super::{compile, matching, meters};

const NO_SUCH_TABLE: FlowError =
    FlowError::new(ErrorCode::OFPFMFC_BAD_TABLE_ID, "there is no such table");
const OVERLAP: FlowError =
    FlowError::new(ErrorCode::OFPFMFC_OVERLAP, "a rule of the same priority overlaps");
const TABLE_FULL: FlowError = FlowError::new(ErrorCode::OFPFMFC_TABLE_FULL, "the table is full");
const NOTHING_TO_EVICT: FlowError = FlowError::new(
    ErrorCode::OFPFMFC_TABLE_FULL,
    "the table is full, and no rule in it has a timeout that would let it be evicted",
);

/// A command with all that can be found out about it without looking at tables.
#[derive(Debug)]
pub(super) enum Prepared {
    Add(Box<NewRule>),
    Modify(Selector, NewBehaviour),
    Delete(Selector),
}

/// A rule to be.
#[derive(Debug)]
pub(super) struct NewRule {
    table: u8,
    priority: u16,
    cookie: u64,
    flags: FlowFlags,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    source: Match,
    matcher: FlowMatch,
    extra: ExtraMatch,
    behaviour: NewBehaviour,
}

/// What rules are to do.
#[derive(Debug)]
pub(super) struct NewBehaviour {
    instructions: Instructions,
    program: Program,
    reset_counts: bool,
}

impl Prepared {
    pub(super) fn new(flow_mod: &FlowMod) -> Result<Self, FlowError> {
        check_table(flow_mod)?;
        if flow_mod.command.is_delete() {
            return Ok(Self::Delete(Selector::of(flow_mod)?));
        }
        if flow_mod.buffer_id != OFP_NO_BUFFER {
            return Err(FlowError::new(
                ErrorCode::OFPBRC_BUFFER_UNKNOWN,
                "no packets are buffered",
            ));
        }
        let FlowMod { table_id, matcher, instructions, .. } = flow_mod;
        let behaviour = NewBehaviour {
            program: compile::compile(*table_id, matcher, instructions)?,
            instructions: instructions.clone(),
            reset_counts: flow_mod.flags.contains(FlowFlags::RESET_COUNTS),
        };
        if flow_mod.command != FlowCommand::Add {
            return Ok(Self::Modify(Selector::of(flow_mod)?, behaviour));
        }
        let (matcher, extra) = matching::compile(matcher)?;
        Ok(Self::Add(Box::new(NewRule {
            table: *table_id,
            priority: flow_mod.priority,
            cookie: flow_mod.cookie,
            flags: flow_mod.flags,
            idle_timeout_s: flow_mod.idle_timeout_s,
            hard_timeout_s: flow_mod.hard_timeout_s,
            source: flow_mod.matcher.clone(),
            matcher,
            extra,
            behaviour,
        })))
    }

    /// The rules there are that the command is about, unless they are found without a search.
    pub(super) fn search(&self) -> Option<&Selector> {
        match self {
            Self::Add(_) => None,
            Self::Modify(selector, _) | Self::Delete(selector) => {
                Some(selector).filter(|selector| !selector.is_strict())
            }
        }
    }

    /// Carries the command out.
    pub(super) fn apply(
        self,
        bridge: &mut Bridge,
        now_ms: u64,
        changes: &mut Changes,
    ) -> Result<(), FlowError> {
        match self {
            Self::Add(rule) => add(bridge, *rule, now_ms, changes),
            Self::Modify(ref selector, _) | Self::Delete(ref selector) => {
                let selected = selector.select(bridge);
                self.apply_to(bridge, &selected, changes)
            }
        }
    }

    /// Carries a modification or deletion out on rules that were selected; it is no error if there
    /// is none.
    pub(super) fn apply_to(
        &self,
        bridge: &mut Bridge,
        rules: &[Arc<Rule>],
        changes: &mut Changes,
    ) -> Result<(), FlowError> {
        match self {
            Self::Add(_) => {}
            Self::Modify(_, behaviour) => {
                check_meter(bridge, &behaviour.program)?;
                rules.iter().for_each(|rule| modify(bridge, rule, behaviour, changes));
            }
            Self::Delete(_) => {
                let reason = FlowRemovedReason::Delete;
                rules.iter().for_each(|rule| changes.remove(bridge, rule, reason));
            }
        }
        Ok(())
    }
}

fn check_table(flow_mod: &FlowMod) -> Result<(), FlowError> {
    let all_allowed = flow_mod.command.is_delete();
    if flow_mod.table_id < TABLES || (all_allowed && flow_mod.table_id == OFPTT_ALL) {
        return Ok(());
    }
    Err(NO_SUCH_TABLE)
}

/// A rule cannot use a meter that is not there (OpenFlow 1.3.5, section 6.4).
fn check_meter(bridge: &Bridge, program: &Program) -> Result<(), FlowError> {
    match program.meter {
        Some(id) if bridge.meters.get(id).is_none() => Err(meters::INVALID),
        _ => Ok(()),
    }
}

fn add(
    bridge: &mut Bridge,
    new: NewRule,
    now_ms: u64,
    changes: &mut Changes,
) -> Result<(), FlowError> {
    check_meter(bridge, &new.behaviour.program)?;
    let table = bridge.table_or_new(new.table);
    let matcher = table.matcher(&new.matcher, &new.extra);
    let replaced = table.get(new.priority, &matcher);
    let kept = replaced.map(|rule| Arc::clone(&rule.counters));
    if replaced.is_none() {
        let check_overlap = new.flags.contains(FlowFlags::CHECK_OVERLAP);
        if check_overlap && table.overlapping(new.priority, &matcher).is_some() {
            return Err(OVERLAP);
        }
        make_room(bridge, new.table, changes)?;
    }
    let NewBehaviour { instructions, program, reset_counts } = new.behaviour;
    let rule = Rule {
        table: new.table,
        priority: new.priority,
        cookie: new.cookie,
        flags: new.flags,
        idle_timeout_s: new.idle_timeout_s,
        hard_timeout_s: new.hard_timeout_s,
        source: new.source,
        matcher,
        behaviour: bridge.behaviours.share(&instructions, program),
        created_ms: now_ms,
        counters: kept.filter(|_| !reset_counts).unwrap_or_default(),
        retired: AtomicBool::new(false),
    };
    changes.insert(bridge, Arc::new(rule));
    Ok(())
}

/// Sees to it that a table can take one more rule.
fn make_room(bridge: &mut Bridge, table: u8, changes: &mut Changes) -> Result<(), FlowError> {
    let limits = bridge.limits;
    let table = bridge.table_or_new(table);
    if table.len() < limits.rules {
        return Ok(());
    }
    match limits.overflow {
        Overflow::Refuse => Err(TABLE_FULL),
        Overflow::Evict => {
            let victim = table.timers_mut().pop_soonest().ok_or(NOTHING_TO_EVICT)?;
            changes.remove(bridge, &victim, FlowRemovedReason::Eviction);
            Ok(())
        }
    }
}

/// Changes what a rule does. The new rule matches what the old one did: whoever it concerns rests
/// on a retired rule.
fn modify(bridge: &mut Bridge, rule: &Rule, new: &NewBehaviour, changes: &mut Changes) {
    let counters = match new.reset_counts {
        true => Arc::new(rule.counters.reset()),
        false => Arc::clone(&rule.counters),
    };
    let behaviour = bridge.behaviours.share(&new.instructions, new.program.clone());
    changes.insert(bridge, Arc::new(rule.modified(behaviour, counters)));
}
