//! The datapath with real sessions, rings and traffic: every frame and every cycle accounted for.
#![allow(missing_docs, missing_debug_implementations)]

mod bench_switch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bench_switch::{BenchSwitch, Rules, config};
use tollgate_datapath::{
    DatapathConfig, EvictionCause, Meter, MeterBand, MeterConfig, MeterUnit, Op, PortSnapshot,
};
use tollgate_frame::DropReason;
use tollgate_guest::generator::{Generator, Phase};
use tollgate_guest::pair::PairConfig;
use tollgate_guest::report::Report;
use tollgate_packet::HeaderField;
use tollgate_packet::PortIndex;
use tollgate_packet::edit::Edit;

/// Ports 0 and 1 are connected, 2 and 3, and so on, at `burn_cycles` a packet for each port.
fn pairs(burn_cycles: Vec<u32>) -> Rules {
    Box::new(move |miss| {
        let burn = burn_cycles.get(usize::from(miss.port.0)).copied().unwrap_or(0);
        let out = Op::Output(PortIndex(miss.port.0 ^ 1));
        let ops = if burn == 0 { vec![out] } else { vec![Op::Burn(burn), out] };
        (ops, DropReason::RuleDrop)
    })
}

/// PMD and generator have the machine's cores to themselves: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the phase, again if need be, until its report shows what is waited for: how long that takes
/// depends on what else the machine is doing.
fn run_until(guests: &mut Generator, phase: &Phase, done: impl Fn(&Report) -> bool) -> Report {
    for _ in 0..50 {
        let report = guests.run(phase).unwrap();
        assert_eq!(report.faults(), Vec::<String>::new());
        if done(&report) {
            return report;
        }
    }
    panic!("it never happened");
}

fn phase(pairs: Vec<PairConfig>, ms: u64) -> Phase {
    Phase::new("test", Duration::from_millis(ms), pairs)
}

#[test]
fn every_frame_is_accounted_for_and_arrives_as_it_was() {
    let _alone = alone();
    let switch = BenchSwitch::start(&config(), &[1.0; 4], pairs(vec![]));
    let mut guests = switch.attach(|_| ());
    let mut traffic = vec![
        PairConfig::stream("a", "p0", "p1"),
        PairConfig::stream("b", "p2", "p3"),
        PairConfig::rpc("c", "p1", "p0", 500.0),
    ];
    traffic[0].flows = 300;
    // Slow enough for a debug build beside other work.
    traffic[0].rate_pps = 20_000.0;
    traffic[1].rate_pps = 10_000.0;
    traffic[1].frame_bytes = 1496;
    traffic[1].segments = 3;
    let received = |report: &Report, pair: &str| report.pair(pair).is_some_and(|p| p.received > 20);
    run_until(&mut guests, &phase(traffic, 300), |report| {
        ["a", "b", "c"].into_iter().all(|pair| received(report, pair))
    });
    for port in 0..4 {
        let counters = switch.quiet_counters(port);
        assert_eq!(counters.entered(), counters.accounted(), "port {port}: {counters:?}");
    }
    let (sent, got) = (switch.quiet_counters(0), switch.quiet_counters(1));
    assert_eq!(sent.forwarded, got.tx_packets, "what port 0 forwards, port 1 is given");
    drop(guests);
    switch.stop();
}

#[test]
fn packets_of_a_flow_stay_in_order_through_the_slow_path() {
    let _alone = alone();
    let rules: Rules = Box::new(|miss| {
        // Slow enough that packets queue up, and that others could overtake those that do.
        std::thread::sleep(Duration::from_micros(300));
        (vec![Op::Output(PortIndex(miss.port.0 ^ 1))], DropReason::RuleDrop)
    });
    let switch = BenchSwitch::start(&config(), &[1.0; 2], rules);
    let mut guests = switch.attach(|_| ());
    let mut stream = PairConfig::stream("a", "p0", "p1");
    stream.rate_pps = 50_000.0;
    let mut run = phase(vec![stream], 200);
    run.warmup = Duration::ZERO;
    let report = run_until(&mut guests, &run, |report| report.pair("a").unwrap().received > 1000);
    let pair = report.pair("a").unwrap();
    assert_eq!((pair.reordered, pair.duplicated), (0, 0), "{report}");
    let counters = switch.quiet_counters(0);
    assert_eq!(counters.queued, 0);
    drop(guests);
    let log = switch.stop();
    assert!(log.followers > 0, "no packet had to wait behind another: {log:?}");
}

/// A flow that is sent flat out had packets in the slow path all the time, so each further one
/// followed them there, and the cached decision was never used.
#[test]
fn bug_a_flow_sent_flat_out_leaves_the_slow_path() {
    let _alone = alone();
    let rules: Rules = Box::new(|miss| {
        // Slower than packets come in, as the slow path is, and so slow at first that some follow.
        let pause_us = if miss.follower { 50 } else { 2000 };
        std::thread::sleep(Duration::from_micros(pause_us));
        (vec![Op::Output(PortIndex(miss.port.0 ^ 1))], DropReason::RuleDrop)
    });
    let switch = BenchSwitch::start(&config(), &[1.0; 2], rules);
    let mut guests = switch.attach(|_| ());
    let mut run = phase(vec![PairConfig::stream("a", "p0", "p1")], 300);
    run.warmup = Duration::ZERO;
    run.duration = Duration::from_secs(2);
    // In one go: a pause would let the flow out of the slow path in any case.
    guests.run(&run).unwrap();
    let pmd = switch.pmd();
    assert!(pmd.misses * 10 < pmd.packets, "{} misses of {} packets", pmd.misses, pmd.packets);
    drop(guests);
    switch.stop();
}

#[test]
fn the_books_close_and_a_burned_cycle_is_charged_to_who_burned_it() {
    let _alone = alone();
    const BURN: u32 = 200_000;
    let switch = BenchSwitch::start(&config(), &[1.0; 4], pairs(vec![BURN, 0, 0, 0]));
    let mut guests = switch.attach(|_| ());
    let mut light = PairConfig::stream("light", "p2", "p3");
    light.rate_pps = 2000.0;
    // Installs the megaflows, so that every counted packet burns.
    let warm_up = phase(vec![PairConfig::rpc("w", "p0", "p1", 100.0), light.clone()], 50);
    run_until(&mut guests, &warm_up, |report| report.pairs.iter().all(|pair| pair.received > 0));
    let before = switch.pmd();
    let served_before = switch.ports[0].counters().rx_packets;
    guests.run(&phase(vec![PairConfig::stream("heavy", "p0", "p1"), light], 400)).unwrap();
    switch.quiet_counters(0);
    let after = switch.pmd();
    let served = switch.ports[0].counters().rx_packets - served_before;

    let tenants: u64 = after.tenants.iter().map(|tenant| tenant.cycles).sum();
    let sum = tenants + after.idle_cycles + after.stolen_cycles;
    let gap = sum.abs_diff(after.elapsed_cycles) as f64 / after.elapsed_cycles as f64;
    assert!(gap < 0.01, "the books differ from elapsed time by {:.2} %", gap * 100.0);

    let burner = switch.tenants[0];
    let charged = after.tenant(burner).cycles - before.tenant(burner).cycles;
    let burned = served * u64::from(BURN);
    assert!(served > 100, "{served}");
    // A burn that the kernel interrupts ends by the clock all the same, and that part is `stolen`.
    let stolen = after.stolen_cycles - before.stolen_cycles;
    let least = burned.saturating_sub(stolen);
    // Each interruption leaves cold caches behind, and gaps too short to be looked into.
    let most = burned + burned / 20 + stolen / 10;
    assert!(
        (least..most).contains(&charged),
        "burned {burned}, charged {charged}, stolen {stolen}"
    );
    let innocent = after.tenant(switch.tenants[2]).cycles - before.tenant(switch.tenants[2]).cycles;
    assert!(innocent * 20 < charged, "{innocent} of {charged}");
    drop(guests);
    switch.stop();
}

#[test]
fn histograms_hold_each_task_and_the_wait_for_each_funded_turn() {
    let _alone = alone();
    let switch = BenchSwitch::start(&config(), &[1.0; 4], pairs(vec![5000; 4]));
    let mut guests = switch.attach(|_| ());
    let traffic = vec![PairConfig::stream("a", "p0", "p1"), PairConfig::stream("b", "p2", "p3")];
    let received = |report: &Report| report.pairs.iter().all(|pair| pair.received > 20);
    run_until(&mut guests, &phase(traffic, 100), received);
    switch.quiet_counters(0);
    switch.quiet_counters(2);
    let pmd = switch.pmd();
    assert_eq!(pmd.task_cycles.count(), pmd.tasks);
    assert_eq!(pmd.scan_cycles.count() + pmd.system_cycles_per_turn.count(), pmd.tasks);
    assert_eq!(pmd.rx_cycles.count(), 0, "nothing comes from an uplink or another PMD");
    // Each packet burns as much.
    assert!(pmd.task_cycles.quantile_cycles(1.0).unwrap() > 5000);
    for tenant in [switch.tenants[0], switch.tenants[2]] {
        let tenant = pmd.tenant(tenant);
        assert_eq!(tenant.wait_cycles.count(), tenant.funded_turns, "{tenant:?}");
        assert!(tenant.funded_turns > 0);
    }
    assert_eq!(pmd.tenants.len(), 5, "accounts that nobody has used are left out");
    drop(guests);
    switch.stop();
}

#[test]
fn saturating_tenants_share_the_core_by_weight_and_a_new_weight_acts_at_once() {
    let _alone = alone();
    // A full ring is then 20 ms of work: the tenants have some even while the generator is away.
    const BURN: u32 = 50_000;
    let switch =
        BenchSwitch::start(&config(), &[1.0, 1.0, 1.0, 1.0], pairs(vec![BURN, 0, BURN, 0]));
    let mut guests = switch.attach(|_| ());
    let flat_out =
        || vec![PairConfig::stream("a", "p0", "p1"), PairConfig::stream("b", "p2", "p3")];
    guests.run(&phase(flat_out(), 20)).unwrap();
    for (weight, expected) in [(1.0, 1.0), (3.0, 3.0), (1.71, 1.71)] {
        let weight = tollgate_policy::Weight::try_from(weight).unwrap();
        let settings = tollgate_datapath::TenantSettings { weight, ..Default::default() };
        switch.datapath.tenant_set(switch.tenants[0], settings).unwrap();
        // A window counts only if both tenants had work all through it, which needs a generator that
        // is never away for long; a wrong weight would never come near.
        let error = (0..20)
            .map(|_| (cycle_ratio(&switch, &mut guests, flat_out()) / expected - 1.0).abs())
            .find(|error| *error < 0.01);
        assert!(error.is_some(), "weights {expected}:1 are not within 1 % in any of 20 windows");
    }
    drop(guests);
    switch.stop();
}

/// Cycles of tenant 0 over cycles of tenant 2 in the middle of a phase.
fn cycle_ratio(switch: &BenchSwitch, guests: &mut Generator, pairs: Vec<PairConfig>) -> f64 {
    let (start, end) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| guests.run(&phase(pairs, 500)));
        std::thread::sleep(Duration::from_millis(250));
        let start = switch.pmd();
        std::thread::sleep(Duration::from_millis(400));
        let end = switch.pmd();
        traffic.join().unwrap().unwrap();
        (start, end)
    });
    let spent = |tenant: usize| {
        let index = switch.tenants[tenant];
        (end.tenant(index).cycles - start.tenant(index).cycles) as f64
    };
    spent(0) / spent(2)
}

#[test]
fn each_copy_of_a_mirror_carries_the_header_it_had_when_it_was_output() {
    let _alone = alone();
    let rules: Rules = Box::new(|_| {
        let mut ops = vec![];
        // More edits between outputs than there are header snapshots.
        for round in 0..40 {
            ops.push(Op::Edit(Edit::set(HeaderField::EthDst, 0x0209_0909_0900 | round)));
            ops.push(Op::Output(PortIndex(1)));
            ops.push(Op::Output(PortIndex(2)));
        }
        ops.push(Op::Edit(Edit::PushVlan { tpid: 0x8100 }));
        ops.push(Op::Edit(Edit::set(HeaderField::VlanVid, 77)));
        ops.push(Op::Output(PortIndex(1)));
        (ops, DropReason::RuleDrop)
    });
    let switch = BenchSwitch::start(&config(), &[1.0; 3], rules);
    let mut guests = switch.attach(|_| ());
    let frame: Vec<u8> = (0..1000_usize).map(|at| (at * 13) as u8).collect();
    for _ in 0..3 {
        assert!(guests.port_mut("p0").unwrap().send(&frame, 2));
        let (first, second) = (collect(&mut guests, "p1", 41), collect(&mut guests, "p2", 40));
        for (round, copy) in first.iter().take(40).enumerate() {
            assert_eq!(copy[..6], [2, 9, 9, 9, 9, round as u8]);
            assert_eq!(copy[6..], frame[6..]);
            assert_eq!(copy, &second[round]);
        }
        assert_eq!(first[40][12..16], [0x81, 0, 0, 77]);
        assert_eq!(first[40][16..], frame[12..]);
    }
    let counters = switch.quiet_counters(0);
    assert_eq!((counters.rx_packets, counters.clones, counters.forwarded), (3, 240, 243));
    assert_eq!(counters.entered(), counters.accounted());
    drop(guests);
    switch.stop();
}

fn collect(guests: &mut Generator, port: &str, frames: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut got = Vec::new();
    while got.len() < frames && Instant::now() < deadline {
        guests.port_mut(port).unwrap().receive(|frame| got.push(frame.to_vec())).unwrap();
    }
    assert_eq!(got.len(), frames, "frames at {port}");
    got
}

#[test]
fn drops_have_their_reason() {
    let _alone = alone();
    let rules: Rules = Box::new(|miss| match miss.port.0 {
        0 => (vec![], DropReason::RuleDrop),
        1 => (vec![Op::Output(PortIndex(900))], DropReason::RuleDrop),
        2 => (vec![Op::Edit(Edit::PopVlan), Op::Output(PortIndex(0))], DropReason::RuleDrop),
        _ => (vec![Op::Output(PortIndex(4))], DropReason::RuleDrop),
    });
    let switch = BenchSwitch::start(&config(), &[1.0; 5], rules);
    let mut guests = switch.attach(|config| config.drain = config.name != "p4");
    for (port, reason) in [
        ("p0", DropReason::RuleDrop),
        ("p1", DropReason::NoSuchPort),
        ("p2", DropReason::EditFailed),
        ("p3", DropReason::TxRingFull),
    ] {
        let stream = PairConfig::stream("x", port, "p4");
        let index: usize = port[1..].parse().unwrap();
        // Once is enough on a machine with nothing else to do.
        run_until(&mut guests, &phase(vec![stream], 30), |_| {
            switch.quiet_counters(index).dropped() > 0
        });
        let counters = switch.quiet_counters(index);
        let counted = counters.drops.iter().find(|(found, _)| *found == reason);
        assert!(counted.is_some_and(|(_, count)| *count > 0), "{port}: {counters:?}");
        assert_eq!(counters.entered(), counters.accounted(), "{port}: {counters:?}");
    }
    drop(guests);
    switch.stop();
}

#[test]
fn a_meters_drop_ends_the_list_and_leaves_the_copies_made_before() {
    let _alone = alone();
    // No rate: the burst passes, on both PMDs together, and nothing after it.
    const BURST: u32 = 10;
    let bands = vec![MeterBand { rate: 0, burst: BURST }];
    let meter = MeterConfig { unit: MeterUnit::Packets, bands };
    let meter = Arc::new(Meter::new(&meter, 1_000_000_000, 0).unwrap());
    let rules: Rules = Box::new(|_| {
        let (before, after) = (Op::Output(PortIndex(2)), Op::Output(PortIndex(3)));
        (vec![before, Op::Meter(0), after, Op::Punt], DropReason::RuleDrop)
    });
    let config = DatapathConfig { pmd_cores: vec![0, 1], ..config() };
    let meters = vec![Arc::clone(&meter)];
    let switch = BenchSwitch::start_metered(&config, &[1.0; 4], meters, rules);
    assert_ne!(switch.ports[0].pmd, switch.ports[1].pmd);
    let mut guests = switch.attach(|_| ());
    for _ in 0..20 {
        for port in ["p0", "p1"] {
            assert!(guests.port_mut(port).unwrap().send(&[7; 100], 1));
            collect(&mut guests, "p2", 1);
        }
    }
    let counters = [switch.quiet_counters(0), switch.quiet_counters(1)];
    assert_eq!(collect(&mut guests, "p3", BURST as usize).len(), BURST as usize);
    assert_eq!(guests.port_mut("p3").unwrap().receive(|_| ()).unwrap(), 0);
    for counters in &counters {
        assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
        assert_eq!(counters.drops[0].0, DropReason::Meter);
    }
    let sum = |counter: fn(&PortSnapshot) -> u64| counters.iter().map(counter).sum::<u64>();
    let passed = u64::from(BURST);
    assert_eq!(sum(|port| port.consumed), passed, "what the meter stops no controller sees");
    assert_eq!(sum(PortSnapshot::dropped), 40 - passed);
    assert_eq!(sum(|port| port.clones), 40 + passed);
    let stats = meter.stats();
    assert_eq!((stats.packets, stats.bytes), (40, 4000));
    assert_eq!((stats.bands[0].packets, stats.bands[0].bytes), (30, 3000));
    // The decision has carried the packets all the same, and is as fresh as its last one.
    let given = std::mem::take(&mut *switch.given.lock().unwrap());
    assert_eq!(given.iter().map(|megaflow| megaflow.stats.packets()).sum::<u64>(), 40);
    // Each PMD is told of what it has, and not of what others have.
    switch.datapath.tables_changed(2, &given).unwrap();
    let pmds = switch.datapath.pmd_snapshots();
    assert_eq!(pmds.iter().map(|pmd| pmd.forgotten).collect::<Vec<_>>(), [1, 1]);
    assert!(given.iter().all(|megaflow| Arc::strong_count(megaflow) == 1));
    drop(guests);
    switch.stop();
}

#[test]
fn a_change_of_tables_leaves_no_stale_decision_and_refuses_late_ones() {
    let _alone = alone();
    let target = Arc::new(AtomicU64::new(1));
    let seen = Arc::clone(&target);
    let rules: Rules = Box::new(move |_| {
        let port = seen.load(Ordering::SeqCst) as u16;
        (vec![Op::Output(PortIndex(port))], DropReason::RuleDrop)
    });
    let switch = BenchSwitch::start(&config(), &[1.0; 3], rules);
    let mut guests = switch.attach(|_| ());
    let frame = [7_u8; 64];
    let send = |guests: &mut Generator, to: &str| {
        assert!(guests.port_mut("p0").unwrap().send(&frame, 1));
        collect(guests, to, 1);
    };
    send(&mut guests, "p1");
    send(&mut guests, "p1");
    switch.quiet_counters(0);
    assert_eq!(switch.pmd().megaflows, 1);
    // The tables now say port 2; the decision that says 1 is named as stale. The slow path goes on
    // answering from the old tables for a while: none of that may be carried out or cached.
    let stale = std::mem::take(&mut *switch.given.lock().unwrap());
    switch.datapath.tables_changed(2, &stale).unwrap();
    let pmd = switch.pmd();
    assert_eq!((pmd.forgotten, pmd.forgotten_per_turn_max), (1, 1));
    assert_eq!(stale.iter().map(|megaflow| megaflow.stats.packets()).sum::<u64>(), 2);
    assert!(stale.iter().all(|megaflow| Arc::strong_count(megaflow) == 1), "and it is given back");
    assert!(guests.port_mut("p0").unwrap().send(&frame, 1));
    while switch.pmd().misses < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(
        guests.port_mut("p1").unwrap().receive(|_| ()).unwrap(),
        0,
        "an old answer was carried out"
    );
    target.store(2, Ordering::SeqCst);
    switch.generation.store(2, Ordering::SeqCst);
    collect(&mut guests, "p2", 1);
    send(&mut guests, "p2");
    let counters = switch.quiet_counters(0);
    assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
    drop(guests);
    let log = switch.stop();
    let mut causes = log.evicted.iter().map(|evicted| evicted.cause);
    assert!(causes.len() > 0 && causes.all(|cause| cause == EvictionCause::Refused));
}

#[test]
fn a_task_is_cut_at_its_budget_and_nothing_is_lost_or_reordered_by_it() {
    let _alone = alone();
    let switch = BenchSwitch::start(&config(), &[1.0; 2], pairs(vec![3000, 0]));
    let mut guests = switch.attach(|_| ());
    let flat_out = phase(vec![PairConfig::stream("a", "p0", "p1")], 300);
    let report =
        run_until(&mut guests, &flat_out, |report| report.pair("a").unwrap().received > 1000);
    let pair = report.pair("a").unwrap();
    assert_eq!((pair.reordered, pair.duplicated), (0, 0), "{report}");
    let counters = switch.quiet_counters(0);
    assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
    let sent = guests.port_mut("p0").unwrap().tx_counters().frames;
    assert_eq!(
        sent, counters.rx_packets,
        "frames that were fetched and not served must come again"
    );
    let pmd = switch.pmd();
    let per_task = pmd.packets as f64 / pmd.tasks as f64;
    assert!(per_task < 4.0, "5000 cycles of budget took {per_task:.1} packets of 3000");
    drop(guests);
    switch.stop();
}

#[test]
fn frames_cross_from_one_pmd_to_another_whole_and_in_order() {
    let _alone = alone();
    let config = DatapathConfig { pmd_cores: vec![0, 1], ..config() };
    let switch = BenchSwitch::start(&config, &[1.0; 2], pairs(vec![]));
    assert_ne!(switch.ports[0].pmd, switch.ports[1].pmd);
    let mut guests = switch.attach(|_| ());
    let mut there = PairConfig::stream("there", "p0", "p1");
    there.rate_pps = 20_000.0;
    there.frame_bytes = 700;
    let back =
        PairConfig { from: "p1".into(), to: "p0".into(), name: "back".into(), ..there.clone() };
    let both_ways = phase(vec![there, back], 400);
    let report = run_until(&mut guests, &both_ways, |report| {
        report.pairs.iter().all(|pair| pair.received > 20)
    });
    assert!(report.pairs.iter().all(|pair| pair.reordered == 0), "{report}");
    for port in 0..2 {
        let counters = switch.quiet_counters(port);
        assert_eq!(counters.entered(), counters.accounted(), "port {port}: {counters:?}");
    }
    drop(guests);
    switch.stop();
}

#[test]
fn sleeping_guests_are_interrupted_and_pay_for_it() {
    let _alone = alone();
    let switch = BenchSwitch::start(&config(), &[1.0; 2], pairs(vec![]));
    let mut guests = switch.attach(|config| config.interrupts = true);
    let requests = phase(vec![PairConfig::rpc("a", "p0", "p1", 500.0)], 300);
    let report =
        run_until(&mut guests, &requests, |report| report.pair("a").unwrap().received > 10);
    assert!(report.port("p1").unwrap().interrupts > 0, "{report}");
    switch.quiet_counters(0);
    assert!(switch.pmd().notifications > 0);
    drop(guests);
    switch.stop();
}
