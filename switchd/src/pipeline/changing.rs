//! Commands that change rules: who may, and who is told.

use std::sync::Arc;

use tollgate_openflow::FlowMod;

use super::bridge::{Bridge, BridgeId};
use super::changes::Changes;
use super::core::Core;
use super::error::FlowError;
use super::flow_mod::Prepared;
use super::gone::Gone;
use super::limits::RULES_PER_CHUNK;
use super::rule::Rule;

/// What became of a command.
type Outcome = Result<(), FlowError>;

impl Core {
    /// Carries out one command.
    pub(super) fn flow_mod(&self, id: BridgeId, flow_mod: &FlowMod) -> Result<(), FlowError> {
        self.flow_mods(id, std::slice::from_ref(flow_mod)).into_iter().collect()
    }

    /// Carries out commands in order, those that need no search under one lock, and says what
    /// became of each.
    pub(super) fn flow_mods(
        &self,
        id: BridgeId,
        flow_mods: &[FlowMod],
    ) -> Vec<Result<(), FlowError>> {
        let mut outcomes = vec![Ok(()); flow_mods.len()];
        let mut direct = Vec::new();
        let _changing = self.changing();
        for (flow_mod, outcome) in flow_mods.iter().zip(&mut outcomes) {
            match Prepared::new(flow_mod) {
                Ok(command) if command.search().is_none() => direct.push((command, outcome)),
                Ok(command) => {
                    self.change_directly(id, std::mem::take(&mut direct));
                    *outcome = self.search_and_change(id, &command);
                }
                Err(error) => *outcome = Err(error),
            }
        }
        self.change_directly(id, direct);
        outcomes
    }

    /// Carries out commands that find their rules without a search.
    fn change_directly(&self, id: BridgeId, commands: Vec<(Prepared, &mut Outcome)>) {
        if commands.is_empty() {
            return;
        }
        let (commands, mut places): (Vec<_>, Vec<_>) = commands.into_iter().unzip();
        let changed = self.change(id, |bridge, now_ms, changes| {
            for (command, place) in commands.into_iter().zip(&mut places) {
                // What is refused has changed nothing.
                **place = command.apply(bridge, now_ms, changes);
            }
            Ok(())
        });
        if let Err(error) = changed {
            // The bridge is gone, for all of them.
            places.into_iter().for_each(|place| *place = Err(error));
        }
    }

    /// Carries out a command about rules that have to be looked for.
    fn search_and_change(&self, id: BridgeId, command: &Prepared) -> Outcome {
        let Some(selector) = command.search() else { return Ok(()) };
        // The search may look at a million rules, and packets want to look at some as well.
        let selected = selector.select(self.read().bridge(id)?);
        // Also when nothing was selected: it may be refused.
        let (first, rest) = selected.split_at(selected.len().min(RULES_PER_CHUNK));
        for chunk in std::iter::once(first).chain(rest.chunks(RULES_PER_CHUNK)) {
            self.change(id, |bridge, _, changes| command.apply_to(bridge, chunk, changes))?;
        }
        Ok(())
    }

    /// Carries out all commands or none of them; no packet meets some of them only.
    ///
    /// # Errors
    /// The first refusal and which command it was about.
    pub(super) fn bundle(
        &self,
        id: BridgeId,
        flow_mods: impl IntoIterator<Item = FlowMod>,
    ) -> Result<(), (usize, FlowError)> {
        let mut prepared = Vec::new();
        for (index, flow_mod) in flow_mods.into_iter().enumerate() {
            prepared.push(Prepared::new(&flow_mod).map_err(|error| (index, error))?);
        }
        let _changing = self.changing();
        let mut at = 0;
        self.change(id, |bridge, now_ms, changes| {
            for command in prepared {
                command.apply(bridge, now_ms, changes)?;
                at += 1;
            }
            Ok(())
        })
        .map_err(|error| (at, error))
    }

    /// Removes rules whose timeouts have come, some at a time. Says whether there may be more.
    pub(super) fn expire_some_rules(&self, now_ms: u64) -> bool {
        let _changing = self.changing();
        let is_due = |bridge: &Bridge| {
            let mut tables = bridge.tables();
            tables.any(|(_, table)| table.timers().next_due_ms().is_some_and(|at| at <= now_ms))
        };
        let due = self.read().bridges.iter().find(|(_, bridge)| is_due(bridge)).map(|(id, _)| *id);
        let Some(id) = due else { return false };
        let expired = self.change(id, |bridge, now_ms, changes| {
            expire(bridge, now_ms, changes);
            Ok(())
        });
        expired.is_ok()
    }

    /// Changes a bridge under the lock of the tables, and registers what was done. What is refused
    /// half way is undone.
    pub(super) fn change(
        &self,
        id: BridgeId,
        change: impl FnOnce(&mut Bridge, u64, &mut Changes) -> Result<(), FlowError>,
    ) -> Result<(), FlowError> {
        let now_ms = self.now_ms();
        let mut changes = Changes::default();
        let mut state = self.write();
        let bridge = state.bridge_mut(id)?;
        if let Err(error) = change(bridge, now_ms, &mut changes) {
            changes.undo(bridge);
            return Err(error);
        }
        if !changes.is_empty() {
            self.shadow().rules_changed(id, changes.added(), changes.has_retired());
            let gone = |(rule, reason): (&Arc<Rule>, _)| Gone::of(id, rule, reason, now_ms);
            self.gone().extend(changes.removed().filter_map(gone));
        }
        drop(state);
        // What was removed is freed here, where nobody waits.
        drop(changes);
        Ok(())
    }
}

fn expire(bridge: &mut Bridge, now_ms: u64, changes: &mut Changes) {
    let numbers: Vec<u8> = bridge.tables().map(|(number, _)| number).collect();
    let mut room = RULES_PER_CHUNK;
    for number in numbers {
        while room > 0 {
            let timers = bridge.table_mut(number).map(|table| table.timers_mut());
            let Some(rule) = timers.and_then(|timers| timers.pop_due(now_ms)) else { break };
            changes.remove(bridge, &rule, Gone::timeout_of(&rule, now_ms));
            room -= 1;
        }
    }
}
