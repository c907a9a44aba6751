//! What a hostile driver gets: one test for each entry of the catalogue that concerns rings. In all
//! of them nothing panics and nothing outside guest memory is touched; what differs is whether the
//! frame is dropped (and the ring goes on) or the ring is quarantined.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_frame::{Burst, DropReason};
use tollgate_vhost::limits::{MAX_BUFFERS_PER_FRAME, MAX_CHAIN_DESCRIPTORS};
use tollgate_vhost::mock::{self, Descriptor, Driver, FROM_GUEST, Layout, Ram, TO_GUEST, frame};
use tollgate_vhost::{ActiveVring, Features, FetchStats, PortStatus, RingFault, RingPlaceError};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

const ALL: Features = Features::offered(1);
const VERSION_1: Features = Features(1 << 32);
/// Not in any region of these tests.
const NOWHERE: u64 = 0x7000_0000_0000;

/// A ring of either direction, its driver, and what became of it.
struct Bench {
    driver: Driver,
    ring: ActiveVring,
    status: Arc<PortStatus>,
    index: u16,
}

/// What came of trying to use the ring once.
#[derive(Debug, PartialEq)]
enum Outcome {
    Works,
    Idle,
    Drops(DropReason),
    Quarantined(RingFault),
}

use Outcome::{Drops, Idle, Quarantined, Works};

impl Bench {
    fn new(index: u16, features: Features) -> Self {
        let (_, driver) = Driver::alone(16);
        Self::with(driver, index, features)
    }

    fn with(driver: Driver, index: u16, features: Features) -> Self {
        let status = Arc::new(PortStatus::new());
        let ring = mock::activate(driver.ram(), &driver, index, features, &status).unwrap();
        Self { driver, ring, status, index }
    }

    /// One attempt to receive, or to send a frame of 60 bytes.
    fn attempt(&mut self) -> Outcome {
        self.attempt_len(60)
    }

    fn attempt_len(&mut self, len: usize) -> Outcome {
        let (done, reason) = if self.index == FROM_GUEST {
            let mut burst = Burst::new();
            let mut stats = FetchStats::new();
            let fetched =
                if self.ring.has_work() { self.ring.fetch(&mut burst, 32, &mut stats) } else { 0 };
            let dropped = DropReason::ALL.into_iter().find(|reason| stats.drops(*reason) > 0);
            self.ring.complete();
            (fetched > 0, dropped)
        } else {
            self.ring.prefetch(1);
            let result = self.ring.deliver(&frame(len, 1), &[]);
            self.ring.publish();
            (result.is_ok(), result.err())
        };
        match (self.ring.fault(), reason) {
            (Some(fault), _) => {
                assert_eq!(self.status.fault(self.index), Some(fault), "visible from outside");
                // It stays so, whatever the driver does next.
                assert!(!self.ring.has_work());
                assert_eq!(self.ring.deliver(&frame(60, 1), &[]), Err(DropReason::TxFault));
                Quarantined(fault)
            }
            (None, Some(reason)) => Drops(reason),
            (None, None) if done => Works,
            (None, None) => Idle,
        }
    }

    /// The flags of a buffer of this direction.
    fn flags(&self) -> u16 {
        if self.index == FROM_GUEST { 0 } else { WRITE }
    }

    /// Offers a chain of descriptors 0, 1, ... as given, each with this direction's flag added.
    fn offer_chain(&mut self, chain: &[Descriptor]) {
        for (index, descriptor) in chain.iter().enumerate() {
            let flags = descriptor.flags | self.flags();
            self.driver.describe(index as u16, Descriptor { flags, ..*descriptor });
        }
        self.driver.offer(0);
    }

    fn buffer(&self, len: u32, flags: u16, next: u16) -> Descriptor {
        Descriptor { address: self.driver.buffer(next % 16), len, flags, next }
    }
}

/// Runs a test in both directions.
fn both(features: Features, test: impl Fn(Bench)) {
    for index in [FROM_GUEST, TO_GUEST] {
        test(Bench::new(index, features));
    }
}

#[test]
fn vq_01_chain_loop() {
    both(ALL, |mut bench| {
        let looping = bench.buffer(4, NEXT, 0);
        bench.offer_chain(&[looping]);
        assert_eq!(bench.attempt(), Quarantined(RingFault::ChainLoop));
    });
    both(ALL, |mut bench| {
        let chain = [1, 2, 3, 1].map(|next| bench.buffer(3, NEXT, next));
        bench.offer_chain(&chain);
        assert_eq!(bench.attempt(), Quarantined(RingFault::ChainLoop));
    });
}

#[test]
fn vq_01_chain_loop_too_long_to_be_recognised_costs_a_bounded_walk() {
    let (_, driver) = Driver::alone(256);
    let mut bench = Bench::with(driver, FROM_GUEST, ALL);
    let chain: Vec<_> = (0..256u16).map(|at| bench.buffer(1, NEXT, (at + 1) % 256)).collect();
    bench.offer_chain(&chain);
    assert_eq!(bench.attempt(), Drops(DropReason::RxTooManySegments));
    bench.driver.describe(
        9,
        Descriptor { address: bench.driver.buffer(0), len: 72, ..Descriptor::default() },
    );
    bench.driver.offer(9);
    assert_eq!(bench.attempt(), Works);
    assert_eq!(bench.driver.take_used().len(), 2);
}

#[test]
fn vq_02_zero_length_self_loop() {
    both(ALL, |mut bench| {
        let looping = bench.buffer(0, NEXT, 0);
        bench.offer_chain(&[looping]);
        assert_eq!(bench.attempt(), Quarantined(RingFault::ChainLoop));
    });
}

#[test]
fn vq_03_next_out_of_range() {
    for next in [16, 17, 0x8000, u16::MAX] {
        both(ALL, |mut bench| {
            let lost = bench.buffer(4, NEXT, next);
            bench.offer_chain(&[lost]);
            assert_eq!(bench.attempt(), Quarantined(RingFault::NextOutOfRange));
        });
    }
}

#[test]
fn vq_04_head_out_of_range() {
    for head in [16, u16::MAX] {
        both(ALL, |mut bench| {
            bench.driver.offer(head);
            assert_eq!(bench.attempt(), Quarantined(RingFault::HeadOutOfRange));
            assert_eq!(bench.driver.take_used(), []);
        });
    }
}

#[test]
fn vq_04_the_frames_before_a_bad_head_still_arrive() {
    let mut bench = Bench::new(FROM_GUEST, ALL);
    bench.driver.transmit(12, &frame(60, 0));
    bench.driver.transmit(12, &frame(60, 0));
    bench.driver.offer(99);
    let mut burst = Burst::new();
    assert!(bench.ring.has_work());
    assert_eq!(bench.ring.fetch(&mut burst, 32, &mut FetchStats::new()), 2);
    bench.ring.complete();
    assert_eq!(bench.driver.take_used(), [(0, 0), (1, 0)]);
    assert_eq!(bench.attempt(), Quarantined(RingFault::HeadOutOfRange));
}

#[test]
fn vq_05_avail_index_jump() {
    for index in [17, 0x8000, u16::MAX] {
        both(ALL, |mut bench| {
            bench.driver.set_avail_index(index);
            assert_eq!(bench.attempt(), Quarantined(RingFault::AvailIndexJump));
        });
    }
}

#[test]
fn vq_05_avail_index_goes_backwards() {
    both(ALL, |mut bench| {
        let buffer = bench.buffer(100, 0, 0);
        bench.offer_chain(&[buffer]);
        assert_eq!(bench.attempt(), Works);
        bench.driver.set_avail_index(0);
        assert_eq!(bench.attempt(), Quarantined(RingFault::AvailIndexJump));
    });
}

#[test]
fn vq_06_too_short_for_the_header() {
    for len in 0..12 + 14 {
        let mut bench = Bench::new(FROM_GUEST, ALL);
        let short = bench.buffer(len, 0, 0);
        bench.offer_chain(&[short]);
        assert_eq!(bench.attempt(), Drops(DropReason::RxTooShort), "{len} bytes");
        assert_eq!(bench.driver.take_used(), [(0, 0)], "and the buffer is given back");
        let mut bench = Bench::new(TO_GUEST, VERSION_1);
        let short = bench.buffer(len, 0, 0);
        bench.offer_chain(&[short]);
        assert_eq!(bench.attempt(), Drops(DropReason::TxNoBuffers), "{len} bytes");
        assert_eq!(bench.driver.take_used(), []);
    }
}

#[test]
fn vq_07_header_split_into_single_bytes() {
    let (_, driver) = Driver::alone(32);
    for index in [FROM_GUEST, TO_GUEST] {
        let mut bench = Bench::with(driver.clone(), index, VERSION_1);
        let mut chain: Vec<_> = (0..12).map(|at| bench.buffer(1, NEXT, at + 1)).collect();
        chain.push(bench.buffer(60, 0, 0));
        bench.offer_chain(&chain);
        assert_eq!(bench.attempt(), Works);
    }
}

#[test]
fn vq_08_indirect_tables() {
    let table = |bench: &Bench, len| Descriptor {
        address: bench.driver.buffer(8),
        len,
        flags: INDIRECT,
        next: 0,
    };
    let fill = |bench: &Bench, entries: &[Descriptor]| {
        for (index, entry) in entries.iter().enumerate() {
            let entry = Descriptor { flags: entry.flags | bench.flags(), ..*entry };
            bench.driver.ram().write(bench.driver.buffer(8) + 16 * index as u64, &entry.to_bytes());
        }
    };
    type Spoil = fn(&mut Descriptor);
    let cases: [(&str, RingFault, Spoil); 7] = [
        ("unmapped", RingFault::BadAddress, |table| table.address = NOWHERE),
        ("beyond 2^64", RingFault::BadAddress, |table| table.address = u64::MAX - 15),
        ("empty", RingFault::IndirectBadLength, |table| table.len = 0),
        ("17 bytes", RingFault::IndirectBadLength, |table| table.len = 17),
        ("with next", RingFault::IndirectWithNext, |table| table.flags |= NEXT),
        ("longer than the ring", RingFault::IndirectTooLong, |table| table.len = 16 * 17),
        ("65536 entries", RingFault::IndirectTooLong, |table| table.len = 16 * 65536),
    ];
    for (name, fault, spoil) in cases {
        both(ALL, |mut bench| {
            let entry = bench.buffer(100, 0, 0);
            fill(&bench, &[entry]);
            let mut descriptor = table(&bench, 16);
            spoil(&mut descriptor);
            bench.driver.describe(0, descriptor);
            bench.driver.offer(0);
            assert_eq!(bench.attempt(), Quarantined(fault), "{name}");
        });
    }
    both(ALL, |mut bench| {
        let nested = table(&bench, 16);
        fill(&bench, &[nested]);
        bench.driver.describe(0, table(&bench, 16));
        bench.driver.offer(0);
        assert_eq!(bench.attempt(), Quarantined(RingFault::IndirectNested));
    });
    both(ALL, |mut bench| {
        let lost = bench.buffer(4, NEXT, 1);
        fill(&bench, &[lost]);
        bench.driver.describe(0, table(&bench, 16));
        bench.driver.offer(0);
        assert_eq!(bench.attempt(), Quarantined(RingFault::NextOutOfRange));
    });
    both(VERSION_1, |mut bench| {
        let entry = bench.buffer(100, 0, 0);
        fill(&bench, &[entry]);
        bench.driver.describe(0, table(&bench, 16));
        bench.driver.offer(0);
        assert_eq!(bench.attempt(), Quarantined(RingFault::IndirectNotNegotiated));
    });
}

/// Two regions that the guest sees as one.
fn split_ram() -> (Ram, Driver) {
    let ram = Ram::new(&[(0x10000, 0x10000), (0x20000, 0x10000)]);
    let driver = Driver::new(&ram, Layout::packed_at(0x10000, 16, 2048), 16, 0);
    (ram, driver)
}

#[test]
fn vq_08_indirect_table_over_two_regions() {
    for index in [FROM_GUEST, TO_GUEST] {
        let (ram, driver) = split_ram();
        let mut bench = Bench::with(driver, index, ALL);
        // The second entry lies in the second region: followed.
        let head = bench.buffer(12, NEXT | bench.flags(), 1);
        let body = bench.buffer(100, bench.flags(), 0);
        ram.write(0x20000 - 16, &head.to_bytes());
        ram.write(0x20000, &body.to_bytes());
        let table = Descriptor { address: 0x20000 - 16, len: 32, flags: INDIRECT, next: 0 };
        bench.driver.describe(0, table);
        bench.driver.offer(0);
        assert_eq!(bench.attempt(), Works);
        // An entry that is itself cut in two is not.
        let table = Descriptor { address: 0x20000 - 8, len: 16, ..table };
        bench.driver.describe(1, table);
        bench.driver.offer(1);
        assert_eq!(bench.attempt(), Quarantined(RingFault::BadAddress));
    }
}

#[test]
fn vq_09_buffer_beyond_its_region() {
    let end = 0x10000 + (1 << 20);
    for (address, len) in
        [(end - 50, 100), (end, 1), (NOWHERE, 100), (u64::MAX - 10, 100), (u64::MAX, u32::MAX)]
    {
        both(ALL, |mut bench| {
            bench.offer_chain(&[Descriptor { address, len, flags: 0, next: 0 }]);
            assert_eq!(bench.attempt(), Quarantined(RingFault::BadAddress), "{address:#x}+{len}");
        });
    }
}

#[test]
fn vq_09_buffer_over_two_regions() {
    for index in [FROM_GUEST, TO_GUEST] {
        let (_, driver) = split_ram();
        let mut bench = Bench::with(driver, index, ALL);
        bench.offer_chain(&[Descriptor { address: 0x20000 - 33, len: 72, flags: 0, next: 0 }]);
        assert_eq!(bench.attempt(), Works);
    }
}

#[test]
fn vq_10_bad_address_with_length_zero() {
    both(ALL, |mut bench| {
        let body = bench.buffer(100, 0, 0);
        bench.offer_chain(&[Descriptor { address: NOWHERE, len: 0, flags: NEXT, next: 1 }, body]);
        assert_eq!(bench.attempt(), Quarantined(RingFault::BadAddress));
    });
}

#[test]
fn vq_11_length_flipped_while_it_is_used() {
    let (_, mut driver) = Driver::alone(16);
    let mut ring = mock::activate(driver.ram(), &driver, FROM_GUEST, ALL, &Arc::default()).unwrap();
    let address = driver.buffer(0);
    let honest = Descriptor { address, len: 72, flags: 0, next: 0 };
    let lie = Descriptor { address: NOWHERE, len: u32::MAX, flags: NEXT, next: 77 };
    driver.describe(0, honest);
    let stop = AtomicBool::new(false);
    let lengths = std::thread::scope(|scope| {
        let flipper = driver.clone();
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // Lengths that differ in one byte, so that no store can be torn.
                flipper.describe(0, Descriptor { len: 200, ..honest });
                flipper.describe(0, honest);
            }
        });
        let mut burst = Burst::new();
        let mut lengths = BTreeSet::new();
        for _ in 0..20_000 {
            driver.offer(0);
            ring.has_work();
            ring.fetch(&mut burst, 32, &mut FetchStats::new());
            lengths.extend(burst.packets().iter().map(|packet| packet.frame_len));
            burst.clear();
            ring.complete();
        }
        stop.store(true, Ordering::Relaxed);
        lengths
    });
    assert_eq!(ring.fault(), None);
    assert!(lengths.is_subset(&BTreeSet::from([60, 188])), "{lengths:?}");
    // With a lie it ends in quarantine at the latest then, never elsewhere.
    driver.describe(0, lie);
    driver.offer(0);
    ring.has_work();
    ring.fetch(&mut Burst::new(), 32, &mut FetchStats::new());
    assert_eq!(ring.fault(), Some(RingFault::BadAddress));
}

#[test]
fn vq_12_buffers_of_the_wrong_direction() {
    let mut bench = Bench::new(FROM_GUEST, ALL);
    let write_only = bench.buffer(100, WRITE, 0);
    bench.offer_chain(&[write_only]);
    assert_eq!(bench.attempt(), Drops(DropReason::RxBadChain));
    // In after out.
    let chain = [bench.buffer(12, NEXT, 1), bench.buffer(60, WRITE, 0)];
    bench.offer_chain(&chain);
    assert_eq!(bench.attempt(), Drops(DropReason::RxBadChain));
    bench.driver.transmit(12, &frame(60, 0));
    assert_eq!(bench.attempt(), Works);

    let mut bench = Bench::new(TO_GUEST, ALL);
    bench.driver.describe(
        0,
        Descriptor { address: bench.driver.buffer(0), len: 100, ..Descriptor::default() },
    );
    bench.driver.offer(0);
    assert_eq!(bench.attempt(), Quarantined(RingFault::ReadOnlyBuffer));
}

#[test]
fn vq_13_total_length_beyond_the_largest_frame() {
    // Sparse: nothing of it is ever touched.
    let ram = Ram::new(&[(0x10000, 5 << 30)]);
    let driver = Driver::new(&ram, Layout::packed_at(0x10000, 16, 2048), 16, 0);
    for chain in [vec![12 + 9217], vec![12, 9216, 1], vec![u32::MAX], vec![u32::MAX, u32::MAX, 20]]
    {
        let mut bench = Bench::with(driver.clone(), FROM_GUEST, ALL);
        let last = chain.len() - 1;
        let chain: Vec<_> = chain
            .iter()
            .enumerate()
            .map(|(at, len)| bench.buffer(*len, if at < last { NEXT } else { 0 }, at as u16 + 1))
            .collect();
        bench.offer_chain(&chain);
        assert_eq!(bench.attempt(), Drops(DropReason::RxTooLong));
        bench.driver.transmit(12, &frame(60, 0));
        assert_eq!(bench.attempt(), Works);
    }
    let mut bench = Bench::with(driver, FROM_GUEST, ALL);
    let longest = bench.buffer(12 + 9216, 0, 0);
    bench.offer_chain(&[longest]);
    assert_eq!(bench.attempt(), Works);
}

#[test]
fn vq_13_more_segments_than_a_frame_may_have() {
    let limit = MAX_CHAIN_DESCRIPTORS as u16;
    for (count, outcome) in [(limit, Works), (limit + 1, Drops(DropReason::RxTooManySegments))] {
        let (_, driver) = Driver::alone(512);
        let mut bench = Bench::with(driver, FROM_GUEST, ALL);
        let chain: Vec<_> = (1..=count)
            .map(|next| bench.buffer(1, if next < count { NEXT } else { 0 }, next))
            .collect();
        bench.offer_chain(&chain);
        assert_eq!(bench.attempt(), outcome, "{count} descriptors");
    }
}

#[test]
fn vq_14_receive_buffers_run_out_within_a_frame() {
    let mut bench = Bench::new(TO_GUEST, ALL);
    bench.driver.post(100);
    bench.driver.post(100);
    assert_eq!(bench.attempt_len(300), Drops(DropReason::TxRingFull));
    assert_eq!(bench.driver.take_used(), [], "neither buffer is used up");
    assert_eq!(bench.attempt_len(80), Works);
    bench.driver.post(200);
    assert_eq!(bench.attempt_len(288), Works);
    assert_eq!(bench.driver.take_used(), [(0, 92), (1, 100), (2, 200)]);
}

#[test]
fn vq_14_a_frame_over_too_many_buffers() {
    let (_, driver) = Driver::alone(256);
    let mut bench = Bench::with(driver, TO_GUEST, ALL);
    for _ in 0..MAX_BUFFERS_PER_FRAME + 1 {
        bench.driver.post(1);
    }
    assert_eq!(bench.attempt_len(MAX_BUFFERS_PER_FRAME - 11), Drops(DropReason::TxNoBuffers));
    assert_eq!(bench.attempt_len(MAX_BUFFERS_PER_FRAME - 12), Works);
    assert_eq!(bench.driver.take_used().len(), MAX_BUFFERS_PER_FRAME);
}

#[test]
fn vq_15_same_head_twice_and_buffers_over_the_ring() {
    both(ALL, |mut bench| {
        let buffer = bench.buffer(100, 0, 0);
        bench.offer_chain(&[buffer]);
        bench.driver.offer(0);
        assert_eq!(bench.attempt(), Works);
        bench.attempt();
        assert_eq!(bench.driver.take_used().len(), 2);
    });
    // Each part of the ring as a buffer: whatever is read or written is only bytes.
    for part in 0..3 {
        both(ALL, |mut bench| {
            let layout = bench.driver.layout();
            let address = [layout.descriptors, layout.avail, layout.used][part];
            let chain = [
                Descriptor { address, len: 40, flags: NEXT, next: 1 },
                Descriptor { address: layout.descriptors, len: 200, flags: 0, next: 0 },
            ];
            bench.offer_chain(&chain);
            bench.attempt();
            bench.attempt();
        });
    }
}

#[test]
fn vq_16_rings_that_cannot_be_where_they_are_said_to_be() {
    let (ram, _) = split_ram();
    let good = Layout::packed_at(0x11000, 16, 2048);
    let check = |layout: Layout, size: u16| {
        let driver = Driver::new(&ram, layout, size, 0);
        mock::activate(&ram, &driver, FROM_GUEST, ALL, &Arc::default()).map(drop)
    };
    assert_eq!(check(good, 16), Ok(()));
    for size in [0, 3, 48, 0x8001, u16::MAX] {
        assert_eq!(check(good, size), Err(RingPlaceError::Size(u32::from(size))));
    }
    let misaligned = |layout| matches!(check(layout, 16), Err(RingPlaceError::Misaligned { .. }));
    assert!(misaligned(Layout { descriptors: good.descriptors - 8, ..good }));
    assert!(misaligned(Layout { used: good.used + 2, ..good }));
    let overlap = |layout| matches!(check(layout, 16), Err(RingPlaceError::Overlap(..)));
    assert!(overlap(Layout { avail: good.descriptors + 16, ..good }));
    assert!(overlap(Layout { used: good.descriptors, ..good }));
    assert!(overlap(Layout { used: good.avail + 4, ..good }));
    assert!(overlap(Layout { avail: good.used + 8, ..good }));
    // Over the boundary of two regions, adjacent or not.
    let cut = |layout| matches!(check(layout, 16), Err(RingPlaceError::Unmapped { .. }));
    assert!(cut(Layout { descriptors: 0x20000 - 128, ..good }));
    assert!(cut(Layout { avail: 0x20000 - 16, ..good }));
    assert!(cut(Layout { used: 0x20000 - 16, ..good }));
    assert!(cut(Layout { descriptors: 0x30000 - 128, ..good }));
}

#[test]
fn off_04_offloads_that_were_not_negotiated() {
    for (at, value) in [(0, 1), (0, 0xff), (1, 1), (1, 4), (1, 0x80)] {
        let mut bench = Bench::new(FROM_GUEST, ALL);
        bench.driver.transmit(12, &frame(60, 0));
        bench.driver.ram().write(bench.driver.buffer(0) + at, &[value]);
        assert_eq!(bench.attempt(), Drops(DropReason::RxBadOffload));
        // And in a header of its own.
        bench.driver.ram().write(bench.driver.buffer(1) + at, &[value]);
        let chain = [bench.buffer(12, NEXT, 1), bench.buffer(60, 0, 0)];
        bench.offer_chain(&chain);
        assert_eq!(bench.attempt(), Drops(DropReason::RxBadOffload));
    }
}

#[test]
fn tp_05_a_malformed_head_is_looked_at_once() {
    let mut bench = Bench::new(FROM_GUEST, ALL);
    let looping = bench.buffer(0, NEXT, 0);
    bench.offer_chain(&[looping]);
    assert_eq!(bench.attempt(), Quarantined(RingFault::ChainLoop));
    for _ in 0..100 {
        assert_eq!(bench.attempt(), Quarantined(RingFault::ChainLoop));
    }
    assert_eq!(bench.status.quarantines(), 1);
}

#[test]
fn tp_06_a_small_frame_over_many_descriptors_is_one_of_a_short_burst() {
    let (_, driver) = Driver::alone(256);
    let mut bench = Bench::with(driver, FROM_GUEST, ALL);
    // 30 frames of 250 payload segments each would need more than a burst has.
    let mut chain: Vec<_> = (0..249).map(|at| bench.buffer(10, NEXT, at + 1)).collect();
    chain.push(bench.buffer(10, 0, 0));
    bench.offer_chain(&chain);
    for _ in 0..29 {
        bench.driver.offer(0);
    }
    let mut burst = Burst::new();
    let mut stats = FetchStats::new();
    let mut fetched = 0;
    while bench.ring.has_work() {
        let count = bench.ring.fetch(&mut burst, 32, &mut stats);
        assert!((1..30).contains(&count));
        fetched += count;
        burst.clear();
        bench.ring.complete();
    }
    assert_eq!((fetched, stats.dropped()), (30, 0));
}
