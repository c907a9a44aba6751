//! How often a tenant that comes and goes may pass those that wait.

use super::ready::{Moment, Ready};

/// A tenant's time in turns, measured from a moment since which all have waited who wait now.
///
/// A woken tenant goes before those in the old list. If it could do so each time, to come and go
/// would gain turns; FQ-CoDel lets it pass once a round. Here it may pass for one quantum a round,
/// so that small requests do not wait for a round of the others' turns, and nobody waits longer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    emptied: Option<Moment>,
    used_cycles: u64,
    /// A later start to measure from, as soon as nobody waits that waited before it.
    later: Option<(Moment, u64)>,
}

impl Rounds {
    pub(super) fn from_parts(
        emptied: Option<Moment>,
        used_cycles: u64,
        later: Option<(Moment, u64)>,
    ) -> Self {
        Self { emptied, used_cycles, later }
    }

    pub(super) fn parts(&self) -> (Option<Moment>, u64, Option<(Moment, u64)>) {
        (self.emptied, self.used_cycles, self.later)
    }

    /// The tenant spent this in a turn.
    pub(super) fn spent(&mut self, cycles: u64) {
        self.used_cycles = self.used_cycles.saturating_add(cycles);
        if let Some((_, used_cycles)) = &mut self.later {
            *used_cycles = used_cycles.saturating_add(cycles);
        }
    }

    /// The tenant ran out of work.
    pub(super) fn emptied(&mut self, moment: Moment) {
        self.emptied = Some(moment);
    }

    /// The tenant has work again: what it has used while anybody waited who waits now, or more.
    pub(super) fn used_at_wake(&mut self, ready: &Ready) -> u64 {
        let Some(emptied) = self.emptied.filter(|moment| ready.waits_since_before(*moment)) else {
            // Whoever waits began after its last turn.
            self.used_cycles = 0;
            self.later = None;
            return 0;
        };
        if let Some((moment, used_cycles)) = self.later
            && !ready.waits_since_before(moment)
        {
            self.used_cycles = used_cycles;
            self.later = None;
        }
        // Between running out of work and now it had no turn, so now will do as the start for all
        // who began to wait in between.
        self.later.get_or_insert((emptied, 0));
        self.used_cycles
    }

    pub(super) fn used_cycles(&self) -> u64 {
        self.used_cycles
    }
}
