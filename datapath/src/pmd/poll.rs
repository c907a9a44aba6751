//! Where there is work: rings are looked at the less often the longer they have been silent, lanes
//! when the slow path says so. So a turn costs what its active tenants cost, however many are idle.

use std::collections::VecDeque;

use tollgate_policy::{Backoff, Scheduler, TenantIndex};

use crate::limits::SPARE_LOOKS_PER_TURN;
use crate::pmd::Pmd;
use crate::pmd::ends::Peek;
use crate::pmd::ports::{PolledRing, RingRef};
use crate::pmd::tenants::TenantTable;

/// All that a look at a ring needs to know of it, so that neither the ring nor its port is touched. Of
/// each ring that is started; renewed whenever the ring is watched again.
#[derive(Debug)]
pub(crate) struct Watch {
    peek: Peek,
    rest_until_tsc: u64,
    tenant: TenantIndex,
    uplink: bool,
}

const _: () = assert!(Backoff::<Option<Watch>>::QUEUE_BYTES == 64, "a cache line for each look");

impl Watch {
    /// For a ring that a port polls from now on.
    pub(crate) fn new(tenant: TenantIndex, uplink: bool, polled: &PolledRing) -> Self {
        let rest_until_tsc = polled.rest_until_tsc;
        Self { peek: polled.ring.peek(), rest_until_tsc, tenant, uplink }
    }

    #[inline]
    fn has_work(&self, now_tsc: u64) -> bool {
        now_tsc >= self.rest_until_tsc && self.peek.may_have_work()
    }
}

impl Pmd {
    /// Finds rings and lanes that have got something, and wakes their tenants.
    pub(crate) fn look_around(&mut self, now_tsc: u64) {
        let Self { back_off, tenants, uplinks, accounts, looks, bell, .. } = self;
        let scheduler = &mut accounts.scheduler;
        let mut looked = 0;
        back_off.scan(now_tsc, |queue, watch| {
            looked += 1;
            look(watch, tenants, uplinks, scheduler, queue, now_tsc)
        });
        *looks += looked;
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
        let Self { back_off, tenants, uplinks, accounts, .. } = self;
        let scheduler = &mut accounts.scheduler;
        back_off.scan_ahead(now_tsc, SPARE_LOOKS_PER_TURN, |queue, watch| {
            look(watch, tenants, uplinks, scheduler, queue, now_tsc)
        });
    }

    /// Where a ring goes after it was served.
    pub(crate) fn put_back(&mut self, tenant: TenantIndex, at: RingRef) {
        let now_tsc = self.accounts.last_tsc();
        // It may rest, which ends while it is watched.
        let Some(polled) = self.ports.polled(at) else { return };
        let has_work = polled.has_work(now_tsc);
        match self.tenants.get_mut(tenant).filter(|_| has_work) {
            Some(slot) => slot.ring_ready(at),
            None => self.watch(at),
        }
    }

    /// Looks at a ring from now on, which has no work or rests; not at one that is quarantined, which
    /// has none until it is started anew.
    pub(crate) fn watch(&mut self, at: RingRef) {
        let Some(polled) = self.ports.polled(at).filter(|polled| polled.ring.is_sound()) else {
            return;
        };
        if let Some(Some(watch)) = self.back_off.note_mut(at.queue()) {
            polled.ring.renew(&mut watch.peek);
            watch.rest_until_tsc = polled.rest_until_tsc;
            self.back_off.emptied(at.queue(), self.accounts.last_tsc());
        }
    }

    /// Looks at a ring no more, and lets go of its memory: it is still in its port's hands, so nothing
    /// is unmapped here.
    pub(crate) fn unwatch(&mut self, at: RingRef) {
        self.back_off.remove(at.queue());
        if let Some(note) = self.back_off.note_mut(at.queue()) {
            *note = None;
        }
    }
}

/// Whether a ring has packets; if so its tenant knows.
#[inline]
fn look(
    watch: &Option<Watch>,
    tenants: &mut TenantTable,
    uplinks: &mut VecDeque<RingRef>,
    scheduler: &mut Scheduler,
    queue: u16,
    now_tsc: u64,
) -> bool {
    let Some(watch) = watch.as_ref().filter(|watch| watch.has_work(now_tsc)) else { return false };
    let at = RingRef::of_queue(queue);
    if watch.uplink {
        uplinks.push_back(at);
        return true;
    }
    let Some(slot) = tenants.get_mut(watch.tenant) else { return false };
    slot.ring_ready(at);
    if slot.list(now_tsc) {
        scheduler.wake(watch.tenant, now_tsc);
    }
    true
}

#[cfg(test)]
mod tests {
    use tollgate_packet::PortIndex;
    use tollgate_policy::TenantIndex;
    use tollgate_vhost::mock::{FROM_GUEST, frame};
    use tollgate_vhost::{Features, RingFault};

    use crate::control::DatapathConfig;
    use crate::limits::QUIET_RING_LATE_US;
    use crate::pmd::Pmd;
    use crate::pmd::bench::{Guest, TSC_HZ, add_guest, add_ring, pmd};
    use crate::pmd::ends::Inlet;
    use crate::pmd::ports::RingRef;

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

    /// Serves the tenant of guest `number` (from 0) until nothing of it is ready.
    fn serve(pmd: &mut Pmd, number: u16, now: u64) -> usize {
        let tenant = TenantIndex(number + 1);
        let mut tasks = 0;
        while pmd.tenants.get(tenant).unwrap().has_work() {
            let turn = pmd.accounts.scheduler.next(now).unwrap();
            assert_eq!(turn.tenant, tenant);
            pmd.task(turn);
            tasks += 1;
            assert!(tasks < 10, "it ends");
        }
        tasks
    }

    fn watched(pmd: &Pmd, number: u16) -> bool {
        pmd.back_off.is_polled(at(number).queue())
    }

    fn at(number: u16) -> RingRef {
        RingRef { port: PortIndex(number + 1), pair: 0 }
    }

    /// An index that the guest has made up is one more reason to serve the ring, at its tenant's
    /// expense; what is wrong with it is found then, and the ring never looked at again.
    #[test]
    fn a_jump_of_the_index_is_found_by_a_task_of_the_tenant_and_ends_the_looks() {
        let (mut pmd, guests, now) = quiet_pmd();
        assert!(watched(&pmd, 3));
        guests[3].driver.set_avail_index(1000);
        pmd.look_around(now + 2 * LATE_CYCLES);
        let fault = |pmd: &mut Pmd| match &pmd.ports.polled(at(3)).unwrap().ring {
            Inlet::Vring(ring) => ring.fault(),
            Inlet::Nic(_) => unreachable!(),
        };
        assert_eq!(fault(&mut pmd), None, "a look does not judge");
        assert_eq!(serve(&mut pmd, 3, now), 1);
        assert_eq!(fault(&mut pmd), Some(RingFault::AvailIndexJump));
        assert!(!watched(&pmd, 3));
        guests[3].driver.set_avail_index(2);
        for turn in 0..10 {
            pmd.look_around(now + turn * 2 * LATE_CYCLES);
            pmd.look_ahead(now + turn * 2 * LATE_CYCLES + 1);
        }
        assert_eq!(pmd.accounts.scheduler.next(now), None);
    }

    /// What a look knows of a ring goes with it, so that the session can unmap the guest's memory; and
    /// the next ring of that number is looked at as it is.
    #[test]
    fn a_stopped_ring_is_not_looked_at_and_its_memory_is_let_go_of() {
        let (mut pmd, mut guests, now) = quiet_pmd();
        assert!(pmd.back_off.note_mut(at(7).queue()).unwrap().is_some());
        let (ring, polled) = pmd.ports.get_mut(PortIndex(8)).unwrap().stop(FROM_GUEST);
        pmd.forget_ring(TenantIndex(8), polled.unwrap());
        assert!(ring.is_some());
        assert!(pmd.back_off.note_mut(at(7).queue()).unwrap().is_none());
        assert!(!watched(&pmd, 7));
        say_something(&mut guests[7]);
        pmd.look_around(now + 2 * LATE_CYCLES);
        assert_eq!(pmd.accounts.scheduler.next(now), None);
        guests[7] = add_ring(&mut pmd, 8, FROM_GUEST);
        pmd.look_around(now + 4 * LATE_CYCLES);
        assert_eq!(pmd.accounts.scheduler.next(now), None, "the new one is silent");
        say_something(&mut guests[7]);
        pmd.look_around(now + 6 * LATE_CYCLES);
        assert_eq!(pmd.accounts.scheduler.next(now).map(|turn| turn.tenant), Some(TenantIndex(8)));
    }

    /// What was left in a ring that rests is found when its rest is over, and not before.
    #[test]
    fn a_resting_ring_with_packets_is_found_when_its_rest_ends() {
        let (mut pmd, mut guests, now) = quiet_pmd();
        (0..2).for_each(|_| say_something(&mut guests[4]));
        pmd.look_around(now + 2 * LATE_CYCLES);
        let turn = pmd.accounts.scheduler.next(now).unwrap();
        let at = pmd.tenants.get_mut(turn.tenant).unwrap().next_ring().unwrap();
        let rested = now + 8 * LATE_CYCLES;
        pmd.ports.polled(at).unwrap().rest_until_tsc = rested;
        pmd.put_back(turn.tenant, at);
        let ready = |pmd: &Pmd| pmd.tenants.get(turn.tenant).unwrap().has_work();
        pmd.look_around(rested - LATE_CYCLES);
        assert!(!ready(&pmd));
        pmd.look_around(rested);
        assert!(ready(&pmd));
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
