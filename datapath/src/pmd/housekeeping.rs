//! What need not be done every turn: it begins every millisecond, and goes on for as many turns as it
//! needs, some tenants in each.

use std::sync::atomic::Ordering::Relaxed;

use tollgate_policy::TenantIndex;

use crate::limits::{EXACT_ACTIVE_MS, HOUSEKEEPING_TENANTS_PER_TURN, HOUSEKEEPING_US};
use crate::pmd::Pmd;

/// How far it is.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    interval_cycles: u64,
    due_tsc: u64,
    /// The next tenant's place in the list, while it goes on.
    next: Option<usize>,
    /// Tenants with packets lately, among those before it.
    owners: usize,
}

impl Housekeeping {
    pub(crate) fn new(interval_cycles: u64) -> Self {
        Self { interval_cycles, due_tsc: 0, next: None, owners: 0 }
    }
}

impl Pmd {
    /// Does a piece of what is to be done; `true` when there was one.
    pub(crate) fn keep_house(&mut self, now_tsc: u64) -> bool {
        if let Some(next) = self.housekeeping.next {
            self.visit_tenants(next, now_tsc);
            return true;
        }
        if now_tsc < self.housekeeping.due_tsc {
            return false;
        }
        self.housekeeping.due_tsc = now_tsc.saturating_add(self.housekeeping.interval_cycles);
        self.accounts.refresh_evidence();
        self.cache.housekeeping();
        self.publish_figures();
        (self.housekeeping.next, self.housekeeping.owners) = (Some(0), 0);
        true
    }

    /// Gives some tenants their quota in the exact-match table: an equal part of it with all that were
    /// active lately, as the last round has found. Who has too much gives it up bit by bit. And
    /// publishes their figures.
    fn visit_tenants(&mut self, next: usize, now_tsc: u64) {
        let horizon_cycles =
            self.housekeeping.interval_cycles * (EXACT_ACTIVE_MS * 1000 / HOUSEKEEPING_US);
        let end = next + HOUSEKEEPING_TENANTS_PER_TURN;
        for at in next..end {
            let Some(index) = self.tenants.indices().get(at).copied() else { break };
            self.publish_tenant(index);
            let Some(slot) = self.tenants.get_mut(index) else { continue };
            self.housekeeping.owners += usize::from(slot.is_active(now_tsc, horizon_cycles));
            self.cache.set_exact_quota(index.0, slot.exact_entries, self.exact_owners);
            self.cache.trim_exact(index.0);
        }
        self.housekeeping.next = (end < self.tenants.indices().len()).then_some(end);
        if self.housekeeping.next.is_none() {
            self.exact_owners = self.housekeeping.owners;
        }
    }

    /// Copies the figures that are kept in private to where others read them.
    fn publish_figures(&self) {
        let shared = &self.shared;
        shared.ring_looks.store(self.looks, Relaxed);
        shared.port_hits.store(self.cache.port_hits, Relaxed);
        shared.exact_hits.store(self.cache.exact_hits, Relaxed);
        shared.megaflow_hits.store(self.cache.megaflow_hits, Relaxed);
        shared.subtable_probes.store(self.cache.subtable_probes, Relaxed);
        shared.megaflows.store(self.cache.megaflow_count() as u64, Relaxed);
        shared.subtables.store(self.cache.subtable_count() as u64, Relaxed);
        shared.notifications.store(self.egress.notifications, Relaxed);
    }

    /// The same of one tenant.
    pub(super) fn publish_tenant(&self, index: TenantIndex) {
        let Some(tenant) = self.tenants.get(index) else { return };
        let Some(cells) = self.shared.tenants.get(usize::from(index.0)) else { return };
        let scheduler = &self.accounts.scheduler;
        let turns = scheduler.counters(index);
        cells.credit_cycles.store(scheduler.credit_cycles(index), Relaxed);
        cells.funded_turns.store(turns.funded_turns, Relaxed);
        cells.slack_turns.store(turns.slack_turns, Relaxed);
        cells.gated_turns.store(turns.gated_turns, Relaxed);
        cells.packets.store(tenant.packets, Relaxed);
    }

    /// At the end, when nobody waits.
    pub(crate) fn publish_all_figures(&self) {
        self.publish_figures();
        self.tenants.indices().iter().for_each(|index| self.publish_tenant(*index));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use crate::control::DatapathConfig;
    use crate::limits::HOUSEKEEPING_TENANTS_PER_TURN;
    use crate::pmd::bench::{add_port, pmd};
    use crate::settings::PortSettings;

    /// A thousand tenants are looked after some at a time, each once a round.
    #[test]
    fn housekeeping_visits_some_tenants_a_turn_and_each_of_them() {
        const TENANTS: u16 = 1000;
        let config =
            DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
        let mut pmd = pmd(&config).0;
        (1..=TENANTS).for_each(|number| add_port(&mut pmd, number, &PortSettings::default()));
        let mut now = pmd.housekeeping.interval_cycles;
        for packets in [7, 8] {
            pmd.tenants.each(|slot| slot.packets = packets);
            let seen = |pmd: &crate::pmd::Pmd| {
                let cells = pmd.shared.tenants.iter();
                cells.filter(|cells| cells.packets.load(Relaxed) == packets).count()
            };
            assert!(pmd.keep_house(now), "it is due");
            let mut before = seen(&pmd);
            assert_eq!(before, 0, "the first piece is no tenant's");
            while before < usize::from(TENANTS) {
                assert!(pmd.keep_house(now));
                let after = seen(&pmd);
                assert!(after > before && after <= before + HOUSEKEEPING_TENANTS_PER_TURN);
                before = after;
            }
            assert!(!pmd.keep_house(now), "it is done, until it is due again");
            assert_eq!(pmd.exact_owners, usize::from(TENANTS));
            now += pmd.housekeeping.interval_cycles;
        }
    }
}
