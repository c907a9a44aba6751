//! Taking in mail.

use std::sync::atomic::Ordering::Relaxed;

use tollgate_accel::tsc;
use tollgate_nic::Queues;
use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;
use tollgate_vhost::ActiveVring;

use crate::limits::MAIL_PER_TURN;
use crate::mail::{Discard, Mail, TenantUpdate};
use crate::pmd::Pmd;
use crate::pmd::poll::Watch;
use crate::pmd::ports::{PortSlot, RingRef};

impl Pmd {
    /// Carries out a few orders; `true` when there was one. Rings that start or stop come first: a
    /// guest's session waits for each, so there are few. Of everything else one is taken for certain,
    /// and no further one when `system`'s slice of the turn is used up.
    pub(crate) fn take_mail(&mut self, slice_end_tsc: u64) -> bool {
        let mut taken = 0;
        while taken < MAIL_PER_TURN
            && let Some(order) = self.urgent_mail.next()
        {
            taken += 1;
            let discard = self.carry_out(order);
            self.urgent_mail.done(discard);
        }
        let ordinary = self.take_ordinary_mail(slice_end_tsc);
        taken > 0 || ordinary
    }

    fn take_ordinary_mail(&mut self, slice_end_tsc: u64) -> bool {
        let mut taken = 0;
        let forgotten_before = self.forgotten;
        while taken < MAIL_PER_TURN
            && (taken == 0 || tsc::now() < slice_end_tsc)
            && let Some(order) = self.mail.next()
        {
            // An order to forget many megaflows is a turn's work.
            taken = if matches!(order, Mail::Stale(_)) { MAIL_PER_TURN } else { taken + 1 };
            let discard = self.carry_out(order);
            self.mail.done(discard);
        }
        let forgotten = self.forgotten - forgotten_before;
        if forgotten > 0 {
            self.shared.forgotten.store(self.forgotten, Relaxed);
            self.shared.forgotten_per_turn_max.fetch_max(forgotten, Relaxed);
        }
        taken > 0
    }

    pub(super) fn carry_out(&mut self, order: Mail) -> Option<Discard> {
        match order {
            Mail::TenantAdd(knobs, slot) => {
                // Refused only where the control side has lost count; then the slot goes back.
                let scheduler = &mut self.accounts.scheduler;
                let added = scheduler.tenant_add(slot.index, knobs.weight);
                match added.and_then(|()| scheduler.set_knobs(slot.index, &knobs)) {
                    Ok(()) => {
                        let (index, quota) = (slot.index.0, slot.exact_entries);
                        self.cache.set_exact_quota(index, quota, self.exact_owners);
                        let end = usize::from(slot.index.0) + 1;
                        self.shared.tenants_end.fetch_max(end, Relaxed);
                        self.tenants.put(slot).map(Discard::Tenant)
                    }
                    Err(_) => Some(Discard::Tenant(slot)),
                }
            }
            Mail::TenantSet(tenant, mut update) => {
                // An unknown tenant has no knobs to set; the control side checks before.
                let _ = self.accounts.scheduler.set_knobs(tenant, &update.knobs);
                if let Some(slot) = self.tenants.get_mut(tenant) {
                    let TenantUpdate { exact_entries, limits, arena, .. } = &mut *update;
                    slot.exact_entries = *exact_entries;
                    slot.lane.update(limits, arena.as_mut());
                    self.cache.set_exact_quota(tenant.0, *exact_entries, self.exact_owners);
                }
                Some(Discard::TenantUpdate(update))
            }
            Mail::TenantRemove(tenant) => {
                let _ = self.accounts.scheduler.tenant_remove(tenant);
                self.accounts.retire(tenant);
                // The next one with its index is granted its own.
                let _ = self.shared.grants.take(tenant);
                if let Some(cells) = self.shared.tenants.get(usize::from(tenant.0)) {
                    cells.clear();
                }
                self.tenants.take(tenant).map(Discard::Tenant)
            }
            Mail::PortAdd(slot) => {
                let replaced = self.ports.put(slot);
                if let Some(old) = &replaced {
                    self.forget_rings(old);
                }
                self.macs.refill(self.ports.macs());
                replaced.map(Discard::Port)
            }
            Mail::PortRemove(port) => {
                let slot = self.ports.take(port)?;
                self.forget_rings(&slot);
                // What it owes decides whether its account is kept.
                self.publish_tenant(slot.tenant);
                self.macs.refill(self.ports.macs());
                Some(Discard::Port(slot))
            }
            Mail::RingStart(port, ring) => self.start_ring(port, ring),
            Mail::RingStop(port, vring_index) => {
                let slot = self.ports.get_mut(port)?;
                let tenant = slot.tenant;
                let (ring, polled) = slot.stop(vring_index);
                if let Some(polled) = polled {
                    self.forget_ring(tenant, polled);
                }
                ring.map(Discard::Ring)
            }
            Mail::QueuesStart(port, mut queues) => {
                self.start_queues(port, &mut queues);
                Some(Discard::Queues(queues))
            }
            Mail::QueuesStop(port, mut queues) => {
                if let Some(slot) = self.ports.get_mut(port) {
                    let tenant = slot.tenant;
                    slot.stop_queues(&mut queues);
                    let stopped = queues.rx.iter().zip(0_u8..).filter(|(queue, _)| queue.is_some());
                    for (_, pair) in stopped {
                        self.forget_ring(tenant, RingRef { port, pair });
                    }
                }
                Some(Discard::Queues(queues))
            }
            Mail::Generation(generation) => {
                self.cache.require_generation(generation);
                None
            }
            Mail::Stale(mut stale) => {
                for flow in &mut stale {
                    flow.forgotten = self.cache.forget(&flow.megaflow);
                }
                self.forgotten += stale.len() as u64;
                Some(Discard::Stale(stale))
            }
            Mail::Protection(on) => {
                self.accounts.scheduler.set_protection(on);
                None
            }
            Mail::ExactMatch(on) => {
                self.cache.set_exact_match(on);
                None
            }
            Mail::Stages(on) => {
                self.egress.stopwatch.set_on(on, &self.shared.stages);
                None
            }
            Mail::Scheduler(config) => {
                // The control side has validated it.
                let _ = self.accounts.scheduler.set_config(config);
                let grants = &self.shared.grants;
                self.tenants.each(|slot| _ = grants.take(slot.index));
                None
            }
            Mail::TenantKnobs(tenant, knobs) => {
                let _ = self.accounts.scheduler.set_knobs(tenant, &knobs);
                None
            }
            Mail::RecordingStart(recording) => {
                let refused = self.accounts.scheduler.start_recording(recording);
                refused.err().map(Discard::Recording)
            }
            Mail::RecordingStop => self.accounts.scheduler.stop_recording().map(Discard::Recording),
            Mail::Stop => {
                self.stopping = true;
                None
            }
        }
    }

    pub(crate) fn start_ring(
        &mut self,
        port: PortIndex,
        ring: Box<ActiveVring>,
    ) -> Option<Discard> {
        let Some(slot) = self.ports.get_mut(port) else { return Some(Discard::Ring(ring)) };
        let (tenant, uplink, vring_index) = (slot.tenant, slot.uplink, ring.index());
        match slot.start(ring) {
            Err(refused) => Some(Discard::Ring(refused)),
            Ok(None) => None,
            Ok(Some(polled)) => {
                let listed = self.tenants.get_mut(tenant).is_some_and(|tenant| tenant.add_ring());
                if !listed {
                    return slot.stop(vring_index).0.map(Discard::Ring);
                }
                let watch = slot.guest_tx(polled.pair).map(|ring| Watch::new(tenant, uplink, ring));
                self.begin_watch(polled, watch);
                None
            }
        }
    }

    /// Takes a network card's queues over. It is an uplink, whose rings are served apart from its
    /// tenant's turns: of any other port they are refused.
    fn start_queues(&mut self, port: PortIndex, queues: &mut Queues) {
        let Some(slot) = self.ports.get_mut(port).filter(|slot| slot.uplink) else { return };
        let tenant = slot.tenant;
        let are_new = queues.rx.each_ref().map(Option::is_some);
        slot.start_queues(queues);
        for (pair, _) in (0_u8..).zip(are_new).filter(|(_, is_new)| *is_new) {
            let at = RingRef { port, pair };
            let slot = self.ports.get_mut(port).and_then(|slot| slot.guest_tx(pair));
            let watch = slot.map(|queue| Watch::new(tenant, true, queue));
            if let Some(tenant) = self.tenants.get_mut(tenant) {
                // There is room: a tenant has no more ports than it has rings for.
                let is_listed = tenant.add_ring();
                debug_assert!(is_listed, "a place for each ring that there can be");
            }
            self.begin_watch(at, watch);
        }
    }

    fn begin_watch(&mut self, ring: RingRef, watch: Option<Watch>) {
        if let Some(note) = self.back_off.note_mut(ring.queue()) {
            *note = watch;
        }
        self.watch(ring);
    }

    /// A port goes, with the rings that it has.
    fn forget_rings(&mut self, port: &PortSlot) {
        for ring in port.polled_rings() {
            self.forget_ring(port.tenant, ring);
        }
    }

    pub(crate) fn forget_ring(&mut self, tenant: TenantIndex, ring: RingRef) {
        self.unwatch(ring);
        self.uplinks.retain(|ready| *ready != ring);
        if let Some(slot) = self.tenants.get_mut(tenant) {
            slot.remove_ring(ring);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_accel::tsc;
    use tollgate_frame::DropReason;
    use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};
    use tollgate_policy::TenantIndex;
    use tollgate_vhost::mock;

    use crate::control::{DatapathConfig, forget_orders};
    use crate::limits::STALE_PER_MAIL;
    use crate::mail::Mail;
    use crate::megaflow::{Megaflow, MegaflowStats};
    use crate::pmd::bench::{add_guest, pmd, pmd_with_urgent_mail};

    /// Addresses under masks of several widths, from several ports.
    fn megaflow(number: u32) -> Arc<Megaflow> {
        let key = FlowKey {
            in_port: number % 16,
            l4_dst: (number >> 16) as u16,
            l4_src: number as u16,
            ..FlowKey::default()
        };
        let ip_proto = if number.is_multiple_of(3) { 0xff } else { 0 };
        let mask = FlowMask(FlowKey {
            in_port: u32::MAX,
            l4_dst: u16::MAX,
            l4_src: u16::MAX,
            ip_proto,
            ..FlowKey::default()
        });
        Arc::new(Megaflow {
            matcher: FlowMatch::new(&key, mask),
            ops: Box::default(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(1),
            generation: 1,
            stats: MegaflowStats::default(),
        })
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "a figure to read, not to judge by")]
    fn a_hundred_thousand_stale_megaflows_are_forgotten_a_few_in_each_turn() {
        const FLOWS: u32 = 100_000;
        let config = DatapathConfig {
            megaflows_max: FLOWS as usize + 1,
            exact_entries: 64,
            ..DatapathConfig::default()
        };
        let (mut pmd, mailbox) = pmd(&config);
        let megaflows: Vec<_> = (0..=FLOWS).map(megaflow).collect();
        megaflows.iter().for_each(|megaflow| pmd.cache.install(Arc::clone(megaflow)));
        assert_eq!(pmd.cache.megaflow_count(), FLOWS as usize + 1);
        let (kept, stale) = megaflows.split_last().unwrap();

        let mut turn_cycles = Vec::new();
        std::thread::scope(|scope| {
            let barrier = scope.spawn(|| mailbox.call(forget_orders(0, stale)).unwrap());
            while !barrier.is_finished() {
                let before = pmd.forgotten;
                let began_tsc = tsc::now();
                pmd.take_mail(u64::MAX);
                if pmd.forgotten > before {
                    turn_cycles.push(tsc::now().saturating_sub(began_tsc));
                }
            }
        });
        turn_cycles.sort_unstable();
        let turns = turn_cycles.len();
        println!("{turns} turns, cycles of the median turn: {}", turn_cycles[turns / 2]);
        let most = pmd.shared.snapshot(0, 0).forgotten_per_turn_max;
        assert_eq!((pmd.forgotten, most), (FLOWS.into(), STALE_PER_MAIL as u64));
        assert_eq!(turns, (FLOWS as usize).div_ceil(STALE_PER_MAIL));
        // The barrier waited for all of them: the PMD holds none, only the one that was not named.
        assert!(stale.iter().all(|megaflow| Arc::strong_count(megaflow) == 1));
        assert_eq!((pmd.cache.megaflow_count(), Arc::strong_count(kept)), (1, 2));
    }

    /// Whatever the daemon has to say, a turn of its tenants does not wait for all of it: when the
    /// slice is used up one order is taken and no more.
    #[test]
    fn a_flood_of_mail_waits_for_the_next_turn_when_the_slice_is_used_up() {
        const ORDERS: u64 = 40;
        let config =
            DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
        for (slice_end_tsc, at_once) in [(0, 1), (u64::MAX, crate::limits::MAIL_PER_TURN as u64)] {
            let (mut pmd, mailbox) = pmd(&config);
            let mut turns = 0;
            std::thread::scope(|scope| {
                let flood = (0..ORDERS).map(Mail::Generation);
                let sent = scope.spawn(|| mailbox.call(flood).unwrap());
                // All of it waits before the first turn.
                while pmd.mail.orders.slots() < ORDERS as usize {
                    std::thread::yield_now();
                }
                while pmd.take_mail(slice_end_tsc) {
                    turns += 1;
                }
                sent.join().unwrap();
            });
            assert_eq!(turns, ORDERS / at_once, "{at_once} in each turn");
        }
    }

    /// A guest stops a ring while the daemon removes ten thousand decisions: the very next turn
    /// sees it, also when the slice of that turn is used up.
    #[test]
    fn a_stop_does_not_wait_behind_other_mail() {
        const FLOWS: u32 = 10_000;
        let config = DatapathConfig {
            megaflows_max: FLOWS as usize,
            exact_entries: 64,
            ..DatapathConfig::default()
        };
        let (mut pmd, mailbox, urgent) = pmd_with_urgent_mail(&config);
        let _guest = add_guest(&mut pmd, 1);
        let stale: Vec<_> = (0..FLOWS).map(megaflow).collect();
        stale.iter().for_each(|megaflow| pmd.cache.install(Arc::clone(megaflow)));
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| mailbox.call(forget_orders(0, &stale)).unwrap());
            while pmd.mail.orders.slots() < 100 {
                std::thread::yield_now();
            }
            pmd.take_mail(0);
            let stop = [Mail::RingStop(PortIndex(1), mock::FROM_GUEST)];
            let stopped = scope.spawn(|| urgent.call(stop).unwrap());
            while pmd.urgent_mail.orders.slots() == 0 {
                std::thread::yield_now();
            }
            pmd.take_mail(0);
            let ring = stopped.join().unwrap().ring;
            assert!(ring.is_some(), "the ring is back");
            let left = pmd.cache.megaflow_count();
            assert_eq!(left, FLOWS as usize - 2 * STALE_PER_MAIL, "the flood has two turns so far");
            while !flood.is_finished() {
                pmd.take_mail(0);
            }
        });
    }
}
