//! Network cards polled by a PMD. A `net_ring` gives back what is sent to it, so two guests and two of
//! them make a way on which frames go from a guest to a card, from card to card and from a card to a guest.
#![cfg(feature = "dpdk")]
#![allow(missing_docs, missing_debug_implementations)]

mod bench_switch;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bench_switch::{BenchSwitch, Rules, config};
use tollgate_datapath::{ControlError, DatapathConfig, Op, PortSettings, PortSnapshot};
use tollgate_frame::DropReason;
use tollgate_guest::generator::{Generator, Phase};
use tollgate_guest::pair::PairConfig;
use tollgate_nic::{Device, DeviceConfig, Eal, Queues};
use tollgate_packet::edit::Edit;
use tollgate_packet::{HeaderField, PortIndex};

fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    let arguments = ["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--no-shconf"];
    let arguments = arguments.into_iter().chain(["--log-level=1", "--lcores=0@0"]);
    *EAL.get_or_init(|| Eal::init(&arguments.map(str::to_owned).collect::<Vec<_>>()).unwrap())
}

/// PMD and generator have the machine's cores to themselves: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(devargs: &str, queues: u16) -> (Device, Box<Queues>) {
    let config = DeviceConfig { devargs: devargs.to_owned(), queues, mtu: None, promiscuous: true };
    let (device, queues) = Device::open(eal(), &config).unwrap();
    (device, Box::new(queues))
}

const FROM: usize = 0;
const TO: usize = 1;
const CARDS: [usize; 2] = [2, 3];

const UPLINK: PortSettings = PortSettings { pmd: None, uplink: true, mac: None };

/// Two guests' ports and two cards', and the cards.
struct Scene {
    switch: BenchSwitch,
    cards: Vec<Device>,
    /// Mbufs in use of each card while nothing is under way.
    at_rest: Vec<u32>,
}

fn scene(config: &DatapathConfig, rules: Rules) -> Scene {
    // Before the PMDs: they make themselves known to it.
    let eal = eal();
    let _ = eal;
    let settings = [PortSettings::default(), PortSettings::default(), UPLINK, UPLINK];
    let switch = BenchSwitch::start_with(config, &[1.0; 4], &settings, vec![], rules);
    let mut cards = Vec::new();
    for port in CARDS {
        let (card, queues) = open(&format!("net_ring_{port}"), 1);
        switch.datapath.queues_start(switch.ports[port].index, queues).unwrap();
        cards.push(card);
    }
    let at_rest = cards.iter().map(Device::mbufs_in_use).collect();
    Scene { switch, cards, at_rest }
}

impl Scene {
    fn counters(&self) -> Vec<PortSnapshot> {
        (0..4).map(|port| self.switch.quiet_counters(port)).collect()
    }

    /// Whether every mbuf is where it was before there was traffic. What a driver has sent it frees when
    /// it likes; `net_ring` at once.
    fn pools_are_whole(&self) -> bool {
        self.cards.iter().map(Device::mbufs_in_use).eq(self.at_rest.iter().copied())
    }

    fn end(self) {
        for (port, card) in CARDS.into_iter().zip(self.cards) {
            let port = self.switch.ports[port].index;
            card.close(*self.switch.datapath.queues_stop(port));
        }
        self.switch.stop();
    }
}

/// From the guest to the first card, on to the second, and to the other guest.
fn along() -> Rules {
    Box::new(|miss| {
        let to = [CARDS[0], FROM, CARDS[1], TO][usize::from(miss.port.0)];
        (vec![Op::Output(PortIndex(to as u16))], DropReason::RuleDrop)
    })
}

/// Slow enough for a debug build: one that is sent flat out takes the core, and what is received on its
/// other half is dropped for being over its share.
fn stream() -> PairConfig {
    let mut stream = PairConfig::stream("a", "p0", "p1");
    stream.rate_pps = 5000.0;
    stream
}

fn run_until(guests: &mut Generator, phase: &Phase, received: u64) {
    for _ in 0..50 {
        let report = guests.run(phase).unwrap();
        assert_eq!(report.faults(), Vec::<String>::new());
        if report.pairs.iter().map(|pair| pair.received).sum::<u64>() > received {
            return;
        }
    }
    panic!("they never arrived");
}

#[test]
fn frames_from_guest_to_card_to_card_to_guest_are_all_accounted_for_and_no_mbuf_is_lost() {
    let _alone = alone();
    let scene = scene(&config(), along());
    let mut guests = scene.switch.attach_to([FROM, TO], |_| ());
    let mut small = PairConfig::stream("small", "p0", "p1");
    // Slow enough for a debug build beside other work.
    (small.flows, small.rate_pps) = (50, 5000.0);
    let mut large = PairConfig::stream("large", "p0", "p1");
    (large.frame_bytes, large.segments, large.rate_pps) = (1496, 3, 2500.0);
    let pairs = vec![small, large];
    run_until(&mut guests, &Phase::new("test", Duration::from_millis(200), pairs), 200);
    let counters = scene.counters();
    for (port, counters) in counters.iter().enumerate() {
        assert_eq!(counters.entered(), counters.accounted(), "port {port}: {counters:?}");
    }
    let [from, to, first, second] = counters.try_into().unwrap();
    assert_eq!(from.forwarded, first.tx_packets);
    assert_eq!(first.tx_packets, first.rx_packets, "what the card was sent has come back");
    assert_eq!((first.forwarded, second.tx_packets), (second.rx_packets, second.rx_packets));
    assert_eq!((second.forwarded, second.tx_bytes), (to.tx_packets, second.rx_bytes));
    assert!(to.tx_packets > 200);
    assert!(scene.pools_are_whole());
    drop(guests);
    scene.end();
}

fn collect(guests: &mut Generator, port: &str, frames: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut got = Vec::new();
    while got.len() < frames && Instant::now() < deadline {
        guests.port_mut(port).unwrap().receive(|frame| got.push(frame.to_vec())).unwrap();
    }
    assert_eq!(got.len(), frames, "frames at {port}");
    got
}

/// A frame that goes on as the only one keeps its memory and gets the header that the actions have made;
/// one that goes to several ports is copied for each.
#[test]
fn each_copy_of_a_cards_frame_has_its_header_and_its_payload() {
    let _alone = alone();
    let rules: Rules = Box::new(|miss| {
        let dst = |last: u128| Op::Edit(Edit::set(HeaderField::EthDst, 0x0209_0909_0900 | last));
        let output = |port: usize| Op::Output(PortIndex(port as u16));
        let ops = match usize::from(miss.port.0) {
            FROM => vec![output(CARDS[0])],
            // Longer in front than it came.
            2 => vec![
                Op::Edit(Edit::PushVlan { tpid: 0x8100 }),
                Op::Edit(Edit::set(HeaderField::VlanVid, 77)),
                output(CARDS[1]),
            ],
            _ => vec![output(TO), dst(1), output(TO), dst(2), output(FROM)],
        };
        (ops, DropReason::RuleDrop)
    });
    let scene = scene(&config(), rules);
    let mut guests = scene.switch.attach_to([FROM, TO], |_| ());
    for len in [60_usize, 192, 193, 1000, 1510] {
        // The first goes through the slow path at each port.
        for round in 0..3 {
            let frame: Vec<u8> = (0..len).map(|at| (at * 13 + round) as u8).collect();
            assert!(guests.port_mut("p0").unwrap().send(&frame, 1));
            let tagged = [&frame[..12], &[0x81, 0, 0, 77], &frame[12..]].concat();
            let to = collect(&mut guests, "p1", 2);
            assert!(to[0] == tagged, "{len} bytes, round {round}");
            assert_eq!((&to[1][..6], &to[1][6..]), (&[2, 9, 9, 9, 9, 1][..], &tagged[6..]));
            let back = collect(&mut guests, "p0", 1);
            assert_eq!((&back[0][..6], &back[0][6..]), (&[2, 9, 9, 9, 9, 2][..], &tagged[6..]));
        }
    }
    scene.counters();
    assert!(scene.pools_are_whole());
    drop(guests);
    scene.end();
}

/// The card's port goes in the middle of everything; its mbufs that are in the other card's ring come
/// home later.
#[test]
fn a_card_is_removed_while_frames_go_through_it() {
    let _alone = alone();
    let mut scene = scene(&config(), along());
    let mut guests = scene.switch.attach_to([FROM, TO], |_| ());
    let pairs = || vec![stream()];
    run_until(&mut guests, &Phase::new("before", Duration::from_millis(100), pairs()), 100);
    let (switch, card) = (&scene.switch, scene.cards.remove(0));
    let port = switch.ports[CARDS[0]].index;
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            guests.run(&Phase::new("during", Duration::from_millis(200), pairs())).unwrap();
        });
        std::thread::sleep(Duration::from_millis(100));
        let queues = switch.datapath.queues_stop(port);
        assert!(queues.rx[0].is_some() && queues.tx.is_some());
        card.close(*queues);
        switch.datapath.port_remove(port).unwrap();
        traffic.join().unwrap();
    });
    let from = switch.quiet_counters(FROM);
    assert_eq!(from.entered(), from.accounted(), "{from:?}");
    let lost = from.drops.iter().find(|(reason, _)| *reason == DropReason::NoSuchPort);
    assert!(lost.is_some_and(|(_, lost)| *lost > 0), "{from:?}");
    scene.switch.quiet_counters(CARDS[1]);
    assert_eq!(scene.cards[0].mbufs_in_use(), scene.at_rest[1]);
    // The same device again, for another port.
    let (card, queues) = open("net_ring_2", 1);
    card.close(*queues);
    drop(guests);
    let card = scene.cards.remove(0);
    card.close(*scene.switch.datapath.queues_stop(scene.switch.ports[CARDS[1]].index));
    scene.switch.stop();
}

/// A card that sends without end, on two queues: each is another PMD's.
#[test]
fn the_queues_of_a_card_are_polled_by_the_pmds_in_turn_and_dropped_frames_are_counted() {
    let _alone = alone();
    let _ = eal();
    let config = DatapathConfig { pmd_cores: vec![0, 1], ..config() };
    let rules: Rules = Box::new(|_| (vec![], DropReason::RuleDrop));
    let settings = [PortSettings { pmd: Some(1), ..UPLINK }];
    let switch = BenchSwitch::start_with(&config, &[1.0], &settings, vec![], rules);
    let (card, queues) = open("net_null_flood,size=64", 2);
    let port = switch.ports[0].index;
    switch.datapath.queues_start(port, queues).unwrap();
    let dropped = |counters: &PortSnapshot| {
        let found = counters.drops.iter().find(|(reason, _)| *reason == DropReason::RuleDrop);
        found.map_or(0, |(_, count)| *count)
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    let served = || switch.datapath.pmd_snapshots().iter().map(|pmd| pmd.packets).min().unwrap();
    while (served() < 1000 || dropped(&switch.ports[0].counters()) < 1000)
        && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(served() >= 1000, "both have polled it");
    // Queues of one card only.
    let (other, others) = open("net_null_other", 1);
    let (others, error) = switch.datapath.queues_start(port, others).unwrap_err();
    assert_eq!(error, ControlError::QueuesRefused);
    assert!(others.rx[0].is_some() && others.tx.is_some());
    other.close(*others);
    let queues = switch.datapath.queues_stop(port);
    assert_eq!(queues.rx.iter().flatten().count(), 2);
    let counters = switch.quiet_counters(0);
    assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
    card.close(*queues);
    switch.stop();
}

/// Somebody pays for each packet, and polling a silent card is nobody's.
#[test]
fn a_silent_card_is_idle_time_and_a_busy_one_is_paid_for() {
    let _alone = alone();
    let scene = scene(&config(), along());
    std::thread::sleep(Duration::from_millis(100));
    let pmd = scene.switch.pmd();
    let share = pmd.idle_cycles as f64 / (pmd.elapsed_cycles - pmd.stolen_cycles) as f64;
    assert!(share > 0.8, "{share} of the time is idle: {pmd:?}");
    let mut guests = scene.switch.attach_to([FROM, TO], |_| ());
    let pairs = vec![stream()];
    run_until(&mut guests, &Phase::new("test", Duration::from_millis(100), pairs), 100);
    scene.counters();
    let pmd = scene.switch.pmd();
    let tenants = &scene.switch.tenants;
    assert!(CARDS.into_iter().all(|card| pmd.tenant(tenants[card]).cycles > 0));
    assert!(pmd.rx_cycles.count() > 0);
    let sum = pmd.tenants.iter().map(|tenant| tenant.cycles).sum::<u64>()
        + pmd.idle_cycles
        + pmd.stolen_cycles;
    let gap = sum.abs_diff(pmd.elapsed_cycles) as f64 / pmd.elapsed_cycles as f64;
    assert!(gap < 0.01, "the books differ from elapsed time by {:.2} %", gap * 100.0);
    drop(guests);
    scene.end();
}
