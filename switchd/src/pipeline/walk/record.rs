//! Notes of what a walk did, table by table, for whoever asks why.

use std::sync::Arc;

use tollgate_openflow::{Action, Actions, Instruction};

use super::super::rule::Rule;

/// One look-up, or a list that belongs to none, and what was done then.
#[derive(Clone, Debug)]
pub(in super::super) struct Recorded {
    /// Resubmits that led here and are not finished.
    pub(in super::super) depth: usize,
    /// `None` for the action set and the list of a packet-out.
    pub(in super::super) table: Option<u8>,
    /// `None` for a miss.
    pub(in super::super) rule: Option<Arc<Rule>>,
    /// What was executed; actions as lists of one.
    pub(in super::super) done: Vec<Instruction>,
}

/// Where notes go.
#[derive(Clone, Debug)]
pub(in super::super) enum Record {
    /// Nobody asks.
    Nothing,
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
        entries.push(Recorded { depth, table, rule: rule.cloned(), done: Vec::new() });
        entries.len() - 1
    }

    pub(super) fn action(&mut self, entry: usize, action: &Action) {
        if let Self::Everything(_) = self {
            // It was in a list of its kind already.
            let list = Actions::new(vec![action.clone()]).unwrap_or_default();
            self.note(entry, Instruction::ApplyActions(list));
        }
    }

    /// The rule's instructions that stand after its actions, or those before.
    pub(super) fn instructions(&mut self, entry: usize, rule: &Rule, after: bool) {
        if let Self::Everything(_) = self {
            for instruction in rule.behaviour.instructions.iter() {
                let is_there = match instruction {
                    Instruction::Meter(_) => !after,
                    Instruction::ApplyActions(_) => false,
                    _ => after,
                };
                if is_there {
                    self.note(entry, instruction.clone());
                }
            }
        }
    }

    fn note(&mut self, entry: usize, instruction: Instruction) {
        if let Self::Everything(entries) = self
            && let Some(entry) = entries.get_mut(entry)
        {
            entry.done.push(instruction);
        }
    }
}
