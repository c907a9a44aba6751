//! Rounds: the PMDs are told which decisions are stale, and decisions that a change may concern
//! are looked into.
//!
//! A change that could concern a decision need not change it. Such a decision is walked again
//! under the present tables, and stays if its packets are still decided alike: adding a hundred
//! thousand rules costs established flows nothing, and a round costs at most one walk for each
//! decision, however many rules were added.

use super::core::Core;
use super::limits::SHADOW_CHUNK;
use super::shadow::{Round, Suspect};
use super::walk::walk_again;

impl Core {
    /// Returns when no PMD uses a decision that rests on tables, ports or stations as they were
    /// before a change made before the call.
    pub(super) fn tell_pmds(&self) {
        let _telling = self.telling();
        // Taken first: whatever ended these rules is then part of the round.
        let gone = std::mem::take(&mut *self.gone());
        let mut round = self.shadow().take_round();
        if round.concerns_rules() {
            self.in_chunks(|from| {
                let (suspects, more) = self.shadow().suspects(&round, from, SHADOW_CHUNK);
                suspects.iter().for_each(|suspect| self.recheck(suspect, &mut round));
                more
            });
        }
        if !round.doomed.is_empty() {
            self.caches.tables_changed(round.generation, &round.doomed);
        }
        for chunk in round.doomed.chunks(SHADOW_CHUNK) {
            let state = self.read();
            let mut shadow = self.shadow();
            for megaflow in chunk {
                shadow.left_caches(megaflow);
                shadow.settle(megaflow, |tsc| self.ms_of_tsc(tsc), |counts| state.count(&counts));
            }
        }
        self.report(&gone);
    }

    /// Walks a decision's packets again. It stays if they are decided as before.
    fn recheck(&self, suspect: &Suspect, round: &mut Round) {
        let state = self.read();
        let bridge = state.bridges.get(&suspect.bridge);
        let ingress = bridge.and_then(|bridge| bridge.port(suspect.ofport));
        let (Some(bridge), Some(ingress)) = (bridge, ingress) else {
            // The port has gone, and what was decided about its packets with it.
            return;
        };
        let fdb = bridge.fdb();
        let walk = walk_again(bridge, &fdb, ingress, &suspect.matcher);
        let mut shadow = self.shadow();
        shadow.recheck(
            suspect,
            walk,
            round,
            |tsc| self.ms_of_tsc(tsc),
            |counts| {
                state.count(&counts);
            },
        );
    }

    /// Calls `step` with the start of one chunk of the shadow after the other, so that no lock is
    /// held for long, until it says that there are no more.
    pub(super) fn in_chunks(&self, mut step: impl FnMut(usize) -> bool) {
        let mut from = 0;
        while step(from) {
            from += SHADOW_CHUNK;
        }
    }
}
