//! The driver against a switch that shares no code with it: features, sockets, interrupts, life
//! cycle.

mod fake;

use std::time::{Duration, Instant};

use fake::{Behaviour, Counters, FakeSwitch, SwitchSocket, bits, sockets};
use tempfile::TempDir;
use tollgate_guest::endpoint::SocketMode;
use tollgate_guest::port::{OpenPort, Port, PortConfig, PortError, Resume};
use tollgate_guest::virtio::FeatureChoice;

/// How long anything may take before a test gives up (no test waits for it to pass).
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    directory: TempDir,
    switch: FakeSwitch,
}

impl Bench {
    fn new(behaviour: Behaviour) -> Self {
        Self::with_socket(behaviour, SwitchSocket::Listens)
    }

    fn with_socket(behaviour: Behaviour, socket: SwitchSocket) -> Self {
        let directory = TempDir::new().unwrap();
        let switch = FakeSwitch::start(directory.path(), socket, behaviour);
        Self { directory, switch }
    }

    fn configs(&self) -> [PortConfig; 2] {
        sockets(self.directory.path()).map(|path| PortConfig {
            ring_size: 64,
            timeout: PATIENCE,
            tx_frame_bytes: 9216,
            ..PortConfig::new("port", path)
        })
    }

    fn attach(&self, change: impl Fn(&mut PortConfig)) -> [Port; 2] {
        self.configs().map(|mut config| {
            change(&mut config);
            Port::attach(config).unwrap()
        })
    }
}

/// A frame of `bytes` bytes that differs from others in all of them.
fn frame(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number * 31 + at * 7 + at / 256) as u8).collect()
}

/// Sends `frames` from one port and checks that the other receives just them, in order.
#[track_caller]
fn carries(from: &mut Port, to: &mut Port, frames: &[Vec<u8>], segments: usize) {
    let received = exchange(from, to, frames, segments, 16);
    assert_same(&received, frames, &format!("in {segments} segments"));
}

/// Compares frames without printing all of them.
#[track_caller]
fn assert_same(received: &[Vec<u8>], sent: &[Vec<u8>], context: &str) {
    assert_eq!(received.len(), sent.len(), "frames received, {context}");
    for (number, (received, sent)) in received.iter().zip(sent).enumerate() {
        assert!(
            received == sent,
            "frame {number}, {context}: {} bytes sent, {} received, first difference at {:?}",
            sent.len(),
            received.len(),
            received.iter().zip(sent).position(|(received, sent)| received != sent)
        );
    }
}

/// Sends all of `frames` from one port and collects what the other receives, with at most
/// `underway` frames in between: nothing may get lost for want of receive buffers.
fn exchange(
    from: &mut Port,
    to: &mut Port,
    frames: &[Vec<u8>],
    segments: usize,
    underway: usize,
) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut received = Vec::new();
    let mut waiting = frames.iter();
    let mut next = waiting.next();
    while received.len() < frames.len() && Instant::now() < deadline {
        while let Some(frame) = next {
            let sent = frames.len() - waiting.len() - 1;
            if sent >= received.len() + underway || !from.send(frame, segments) {
                break;
            }
            next = waiting.next();
        }
        to.receive(|bytes| received.push(bytes.to_vec())).unwrap();
        std::thread::yield_now();
    }
    received
}

/// Enough frames to take every index of a 64-entry ring round several times, of many lengths.
fn frames() -> Vec<Vec<u8>> {
    (0..300).map(|number| frame(number, 60 + number * 37 % 1440)).collect()
}

#[test]
fn every_combination_of_ring_features_carries_frames_unchanged_and_in_order() {
    let choices =
        [bits::MRG_RXBUF, bits::INDIRECT_DESC, bits::EVENT_IDX, bits::IN_ORDER, bits::VERSION_1];
    for combination in 0..1 << choices.len() {
        let chosen = (0..choices.len()).filter(|bit| combination & (1 << bit) != 0);
        let features = chosen.map(|bit| choices[bit]).sum::<u64>();
        let bench = Bench::new(Behaviour::default());
        let [mut a, mut b] = bench.attach(|config| {
            config.features = FeatureChoice::exactly(features);
            config.check_tx_used = combination & 1 == 0;
            config.memory_regions = 1 + combination % 3;
        });
        let frames = frames();
        for segments in [1, 5] {
            let context = format!("features {features:#x}, {segments} segments");
            assert_same(&exchange(&mut a, &mut b, &frames, segments, 16), &frames, &context);
            assert_same(&exchange(&mut b, &mut a, &frames, segments, 16), &frames, &context);
        }
        let indirect = Counters::get(&bench.switch.counters.indirect_chains) > 0;
        assert_eq!(indirect, features & bits::INDIRECT_DESC != 0, "{features:#x}");
        assert_eq!(a.session().features() & !bits::PROTOCOL_FEATURES, features);
        assert_eq!((a.fault(), b.fault()), (None, None));
    }
}

#[test]
fn segments_are_what_the_switch_sees() {
    for features in [bits::VERSION_1, bits::VERSION_1 | bits::INDIRECT_DESC] {
        for segments in [1, 2, 7, 32] {
            let bench = Bench::new(Behaviour::default());
            let [mut a, mut b] =
                bench.attach(|config| config.features = FeatureChoice::exactly(features));
            let frames = vec![frame(1, 600); 10];
            carries(&mut a, &mut b, &frames, segments);
            let descriptors = Counters::get(&bench.switch.counters.chain_descriptors);
            assert_eq!(descriptors, 10 * segments as u64);
        }
    }
}

#[test]
fn a_legacy_switch_without_any_layout_gets_headers_in_descriptors_of_their_own() {
    let bench = Bench::new(Behaviour { features: bits::PROTOCOL_FEATURES, ..Default::default() });
    let [mut a, mut b] = bench.attach(|_| {});
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
    let counters = &bench.switch.counters;
    assert_eq!(Counters::get(&counters.chain_descriptors), 2 * frames.len() as u64);
}

#[test]
fn a_frame_larger_than_a_receive_buffer_spans_several() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|config| config.rx_buffer_bytes = 512);
    let frames: Vec<_> = (0..100).map(|number| frame(number, 4000 + number * 50)).collect();
    // Of 64 buffers the largest frame takes 18.
    let received = exchange(&mut a, &mut b, &frames, 1, 3);
    assert_same(&received, &frames, "larger than a buffer");
    assert_eq!(b.rx_counters().malformed, 0);
}

#[test]
fn receive_buffers_of_several_descriptors_work_without_mergeable_buffers() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|config| {
        config.features = FeatureChoice::exactly(bits::VERSION_1);
        config.rx_segments = 3;
    });
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
}

#[test]
fn transmit_buffers_that_come_back_in_any_order_are_reused_correctly() {
    let bench = Bench::new(Behaviour { reverse_used: true, ..Default::default() });
    let [mut a, mut b] =
        bench.attach(|config| config.features = FeatureChoice::exactly(bits::VERSION_1));
    let frames = frames();
    for segments in [1, 4] {
        carries(&mut a, &mut b, &frames, segments);
    }
}

#[test]
fn a_switch_that_breaks_the_promised_order_is_caught() {
    let bench = Bench::new(Behaviour { reverse_used: true, ..Default::default() });
    let [mut a, mut b] = bench.attach(|config| config.check_tx_used = true);
    let deadline = Instant::now() + PATIENCE;
    let bytes = frame(1, 60);
    // Two chains in one burst are enough; the loop makes sure that they are once in one.
    while a.fault().is_none() && Instant::now() < deadline {
        a.send(&bytes, 1);
        b.receive(|_| {}).unwrap();
    }
    assert!(a.fault().is_some());
}

#[test]
fn a_sleeping_switch_is_kicked_and_a_polling_one_is_not() {
    for event_idx in [false, true] {
        for kicked in [false, true] {
            let bench = Bench::new(Behaviour { kicked, ..Default::default() });
            let [mut a, mut b] = bench.attach(|config| {
                config.features.set(bits::EVENT_IDX, event_idx);
            });
            let frames = frames();
            carries(&mut a, &mut b, &frames, 1);
            let kicks = Counters::get(&bench.switch.counters.kicks);
            if kicked {
                assert!(kicks > 0);
            } else if !event_idx {
                // The flag is up from the switch's first look on, and with it no kick comes.
                assert!(a.tx_counters().kicks <= 2, "{} kicks", a.tx_counters().kicks);
            }
        }
    }
}

#[test]
fn a_sleeping_guest_is_woken_by_a_frame_and_a_polling_one_is_not_interrupted() {
    for event_idx in [false, true] {
        let bench = Bench::new(Behaviour::default());
        let [mut a, mut b] = bench.attach(|config| config.features.set(bits::EVENT_IDX, event_idx));
        let bytes = frame(3, 200);
        for _ in 0..20 {
            let mut received = Vec::new();
            let sent = std::thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    a.send(&bytes, 1)
                });
                while received.is_empty() {
                    // Without the interrupt this would last the whole hour, and the test fail by
                    // its runner's time limit.
                    b.wait(Duration::from_secs(3600)).unwrap();
                    b.receive(|frame| received.push(frame.to_vec())).unwrap();
                }
                sender.join().unwrap()
            });
            assert!(sent);
            assert_eq!(received, vec![bytes.clone()]);
        }
        let slept = Counters::get(&bench.switch.counters.calls);
        let frames = frames();
        carries(&mut a, &mut b, &frames, 1);
        let polled = Counters::get(&bench.switch.counters.calls) - slept;
        assert!(slept > 0, "no interrupt was needed");
        assert!(polled <= 1, "{polled} interrupts while polling, event_idx {event_idx}");
    }
}

#[test]
fn waiting_ends_at_the_timeout_and_at_once_when_frames_are_there() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|_| {});
    b.wait(Duration::from_millis(1)).unwrap();
    a.send(&frame(1, 60), 1);
    while Counters::get(&bench.switch.counters.forwarded) == 0 {
        std::thread::yield_now();
    }
    b.wait(Duration::from_secs(3600)).unwrap();
    assert_eq!(b.receive(|_| {}).unwrap(), 1);
}

#[test]
fn the_switch_may_connect_to_us_instead() {
    let bench = Bench::with_socket(Behaviour::default(), SwitchSocket::Connects);
    let open = bench.configs().map(|mut config| {
        config.mode = SocketMode::Listen;
        OpenPort::new(config).unwrap()
    });
    let [mut a, mut b] = open.map(|port| port.attach().unwrap());
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
    let path = a.config().path.clone();
    drop(a);
    assert!(!path.exists(), "a listening port takes its socket away");
}

#[test]
fn a_dead_listeners_socket_is_replaced_and_a_live_ones_is_not() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s");
    let listening = |path: &std::path::Path| PortConfig {
        mode: SocketMode::Listen,
        ..PortConfig::new("p", path)
    };
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let _port = OpenPort::new(listening(&path)).unwrap();
    let second = OpenPort::new(listening(&path)).unwrap_err().to_string();
    assert!(second.contains("another process listens there"), "{second}");
    assert!(path.exists());
}

#[test]
fn several_queue_pairs_are_started_and_used() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|config| config.queue_pairs = 4);
    assert_ne!(a.session().features() & bits::MQ, 0);
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
    assert!(b.rx_queue(3).is_some() && b.rx_queue(4).is_none());
}

#[test]
fn more_queue_pairs_than_offered_are_refused_with_both_numbers() {
    let bench = Bench::new(Behaviour { queue_pairs: 2, ..Default::default() });
    let mut config = bench.configs()[0].clone();
    config.queue_pairs = 3;
    let error = Port::attach(config).unwrap_err().to_string();
    assert!(error.contains("3 queue pairs wanted; the switch offers 2"), "{error}");
}

#[test]
fn a_missing_feature_is_named_and_an_optional_one_is_done_without() {
    let features = bits::ALL & !bits::EVENT_IDX & !bits::MRG_RXBUF;
    let bench = Bench::new(Behaviour { features, ..Default::default() });
    let mut config = bench.configs()[0].clone();
    config.features.set(bits::EVENT_IDX, true);
    let error = Port::attach(config).unwrap_err().to_string();
    assert!(error.contains("does not offer: event_idx"), "{error}");
    let [mut a, mut b] = bench.attach(|_| {});
    assert_eq!(a.session().features() & bits::MRG_RXBUF, 0);
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
}

#[test]
fn a_refusal_is_an_error_that_names_the_message() {
    let bench = Bench::new(Behaviour { refuse_memory: true, ..Default::default() });
    let error = Port::attach(bench.configs()[0].clone()).unwrap_err();
    assert!(matches!(error, PortError::Session { .. }));
    assert!(error.to_string().contains("SET_MEM_TABLE"), "{error}");
}

#[test]
fn without_protocol_features_rings_run_all_the_same() {
    let features = bits::ALL & !bits::PROTOCOL_FEATURES;
    let bench = Bench::new(Behaviour { features, ..Default::default() });
    let [mut a, mut b] = bench.attach(|_| {});
    assert!(!a.session().acknowledges());
    // Nothing says when the rings run, but once a frame came through each way they do.
    for _ in 0..2 {
        let deadline = Instant::now() + PATIENCE;
        while b.receive(|_| {}).unwrap() == 0 && Instant::now() < deadline {
            a.send(&frame(0, 60), 1);
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::swap(&mut a, &mut b);
    }
    while a.receive(|_| {}).unwrap() + b.receive(|_| {}).unwrap() > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
}

#[test]
fn stopped_rings_move_nothing_and_go_on_where_they_stopped() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|_| {});
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
    let bases = a.stop().unwrap();
    assert_eq!(bases, [[0, 300]], "nothing received, 300 frames sent");
    let before = Counters::get(&bench.switch.counters.chains);
    assert!(a.send(&frame(7, 100), 1));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(Counters::get(&bench.switch.counters.chains), before);
    a.start(&bases).unwrap();
    let mut received = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while received.is_empty() && Instant::now() < deadline {
        b.receive(|bytes| received.push(bytes.to_vec())).unwrap();
    }
    assert_eq!(received, [frame(7, 100)]);
    carries(&mut b, &mut a, &frames, 1);
}

#[test]
fn a_reset_empties_the_rings_and_starts_them_anew() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|_| {});
    let frames = frames();
    for _ in 0..3 {
        carries(&mut a, &mut b, &frames, 3);
        carries(&mut b, &mut a, &frames, 1);
        a.stop().unwrap();
        // Never taken, and forgotten by the reset.
        assert!(a.send(&frame(9, 99), 1));
        a.reset().unwrap();
        b.reset().unwrap();
    }
}

#[test]
fn a_disabled_receive_ring_gets_nothing_until_it_is_enabled() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|_| {});
    b.enable_ring(0, false).unwrap();
    assert!(a.send(&frame(1, 60), 1));
    while Counters::get(&bench.switch.counters.no_ring) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(b.receive(|_| {}).unwrap(), 0);
    b.enable_ring(0, true).unwrap();
    let frames = frames();
    carries(&mut a, &mut b, &frames, 1);
}

#[test]
fn a_lost_connection_is_noticed_and_both_ways_of_resuming_work() {
    for resume in [Resume::Fresh, Resume::AtUsedIndex] {
        let bench = Bench::new(Behaviour::default());
        let [mut a, mut b] = bench.attach(|_| {});
        let frames = frames();
        carries(&mut a, &mut b, &frames, 1);
        assert!(a.is_connected() && b.is_connected());
        bench.switch.drop_connections();
        while a.is_connected() || b.is_connected() {
            std::thread::yield_now();
        }
        a.reconnect(resume).unwrap();
        b.reconnect(resume).unwrap();
        assert!(a.is_connected());
        carries(&mut a, &mut b, &frames, 2);
        carries(&mut b, &mut a, &frames, 1);
    }
}

#[test]
fn frames_offered_before_the_connection_broke_are_sent_by_the_switch_that_resumes() {
    let bench = Bench::new(Behaviour::default());
    let [mut a, mut b] = bench.attach(|_| {});
    a.disconnect();
    assert!(a.send(&frame(5, 500), 2));
    a.reconnect(Resume::AtUsedIndex).unwrap();
    let mut received = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while received.is_empty() && Instant::now() < deadline {
        b.receive(|bytes| received.push(bytes.to_vec())).unwrap();
    }
    assert_eq!(received, [frame(5, 500)]);
}

#[test]
fn nobody_there_is_an_error_that_says_who_was_missing() {
    let directory = TempDir::new().unwrap();
    let mut config = PortConfig::new("p", directory.path().join("s"));
    config.timeout = Duration::from_millis(30);
    let error = Port::attach(config.clone()).unwrap_err().to_string();
    assert!(error.contains("no switch listens on"), "{error}");
    config.mode = SocketMode::Listen;
    let error = Port::attach(config).unwrap_err().to_string();
    assert!(error.contains("no switch connected to"), "{error}");
}
