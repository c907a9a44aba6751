//! Where there is work: rings are looked at the less often the longer they have been silent, lanes
//! when the slow path says so. So a turn costs what its active tenants cost, however many are idle.

use std::collections::VecDeque;

use tollgate_policy::{Scheduler, TenantIndex};

use crate::limits::SPARE_LOOKS_PER_TURN;
use crate::pmd::Pmd;
use crate::pmd::ports::{PortTable, RingRef};
use crate::pmd::tenants::TenantTable;

impl Pmd {
    /// Finds rings and lanes that have got something, and wakes their tenants.
    pub(crate) fn look_around(&mut self, now_tsc: u64) {
        let Self { back_off, ports, tenants, uplinks, accounts, looks, bell, .. } = self;
        let scheduler = &mut accounts.scheduler;
        back_off.scan(now_tsc, |queue| {
            *looks += 1;
            look(ports, tenants, uplinks, scheduler, RingRef::of_queue(queue), now_tsc)
        });
        bell.answer(|tenant| {
            if let Some(slot) = tenants.get_mut(tenant)
                && slot.lane.has_work()
                && slot.list(now_tsc)
            {
                scheduler.wake(tenant, now_tsc);
            }
        });
    }

    /// Looks at a few quiet rings before they are due, because there is nothing else to do.
    pub(crate) fn look_ahead(&mut self, now_tsc: u64) {
        let Self { back_off, ports, tenants, uplinks, accounts, .. } = self;
        let scheduler = &mut accounts.scheduler;
        back_off.scan_ahead(now_tsc, SPARE_LOOKS_PER_TURN, |queue| {
            look(ports, tenants, uplinks, scheduler, RingRef::of_queue(queue), now_tsc)
        });
    }

    /// Where a ring goes after it was served.
    pub(crate) fn put_back(&mut self, tenant: TenantIndex, at: RingRef) {
        let now_tsc = self.accounts.last_tsc();
        // It may rest, which ends while it is polled.
        let Some(polled) = self.ports.polled(at) else { return };
        let has_work = polled.has_work(now_tsc);
        match self.tenants.get_mut(tenant).filter(|_| has_work) {
            Some(slot) => slot.ring_ready(at),
            None => self.back_off.emptied(at.queue(), now_tsc),
        }
    }
}

/// Whether a ring has packets; if so its tenant knows.
#[inline]
fn look(
    ports: &mut PortTable,
    tenants: &mut TenantTable,
    uplinks: &mut VecDeque<RingRef>,
    scheduler: &mut Scheduler,
    at: RingRef,
    now_tsc: u64,
) -> bool {
    let Some(port) = ports.get_mut(at.port) else { return false };
    let tenant = port.tenant;
    let has_work = port.guest_tx(at.pair).is_some_and(|ring| ring.has_work(now_tsc));
    if has_work && port.uplink {
        uplinks.push_back(at);
        return true;
    }
    let Some(slot) = tenants.get_mut(tenant).filter(|_| has_work) else { return false };
    slot.ring_ready(at);
    if slot.list(now_tsc) {
        scheduler.wake(tenant, now_tsc);
    }
    true
}

#[cfg(test)]
mod tests {
    use tollgate_vhost::Features;
    use tollgate_vhost::mock::frame;

    use crate::control::DatapathConfig;
    use crate::limits::QUIET_RING_LATE_US;
    use crate::pmd::Pmd;
    use crate::pmd::bench::{Guest, TSC_HZ, add_guest, pmd};

    const QUIET: u16 = 100;
    const TURN_CYCLES: u64 = 5000;
    const LATE_CYCLES: u64 = QUIET_RING_LATE_US * (TSC_HZ / 1_000_000);

    /// A PMD with a hundred guests that have been silent for long, and the time.
    fn quiet_pmd() -> (Pmd, Vec<Guest>, u64) {
        let config =
            DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
        let mut pmd = pmd(&config).0;
        let guests = (1..=QUIET).map(|number| add_guest(&mut pmd, number)).collect();
        let mut now = 0;
        while now < 2 * 1024 * LATE_CYCLES {
            now += TURN_CYCLES;
            pmd.look_around(now);
        }
        (pmd, guests, now)
    }

    fn say_something(guest: &mut Guest) {
        let header_bytes = Features::offered(1).net_header_bytes();
        guest.driver.transmit(header_bytes, &frame(60, 1));
    }

    #[test]
    fn a_hundred_idle_ports_cost_a_turn_a_few_looks() {
        let (mut pmd, _guests, mut now) = quiet_pmd();
        let before = pmd.looks;
        let turns = 100 * LATE_CYCLES / TURN_CYCLES;
        for _ in 0..turns {
            now += TURN_CYCLES;
            pmd.look_around(now);
        }
        let looks = pmd.looks - before;
        // Each is looked at every 7/8 of the bound.
        assert!(looks <= 100 * u64::from(QUIET) * 8 / 7 + u64::from(QUIET), "{looks}");
        assert!(looks * 15 < turns * u64::from(QUIET), "{looks} in {turns} turns");
        assert!(pmd.accounts.scheduler.next(now).is_none());
    }

    #[test]
    fn a_waking_ring_is_seen_within_the_bound() {
        let (mut pmd, mut guests, mut now) = quiet_pmd();
        for number in [0, 50, 99] {
            say_something(&mut guests[number]);
            let woke = now;
            let turn = loop {
                now += TURN_CYCLES;
                pmd.look_around(now);
                if let Some(turn) = pmd.accounts.scheduler.next(now) {
                    break turn;
                }
                assert!(now - woke < LATE_CYCLES, "guest {number} is not seen");
            };
            assert_eq!(usize::from(turn.tenant.0), number + 1);
            assert!(pmd.tenants.get(turn.tenant).unwrap().has_work());
            pmd.accounts.scheduler.done(turn.tenant, false, now);
        }
    }

    #[test]
    fn an_idle_core_looks_round_before_it_must() {
        let (mut pmd, mut guests, now) = quiet_pmd();
        say_something(&mut guests[77]);
        let turns = usize::from(QUIET).div_ceil(crate::limits::SPARE_LOOKS_PER_TURN) as u64;
        let seen = (1..=turns).any(|turn| {
            pmd.look_ahead(now + turn);
            pmd.accounts.scheduler.next(now).is_some()
        });
        assert!(seen);
    }

    /// A ring that has more is served again before anybody looks at it; one that is empty is looked
    /// at in the next turn.
    #[test]
    fn a_ring_that_was_served_is_polled_again_or_stays_ready() {
        let (mut pmd, mut guests, now) = quiet_pmd();
        (0..2).for_each(|_| say_something(&mut guests[4]));
        pmd.look_ahead(now);
        while !pmd.tenants.get(super::TenantIndex(5)).unwrap().has_work() {
            pmd.look_around(now + LATE_CYCLES);
        }
        let turn = pmd.accounts.scheduler.next(now).unwrap();
        let at = pmd.tenants.get_mut(turn.tenant).unwrap().next_ring().unwrap();
        assert!(!pmd.tenants.get(turn.tenant).unwrap().has_work());
        pmd.put_back(turn.tenant, at);
        assert!(pmd.tenants.get(turn.tenant).unwrap().has_work(), "two packets are left");
        pmd.forget_ring(turn.tenant, at);
        assert!(!pmd.tenants.get(turn.tenant).unwrap().has_work(), "its ring is gone");
        let before = pmd.looks;
        pmd.look_around(now + 2 * LATE_CYCLES);
        assert!(pmd.looks - before <= u64::from(QUIET));
    }
}
