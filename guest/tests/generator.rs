//! The generator against a switch whose every misdeed is known.

mod fake;

use std::time::Duration;

use fake::{Behaviour, Counters, FakeSwitch, Fault, SwitchSocket, bits, sockets};
use tempfile::TempDir;
use tollgate_guest::endpoint::SocketMode;
use tollgate_guest::generator::{Generator, Phase};
use tollgate_guest::pair::{Content, Mode, PairConfig};
use tollgate_guest::port::PortConfig;
use tollgate_guest::report::{PairReport, Report};

struct Bench {
    _directory: TempDir,
    switch: FakeSwitch,
    generator: Generator,
}

impl Bench {
    fn new(behaviour: Behaviour) -> Self {
        Self::with(behaviour, SwitchSocket::Listens, |_| {})
    }

    fn with(behaviour: Behaviour, socket: SwitchSocket, change: impl Fn(&mut PortConfig)) -> Self {
        let directory = TempDir::new().unwrap();
        let switch = FakeSwitch::start(directory.path(), socket, behaviour);
        let ports = ["a", "b"].into_iter().zip(sockets(directory.path())).zip(1..);
        let configs = ports.map(|((name, path), number)| {
            let mut config = PortConfig::new(name, path);
            config.ring_size = 256;
            config.mac = [2, 0, 0, 0, 0, number];
            config.ip = [10, 0, 0, number];
            if socket == SwitchSocket::Connects {
                config.mode = SocketMode::Listen;
            }
            change(&mut config);
            config
        });
        let generator = Generator::attach(configs.collect()).unwrap();
        Self { _directory: directory, switch, generator }
    }

    fn run(&mut self, pairs: Vec<PairConfig>) -> Report {
        self.run_for(Duration::from_millis(300), pairs)
    }

    fn run_for(&mut self, duration: Duration, pairs: Vec<PairConfig>) -> Report {
        let mut phase = Phase::new("phase", duration, pairs);
        phase.warmup = Duration::ZERO;
        // Long only where frames are lost: it ends when all have arrived.
        phase.drain = Duration::from_secs(3);
        phase.interval = Duration::from_millis(100);
        self.generator.run(&phase).unwrap()
    }

    fn faults(&self) -> u64 {
        Counters::get(&self.switch.counters.faults)
    }
}

/// Requests that are never given up, however busy this test's machine is.
fn requests(from: &str, to: &str, rate_pps: f64) -> PairConfig {
    let mut pair = PairConfig::rpc("v", from, to, rate_pps);
    pair.mode = Mode::Rpc { inflight: 1, timeout: Duration::from_secs(60) };
    pair
}

/// A stream slow enough that no buffer runs out, all of it checked.
fn stream(from: &str, to: &str) -> PairConfig {
    let mut pair = PairConfig::stream("s", from, to);
    pair.rate_pps = 20_000.0;
    pair.verify_every = 1;
    pair
}

fn only(report: &Report) -> &PairReport {
    assert_eq!(report.pairs.len(), 1);
    &report.pairs[0]
}

/// What must hold of any pair's account.
fn assert_closed(pair: &PairReport) {
    assert_eq!(pair.intended, pair.sent + pair.unsent, "{pair:?}");
    assert_eq!(pair.sent, pair.received + pair.lost, "{pair:?}");
}

#[test]
fn a_good_switch_has_a_clean_account() {
    let mut bench = Bench::new(Behaviour { check_frames: true, ..Default::default() });
    for size in [60, 61, 333, 1500, 2048] {
        let mut pair = stream("a", "b");
        pair.frame_bytes = size;
        let report = bench.run(vec![pair]);
        let pair = only(&report);
        assert_closed(pair);
        assert!(pair.received > 0);
        assert!(pair.lost == 0 && pair.verified >= pair.received, "{pair:?}");
        assert_eq!(report.faults(), Vec::<String>::new());
        // What is due inside the window may be sent a little after it.
        let sent: u64 = pair.intervals.iter().map(|interval| interval.sent).sum();
        assert!(pair.intervals.len() == 3 && (1..=pair.sent).contains(&sent), "{sent}");
    }
    assert_eq!(Counters::get(&bench.switch.counters.invalid_frames), 0);
}

#[test]
fn a_pair_that_comes_and_goes_pauses_and_makes_nothing_up() {
    let mut bench = Bench::new(Behaviour::default());
    let mut paced = stream("a", "b");
    paced.on_off = Some((Duration::from_millis(10), Duration::from_millis(20)));
    // Flat out, its only burst is over before the second interval begins.
    let mut flat_out = PairConfig::stream("f", "b", "a");
    flat_out.on_off = Some((Duration::from_millis(1), Duration::from_secs(10)));
    let report = bench.run(vec![flat_out, paced]);
    let [flat_out, paced] = &report.pairs[..] else { panic!("{report:?}") };
    assert_closed(paced);
    // Ten of thirty milliseconds at 20 000 a second, but for the rounding of both.
    assert!((1990..=2010).contains(&paced.intended), "{paced:?}");
    let sent: Vec<_> = flat_out.intervals.iter().map(|interval| interval.sent).collect();
    assert!(sent.len() == 3 && sent[1..] == [0, 0], "{sent:?}");
    assert!(flat_out.sent > 0);
}

#[test]
fn intervals_by_the_thousand_have_their_latencies() {
    let mut bench = Bench::new(Behaviour::default());
    let mut phase = Phase::new("phase", Duration::from_millis(300), vec![stream("a", "b")]);
    phase.interval = Duration::from_micros(100);
    let report = bench.generator.run(&phase).unwrap();
    let intervals = &only(&report).intervals;
    assert!(intervals.len() >= 3000);
    // What arrives first may have been meant before the measured time: it has no latency.
    let first = intervals.iter().position(|interval| interval.latency_us.is_some()).unwrap();
    for interval in &intervals[first..] {
        assert_eq!(interval.latency_us.is_some(), interval.received > 0, "{interval:?}");
    }
}

#[test]
fn frames_of_every_make_are_valid_and_arrive_whole() {
    let mut bench = Bench::new(Behaviour { check_frames: true, ..Default::default() });
    for content in [Content::Fixed, Content::Fresh] {
        for vlan in [None, Some(77)] {
            for (vary, random_order) in [("sport", false), ("sip+dip+sport+dport", true)] {
                let mut pair = stream("a", "b");
                pair.frame_bytes = 300;
                pair.flows = 5000;
                pair.vary = vary.parse().unwrap();
                (pair.content, pair.vlan, pair.random_order) = (content, vlan, random_order);
                pair.segments = 4;
                let report = bench.run(vec![pair]);
                assert!(only(&report).received > 0);
                assert_eq!(report.faults(), Vec::<String>::new());
                assert_eq!(report.port("b").unwrap().alien, 0);
            }
        }
    }
    assert_eq!(Counters::get(&bench.switch.counters.invalid_frames), 0);
}

/// A switch that errs at every 50th frame, and what one pair saw of it.
fn with_fault(fault: Fault, change: impl Fn(&mut PairConfig)) -> (u64, PairReport, Report) {
    let mut bench = Bench::new(Behaviour { fault, fault_every: 50, ..Default::default() });
    let mut pair = stream("a", "b");
    change(&mut pair);
    let report = bench.run(vec![pair]);
    let faults = bench.faults();
    assert!(faults > 0);
    (faults, only(&report).clone(), report)
}

#[test]
fn lost_frames_are_counted() {
    let (faults, pair, report) = with_fault(Fault::Drop, |_| {});
    assert_closed(&pair);
    // The last burst may be due just after the window, where it does not count.
    assert!(pair.lost <= faults && faults - pair.lost <= 1, "{pair:?}, {faults}");
    assert_eq!(report.faults(), Vec::<String>::new(), "loss is no fault");
}

/// A sender that heeds congestion is marked, not harmed; one that does not is not marked.
#[test]
fn congestion_marks_and_losses_make_a_dctcp_sender_slower() {
    let dctcp = |fault, fault_every| {
        let mut bench = Bench::new(Behaviour { fault, fault_every, ..Default::default() });
        let mut pair = PairConfig::dctcp("d", "a", "b");
        // Never silent for so long, however busy this test's machine is.
        pair.mode =
            Mode::Dctcp { delay: Duration::from_millis(2), timeout: Duration::from_secs(60) };
        pair.verify_every = 1;
        let report = bench.run(vec![pair]);
        assert_eq!(report.faults(), Vec::<String>::new());
        let pair = only(&report).clone();
        assert_closed(&pair);
        (pair, bench.faults())
    };
    let (freely, _) = dctcp(Fault::None, 1);
    assert_eq!((freely.marked, freely.lost), (0, 0));
    // Every one: the window is a frame or two. At most what 2 ms a round allow in 300 ms, twice.
    let (marked, faults) = dctcp(Fault::Mark, 1);
    assert_eq!(marked.marked, marked.received);
    assert!(faults >= marked.received && marked.lost == 0, "{marked:?}");
    assert!(marked.received < 400, "{marked:?}");
    let (losing, faults) = dctcp(Fault::Drop, 10);
    assert!(losing.lost > 0 && losing.lost <= faults && losing.marked == 0, "{losing:?}");
    assert!(losing.received < 4000, "{losing:?}");
    let (_, stream, _) = with_fault(Fault::Mark, |_| {});
    assert_eq!(stream.marked + stream.corrupted, 0, "{stream:?}");
}

#[test]
fn frames_that_come_twice_are_counted() {
    let (faults, pair, _) = with_fault(Fault::Duplicate, |_| {});
    assert_eq!((pair.duplicated, pair.reordered), (faults, 0));
}

#[test]
fn overtaken_frames_are_counted_within_a_flow_and_not_between_flows() {
    let (faults, pair, _) = with_fault(Fault::Swap, |_| {});
    // One that was held back at the very end has nothing to be overtaken by.
    assert!(pair.reordered <= faults && faults - pair.reordered <= 1, "{pair:?}, {faults}");
    let (_, pair, _) = with_fault(Fault::Swap, |pair| pair.flows = 16);
    assert_eq!(pair.reordered, 0);
}

#[test]
fn frames_with_changed_bits_or_length_are_counted() {
    for fault in [Fault::Corrupt, Fault::Truncate] {
        let (faults, pair, report) = with_fault(fault, |_| {});
        assert_eq!(pair.corrupted, faults, "{fault:?}");
        assert_eq!(report.faults().len(), 1);
    }
}

#[test]
fn a_payload_of_another_frame_is_noticed_when_content_is_fresh() {
    let (faults, pair, _) = with_fault(Fault::StalePayload, |pair| {
        pair.content = Content::Fresh;
        pair.frame_bytes = 200;
    });
    assert_eq!(pair.corrupted, faults);
}

#[test]
fn frames_out_of_the_wrong_port_are_counted() {
    let (faults, pair, _) = with_fault(Fault::Misdeliver, |_| {});
    assert_eq!(pair.misdelivered, faults);
    assert!(pair.lost > 0);
}

#[test]
fn a_virtio_header_that_asks_for_unnegotiated_work_is_counted() {
    let mut bench = Bench::new(Behaviour { fault: Fault::BadHeader, ..Default::default() });
    let report = bench.run(vec![stream("a", "b")]);
    assert!(report.port("b").unwrap().malformed > 0);
    assert!(report.faults()[0].contains("malformed"));
}

#[test]
fn every_intended_request_is_accounted_for() {
    let mut bench = Bench::new(Behaviour::default());
    for inflight in [1, 8] {
        let mut pair = PairConfig::rpc("v", "a", "b", 2000.0);
        pair.mode = Mode::Rpc { inflight, timeout: Duration::from_secs(10) };
        let report = bench.run(vec![pair]);
        let pair = only(&report);
        assert_closed(pair);
        assert_eq!(pair.intended, 600);
        assert!(pair.received > 0);
        assert_eq!((pair.lost, pair.timed_out, pair.late), (0, 0, 0));
        let count = |times: &Option<tollgate_guest::histogram::Quantiles>| times.unwrap().count;
        assert_eq!(count(&pair.latency_us), pair.received);
        assert_eq!(count(&pair.service_us), pair.received);
        assert_eq!(count(&pair.request_us), pair.received);
        // Each request was due before it was sent.
        assert!(pair.latency_us.unwrap().mean >= pair.service_us.unwrap().mean);
        assert_eq!(report.faults(), Vec::<String>::new());
    }
}

#[test]
fn requests_that_wait_behind_a_lost_one_count_from_when_they_were_due() {
    let timeout = Duration::from_millis(40);
    let behaviour = Behaviour { fault: Fault::Drop, fault_every: 100, ..Default::default() };
    let mut bench = Bench::new(behaviour);
    let mut pair = requests("a", "b", 1000.0);
    pair.mode = Mode::Rpc { inflight: 1, timeout };
    let report = bench.run_for(Duration::from_millis(400), vec![pair]);
    let pair = only(&report);
    assert_closed(pair);
    assert!(pair.timed_out > 0, "{pair:?}");
    // The request due 1 ms after the lost one was sent 39 ms late, by no fault of this test's
    // machine: that is a lower bound. From its sending on it need not have taken long.
    let longest_ms = pair.latency_us.unwrap().max / 1000.0;
    assert!(longest_ms > 38.0, "{longest_ms} ms");
}

#[test]
fn pairs_change_between_phases_without_attaching_anew() {
    let mut bench = Bench::new(Behaviour { check_frames: true, ..Default::default() });
    let mut large = stream("a", "b");
    large.frame_bytes = 1000;
    let mut reverse = stream("b", "a");
    (reverse.name, reverse.content) = ("r".into(), Content::Fresh);
    let rpc = requests("b", "a", 1000.0);
    let phases = [
        vec![stream("a", "b")],
        vec![large.clone(), rpc.clone()],
        vec![rpc, reverse, large],
        vec![stream("a", "b")],
    ];
    for pairs in phases {
        let names: Vec<String> = pairs.iter().map(|pair| pair.name.clone()).collect();
        let report = bench.run(pairs);
        assert_eq!(report.faults(), Vec::<String>::new(), "{names:?}");
        for pair in &report.pairs {
            assert_closed(pair);
            assert!(pair.received > 0 && pair.lost == 0, "{pair:?}");
        }
        assert!(
            report.ports.iter().all(|port| (port.alien, port.stale) == (0, 0) && port.connected)
        );
    }
    assert_eq!(Counters::get(&bench.switch.counters.invalid_frames), 0);
}

#[test]
fn sleeping_ports_are_interrupted_and_lose_nothing() {
    for event_idx in [false, true] {
        let change = |config: &mut PortConfig| {
            config.interrupts = true;
            config.features.set(bits::EVENT_IDX, event_idx);
        };
        let mut bench = Bench::with(Behaviour::default(), SwitchSocket::Listens, change);
        let mut pair = stream("a", "b");
        pair.rate_pps = 500.0;
        let report = bench.run(vec![pair, requests("b", "a", 300.0)]);
        for pair in &report.pairs {
            assert_closed(pair);
            assert!(pair.received > 0 && pair.lost == 0, "{pair:?}");
        }
        let interrupts: u64 = report.ports.iter().map(|port| port.interrupts).sum();
        assert!(interrupts > 0);
        assert_eq!(report.faults(), Vec::<String>::new());
    }
}

#[test]
fn the_switch_may_connect_and_flat_out_floods_break_nothing() {
    let mut bench =
        Bench::with(Behaviour::default(), SwitchSocket::Connects, |config| config.queue_pairs = 2);
    let mut flood = PairConfig::stream("f", "a", "b");
    flood.queue = 1;
    let report = bench.run(vec![flood, requests("b", "a", 0.0)]);
    let flood = report.pair("f").unwrap();
    assert_closed(flood);
    assert!(flood.received > 0 && flood.ring_full > 0, "{flood:?}");
    assert!(report.pair("v").unwrap().received > 0);
    assert_eq!(report.faults(), Vec::<String>::new());
}

#[test]
fn a_guest_that_stalls_takes_nothing_and_one_that_does_not_is_not_harmed() {
    let stalled = |config: &mut PortConfig| config.drain = config.name != "b";
    let mut bench = Bench::with(Behaviour::default(), SwitchSocket::Listens, stalled);
    let back = bench.run(vec![stream("b", "a")]);
    assert!(only(&back).received > 0 && only(&back).lost == 0);
    let report = bench.run(vec![stream("a", "b")]);
    assert!(only(&report).sent > 0);
    assert_eq!(only(&report).received, 0);
}

#[test]
fn a_lost_switch_is_in_the_report_and_a_port_can_be_reconnected_between_phases() {
    let mut bench = Bench::new(Behaviour::default());
    bench.switch.drop_connections();
    let report = bench.run(vec![stream("a", "b")]);
    assert!(report.faults().iter().all(|fault| fault.contains("closed the connection")));
    assert_eq!(report.faults().len(), 2);
    for name in ["a", "b"] {
        let port = bench.generator.port_mut(name).unwrap();
        port.reconnect(tollgate_guest::port::Resume::Fresh).unwrap();
    }
    let report = bench.run(vec![stream("a", "b")]);
    assert_eq!((only(&report).lost, report.faults()), (0, Vec::new()));
}

#[test]
fn a_phase_can_be_stopped_and_reports_what_it_has() {
    let mut bench = Bench::new(Behaviour::default());
    let handle = bench.generator.handle();
    let report = std::thread::scope(|scope| {
        let counters = bench.switch.counters.clone();
        let stopper = scope.spawn(move || {
            // Until traffic runs, a stop would be forgotten when the phase begins.
            while Counters::get(&counters.forwarded) == 0 {
                std::thread::yield_now();
            }
            let progress = handle.progress();
            handle.stop();
            progress
        });
        let pairs = vec![stream("a", "b")];
        let phase = Phase::new("long", Duration::from_secs(3600), pairs);
        let report = bench.generator.run(&Phase { warmup: Duration::ZERO, ..phase }).unwrap();
        assert!((0.0..1.0).contains(&stopper.join().unwrap()));
        report
    });
    assert!(report.stopped && report.seconds < 3600.0);
    let pair = only(&report);
    assert_closed(pair);
    assert!(pair.received > 0);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let mut bench = Bench::new(Behaviour::default());
    let mut run = |pair: PairConfig| {
        let phase = Phase::new("p", Duration::from_millis(1), vec![pair]);
        bench.generator.run(&phase).unwrap_err().to_string()
    };
    assert_eq!(run(stream("a", "c")), "pair s: there is no port 'c'");
    let mut jumbo = stream("a", "b");
    jumbo.frame_bytes = 4000;
    assert_eq!(run(jumbo), "pair s: size=4000: the port sends up to 2048");
    let mut queue = stream("a", "b");
    queue.queue = 1;
    assert_eq!(run(queue), "pair s: queue=1: port a has fewer");
    let empty = bench.generator.run(&Phase::new("p", Duration::from_secs(1), vec![]));
    assert_eq!(empty.unwrap_err().to_string(), "phase p: 0 pairs: 1 to 256");
}

#[test]
fn reports_are_json_and_tables_with_every_pair() {
    let mut bench = Bench::new(Behaviour::default());
    bench.generator.announce();
    let report = bench.run(vec![stream("a", "b"), requests("a", "b", 500.0)]);
    let json: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(json["pairs"][1]["name"], "v");
    assert!(json["pairs"][1]["latency_us"]["p99.9"].is_number());
    assert!(json["loop_us"]["p99"].is_number());
    assert_eq!(json["pairs"][0]["intervals"].as_array().unwrap().len(), 3);
    let table = report.to_string();
    assert!(table.contains("| s ") && table.contains("| v "), "{table}");
    assert_eq!(report.interval_table().row_count(), 6);
    // The announcements are nobody's frames.
    assert_eq!(report.port("a").unwrap().alien + report.port("b").unwrap().alien, 2);
}
