//! Who pays for what delivery costs: tests on whole turns.

use std::sync::Arc;

use tollgate_frame::DropReason;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};
use tollgate_policy::{Event, Recording, SchedulerConfig, TenantIndex, Turn};
use tollgate_vhost::mock::{self, Descriptor, Driver};
use tollgate_vhost::{Features, PortStatus};

use crate::control::DatapathConfig;
use crate::megaflow::{Megaflow, MegaflowStats, Op};
use crate::pmd::Pmd;
use crate::pmd::bench::{add_port, pmd};
use crate::pmd::ports::RingRef;
use crate::settings::PortSettings;

const SENDER: u16 = 1;
const RECEIVER: u16 = 2;
const RING: u16 = 256;

struct Bench {
    pmd: Pmd,
    sender: Driver,
    receiver: Driver,
}

fn bench() -> Bench {
    let config =
        DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
    let mut pmd = pmd(&config).0;
    pmd.accounts.start();
    pmd.accounts.suspect_no_gap();
    pmd.shared.tenants_end.store(3, std::sync::atomic::Ordering::Relaxed);
    let mut driver = |number, index| {
        add_port(&mut pmd, number, &PortSettings::default());
        let (ram, driver) = Driver::alone(RING);
        let status = Arc::new(PortStatus::new());
        let ring = mock::activate(&ram, &driver, index, Features::offered(1), &status).unwrap();
        assert!(pmd.start_ring(PortIndex(number), Box::new(ring)).is_none());
        driver
    };
    let sender = driver(SENDER, mock::FROM_GUEST);
    let receiver = driver(RECEIVER, mock::TO_GUEST);
    let key = FlowKey { in_port: SENDER.into(), ..FlowKey::default() };
    let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
    pmd.cache.install(Arc::new(Megaflow {
        matcher: FlowMatch::new(&key, mask),
        ops: [Op::Output(PortIndex(RECEIVER))].into(),
        meters: Box::default(),
        drop_reason: DropReason::RuleDrop,
        owner: TenantIndex(SENDER),
        generation: 1,
        stats: MegaflowStats::default(),
    }));
    Bench { pmd, sender, receiver }
}

fn header_bytes() -> usize {
    Features::offered(1).net_header_bytes()
}

impl Bench {
    /// What one turn of the sender is charged to it and to the receiver.
    fn turn(&mut self) -> (u64, u64) {
        let tenant = TenantIndex(SENDER);
        let ring = RingRef { port: PortIndex(SENDER), pair: 0 };
        self.pmd.tenants.get_mut(tenant).unwrap().ring_ready(ring);
        self.pmd.task(Turn { tenant, budget_cycles: u64::MAX, slack: false });
        let books = self.pmd.shared.snapshot(0, 0);
        let spent = |tenant| books.tenant(TenantIndex(tenant)).cycles;
        let sum = spent(SENDER) + spent(RECEIVER) + spent(0) + books.stolen_cycles;
        assert_eq!(sum, books.elapsed_cycles, "every cycle is in one account");
        (spent(SENDER), spent(RECEIVER))
    }

    /// Has a frame written to each of the receiver's buffers, of this size; what both have paid so far.
    fn fill_every_buffer(&mut self, bytes: u32) -> (u64, u64) {
        (0..RING).for_each(|_| self.receiver.post(bytes));
        let frame = mock::frame(bytes as usize - header_bytes(), 1);
        let mut paid = (0, 0);
        for _ in 0..RING {
            self.sender.transmit(header_bytes(), &frame);
            paid = self.turn();
            self.sender.take_used();
        }
        assert_eq!(self.receiver.receive(header_bytes()).len(), usize::from(RING));
        paid
    }

    /// Offers a frame in pieces of `piece` bytes, in memory that nothing has touched but this.
    fn transmit_scattered(&mut self, frame: &[u8], piece: usize) {
        let bytes = [vec![0; header_bytes()], frame.to_vec()].concat();
        let pieces: Vec<_> = bytes.chunks(piece).collect();
        for (index, piece) in (0_u16..).zip(&pieces) {
            let address = self.sender.buffer(index);
            self.sender.ram().write(address, piece);
            let more = usize::from(index) + 1 < pieces.len();
            let (len, flags, next) = (piece.len() as u32, u16::from(more), index + 1);
            self.sender.describe(index, Descriptor { address, len, flags, next });
        }
        self.sender.offer(0);
    }
}

#[test]
fn a_receiver_with_one_byte_buffers_pays_for_them() {
    let mut bench = bench();
    (0..RING).for_each(|_| bench.receiver.post(1));
    let frame = mock::frame(60, 1);
    bench.sender.transmit(header_bytes(), &frame);
    let (sent, received) = bench.turn();
    assert_eq!(bench.receiver.used_index(), 72, "a buffer for each byte");
    assert!(sent > 0 && received > 0, "the sender has paid {sent}, the receiver {received}");
}

#[test]
fn a_receiver_with_buffers_too_small_for_the_frame_pays_for_the_search() {
    let mut bench = bench();
    (0..RING).for_each(|_| bench.receiver.post(1));
    bench.sender.transmit(header_bytes(), &mock::frame(1000, 1));
    let (_, received) = bench.turn();
    assert_eq!(bench.receiver.used_index(), 0);
    assert!(received > 0);
}

#[test]
fn no_sender_makes_a_receiver_with_usual_buffers_pay() {
    for (frame_bytes, piece, buffer) in
        [(60, 1, 2048), (200, 1, 1526), (1500, 64, 2048), (9000, 50, 1526), (9000, 1024, 1100)]
    {
        let mut bench = bench();
        let before = bench.fill_every_buffer(buffer);
        (0..RING).for_each(|_| bench.receiver.post(buffer));
        let frame = mock::frame(frame_bytes, 3);
        bench.transmit_scattered(&frame, piece);
        let after = bench.turn();
        assert_eq!(
            bench.receiver.receive(header_bytes()),
            [frame],
            "{frame_bytes} bytes in pieces of {piece}"
        );
        assert_eq!(after.1, before.1, "{frame_bytes} bytes in pieces of {piece}");
        assert!(after.0 > before.0);
    }
}

#[test]
fn a_receiver_pays_for_the_first_write_to_each_of_its_pages_and_for_no_other() {
    let mut bench = bench();
    let first = bench.fill_every_buffer(2048).1;
    assert!(first > 0, "its pages are new");
    assert_eq!(bench.fill_every_buffer(2048).1, first, "and then are not");
}

/// Nothing gates a receiver: what it has no credit for is its senders'.
#[test]
fn a_receiver_in_debt_leaves_its_crumbs_to_the_sender() {
    let mut bench = bench();
    (0..RING).for_each(|_| bench.receiver.post(1));
    let now = bench.pmd.accounts.last_tsc();
    bench.pmd.accounts.scheduler.charge(TenantIndex(RECEIVER), 1 << 40, now);
    bench.sender.transmit(header_bytes(), &mock::frame(60, 1));
    let (sent, received) = bench.turn();
    assert_eq!(bench.receiver.used_index(), 72, "it gets its frame");
    assert!(sent > 0 && received == 0, "the sender has paid {sent}, the receiver {received}");
}

/// The simulator's scheduler is the PMD's: told the same, it says the same.
#[test]
fn what_a_pmd_records_replays_without_a_difference() {
    let mut bench = bench();
    (0..RING).for_each(|_| bench.receiver.post(2048));
    // A pause of the test forgives no debt.
    let scheduler = &mut bench.pmd.accounts.scheduler;
    let config = SchedulerConfig { horizon_cycles: u64::MAX, ..*scheduler.config() };
    scheduler.set_config(config).unwrap();
    let tenants = crate::limits::MAX_TENANTS as u16;
    let recording = Box::new(Recording::new(tenants, 10_000).unwrap());
    assert!(bench.pmd.accounts.scheduler.start_recording(recording).is_ok());
    for round in 0..50 {
        bench.sender.transmit(header_bytes(), &mock::frame(60, round));
        let tenant = TenantIndex(SENDER);
        let ring = RingRef { port: PortIndex(SENDER), pair: 0 };
        bench.pmd.tenants.get_mut(tenant).unwrap().ring_ready(ring);
        let now = bench.pmd.accounts.last_tsc();
        bench.pmd.accounts.scheduler.wake(tenant, now);
        let turn = bench.pmd.accounts.scheduler.next(now).unwrap();
        bench.pmd.task(turn);
    }
    let mut recording = bench.pmd.accounts.scheduler.stop_recording().unwrap();
    let replay = recording.replay();
    assert!(replay.turns == 50, "{}", replay.turns);
    assert!(replay.agrees(), "{:?}", replay.differences);
    for event in recording.events_mut() {
        if let Event::Charge { tenant: TenantIndex(SENDER), cycles, .. } = event {
            *cycles = 1;
            break;
        }
    }
    assert!(!recording.replay().agrees(), "an altered charge is found");
}
