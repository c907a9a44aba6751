//! The ring against a model of the device that reads and writes the same memory by the letter of
//! virtio 1.2, 2.7: at every index, in every order, and with every lie.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use tollgate_guest::memory::{Block, GuestMemory, MemoryConfig};
use tollgate_guest::ring::{RingConfig, RingFault, Segment, SegmentKind, SplitRing, Used};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// The device's end: raw memory and two indexes.
struct Device {
    table: Block,
    avail: Block,
    used: Block,
    size: u16,
    next_avail: u16,
    next_used: u16,
    /// Heads taken from the avail ring and not used yet, oldest first.
    taken: VecDeque<u16>,
    /// Under IN_ORDER, the descriptor that must come next.
    in_order: Option<u16>,
}

impl Device {
    fn new(ring: &SplitRing, first: u16) -> Self {
        let [table, avail, used] = ring.parts().map(Clone::clone);
        let size = ring.size();
        let (next_avail, next_used) = (first, first);
        let (taken, in_order) = (VecDeque::new(), None);
        Self { table, avail, used, size, next_avail, next_used, taken, in_order }
    }

    fn slot(&self, index: u16) -> usize {
        usize::from(index % self.size)
    }

    /// Takes everything available; returns each chain as the device sees it.
    fn take(&mut self) -> Vec<Vec<Segment>> {
        let mut chains = Vec::new();
        while self.next_avail != self.avail.load_u16(2, Ordering::Acquire) {
            let head = self.avail.load_u16(4 + 2 * self.slot(self.next_avail), Ordering::Relaxed);
            chains.push(self.chain(head));
            self.taken.push_back(head);
            self.next_avail = self.next_avail.wrapping_add(1);
        }
        chains
    }

    fn chain(&mut self, head: u16) -> Vec<Segment> {
        let mut chain = Vec::new();
        let mut id = Some(head);
        while let Some(at) = id {
            assert!(at < self.size && chain.len() < usize::from(self.size), "a broken chain");
            // Descriptors are used in ring order (virtio 1.2, 2.7.9).
            if let Some(expected) = &mut self.in_order {
                assert_eq!(at, *expected, "descriptors out of ring order");
                *expected = (at + 1) % self.size;
            }
            let mut bytes = [0; 16];
            self.table.read(usize::from(at) * 16, &mut bytes);
            let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let flags = field(12);
            let kind = match flags & !NEXT {
                0 => SegmentKind::Readable,
                WRITE => SegmentKind::Writable,
                INDIRECT => SegmentKind::Indirect,
                other => panic!("flags {other:#x}"),
            };
            let guest_address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            chain.push(Segment { guest_address, bytes: length, kind });
            id = (flags & NEXT != 0).then(|| field(14));
        }
        chain
    }

    fn write_used(&self, position: u16, id: u32, bytes: u32) {
        let entry: Vec<u8> = id.to_le_bytes().into_iter().chain(bytes.to_le_bytes()).collect();
        self.used.write(4 + 8 * self.slot(position), &entry);
    }

    fn publish_used(&mut self, count: u16) {
        self.next_used = self.next_used.wrapping_add(count);
        self.used.store_u16(2, self.next_used, Ordering::Release);
    }

    /// Uses the taken chain at `position`; returns its head.
    fn use_one(&mut self, position: usize, bytes: u32) -> u16 {
        let head = self.taken.remove(position).unwrap();
        self.write_used(self.next_used, head.into(), bytes);
        self.publish_used(1);
        head
    }

    /// Uses the oldest `count` chains with one entry, the last one's, as IN_ORDER allows.
    fn use_batch(&mut self, count: u16, bytes: u32) {
        let heads: Vec<u16> = self.taken.drain(..usize::from(count)).collect();
        self.write_used(self.next_used, (*heads.last().unwrap()).into(), bytes);
        self.publish_used(count);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Post a chain of so many segments.
    Post(usize),
    Publish,
    /// The device takes what is available, then uses some: `0..=count`, each from the place that
    /// the pick says (the oldest under IN_ORDER).
    Use(Vec<(prop::sample::Index, u32)>),
    /// Under IN_ORDER: uses up to so many by one entry.
    UseBatch(u16, u32),
    /// The driver takes up to so many back.
    TakeBack(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..6).prop_map(Step::Post),
        2 => Just(Step::Publish),
        2 => prop::collection::vec((any::<prop::sample::Index>(), 0u32..70_000), 0..8)
            .prop_map(Step::Use),
        1 => (1u16..6, 0u32..70_000).prop_map(|(count, bytes)| Step::UseBatch(count, bytes)),
        3 => (1usize..10).prop_map(Step::TakeBack),
    ]
}

fn config() -> impl Strategy<Value = RingConfig> {
    // Near both wraps as often as anywhere.
    let first = prop_oneof![Just(0u16), 65_500..=65_535u16, 32_700..32_800u16, any::<u16>()];
    (1u32..7, any::<bool>(), any::<bool>(), any::<bool>(), first).prop_map(
        |(bits, event_idx, in_order, read_used_entries, first_index)| RingConfig {
            size: 1 << bits,
            event_idx,
            in_order,
            read_used_entries,
            first_index,
        },
    )
}

fn ring(config: RingConfig) -> SplitRing {
    let bytes = SplitRing::memory_bytes(config.size);
    let memory = MemoryConfig { bytes, hugepages: false, regions: 1, sealed: true };
    SplitRing::new(&mut GuestMemory::new(memory).unwrap(), config).unwrap()
}

/// What the driver must report, in order.
struct Oracle {
    config: RingConfig,
    /// Posted and not yet used: token and segments.
    posted: VecDeque<(u16, Vec<Segment>)>,
    /// Used and not yet taken back, with the chain's length.
    used: VecDeque<(Used, usize)>,
    taken: usize,
}

impl Oracle {
    fn used(&mut self, position: usize, bytes: Option<u32>) {
        let (token, segments) = self.posted.remove(position).unwrap();
        self.taken -= 1;
        let bytes =
            if self.config.in_order && !self.config.read_used_entries { Some(0) } else { bytes };
        self.used.push_back((Used { token, bytes }, segments.len()));
    }

    fn descriptors(&self) -> usize {
        let posted: usize = self.posted.iter().map(|(_, segments)| segments.len()).sum();
        posted + self.used.iter().map(|(_, segments)| segments).sum::<usize>()
    }
}

fn segments(number: u64, count: usize) -> Vec<Segment> {
    let kind = |index| if index % 2 == 0 { SegmentKind::Readable } else { SegmentKind::Writable };
    (0..count)
        .map(|index| Segment {
            guest_address: number << 20 | (index as u64) << 12,
            bytes: number as u32 * 7 + index as u32,
            kind: kind(index),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is posted reaches the device as it was posted, comes back once, with the device's
    /// length, in the device's order; and descriptors are never lost or doubled.
    #[test]
    fn chains_go_round_unchanged(
        config in config(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut ring = ring(config);
        let mut device = Device::new(&ring, config.first_index);
        device.in_order = config.in_order.then_some(0);
        let mut oracle =
            Oracle { config, posted: [].into(), used: [].into(), taken: 0 };
        for (number, step) in (1u64..).zip(steps) {
            match step {
                Step::Post(count) => {
                    let chain = segments(number, count);
                    let fits = count <= usize::from(config.size) - oracle.descriptors();
                    prop_assert_eq!(ring.post(&chain, number as u16).is_ok(), fits);
                    if fits {
                        oracle.posted.push_back((number as u16, chain));
                    }
                }
                Step::Publish => {
                    ring.publish();
                }
                Step::Use(picks) => {
                    for seen in device.take() {
                        prop_assert_eq!(&seen, &oracle.posted[oracle.taken].1);
                        oracle.taken += 1;
                    }
                    for (pick, bytes) in picks {
                        if device.taken.is_empty() {
                            break;
                        }
                        let any = pick.index(device.taken.len());
                        let position = if config.in_order { 0 } else { any };
                        device.use_one(position, bytes);
                        oracle.used(position, Some(bytes));
                    }
                }
                Step::UseBatch(count, bytes) if config.in_order => {
                    for _ in device.take() {
                        oracle.taken += 1;
                    }
                    let count = count.min(device.taken.len() as u16);
                    if count > 0 {
                        device.use_batch(count, bytes);
                        for _ in 1..count {
                            oracle.used(0, None);
                        }
                        oracle.used(0, Some(bytes));
                    }
                }
                Step::UseBatch(..) => {}
                Step::TakeBack(count) => {
                    for _ in 0..count {
                        let expected = oracle.used.pop_front().map(|(used, _)| used);
                        prop_assert_eq!(ring.take_used(), Ok(expected));
                    }
                }
            }
            prop_assert_eq!(
                ring.free_descriptors(),
                usize::from(config.size) - oracle.descriptors()
            );
            prop_assert_eq!(
                usize::from(ring.outstanding()),
                oracle.posted.len() + oracle.used.len()
            );
        }
    }

    /// The driver kicks when, and only when, the device's wish says so.
    #[test]
    fn kicks_follow_the_devices_wish(
        config in config(),
        counts in prop::collection::vec(1u16..4, 1..40),
        event in any::<prop::sample::Index>(),
        flag in any::<bool>(),
    ) {
        let mut ring = ring(config);
        let mut device = Device::new(&ring, config.first_index);
        let total: u16 = counts.iter().sum();
        // Somewhere among the indexes that will be published, or just outside.
        let wish = config.first_index.wrapping_sub(1).wrapping_add(event.index(total as usize + 2) as u16);
        device.used.store_u16(0, u16::from(flag), Ordering::Relaxed);
        device.used.store_u16(4 + 8 * usize::from(config.size), wish, Ordering::Relaxed);
        let mut index = config.first_index;
        for count in counts {
            let mut passes = false;
            let mut posted = 0;
            for _ in 0..count {
                if ring.post(&segments(1, 1), 0).is_ok() {
                    passes |= index == wish;
                    index = index.wrapping_add(1);
                    posted += 1;
                }
            }
            let wanted = posted > 0 && if config.event_idx { passes } else { !flag };
            ring.publish();
            prop_assert_eq!(ring.wants_kick(), wanted);
            prop_assert!(!ring.wants_kick(), "asked twice");
            device.take();
            while !device.taken.is_empty() {
                device.use_one(0, 0);
            }
            while let Ok(Some(_)) = ring.take_used() {}
        }
    }

    /// Garbage from the device is a fault or a chain that it does hold, never a panic, and nothing
    /// comes back twice.
    #[test]
    fn lies_end_in_faults(
        config in config(),
        chains in 0usize..20,
        lies in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u16>(), any::<bool>()), 1..30),
    ) {
        let mut ring = ring(config);
        let device = Device::new(&ring, config.first_index);
        let mut held = std::collections::HashSet::new();
        for token in 0..chains as u16 {
            if ring.post(&segments(1, 1 + usize::from(token % 3)), token).is_ok() {
                held.insert(token);
            }
        }
        ring.publish();
        for (id, bytes, index, small) in lies {
            let (id, step) =
                if small { (id % u32::from(config.size), index % 4) } else { (id, index) };
            for position in 0..config.size {
                device.write_used(position, id.wrapping_add(position.into()), bytes);
            }
            device.used.store_u16(2, config.first_index.wrapping_add(step), Ordering::Release);
            for _ in 0..40 {
                match ring.take_used() {
                    Ok(Some(used)) => prop_assert!(held.remove(&used.token), "{used:?} twice"),
                    Ok(None) => break,
                    Err(fault) => {
                        prop_assert_eq!(ring.fault(), Some(fault));
                        prop_assert_eq!(ring.used_ready(), 0);
                    }
                }
            }
        }
    }
}

fn polled(in_order: bool) -> RingConfig {
    RingConfig { size: 8, event_idx: false, in_order, read_used_entries: true, first_index: 65_533 }
}

#[test]
fn each_kind_of_lie_has_its_fault() {
    let post = |config| {
        let mut ring = ring(config);
        (0..3).for_each(|token| ring.post(&segments(1, 1), token).unwrap());
        ring.publish();
        let mut device = Device::new(&ring, config.first_index);
        device.take();
        (ring, device)
    };
    let (mut jump, mut device) = post(polled(false));
    device.publish_used(4);
    let fault = RingFault::UsedIndexJumped { moved: 4, outstanding: 3 };
    assert_eq!(jump.take_used(), Err(fault));
    let (mut unknown, mut device) = post(polled(false));
    device.write_used(device.next_used, 3, 0);
    device.publish_used(1);
    assert_eq!(unknown.take_used(), Err(RingFault::UnknownUsedId(3)));
    let (mut twice, mut device) = post(polled(false));
    device.use_one(1, 0);
    device.write_used(device.next_used, 1, 0);
    device.publish_used(1);
    assert_eq!(twice.take_used(), Ok(Some(Used { token: 1, bytes: Some(0) })));
    assert_eq!(twice.take_used(), Err(RingFault::UnknownUsedId(1)));
    let (mut disorder, mut device) = post(polled(true));
    device.use_one(1, 0);
    assert_eq!(disorder.take_used(), Err(RingFault::UsedOutOfOrder(1)));
    disorder.reset(0);
    assert_eq!((disorder.fault(), disorder.free_descriptors()), (None, 8));
}

#[test]
fn interrupts_are_asked_for_at_the_next_used_chain_and_a_waiting_one_is_reported() {
    for event_idx in [false, true] {
        let config = RingConfig { event_idx, ..polled(false) };
        let mut ring = ring(config);
        let mut device = Device::new(&ring, config.first_index);
        let wish = |device: &Device| {
            let event = device.avail.load_u16(4 + 2 * 8, Ordering::Relaxed);
            (device.avail.load_u16(0, Ordering::Relaxed), event)
        };
        ring.post(&segments(1, 1), 0).unwrap();
        ring.publish();
        device.take();
        assert!(!ring.enable_interrupts());
        assert_eq!(wish(&device).0, 0);
        if event_idx {
            assert_eq!(wish(&device).1, config.first_index);
        }
        device.use_one(0, 0);
        assert!(ring.enable_interrupts(), "a used chain is waiting");
        ring.disable_interrupts();
        if event_idx {
            assert_eq!(wish(&device).1, config.first_index.wrapping_sub(1));
        } else {
            assert_eq!(wish(&device).0, 1);
        }
    }
}

#[test]
fn a_polled_ring_with_event_idx_never_comes_near_its_event() {
    let config = RingConfig { event_idx: true, ..polled(false) };
    let mut ring = ring(config);
    let mut device = Device::new(&ring, config.first_index);
    for _ in 0..200_000 {
        ring.post(&segments(1, 1), 0).unwrap();
        ring.publish();
        device.take();
        let event = device.avail.load_u16(4 + 2 * 8, Ordering::Relaxed);
        assert_ne!(device.next_used, event, "an interrupt would be sent");
        device.use_one(0, 0);
        ring.take_used().unwrap();
        ring.keep_quiet();
    }
}

#[test]
fn sizes_that_are_no_power_of_two_or_out_of_range_are_refused() {
    for size in [0, 1, 3, 1000, 65_535] {
        let config = MemoryConfig { bytes: 1 << 20, hugepages: false, regions: 1, sealed: true };
        let mut memory = GuestMemory::new(config).unwrap();
        let error = SplitRing::new(&mut memory, RingConfig { size, ..polled(false) }).unwrap_err();
        assert!(error.to_string().contains("a power of two from 2 to 32768"), "{error}");
    }
}
