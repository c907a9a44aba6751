//! Taking in what the coordinator has granted.

use tollgate_policy::Refill;

use crate::limits::GRANTS_PER_TURN;
use crate::pmd::Pmd;

/// How far the PMD is with the last round of grants that it has seen.
#[derive(Debug, Default)]
pub(crate) struct GrantCursor {
    round: u64,
    /// A place in the list of tenants; 0 when it is through.
    next: usize,
}

impl Pmd {
    /// Adds to credits what has been granted since the last look: that of some tenants, so that a turn
    /// costs no more however many there are. Without news one load; with a local refill none.
    pub(crate) fn take_grants(&mut self) {
        let Self { accounts, tenants, grant_cursor: cursor, shared, .. } = self;
        let scheduler = &mut accounts.scheduler;
        if scheduler.config().refill == Refill::Local {
            return;
        }
        if cursor.next == 0 {
            let round = shared.grants.rounds();
            if round == cursor.round {
                return;
            }
            cursor.round = round;
        }
        let indices = tenants.indices();
        for tenant in indices.iter().skip(cursor.next).take(GRANTS_PER_TURN) {
            scheduler.refill_grant(*tenant, shared.grants.take(*tenant));
        }
        cursor.next += GRANTS_PER_TURN;
        if cursor.next >= indices.len() {
            cursor.next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policy::{SchedulerConfig, TenantIndex};

    use crate::control::DatapathConfig;
    use crate::limits::GRANTS_PER_TURN;
    use crate::pmd::bench::{TSC_HZ, add_guest, pmd};

    /// However many tenants are registered, a turn takes in a bounded number of grants, and a few
    /// turns all of them.
    #[test]
    fn a_turn_takes_in_some_grants_and_a_few_turns_all() {
        let config = DatapathConfig {
            megaflows_max: 64,
            exact_entries: 64,
            scheduler: SchedulerConfig::coordinated(TSC_HZ),
            ..DatapathConfig::default()
        };
        let mut pmd = pmd(&config).0;
        let tenants = GRANTS_PER_TURN as u16 * 2 + 5;
        let all = || (1..=tenants).map(TenantIndex);
        let _guests: Vec<_> = (1..=tenants).map(|number| add_guest(&mut pmd, number)).collect();
        for tenant in all() {
            pmd.accounts.scheduler.charge(tenant, 100_000, 0);
        }
        let credit = |pmd: &crate::pmd::Pmd, tenant| pmd.accounts.scheduler.credit_cycles(tenant);
        let before: Vec<_> = all().map(|tenant| credit(&pmd, tenant)).collect();
        let granted = |pmd: &crate::pmd::Pmd| {
            all().zip(&before).filter(|(tenant, then)| credit(pmd, *tenant) == **then + 7).count()
        };
        all().for_each(|tenant| pmd.shared.grants.add(tenant, 7));
        pmd.take_grants();
        assert_eq!(granted(&pmd), 0, "the round has not ended");
        pmd.shared.grants.end_round();
        for turn in 1..=3 {
            pmd.take_grants();
            assert_eq!(granted(&pmd), (turn * GRANTS_PER_TURN).min(usize::from(tenants)));
        }
        pmd.take_grants();
        assert_eq!(granted(&pmd), usize::from(tenants), "nothing is granted twice");
    }
}
