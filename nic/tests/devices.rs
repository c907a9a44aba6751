//! Virtual devices of DPDK: what is sent to a `net_ring` comes back from it, `net_null` takes and gives
//! without end. No mbuf is lost.
#![cfg(feature = "dpdk")]
#![allow(missing_docs)]

use std::sync::OnceLock;

use tollgate_frame::{Burst, DropReason, FetchStats, Segment, Sink as _};
use tollgate_nic::{Device, DeviceConfig, Eal, NicError, Queues, RxQueue, TxQueue, Unsent};

fn arguments() -> Vec<String> {
    let arguments = ["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--no-shconf"];
    let arguments = arguments.into_iter().chain(["--log-level=1", "--lcores=0@0"]);
    arguments.map(str::to_owned).collect()
}

fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    *EAL.get_or_init(|| Eal::init(&arguments()).unwrap())
}

fn config(devargs: &str) -> DeviceConfig {
    DeviceConfig { devargs: devargs.to_owned(), queues: 1, mtu: None, promiscuous: true }
}

fn open(devargs: &str) -> (Device, Queues) {
    Device::open(eal(), &config(devargs)).unwrap()
}

fn ends(queues: &mut Queues) -> (&mut RxQueue, &mut TxQueue) {
    (queues.rx[0].as_mut().unwrap(), queues.tx.as_mut().unwrap())
}

fn frame(len: usize, round: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + round) as u8).collect()
}

/// Sends a frame with so many of its bytes as the header.
fn send(tx: &mut TxQueue, frame: &[u8], header: usize) {
    let (header, payload) = frame.split_at(header);
    tx.deliver(header, &[Segment::from_slice(payload)]).unwrap();
}

fn fetch(rx: &mut RxQueue, burst: &mut Burst, max: usize) -> usize {
    let mut stats = FetchStats::new();
    let fetched = rx.fetch(burst, max, &mut stats);
    assert_eq!(stats.dropped(), 0);
    fetched
}

fn whole(burst: &Burst, at: usize) -> Vec<u8> {
    let mut bytes = burst.packet(at).unwrap().header.bytes().to_vec();
    for segment in burst.payload(at) {
        let mut piece = vec![0; segment.len()];
        segment.copy_to(&mut piece);
        bytes.extend(piece);
    }
    bytes
}

fn done(rx: &mut RxQueue, burst: &mut Burst) {
    rx.complete(burst);
    burst.clear();
}

#[test]
fn frames_come_back_whole_and_no_mbuf_is_lost() {
    let (device, mut queues) = open("net_ring_whole");
    let at_rest = device.mbufs_in_use();
    let (rx, tx) = ends(&mut queues);
    let mut burst = Burst::new();
    for round in 0..1000_usize {
        let sent = frame(60 + round, round);
        send(tx, &sent, 40);
        assert_eq!(tx.flush(), Unsent::default());
        assert_eq!(fetch(rx, &mut burst, 32), 1);
        assert_eq!(whole(&burst, 0), sent);
        done(rx, &mut burst);
    }
    assert_eq!(device.mbufs_in_use(), at_rest);
    device.close(queues);
}

/// A fetch takes what the driver gives; what a turn has no time for comes again, in order.
#[test]
fn packets_that_are_given_back_come_again_in_order() {
    let (device, mut queues) = open("net_ring_again");
    let at_rest = device.mbufs_in_use();
    let (rx, tx) = ends(&mut queues);
    for round in 0..40 {
        send(tx, &frame(300, round), 192);
    }
    tx.flush();
    let mut burst = Burst::new();
    let mut seen = 0;
    for (max, kept) in [(20, 15), (32, 17), (1, 0), (5, 5), (32, 3)] {
        let fetched = fetch(rx, &mut burst, max);
        assert!(fetched >= kept, "{fetched} of {max}");
        (0..fetched).for_each(|at| assert_eq!(whole(&burst, at), frame(300, seen + at)));
        rx.unfetch(&burst, fetched - kept);
        assert!(rx.has_work() || seen + kept >= 32);
        seen += kept;
        done(rx, &mut burst);
    }
    assert_eq!(seen, 40);
    assert!(!rx.poll());
    assert_eq!(device.mbufs_in_use(), at_rest);
    device.close(queues);
}

/// The same memory goes out by the other device, with another header in front, longer or shorter.
#[test]
fn a_frame_changes_hands_without_a_copy() {
    let ((from, mut from_queues), (to, mut to_queues)) =
        (open("net_ring_from"), open("net_ring_to"));
    let at_rest = (from.mbufs_in_use(), to.mbufs_in_use());
    let (from_rx, from_tx) = ends(&mut from_queues);
    let (to_rx, to_tx) = ends(&mut to_queues);
    let mut bursts = [Burst::new(), Burst::new()];
    let [burst, other] = &mut bursts;
    for (round, header_len) in [192_usize, 196, 188, 14, 192 + 128].into_iter().enumerate() {
        let sent = frame(1000, round);
        send(from_tx, &sent, 100);
        from_tx.flush();
        assert_eq!(fetch(from_rx, burst, 32), 1);
        let header = vec![0xee; header_len];
        let payload = burst.payload(0);
        let address = payload[0].address();
        to_tx.deliver_from(|| burst.take_buffer(0), &header, payload).unwrap();
        assert_eq!(to_tx.flush(), Unsent::default());
        done(from_rx, burst);
        assert_eq!(from.mbufs_in_use(), at_rest.0 + 1, "it is in the other device's ring");
        assert_eq!(fetch(to_rx, other, 32), 1);
        assert_eq!(whole(other, 0), [header, sent[192..].to_vec()].concat());
        if header_len == 192 {
            assert_eq!(other.payload(0)[0].address(), address, "it was not copied");
        }
        done(to_rx, other);
    }
    // Beyond the headroom: a copy, and the buffer goes back.
    let sent = frame(1000, 9);
    send(from_tx, &sent, 100);
    from_tx.flush();
    fetch(from_rx, burst, 32);
    to_tx.deliver_from(|| burst.take_buffer(0), &[1; 192 + 129], burst.payload(0)).unwrap();
    to_tx.flush();
    done(from_rx, burst);
    assert_eq!(from.mbufs_in_use(), at_rest.0);
    assert_eq!(fetch(to_rx, other, 32), 1);
    assert_eq!(whole(other, 0), [vec![1; 321], sent[192..].to_vec()].concat());
    done(to_rx, other);
    assert_eq!((from.mbufs_in_use(), to.mbufs_in_use()), at_rest);
    from.close(from_queues);
    to.close(to_queues);
}

#[test]
fn what_a_full_ring_does_not_take_is_reported_and_freed() {
    let (device, mut queues) = open("net_ring_full");
    let at_rest = device.mbufs_in_use();
    let (rx, tx) = ends(&mut queues);
    // The ring of net_ring holds 1023.
    let mut unsent = Unsent::default();
    for round in 0..1100 {
        send(tx, &frame(100, round), 60);
        if round % 7 == 0 {
            let now = tx.flush();
            unsent.frames += now.frames;
            unsent.bytes += now.bytes;
        }
    }
    let last = tx.flush();
    unsent.frames += last.frames;
    unsent.bytes += last.bytes;
    let mut burst = Burst::new();
    let mut got = 0;
    loop {
        let fetched = fetch(rx, &mut burst, 32);
        done(rx, &mut burst);
        got += fetched as u64;
        if fetched == 0 {
            break;
        }
    }
    assert!(unsent.frames > 0);
    assert_eq!((got + unsent.frames, unsent.bytes), (1100, unsent.frames * 100));
    assert_eq!(device.mbufs_in_use(), at_rest);
    let too_long = vec![0; 1500 + 14 + 8 + 1];
    assert_eq!(tx.deliver(&too_long, &[]), Err(DropReason::TxTooLong));
    device.close(queues);
}

#[test]
fn a_device_that_is_closed_with_frames_in_it_can_be_opened_again() {
    let (first, mut queues) = open("net_null_again,size=64");
    let (rx, tx) = ends(&mut queues);
    let mut burst = Burst::new();
    assert_eq!(fetch(rx, &mut burst, 20), 20);
    rx.unfetch(&burst, 7);
    done(rx, &mut burst);
    send(tx, &frame(60, 0), 60);
    assert!(matches!(
        Device::open(eal(), &config("net_null_again")),
        Err(NicError::InUse(name)) if name == "net_null_again"
    ));
    first.close(queues);
    let (second, mut queues) = open("net_null_again,size=64");
    assert_eq!(fetch(ends(&mut queues).0, &mut burst, 32), 32);
    done(ends(&mut queues).0, &mut burst);
    second.close(queues);
}

/// A queue that a PMD still has keeps its device open: nothing is polled that is closed.
#[test]
fn a_device_ends_with_its_last_queue() {
    let (device, mut queues) = open("net_null_last");
    let mut queue = queues.rx[0].take().unwrap();
    device.close(queues);
    assert!(matches!(Device::open(eal(), &config("net_null_last")), Err(NicError::InUse(_))));
    assert!(queue.poll());
    drop(queue);
    let (device, queues) = open("net_null_last");
    device.close(queues);
}

#[test]
fn what_a_device_cannot_do_is_refused_by_the_name_of_the_key() {
    let refused = |config: DeviceConfig| Device::open(eal(), &config).unwrap_err().to_string();
    let text = refused(config("net_nonsense0"));
    assert!(text.starts_with("devargs: there is no device net_nonsense0"), "{text}");
    let text = refused(DeviceConfig { queues: 9, ..config("net_null_refused") });
    assert!(text.starts_with("queues: 9 are asked for, the device (net_null) has"), "{text}");
    let text = refused(config("net_\0"));
    assert!(text.contains("zero byte"), "{text}");
    assert!(matches!(Eal::init(&arguments()), Err(NicError::EalOnce)));
    // It was closed again each time.
    let (device, queues) = open("net_null_refused");
    device.close(queues);
}

#[test]
fn a_device_says_what_it_is() {
    let (device, mut queues) = open("net_null_says,size=128");
    assert_eq!((device.driver(), device.mtu()), ("net_null", 1500));
    assert!(device.mac().is_some());
    assert!(device.link().is_up);
    let (rx, _) = ends(&mut queues);
    let mut burst = Burst::new();
    fetch(rx, &mut burst, 32);
    done(rx, &mut burst);
    let xstats = device.xstats();
    let good = xstats.iter().find(|(name, _)| name == "rx_good_packets");
    assert!(good.is_some_and(|(_, packets)| *packets >= 32), "{xstats:?}");
    device.close(queues);
}
