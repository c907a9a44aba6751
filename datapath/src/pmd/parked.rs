//! Packets whose action lists take longer than a turn: each waits, in memory of its own, for the rest
//! of its list to be run in the turns to come. Nothing of its tenant overtakes it.

use std::sync::Arc;

use tollgate_classifier::FlowSlot;
use tollgate_frame::{DropReason, Packet, Segment};
use tollgate_packet::limits::MAX_FRAME_BYTES;
use tollgate_packet::{HeaderBuf, PortIndex};
use tollgate_policy::TenantIndex;

use crate::counters::PortCounters;
use crate::lane::PuntOutcome;
use crate::megaflow::Megaflow;
use crate::pmd::Pmd;
use crate::pmd::cache::FlowCache;
use crate::pmd::egress::{Egress, Source};
use crate::pmd::frames::{OwnedFrame, copy_frame};
use crate::pmd::owned::PORTLESS;
use crate::pmd::progress::{Progress, Ran};

/// A place for one packet, allocated off the PMD.
#[derive(Debug)]
pub(crate) struct Parked {
    job: Option<Job>,
    /// Its header as the actions so far have left it.
    packet: Packet,
    payload: Box<[u8]>,
    payload_len: usize,
    /// Its header as received, if it was kept.
    received: HeaderBuf,
    received_kept: bool,
}

/// What is left to do for a packet.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) decision: Decision,
    pub(crate) progress: Progress,
    pub(crate) port: PortIndex,
    /// Who pays, and in whose lane a copy for controllers goes.
    pub(crate) payer: TenantIndex,
    pub(crate) punt: Punt,
}

/// By what a packet is decided.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Cached, and in force as long as it is.
    Cached(FlowSlot),
    /// An answer of the slow path, which comes into the caches or goes home when it is carried out.
    Answer { megaflow: Arc<Megaflow>, install: bool },
    /// A controller's wish: no change of tables concerns it.
    Injected(Arc<Megaflow>),
}

/// What becomes of the copy for controllers, if the decision makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Punt {
    /// It is made on the PMD.
    Here,
    /// The slow path has seen to it.
    Done(PuntOutcome),
}

impl Parked {
    pub(crate) fn new() -> Self {
        Self {
            job: None,
            packet: Packet::new(),
            payload: vec![0; MAX_FRAME_BYTES as usize].into(),
            payload_len: 0,
            received: HeaderBuf::new(),
            received_kept: false,
        }
    }

    /// Whether a packet waits here.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.job.is_some()
    }

    /// Who pays for the packet that waits here, and its IP header's ECN bits.
    pub(crate) fn payer(&self) -> Option<(TenantIndex, &Packet)> {
        self.job.as_ref().map(|job| (job.payer, &self.packet))
    }

    /// Takes a packet in whose list was just cut. From now on it depends on no ring.
    pub(crate) fn fill(
        &mut self,
        packet: &Packet,
        payload: &[Segment<'_>],
        egress: &Egress,
        job: Job,
        counters: &PortCounters,
    ) {
        self.packet.header.clone_from_header(&packet.header);
        self.packet.layout = packet.layout;
        self.packet.key = packet.key;
        self.packet.frame_len = packet.frame_len;
        self.payload_len = copy_frame(&[], payload, &mut self.payload);
        self.keep(egress, job, counters);
    }

    fn keep(&mut self, egress: &Egress, job: Job, counters: &PortCounters) {
        let kept = egress.kept_received();
        self.received_kept = kept.is_some();
        if let Some(kept) = kept {
            self.received.clone_from_header(kept);
        }
        if job.progress.outputs == 0 {
            counters.miss_queued();
        }
        self.job = Some(job);
    }
}

impl Decision {
    /// The decision, if it is still in force.
    fn in_force<'a>(&'a self, cache: &'a FlowCache) -> Option<&'a Megaflow> {
        match self {
            Self::Cached(slot) => cache.get(*slot).map(|megaflow| &**megaflow),
            Self::Answer { megaflow, .. } => Some(&**megaflow).filter(|m| !cache.is_stale(m)),
            Self::Injected(megaflow) => Some(megaflow),
        }
    }
}

impl Pmd {
    /// Runs on what the tenant has parked; whether some of it is left, so that nothing else of the
    /// tenant may be served.
    pub(crate) fn resume_tenant(&mut self, tenant: TenantIndex, deadline_tsc: u64) -> bool {
        let parked = self.tenants.get_mut(tenant).filter(|slot| slot.is_parked());
        let Some(mut parked) = parked.and_then(|slot| slot.parked.take()) else { return false };
        self.resume(&mut parked, deadline_tsc);
        self.publish(tenant);
        self.accounts.lap_tenant(tenant);
        let is_left = parked.is_taken();
        if let Some(slot) = self.tenants.get_mut(tenant) {
            slot.parked = Some(parked);
        }
        is_left
    }

    /// Runs on the packet that waits in a place.
    pub(crate) fn resume(&mut self, parked: &mut Parked, deadline_tsc: u64) {
        let Some(mut job) = parked.job.take() else { return };
        if self.cache.homeward_room() == 0 {
            // It could not be let go of.
            parked.job = Some(job);
            return;
        }
        // The port may be gone; then so are its counters.
        let Some(counters) = self.counters_of(job.port) else { return self.let_go_of(job) };
        if job.progress.outputs == 0 {
            counters.miss_returned();
        }
        let Some(megaflow) = job.decision.in_force(&self.cache) else {
            job.progress.account_lost(DropReason::TablesChanged, &counters);
            return self.let_go_of(job);
        };
        let now_tsc = self.accounts.last_tsc();
        let source = Source { port: job.port, counters: &counters, now_tsc, deadline_tsc };
        let payload = parked.payload.get(..parked.payload_len).unwrap_or_default();
        let mut frames = OwnedFrame::as_left(&mut parked.packet, payload);
        self.egress.restore_received(parked.received_kept.then_some(&parked.received));
        let (ports, progress) = (&mut self.ports, &mut job.progress);
        let ran = self.egress.run(megaflow, &mut frames, 0, ports, source, progress);
        self.egress.flush(&frames, ports, source);
        if ran == Ran::Cut {
            return parked.keep(&self.egress, job, &counters);
        }
        if job.progress.punts {
            self.punt_parked(parked, &job, &counters);
        }
        self.let_go_of(job);
    }

    fn punt_parked(&mut self, parked: &Parked, job: &Job, counters: &PortCounters) {
        match job.punt {
            Punt::Done(PuntOutcome::Sent) => counters.consumed(),
            Punt::Done(PuntOutcome::Denied) => counters.dropped(DropReason::ControllerLimit, 1),
            Punt::Here => {
                let payload = parked.payload.get(..parked.payload_len).unwrap_or_default();
                let payload = [Segment::from_slice(payload)];
                self.punt_packet(job.payer, job.port, &parked.packet, &payload, counters);
            }
        }
    }

    /// Gives up the packet that waits in a place.
    pub(crate) fn give_up(&mut self, parked: &mut Parked, reason: DropReason) {
        let Some(job) = parked.job.take() else { return };
        if let Some(counters) = self.counters_of(job.port) {
            if job.progress.outputs == 0 {
                counters.miss_returned();
            }
            job.progress.account_lost(reason, &counters);
        }
        self.let_go_of(job);
    }

    fn counters_of(&self, port: PortIndex) -> Option<Arc<PortCounters>> {
        match port {
            PORTLESS => Some(Arc::clone(&self.portless_counters)),
            port => self.ports.get(port).map(|slot| Arc::clone(&slot.counters)),
        }
    }

    pub(super) fn let_go_of(&mut self, job: Job) {
        match job.decision {
            Decision::Cached(_) => {}
            Decision::Answer { megaflow, install: true } => self.cache.install(megaflow),
            Decision::Answer { megaflow, install: false } | Decision::Injected(megaflow) => {
                self.cache.decline(megaflow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_packet::edit::Edit;
    use tollgate_packet::{FlowKey, FlowMask, FlowMatch, HeaderField};
    use tollgate_policy::Turn;
    use tollgate_vhost::{Features, mock};

    use super::*;
    use crate::control::DatapathConfig;
    use crate::counters::PortSnapshot;
    use crate::limits::OPS_PER_LOOK;
    use crate::mail::{Discard, Mail};
    use crate::megaflow::{MegaflowStats, Op};
    use crate::pmd::bench::{Guest, add_port, add_ring, pmd};
    use crate::pmd::ports::RingRef;
    use crate::settings::PortSettings;

    const SENDER: u16 = 1;
    const FIRST_RECEIVER: u16 = 2;

    /// Enough to begin something, and late at every look at the clock, whatever machine this is.
    const NO_TIME: u64 = 1;

    struct Bench {
        pmd: Pmd,
        /// Until it goes.
        sender: Option<Guest>,
        receivers: Vec<Guest>,
        counters: Arc<PortCounters>,
    }

    fn bench(receivers: u16, ops: &[Op]) -> Bench {
        let config =
            DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
        let mut pmd = pmd(&config).0;
        pmd.accounts.start();
        add_port(&mut pmd, SENDER, &PortSettings::default());
        let sender = Some(add_ring(&mut pmd, SENDER, mock::FROM_GUEST));
        let receivers = (FIRST_RECEIVER..FIRST_RECEIVER + receivers).map(|number| {
            add_port(&mut pmd, number, &PortSettings::default());
            let mut guest = add_ring(&mut pmd, number, mock::TO_GUEST);
            (0..8).for_each(|_| guest.driver.post(2048));
            guest
        });
        let receivers = receivers.collect();
        let counters = Arc::clone(&pmd.ports.get(PortIndex(SENDER)).unwrap().counters);
        pmd.cache.install(decision(ops));
        Bench { pmd, sender, receivers, counters }
    }

    /// For everything from the sender.
    fn decision(ops: &[Op]) -> Arc<Megaflow> {
        let key = FlowKey { in_port: SENDER.into(), ..FlowKey::default() };
        let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
        Arc::new(Megaflow {
            matcher: FlowMatch::new(&key, mask),
            ops: ops.into(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(SENDER),
            generation: 1,
            stats: MegaflowStats::default(),
        })
    }

    fn header_bytes() -> usize {
        Features::offered(1).net_header_bytes()
    }

    impl Bench {
        fn send(&mut self, seed: u8, len: usize) -> Vec<u8> {
            let frame = mock::frame(len, seed);
            self.sender.as_mut().unwrap().driver.transmit(header_bytes(), &frame);
            frame
        }

        /// One turn of the sender; whether something of a packet is left.
        fn turn(&mut self, budget_cycles: u64) -> bool {
            let tenant = TenantIndex(SENDER);
            let at = RingRef { port: PortIndex(SENDER), pair: 0 };
            let polls = self.pmd.ports.polled(at).is_some();
            let slot = self.pmd.tenants.get_mut(tenant).unwrap();
            if polls && !slot.has_work() {
                slot.ring_ready(at);
            }
            self.pmd.task(Turn { tenant, budget_cycles, slack: false });
            self.pmd.is_parked(tenant)
        }

        fn counters(&self) -> PortSnapshot {
            let counters = PortSnapshot::of(&[Arc::clone(&self.counters)]);
            assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
            counters
        }

        fn received(&mut self) -> Vec<Vec<Vec<u8>>> {
            let take = |guest: &mut Guest| guest.driver.receive(header_bytes());
            self.receivers.iter_mut().map(take).collect()
        }
    }

    fn outputs(count: u16) -> Vec<Op> {
        (FIRST_RECEIVER..FIRST_RECEIVER + count).map(|n| Op::Output(PortIndex(n))).collect()
    }

    #[test]
    fn a_flood_to_64_ports_is_cut_and_run_on_without_loss_or_overtaking() {
        let mut bench = bench(64, &outputs(64));
        let first = bench.send(1, 1000);
        let second = bench.send(2, 300);
        let mut turns = 1;
        while bench.turn(NO_TIME) || bench.counters().rx_packets < 2 {
            // The frame is the switch's own by now: the guest has it back and uses it again.
            if turns == 1 {
                let driver = &bench.sender.as_ref().unwrap().driver;
                assert_eq!(driver.used_index(), 1);
                driver.ram().write(driver.buffer(0), &[0xee; 1500]);
            }
            // At any moment each copy is accounted for.
            bench.counters();
            turns += 1;
        }
        assert_eq!(turns, 2 * (64 / OPS_PER_LOOK - 1), "the last of both is done in one");
        let counters = bench.counters();
        assert_eq!((counters.rx_packets, counters.forwarded, counters.dropped()), (2, 128, 0));
        for received in bench.received() {
            assert_eq!(received, [first.clone(), second.clone()]);
        }
        assert_eq!(bench.pmd.shared.cut_tasks.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[test]
    fn a_packet_that_is_edited_for_turns_counts_as_queued_until_a_copy_is_made() {
        let mut ops: Vec<Op> = (0..200)
            .map(|round| Op::Edit(Edit::set(HeaderField::EthDst, 0x0200_0000_0000 | round)))
            .collect();
        ops.push(Op::Output(PortIndex(FIRST_RECEIVER)));
        let mut bench = bench(1, &ops);
        let frame = bench.send(3, 100);
        let mut turns = 1;
        while bench.turn(NO_TIME) {
            assert_eq!(bench.counters().queued, 1);
            turns += 1;
        }
        assert_eq!(turns, ops.len().div_ceil(OPS_PER_LOOK) - 1);
        let counters = bench.counters();
        assert_eq!((counters.queued, counters.forwarded, counters.clones), (0, 1, 0));
        let [received] = &bench.received()[0][..] else { panic!("one frame") };
        assert_eq!((&received[..6], &received[6..]), (&[2, 0, 0, 0, 0, 199][..], &frame[6..]));
    }

    #[test]
    fn the_senders_ring_may_go_while_its_packet_waits() {
        let mut bench = bench(48, &outputs(48));
        let frame = bench.send(4, 600);
        assert!(bench.turn(NO_TIME));
        let stop = Mail::RingStop(PortIndex(SENDER), mock::FROM_GUEST);
        let Some(Discard::Ring(ring)) = bench.pmd.carry_out(stop) else { panic!("a ring") };
        // With its mapping, and with the guest.
        drop((ring, bench.sender.take()));
        assert!(!bench.turn(NO_TIME));
        assert_eq!(bench.counters().forwarded, 48);
        assert!(bench.received().into_iter().all(|received| received == [frame.clone()]));
    }

    #[test]
    fn the_senders_port_and_account_may_go_while_its_packet_waits() {
        let mut bench = bench(48, &outputs(48));
        bench.send(5, 600);
        assert!(bench.turn(NO_TIME));
        assert!(bench.pmd.carry_out(Mail::PortRemove(PortIndex(SENDER))).is_some());
        assert!(!bench.turn(NO_TIME), "there is nobody to account to");
        assert_eq!(bench.received().iter().flatten().count(), OPS_PER_LOOK);

        let mut bench = self::bench(48, &outputs(48));
        bench.send(6, 600);
        assert!(bench.turn(NO_TIME));
        assert!(bench.pmd.carry_out(Mail::PortRemove(PortIndex(SENDER))).is_some());
        let removed = bench.pmd.carry_out(Mail::TenantRemove(TenantIndex(SENDER)));
        assert!(matches!(removed, Some(Discard::Tenant(_))), "and takes the packet along");
    }

    /// Nothing that was decided by old tables leaves after a change of them was acknowledged.
    #[test]
    fn a_change_of_tables_ends_what_is_under_way_by_the_old_ones() {
        for edits in [0, 2 * OPS_PER_LOOK] {
            let edit = Op::Edit(Edit::set(HeaderField::EthDst, 1));
            let ops = [vec![edit; edits], outputs(48)].concat();
            let mut bench = bench(48, &ops);
            let old = bench.pmd.cache.lookup(0, &FlowKey { in_port: 1, ..FlowKey::default() });
            let old = Arc::clone(bench.pmd.cache.get(old.unwrap()).unwrap());
            bench.send(7, 600);
            assert!(bench.turn(NO_TIME));
            assert!(bench.pmd.cache.forget(&old).is_some());
            bench.pmd.cache.install(decision(&ops));
            assert!(!bench.turn(NO_TIME));
            let counters = bench.counters();
            assert_eq!(counters.drops, [(DropReason::TablesChanged, 1)]);
            let made = if edits == 0 { OPS_PER_LOOK } else { 0 };
            assert_eq!((counters.forwarded, counters.queued), (made as u64, 0));
            assert_eq!(bench.received().iter().flatten().count(), made);
        }
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (FIRST_RECEIVER..FIRST_RECEIVER + 3).prop_map(|n| Op::Output(PortIndex(n))),
            3 => any::<u8>().prop_map(|n| Op::Edit(Edit::set(HeaderField::EthDst, n.into()))),
            2 => Just(Op::Edit(Edit::PushVlan { tpid: 0x8100 })),
            1 => Just(Op::Edit(Edit::PopVlan)),
            1 => Just(Op::Output(PortIndex(900))),
            1 => Just(Op::Punt),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The oracle is the same list without a cut.
        #[test]
        fn a_list_that_is_cut_does_what_one_in_one_go_does(
            ops in prop::collection::vec(any_op(), 0..150),
            len in 14_usize..1500,
        ) {
            // The receivers' rings have room for eight frames: what more there is is dropped.
            let [mut cut, mut whole] = [(); 2].map(|()| bench(3, &ops));
            for bench in [&mut cut, &mut whole] {
                bench.send(8, len);
                bench.send(9, 60);
            }
            while cut.turn(NO_TIME) || cut.counters().rx_packets < 2 {}
            while whole.turn(u64::MAX) || whole.counters().rx_packets < 2 {}
            prop_assert_eq!(cut.counters(), whole.counters());
            prop_assert_eq!(cut.received(), whole.received());
        }
    }
}
