//! What a well-behaved driver gets.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;

use tollgate_frame::{Burst, DropReason, Segment};
use tollgate_vhost::mock::{self, Descriptor, Driver, FROM_GUEST, Layout, Ram, TO_GUEST, frame};
use tollgate_vhost::{ActiveVring, Features, FetchStats, PortStatus};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

const ALL: Features = Features::offered(1);
const MERGEABLE: u64 = 1 << 15;
const EVENT_IDX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;
const PLAIN: Features = Features(ALL.0 & !EVENT_IDX);

fn ring(driver: &Driver, index: u16, features: Features) -> ActiveVring {
    let status = Arc::new(PortStatus::new());
    mock::activate(driver.ram(), driver, index, features, &status).unwrap()
}

/// The whole frames of a burst.
fn frames(burst: &Burst) -> Vec<Vec<u8>> {
    (0..burst.len())
        .map(|index| {
            let packet = burst.packet(index).unwrap();
            let mut bytes = packet.header.bytes().to_vec();
            for segment in burst.payload(index) {
                let mut part = vec![0; segment.len()];
                segment.copy_to(&mut part);
                bytes.extend(part);
            }
            assert_eq!(bytes.len(), packet.frame_len as usize);
            bytes
        })
        .collect()
}

fn fetch(ring: &mut ActiveVring) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    let mut stats = FetchStats::new();
    ring.has_work();
    ring.fetch(&mut burst, 32, &mut stats);
    assert_eq!(stats.dropped(), 0);
    frames(&burst)
}

#[test]
fn frames_of_every_size_arrive_whole_and_in_order() {
    let (_, mut driver) = Driver::alone(256);
    let mut ring = ring(&driver, FROM_GUEST, PLAIN);
    let sent: Vec<_> = [14, 60, 64, 191, 192, 193, 1514, 2036]
        .iter()
        .enumerate()
        .map(|(seed, len)| frame(*len, seed as u8))
        .collect();
    for frame in &sent {
        driver.transmit(12, frame);
    }
    assert!(ring.has_work());
    assert_eq!(fetch(&mut ring), sent);
    assert!(!ring.has_work());
    assert_eq!(driver.take_used(), [], "nothing is given back before it is completed");
    assert!(ring.complete());
    assert_eq!(driver.take_used(), (0..8).map(|head| (head, 0)).collect::<Vec<_>>());
}

#[test]
fn the_indexes_wrap() {
    let ram = Ram::new(&[(0x10000, 1 << 20)]);
    let mut driver = Driver::new(&ram, Layout::packed_at(0x10000, 16, 2048), 16, 65530);
    let mut ring = ring(&driver, FROM_GUEST, ALL);
    for round in 0..40 {
        driver.transmit(12, &frame(100, round));
        assert_eq!(fetch(&mut ring), [frame(100, round)]);
        ring.complete();
        assert_eq!(driver.take_used().len(), 1);
    }
    assert_eq!(ring.next_avail(), 65530u16.wrapping_add(40));
}

#[test]
fn a_legacy_driver_has_the_short_header() {
    let (_, mut driver) = Driver::alone(16);
    let mut receive = ring(&driver, FROM_GUEST, Features(0));
    driver.transmit(10, &frame(80, 1));
    assert_eq!(fetch(&mut receive), [frame(80, 1)]);

    let (_, mut driver) = Driver::alone(16);
    let mut send = ring(&driver, TO_GUEST, Features(0));
    driver.post(2048);
    send.deliver(&frame(80, 2), &[]).unwrap();
    send.publish();
    assert_eq!(driver.receive(10), [frame(80, 2)]);
}

#[test]
fn headers_in_descriptors_of_their_own_and_indirect_tables_are_followed() {
    let (ram, mut driver) = Driver::alone(16);
    let mut ring = ring(&driver, FROM_GUEST, ALL);
    let content = frame(700, 3);
    ram.write(driver.buffer(0), &[0; 12]);
    ram.write(driver.buffer(1), &content[..300]);
    ram.write(driver.buffer(2), &content[300..]);
    let chain = [
        Descriptor { address: driver.buffer(0), len: 12, flags: NEXT, next: 1 },
        Descriptor { address: driver.buffer(1), len: 300, flags: NEXT, next: 2 },
        Descriptor { address: driver.buffer(2), len: 400, flags: 0, next: 0 },
    ];
    for (index, descriptor) in chain.iter().enumerate() {
        driver.describe(index as u16, *descriptor);
    }
    driver.offer(0);
    // The same chain from a table, alone and behind another descriptor (virtio 1.2, 2.7.5.3.2).
    for (index, descriptor) in chain.iter().enumerate() {
        ram.write(driver.buffer(9) + 16 * index as u64, &descriptor.to_bytes());
    }
    let table = Descriptor { address: driver.buffer(9), len: 48, flags: INDIRECT, next: 0 };
    driver.describe(5, table);
    driver.offer(5);
    ram.write(driver.buffer(10), &Descriptor { next: 1, ..chain[1] }.to_bytes());
    ram.write(driver.buffer(10) + 16, &chain[2].to_bytes());
    driver.describe(6, Descriptor { next: 7, ..chain[0] });
    driver.describe(7, Descriptor { address: driver.buffer(10), len: 32, ..table });
    driver.offer(6);
    assert_eq!(fetch(&mut ring), [content.clone(), content.clone(), content]);
    ring.complete();
    assert_eq!(driver.take_used(), [(0, 0), (5, 0), (6, 0)]);
}

#[test]
fn what_is_unfetched_comes_again() {
    let (_, mut driver) = Driver::alone(64);
    let mut ring = ring(&driver, FROM_GUEST, PLAIN);
    let sent: Vec<_> = (0..10).map(|seed| frame(60, seed)).collect();
    for frame in &sent {
        driver.transmit(12, frame);
    }
    assert_eq!(fetch(&mut ring).len(), 10);
    ring.unfetch(7);
    assert_eq!(ring.next_avail(), 3);
    ring.complete();
    assert_eq!(driver.take_used().len(), 3);
    ring.unfetch(3);
    assert_eq!(ring.next_avail(), 3, "what was completed cannot be given back");
    assert_eq!(fetch(&mut ring), sent[3..]);
    ring.complete();
    assert_eq!(driver.take_used().len(), 7);
}

#[test]
fn a_drop_between_unfetched_packets_is_counted_once() {
    let (_, mut driver) = Driver::alone(64);
    let mut ring = ring(&driver, FROM_GUEST, PLAIN);
    for len in [60, 5, 60, 5, 60] {
        driver.transmit(12, &frame(len, 0));
    }
    let mut burst = Burst::new();
    let mut stats = FetchStats::new();
    ring.has_work();
    assert_eq!(ring.fetch(&mut burst, 32, &mut stats), 3);
    ring.unfetch(2);
    burst.clear();
    assert_eq!(ring.fetch(&mut burst, 32, &mut stats), 2);
    assert_eq!((stats.dropped(), stats.drops(DropReason::RxTooShort)), (2, 2));
    ring.complete();
    assert_eq!(driver.take_used().len(), 5);
}

#[test]
fn a_frame_is_delivered_with_its_payload_and_header() {
    let (ram, mut driver) = Driver::alone(16);
    let mut ring = ring(&driver, TO_GUEST, PLAIN);
    ram.write(driver.buffer(0), &[0xaa; 12]);
    for _ in 0..3 {
        driver.post(2048);
    }
    let content = frame(1500, 4);
    let payload = [Segment::from_slice(&content[192..700]), Segment::from_slice(&content[700..])];
    ring.prefetch(1);
    ring.deliver(&content[..192], &payload).unwrap();
    assert_eq!(driver.take_used(), [], "not before it is published");
    assert!(ring.publish());
    assert_eq!(ram.read(driver.buffer(0), 12), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(driver.receive(12), [content]);
    assert!(!ring.publish(), "nothing new");
}

#[test]
fn a_large_frame_is_spread_over_merged_buffers() {
    let (_, mut driver) = Driver::alone(16);
    let mut ring = ring(&driver, TO_GUEST, PLAIN);
    for _ in 0..5 {
        driver.post(512);
    }
    let content = frame(1600, 5);
    ring.deliver(&content[..192], &[Segment::from_slice(&content[192..])]).unwrap();
    ring.deliver(&content[..60], &[]).unwrap();
    ring.publish();
    assert_eq!(driver.receive(12), [content.clone(), content[..60].to_vec()]);
}

#[test]
fn without_merging_a_frame_needs_one_chain_that_holds_it() {
    let (_, mut driver) = Driver::alone(16);
    let mut ring = ring(&driver, TO_GUEST, Features(VERSION_1));
    driver.describe(
        0,
        Descriptor { address: driver.buffer(0), len: 12, flags: NEXT | WRITE, next: 1 },
    );
    driver.describe(1, Descriptor { address: driver.buffer(1), len: 100, flags: WRITE, next: 0 });
    driver.offer(0);
    assert_eq!(ring.deliver(&frame(101, 0), &[]), Err(DropReason::TxNoBuffers));
    ring.deliver(&frame(100, 6), &[]).unwrap();
    assert_eq!(ring.deliver(&frame(60, 0), &[]), Err(DropReason::TxRingFull));
    ring.publish();
    assert_eq!(driver.take_used(), [(0, 112)]);
    assert_eq!(driver.ram().read(driver.buffer(1), 100), frame(100, 6));
}

#[test]
fn interrupts_follow_the_flag_without_event_idx() {
    let (_, mut driver) = Driver::alone(16);
    let mut ring = ring(&driver, FROM_GUEST, PLAIN);
    for (flags, wanted) in [(0, true), (1, false), (0, true)] {
        driver.set_avail_flags(flags);
        driver.transmit(12, &frame(60, 0));
        fetch(&mut ring);
        assert_eq!(ring.complete(), wanted);
    }
}

#[test]
fn interrupts_follow_the_event_index() {
    let (_, mut driver) = Driver::alone(16);
    let mut ring = ring(&driver, FROM_GUEST, ALL);
    // Nothing is known of earlier events: interrupt.
    for (event, wanted) in [(9, true), (0, false), (2, true), (3, true), (3, false)] {
        driver.set_used_event(event);
        driver.transmit(12, &frame(60, 0));
        fetch(&mut ring);
        assert_eq!(ring.complete(), wanted, "event {event}");
    }
}

#[test]
fn kicks_are_off_until_asked_for() {
    for features in [PLAIN, ALL] {
        let (_, mut driver) = Driver::alone(16);
        let mut ring = ring(&driver, FROM_GUEST, features);
        let event_idx = features == ALL;
        assert_eq!(driver.used_flags(), 1);
        assert!(!ring.enable_kicks());
        assert_eq!(driver.used_flags(), 0);
        assert!(!event_idx || driver.avail_event() == ring.next_avail());
        driver.transmit(12, &frame(60, 0));
        assert!(ring.enable_kicks(), "what came before the request is seen");
        ring.disable_kicks();
        assert_eq!(driver.used_flags(), 1);
        assert!(!event_idx || driver.avail_event() == ring.next_avail().wrapping_sub(1));
    }
}

#[test]
fn an_odd_region_boundary_inside_a_frame_is_crossed() {
    // Two regions, adjacent for the guest, apart in the switch.
    let ram = Ram::new(&[(0x10000, 0x10000), (0x20000, 0x10000)]);
    let layout = Layout { buffers: 0x20000 - 500, ..Layout::packed_at(0x10000, 16, 2048) };
    let mut driver = Driver::new(&ram, layout, 16, 0);
    let mut receive = ring(&driver, FROM_GUEST, PLAIN);
    driver.transmit(12, &frame(1500, 7));
    assert_eq!(fetch(&mut receive), [frame(1500, 7)]);

    let mut driver = Driver::new(&ram, layout, 16, 0);
    let mut send = ring(&driver, TO_GUEST, Features(VERSION_1 | MERGEABLE));
    driver.post(2048);
    send.deliver(&frame(1500, 8), &[]).unwrap();
    send.publish();
    assert_eq!(driver.receive(12), [frame(1500, 8)]);
}

/// A peek says what `has_work` would, and may be asked when its ring and the session's memory have gone.
#[test]
fn a_peek_sees_what_becomes_available_and_keeps_the_memory_mapped() {
    let (_, mut driver) = Driver::alone(8);
    let mut ring = ring(&driver, FROM_GUEST, ALL);
    let mut peek = ring.peek();
    for round in 0..20 {
        assert!(!peek.has_changed(), "nothing new in round {round}");
        driver.transmit(ALL.net_header_bytes(), &frame(60, round));
        assert!(peek.has_changed());
        assert!(ring.has_work());
        assert_eq!(fetch(&mut ring).len(), 1);
        assert!(peek.has_changed(), "it is told how far the ring is");
        peek.set_next_avail(ring.next_avail());
        ring.complete();
        driver.take_used();
    }
    drop(ring);
    assert!(!peek.has_changed());
    driver.transmit(ALL.net_header_bytes(), &frame(60, 0));
    assert!(peek.has_changed());
}
