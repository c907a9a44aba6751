//! Packets from uplinks. They come mixed, and whose they are shows only after work was done on them:
//! the destination's, as the decision says. That tenant pays for what was done, and what is over its
//! share is marked or dropped while others wait.
//!
//! ```text
//! fetch, parse -> early verdict (by configured address) -> classify -> owner -> verdict
//!   -> charge each owner its part -> run actions, a run of one owner's packets at a time -> charge
//! ```

use std::sync::Arc;

use tollgate_accel::tsc;
use tollgate_classifier::FlowSlot;
use tollgate_frame::DropReason;
use tollgate_packet::edit::{self, Edit};
use tollgate_packet::{FlowKey, HeaderField};
use tollgate_policy::{Account, Scheduler, Stage, TenantIndex, Verdict};

use crate::counters::PortCounters;
use crate::limits::TASK_PACKETS;
use crate::megaflow::single_writer_add;
use crate::pmd::Pmd;
use crate::pmd::egress::Source;
use crate::pmd::ends::Inlet;
use crate::pmd::frames::parse_packet;
use crate::pmd::parked::{Decision, Job, Punt};
use crate::pmd::ports::RingRef;
use crate::pmd::progress::{Progress, Ran};
use crate::pmd::task::is_long;

/// What is known of each packet of a received burst; never zeroed.
#[derive(Debug)]
pub(crate) struct Attribution {
    /// Who is charged.
    owners: Box<[TenantIndex]>,
    /// In whose lane to the slow path it belongs.
    lanes: Box<[TenantIndex]>,
    fates: Box<[Fate]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Deliver,
    Mark,
    Drop,
    DropEarly,
}

impl Attribution {
    pub(crate) fn new() -> Self {
        Self {
            owners: vec![TenantIndex::SYSTEM; TASK_PACKETS].into(),
            lanes: vec![TenantIndex::SYSTEM; TASK_PACKETS].into(),
            fates: vec![Fate::Deliver; TASK_PACKETS].into(),
        }
    }

    fn of(&self, at: usize) -> (TenantIndex, TenantIndex, Fate) {
        let tenant = |list: &[TenantIndex]| list.get(at).copied().unwrap_or(TenantIndex::SYSTEM);
        let fate = self.fates.get(at).copied().unwrap_or(Fate::Deliver);
        (tenant(&self.owners), tenant(&self.lanes), fate)
    }
}

impl Pmd {
    /// Serves one burst of one uplink ring, if one has packets; `true` then. It is no more than a
    /// quantum of work: what is left stays in the ring.
    pub(crate) fn take_received(&mut self) -> bool {
        if self.resume_received() {
            return true;
        }
        let Some((at, began_tsc)) = self.next_uplink() else { return false };
        let port = self.ports.get(at.port).map(|port| (port.tenant, Arc::clone(&port.counters)));
        let Some((uplink, counters)) = port else { return false };
        // What came before in this turn was mail.
        self.accounts.lap_until(Account::Tenant(TenantIndex::SYSTEM), began_tsc);
        let quantum_cycles = self.accounts.scheduler.config().quantum_cycles;
        let fetched = self.fetch(at, TASK_PACKETS, &counters);
        self.classify_received(at, uplink);
        let owners = self.attribution.owners.get(..fetched).unwrap_or_default();
        if owners.is_empty() {
            self.accounts.lap_tenant(uplink);
        }
        self.accounts.lap_shared(owners);
        let deadline_tsc = began_tsc.saturating_add(quantum_cycles);
        let done = self.forward_received(at, fetched, deadline_tsc, &counters);
        self.give_back(at, fetched - done);
        if self.complete(at) {
            self.egress.interrupt_sender(uplink);
        }
        let last = self.attribution.of(done.saturating_sub(1)).0;
        let payer = if done > 0 { last } else { uplink };
        self.publish(payer);
        self.accounts.lap_tenant(payer);
        self.burst.clear();
        single_writer_add(&self.shared.packets, done as u64);
        self.put_back_uplink(at);
        self.shared.rx_cycles.record(self.accounts.last_tsc().saturating_sub(began_tsc));
        true
    }

    /// The next uplink ring to be served, and since when it is: from before a network card was asked, so
    /// that its answer is paid for by those whose packets it is. Cards without one are looked at again
    /// later, and what that took is nobody's.
    fn next_uplink(&mut self) -> Option<(RingRef, u64)> {
        while let Some(at) = self.uplinks.pop_front() {
            let began_tsc = tsc::now();
            let Some(polled) = self.ports.polled(at) else { continue };
            let may_have_packets = match &mut polled.ring {
                Inlet::Vring(_) => true,
                Inlet::Nic(queue) => queue.poll(),
            };
            if may_have_packets {
                return Some((at, began_tsc));
            }
            self.back_off.found_empty(at.queue(), self.accounts.last_tsc());
        }
        None
    }

    /// Runs on the packet that an earlier burst has left in the middle of its list: all that came
    /// later waits. It is asked again whether that is at another's expense. `true` if there was one.
    fn resume_received(&mut self) -> bool {
        let is_taken = self.parked_received.as_ref().is_some_and(|parked| parked.is_taken());
        let Some(mut parked) = self.parked_received.take_if(|_| is_taken) else { return false };
        let Some((payer, packet)) = parked.payer() else { return false };
        let ecn_capable = is_ecn_capable(&packet.key);
        // What came before in this turn was mail.
        self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
        let began_tsc = self.accounts.last_tsc();
        let scheduler = &self.accounts.scheduler;
        let quantum_cycles = scheduler.config().quantum_cycles;
        if scheduler.verdict(payer, Stage::PostAttribution, ecn_capable) == Verdict::Drop {
            self.give_up(&mut parked, DropReason::TenantOverShare);
            let cells = self.shared.tenants.get(usize::from(payer.0));
            cells.inspect(|cells| cells.dropped_over_share());
        } else {
            self.resume(&mut parked, began_tsc.saturating_add(quantum_cycles));
        }
        self.parked_received = Some(parked);
        self.publish(payer);
        self.accounts.lap_tenant(payer);
        self.shared.rx_cycles.record(self.accounts.last_tsc().saturating_sub(began_tsc));
        true
    }

    /// Finds each packet's decision, owner and fate.
    fn classify_received(&mut self, at: RingRef, uplink: TenantIndex) {
        self.burst.packets_mut().iter_mut().for_each(|packet| parse_packet(packet, at.port));
        self.judge_early(uplink);
        self.look_up_received(uplink);
        self.judge_by_owner();
    }

    /// By configured addresses: whose lane a packet goes to if it misses, and whether it need be
    /// classified at all.
    fn judge_early(&mut self, uplink: TenantIndex) {
        let scheduler = &self.accounts.scheduler;
        let Attribution { owners, lanes, fates } = &mut self.attribution;
        let places = owners.iter_mut().zip(lanes.iter_mut()).zip(fates.iter_mut());
        let mut run = Run::default();
        for (packet, ((owner, lane), fate)) in self.burst.packets().iter().zip(places) {
            let configured = self.macs.owner(packet.key.eth_dst);
            *lane = configured.unwrap_or(uplink);
            *owner = *lane;
            let verdict = match configured {
                Some(tenant) => run.verdict(scheduler, Stage::Early, tenant, &packet.key),
                None => Verdict::Deliver,
            };
            *fate = if verdict == Verdict::Drop { Fate::DropEarly } else { Fate::Deliver };
        }
    }

    /// The decisions. One that is about a tenant's packets names their owner; any other is the
    /// uplink's, and then a configured address decides.
    fn look_up_received(&mut self, uplink: TenantIndex) {
        let fates = &self.attribution.fates;
        let hashes = self.scratch.flow_hashes.iter_mut();
        for ((packet, hash), fate) in self.burst.packets().iter().zip(hashes).zip(fates) {
            if *fate == Fate::Deliver {
                *hash = self.cache.hash(&packet.key);
                self.cache.prefetch_entry(*hash);
            }
        }
        let found = self.scratch.flow_hashes.iter().zip(&mut self.scratch.decisions);
        let known = fates.iter().zip(self.attribution.owners.iter_mut());
        for ((packet, (hash, decision)), (fate, owner)) in
            self.burst.packets().iter().zip(found).zip(known)
        {
            if *fate != Fate::Deliver {
                continue;
            }
            *decision = self.cache.lookup(*hash, &packet.key);
            let megaflow = decision.and_then(|slot| self.cache.get(slot));
            if let Some(tenant) = megaflow.map(|m| m.owner).filter(|owner| *owner != uplink) {
                *owner = tenant;
            }
        }
    }

    /// Asked before anything of this burst is charged: to be looked at must not condemn a packet.
    fn judge_by_owner(&mut self) {
        let scheduler = &self.accounts.scheduler;
        let Attribution { owners, fates, .. } = &mut self.attribution;
        let mut run = Run::default();
        for (packet, (owner, fate)) in
            self.burst.packets().iter().zip(owners.iter().zip(fates.iter_mut()))
        {
            if *fate == Fate::Deliver {
                *fate = match run.verdict(scheduler, Stage::PostAttribution, *owner, &packet.key) {
                    Verdict::Deliver => Fate::Deliver,
                    Verdict::Mark => Fate::Mark,
                    Verdict::Drop => Fate::Drop,
                };
            }
        }
    }

    /// Runs the decisions until a quantum is used up; how many packets that were. A change of owner
    /// is a boundary.
    fn forward_received(
        &mut self,
        at: RingRef,
        fetched: usize,
        deadline_tsc: u64,
        counters: &PortCounters,
    ) -> usize {
        let now_tsc = self.accounts.last_tsc();
        let source = Source { port: at.port, counters, now_tsc, deadline_tsc };
        let (mut done, mut bytes) = (0, 0);
        let mut payer = None;
        while done < fetched {
            let (owner, lane, fate) = self.attribution.of(done);
            if let Some(previous) = payer.filter(|previous| *previous != owner) {
                self.egress.flush(&self.burst, &mut self.ports, source);
                self.accounts.lap_tenant(previous);
                if self.accounts.last_tsc() >= deadline_tsc {
                    break;
                }
            }
            payer = Some(owner);
            bytes += self.burst.packet(done).map_or(0, |packet| u64::from(packet.frame_len));
            let heavy = match fate {
                Fate::Drop | Fate::DropEarly => {
                    self.drop_over_share(owner, fate, counters);
                    false
                }
                Fate::Deliver => self.deliver_received(done, (owner, lane), at, source),
                Fate::Mark => {
                    self.mark(done, owner);
                    self.deliver_received(done, (owner, lane), at, source)
                }
            };
            if let Some(slot) = self.tenants.get_mut(owner) {
                slot.packets += 1;
            }
            done += 1;
            if self.parked_received.as_ref().is_some_and(|parked| parked.is_taken()) {
                break;
            }
            if heavy || self.egress.is_heavy() {
                self.egress.flush(&self.burst, &mut self.ports, source);
                if tsc::now() >= deadline_tsc {
                    break;
                }
            }
        }
        self.egress.flush(&self.burst, &mut self.ports, source);
        counters.received(done as u64, bytes);
        done
    }

    /// Carries out a packet's decision, or asks the slow path for one; whether that was much work.
    fn deliver_received(
        &mut self,
        index: usize,
        (owner, lane): (TenantIndex, TenantIndex),
        at: RingRef,
        source: Source<'_>,
    ) -> bool {
        let hash = self.scratch.flow_hashes.get(index).copied().unwrap_or_default();
        let decision = self.scratch.decisions.get(index).copied().flatten();
        let Some(megaflow) = decision.and_then(|slot| self.cache.get(slot)) else {
            self.queue_miss(lane, at, index, hash, source.counters);
            return true;
        };
        if self.tenants.get(lane).is_some_and(|slot| slot.lane.pending.contains(hash)) {
            // It must not overtake those that are not back from the slow path, and others behind it
            // in the ring must not wait for it.
            source.counters.dropped(DropReason::MissQueueFull, 1);
            return false;
        }
        let frame_len = self.burst.packet(index).map_or(0, |packet| u64::from(packet.frame_len));
        megaflow.stats.add(1, frame_len, source.now_tsc);
        let is_long = is_long(megaflow);
        let (ports, burst) = (&mut self.ports, &mut self.burst);
        let mut progress = Progress::of(hash);
        let ran = self.egress.run(megaflow, burst, index, ports, source, &mut progress);
        if ran == Ran::Cut {
            self.park_received(index, (owner, decision), at, progress, source.counters);
            return true;
        }
        let punted = progress.punts && self.punt(lane, at.port, index, source.counters);
        is_long || punted
    }

    /// Keeps the packet at `index` of the burst, whose list was cut.
    fn park_received(
        &mut self,
        index: usize,
        (payer, decision): (TenantIndex, Option<FlowSlot>),
        at: RingRef,
        progress: Progress,
        counters: &PortCounters,
    ) {
        let place = self.parked_received.as_mut();
        match (place, decision, self.burst.packet(index)) {
            (Some(place), Some(slot), Some(packet)) => {
                let (decision, punt) = (Decision::Cached(slot), Punt::Here);
                let job = Job { decision, progress, port: at.port, payer, punt };
                place.fill(packet, self.burst.payload(index), &self.egress, job, counters);
            }
            _ => progress.account_lost(DropReason::NoBuffers, counters),
        }
    }

    fn drop_over_share(&mut self, owner: TenantIndex, fate: Fate, counters: &PortCounters) {
        let cells = self.shared.tenants.get(usize::from(owner.0));
        if fate == Fate::DropEarly {
            counters.dropped(DropReason::TenantOverShareEarly, 1);
            cells.inspect(|cells| single_writer_add(&cells.early_drops, 1));
        } else {
            counters.dropped(DropReason::TenantOverShare, 1);
            cells.inspect(|cells| cells.dropped_over_share());
        }
    }

    /// Sets ECN CE (RFC 3168, section 5).
    fn mark(&mut self, index: usize, owner: TenantIndex) {
        let Some(packet) = self.burst.packet_mut(index) else { return };
        let mark = Edit::set(HeaderField::IpEcn, ECN_CE.into());
        let marked = edit::apply(&mark, &mut packet.header, &mut packet.layout, &packet.key);
        if marked.is_ok()
            && let Some(cells) = self.shared.tenants.get(usize::from(owner.0))
        {
            single_writer_add(&cells.marks, 1);
        }
    }

    fn put_back_uplink(&mut self, at: RingRef) {
        let now_tsc = self.accounts.last_tsc();
        let Some(polled) = self.ports.polled(at) else { return };
        if polled.has_work(now_tsc) {
            self.uplinks.push_back(at);
        } else {
            self.watch(at);
        }
    }
}

/// The verdict on the packets of one run, which the scheduler is asked for once.
#[derive(Default)]
struct Run(Option<(TenantIndex, bool, Verdict)>);

impl Run {
    #[inline]
    fn verdict(
        &mut self,
        scheduler: &Scheduler,
        stage: Stage,
        tenant: TenantIndex,
        key: &FlowKey,
    ) -> Verdict {
        let ecn_capable = is_ecn_capable(key);
        match self.0 {
            Some((of, ecn, verdict)) if (of, ecn) == (tenant, ecn_capable) => verdict,
            _ => {
                let verdict = scheduler.verdict(tenant, stage, ecn_capable);
                self.0 = Some((tenant, ecn_capable, verdict));
                verdict
            }
        }
    }
}

/// Congestion experienced.
const ECN_CE: u8 = 3;

/// Whether the packet's IP header carries ECT(0), ECT(1) or CE.
#[inline]
fn is_ecn_capable(key: &FlowKey) -> bool {
    const ETH_TYPE_IPV4: u16 = 0x0800;
    const ETH_TYPE_IPV6: u16 = 0x86dd;
    matches!(key.eth_type, ETH_TYPE_IPV4 | ETH_TYPE_IPV6) && key.ip_tos & ECN_CE != 0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use tollgate_packet::{FlowKey, FlowMask, FlowMatch, MacAddr, PortIndex};
    use tollgate_policy::{Refill, RxOverrun, SchedulerConfig, TenantIndex, TenantKnobs};
    use tollgate_vhost::{Features, mock};

    use super::*;
    use crate::control::DatapathConfig;
    use crate::counters::PortSnapshot;
    use crate::megaflow::{Megaflow, MegaflowStats, Op};
    use crate::pmd::bench::{Guest, add_port, add_ring, pmd};
    use crate::settings::PortSettings;

    const UPLINK: u16 = 1;
    const VICTIM: u16 = 2;
    const NEIGHBOUR: u16 = 3;

    /// So large that a slow machine overdraws nobody.
    const SCHEDULER: SchedulerConfig = SchedulerConfig {
        quantum_cycles: 10_000_000,
        cap_cycles: 40_000_000,
        floor_cycles: 500_000_000,
        horizon_cycles: 500_000_000,
        refill: Refill::Local,
    };

    struct Bench {
        pmd: Pmd,
        uplink: Guest,
        victim: Guest,
        neighbour: Guest,
    }

    fn mac(port: u16) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, port as u8])
    }

    /// An uplink, and two guests with room for four frames each.
    fn bench(macs_configured: bool) -> Bench {
        let config = DatapathConfig {
            scheduler: SCHEDULER,
            megaflows_max: 64,
            exact_entries: 64,
            ..DatapathConfig::default()
        };
        let mut pmd = pmd(&config).0;
        pmd.accounts.start();
        pmd.shared.tenants_end.store(4, Relaxed);
        add_port(&mut pmd, UPLINK, &PortSettings { uplink: true, ..PortSettings::default() });
        let uplink = add_ring(&mut pmd, UPLINK, mock::FROM_GUEST);
        let mut guest = |number| {
            let mac = macs_configured.then(|| mac(number));
            add_port(&mut pmd, number, &PortSettings { mac, ..PortSettings::default() });
            let mut guest = add_ring(&mut pmd, number, mock::TO_GUEST);
            (0..4).for_each(|_| guest.driver.post(256));
            pmd.cache.install(megaflow(number));
            guest
        };
        let (victim, neighbour) = (guest(VICTIM), guest(NEIGHBOUR));
        Bench { pmd, uplink, victim, neighbour }
    }

    /// What enters at the uplink for a guest's address goes to it, and is its tenant's.
    fn megaflow(number: u16) -> Arc<Megaflow> {
        let key = |in_port, eth_dst| FlowKey { in_port, eth_dst, ..FlowKey::default() };
        let mask = FlowMask(key(u32::MAX, MacAddr::BROADCAST));
        Arc::new(Megaflow {
            matcher: FlowMatch::new(&key(UPLINK.into(), mac(number)), mask),
            ops: [Op::Output(PortIndex(number))].into(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(number),
            generation: 1,
            stats: MegaflowStats::default(),
        })
    }

    /// An IPv4 packet for a guest.
    fn packet(to: u16, ecn: u8) -> Vec<u8> {
        let mut frame = [mac(to).0, [2, 9, 9, 9, 9, 9]].concat();
        frame.extend([0x08, 0x00, 0x45, ecn, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.resize(60, 0);
        frame
    }

    impl Bench {
        fn send(&mut self, to: u16, ecn: u8) {
            let header_bytes = Features::offered(1).net_header_bytes();
            self.uplink.driver.transmit(header_bytes, &packet(to, ecn));
        }

        /// Two packets each, in turn.
        fn send_to_both(&mut self) {
            for _ in 0..2 {
                self.send(NEIGHBOUR, 0);
                self.send(VICTIM, 0);
            }
        }

        fn overdraw_neighbour(&mut self) {
            let now = self.pmd.accounts.last_tsc();
            self.pmd.accounts.scheduler.charge(TenantIndex(NEIGHBOUR), 200_000_000, now);
        }

        fn victim_has_work(&mut self) {
            let now = self.pmd.accounts.last_tsc();
            self.pmd.accounts.scheduler.wake(TenantIndex(VICTIM), now);
        }

        fn serve(&mut self) -> PortSnapshot {
            let now = self.pmd.accounts.last_tsc();
            self.pmd.look_around(now);
            while self.pmd.take_received() {}
            let port = self.pmd.ports.get(PortIndex(UPLINK)).unwrap();
            let counters = PortSnapshot::of(&[Arc::clone(&port.counters)]);
            assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
            counters
        }

        fn tenant(&self, tenant: u16) -> crate::TenantSnapshot {
            self.pmd.shared.snapshot(0, 0).tenant(TenantIndex(tenant))
        }
    }

    fn received(guest: &mut Guest) -> Vec<Vec<u8>> {
        guest.driver.receive(Features::offered(1).net_header_bytes())
    }

    #[test]
    fn a_flood_at_the_neighbour_costs_the_neighbour_its_packets_and_the_victim_none() {
        for (macs_configured, reason) in
            [(false, DropReason::TenantOverShare), (true, DropReason::TenantOverShareEarly)]
        {
            let mut bench = bench(macs_configured);
            bench.overdraw_neighbour();
            bench.victim_has_work();
            bench.send_to_both();
            let counters = bench.serve();
            assert_eq!((counters.rx_packets, counters.forwarded), (4, 2));
            assert_eq!(counters.drops, [(reason, 2)]);
            assert_eq!(received(&mut bench.victim).len(), 2);
            assert!(received(&mut bench.neighbour).is_empty());
            let (victim, neighbour) = (bench.tenant(VICTIM), bench.tenant(NEIGHBOUR));
            assert!(victim.cycles > 0 && neighbour.cycles > 0);
            assert_eq!(bench.tenant(UPLINK).cycles, 0, "all of it had an owner");
            let early = u64::from(macs_configured) * 2;
            assert_eq!((neighbour.early_drops, neighbour.over_share_drops), (early, 2 - early));
            assert_eq!((victim.early_drops, victim.over_share_drops), (0, 0));
            assert!(bench.pmd.shared.rx_cycles.snapshot().count() > 0);
        }
    }

    #[test]
    fn an_idle_core_drops_nothing_nor_does_one_without_protection() {
        for protection in [true, false] {
            let mut bench = bench(true);
            bench.pmd.accounts.scheduler.set_protection(protection);
            bench.overdraw_neighbour();
            if !protection {
                bench.victim_has_work();
            }
            bench.send_to_both();
            let counters = bench.serve();
            assert_eq!((counters.forwarded, counters.dropped()), (4, 0));
            assert_eq!(received(&mut bench.neighbour).len(), 2);
        }
    }

    #[test]
    fn packets_that_can_carry_it_are_marked_instead_where_the_tenant_wants_that() {
        let mut bench = bench(true);
        let default = TenantKnobs::new(&SCHEDULER);
        let knobs = TenantKnobs { rx_overrun: RxOverrun::Mark, ..default };
        bench.pmd.accounts.scheduler.set_knobs(TenantIndex(NEIGHBOUR), &knobs).unwrap();
        bench.overdraw_neighbour();
        bench.victim_has_work();
        for (to, ecn) in [(NEIGHBOUR, 0), (NEIGHBOUR, 1), (NEIGHBOUR, 2), (VICTIM, 2)] {
            bench.send(to, ecn);
        }
        assert_eq!(bench.serve().forwarded, 4);
        let ecn = |frame: &Vec<u8>| frame[15] & 3;
        let neighbours = received(&mut bench.neighbour);
        assert_eq!(neighbours.iter().map(ecn).collect::<Vec<_>>(), [0, 3, 3]);
        assert_eq!(ecn(&received(&mut bench.victim)[0]), 2, "not the victim's");
        assert_eq!(bench.tenant(NEIGHBOUR).marks, 2);
    }

    /// Until there is a decision, packets wait in the lane of whom the address belongs to, or in that
    /// of the uplink's own tenant.
    #[test]
    fn misses_of_an_uplink_are_queued_for_the_configured_owner() {
        let mut bench = bench(true);
        let (in_port, eth_dst) = (UPLINK.into(), mac(NEIGHBOUR));
        let key = FlowKey { in_port, eth_dst, ..FlowKey::default() };
        let hash = bench.pmd.cache.hash(&key);
        let slot = bench.pmd.cache.lookup(hash, &key).unwrap();
        let megaflow = Arc::clone(bench.pmd.cache.get(slot).unwrap());
        assert!(bench.pmd.cache.forget(&megaflow).is_some());
        bench.send(NEIGHBOUR, 0);
        bench.send(9, 0);
        let counters = bench.serve();
        assert_eq!((counters.queued, counters.dropped()), (2, 0));
        let waiting = |tenant| {
            let slot = bench.pmd.tenants.get(TenantIndex(tenant)).unwrap();
            slot.lane.pending.packets()
        };
        assert_eq!((waiting(NEIGHBOUR), waiting(UPLINK), waiting(VICTIM)), (1, 1, 0));
    }
}
