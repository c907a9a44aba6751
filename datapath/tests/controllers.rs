//! What controllers are sent and what they send: copies through the slow path, frames put in.
#![allow(missing_docs, missing_debug_implementations)]

mod bench_switch;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bench_switch::{BenchSwitch, Rules, config};
use tollgate_datapath::{DatapathConfig, InjectError, MissKind, Op, PortSnapshot, TenantSettings};
use tollgate_frame::DropReason;
use tollgate_guest::generator::{Generator, Phase};
use tollgate_guest::pair::PairConfig;
use tollgate_packet::edit::Edit;
use tollgate_packet::{HeaderField, PortIndex};

/// PMD and generator have the machine's cores to themselves: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rules(ops: &[Op]) -> Rules {
    let ops = ops.to_vec();
    Box::new(move |_| (ops.clone(), DropReason::RuleDrop))
}

fn frame(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 13) as u8).collect()
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

fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "it never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn drops(counters: &PortSnapshot, reason: DropReason) -> u64 {
    counters.drops.iter().filter(|(found, _)| *found == reason).map(|(_, count)| count).sum()
}

fn set_punt_pps(switch: &BenchSwitch, punt_pps: u32) {
    let settings = TenantSettings { punt_pps, ..TenantSettings::default() };
    switch.datapath.tenant_set(switch.tenants[0], settings).unwrap();
}

#[test]
fn a_controllers_copy_is_the_frame_as_it_was_received_whatever_becomes_of_it() {
    let _alone = alone();
    let ops = [
        Op::Edit(Edit::set(HeaderField::EthDst, 0x0209_0909_0909)),
        Op::Output(PortIndex(1)),
        Op::Punt,
        Op::Edit(Edit::PushVlan { tpid: 0x8100 }),
        Op::Output(PortIndex(2)),
        Op::Punt,
    ];
    let switch = BenchSwitch::start(&config(), &[1.0; 3], rules(&ops));
    let mut guests = switch.attach(|_| ());
    let frame = frame(1000);
    for round in 0..5 {
        assert!(guests.port_mut("p0").unwrap().send(&frame, 2));
        let first = collect(&mut guests, "p1", 1).remove(0);
        let second = collect(&mut guests, "p2", 1).remove(0);
        assert_eq!(first, [&[2, 9, 9, 9, 9, 9], &frame[6..]].concat());
        assert_eq!(second, [&first[..12], &[0x81, 0, 0, 0], &first[12..]].concat());
        wait_until(|| switch.told.lock().unwrap().len() > round);
    }
    // The first was answered, and its copy sent by whoever answered it; the others were cached.
    let told = std::mem::take(&mut *switch.told.lock().unwrap());
    let kinds: Vec<_> = told.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds[0], MissKind::Miss);
    assert!(kinds.len() == 5 && kinds[1..].iter().all(|kind| *kind == MissKind::Punt));
    assert!(told.iter().all(|(_, port, copy)| *port == PortIndex(0) && *copy == frame));
    let counters = switch.quiet_counters(0);
    let PortSnapshot { rx_packets, clones, forwarded, consumed, queued, .. } = counters;
    assert_eq!((rx_packets, clones, forwarded, consumed, queued), (5, 10, 10, 5, 0));
    assert_eq!(counters.entered(), counters.accounted());
    // A cached decision's packets count for it, also those that end with the controller.
    let given = switch.given.lock().unwrap();
    assert_eq!(given.iter().map(|megaflow| megaflow.stats.packets()).sum::<u64>(), 5);
    drop((given, guests));
    switch.stop();
}

#[test]
fn a_tenant_sends_controllers_no_more_than_its_limit_and_every_copy_is_accounted_for() {
    let _alone = alone();
    let switch = BenchSwitch::start(&config(), &[1.0; 2], rules(&[Op::Punt]));
    let mut guests = switch.attach(|_| ());
    let flood =
        Phase::new("flood", Duration::from_millis(100), vec![PairConfig::stream("x", "p0", "p1")]);
    // Nothing at all: neither of misses nor of hits.
    set_punt_pps(&switch, 0);
    guests.run(&flood).unwrap();
    let counters = switch.quiet_counters(0);
    assert_eq!((counters.consumed, switch.told.lock().unwrap().len()), (0, 0));
    assert!(counters.rx_packets > 100, "{counters:?}");
    assert_eq!(drops(&counters, DropReason::ControllerLimit), counters.rx_packets);
    assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
    // A limit that is set is in force at once: its burst, and what the time since brings.
    const LIMIT: u32 = 40;
    let began = Instant::now();
    set_punt_pps(&switch, LIMIT);
    guests.run(&flood).unwrap();
    let counters = switch.quiet_counters(0);
    let most = f64::from(LIMIT / 4) + began.elapsed().as_secs_f64() * f64::from(LIMIT) + 1.0;
    assert!(counters.consumed >= u64::from(LIMIT / 4), "{counters:?}");
    assert!(counters.consumed as f64 <= most, "{counters:?}, at most {most}");
    assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
    wait_until(|| switch.told.lock().unwrap().len() as u64 == counters.consumed);
    // Who causes the copies pays for them.
    let (pmd, tenant) = (switch.pmd(), switch.tenants[0]);
    assert!(pmd.tenant(tenant).cycles > pmd.tenant(switch.tenants[1]).cycles);
    drop(guests);
    switch.stop();
}

#[test]
fn what_a_controller_puts_in_goes_the_way_of_a_frame_of_its_ingress_port() {
    let _alone = alone();
    let config = DatapathConfig { pmd_cores: vec![0, 1], ..config() };
    let switch = BenchSwitch::start(&config, &[1.0; 3], rules(&[]));
    assert_ne!(switch.ports[0].pmd, switch.ports[1].pmd);
    let mut guests = switch.attach(|_| ());
    let frame = frame(700);
    let ops = vec![
        Op::Output(PortIndex(1)),
        Op::Edit(Edit::PushVlan { tpid: 0x8100 }),
        Op::Output(PortIndex(2)),
        Op::Punt,
    ];
    for ingress in [Some(PortIndex(0)), Some(PortIndex(1)), None] {
        switch.packet_out(ingress, &frame, ops.clone()).unwrap();
        assert_eq!(collect(&mut guests, "p1", 1).remove(0), frame);
        let tagged = [&frame[..12], &[0x81, 0, 0, 0], &frame[12..]].concat();
        assert_eq!(collect(&mut guests, "p2", 1), [tagged]);
    }
    wait_until(|| switch.datapath.portless_counters().forwarded == 2);
    let ports = [switch.quiet_counters(0), switch.quiet_counters(1)];
    for counters in [&ports[0], &ports[1], &switch.datapath.portless_counters()] {
        let PortSnapshot { injected, clones, forwarded, consumed, rx_packets, .. } = *counters;
        assert_eq!((injected, clones, forwarded, consumed, rx_packets), (1, 2, 2, 1, 0));
        assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
    }
    assert_eq!(switch.packet_out(Some(PortIndex(9)), &frame, vec![]), Err(InjectError::NoSuchPort));
    assert_eq!(switch.packet_out(None, &frame[..13], vec![]), Err(InjectError::Length(13)));
    assert_eq!(switch.packet_out(None, &[0; 9217], vec![]), Err(InjectError::Length(9217)));
    drop(guests);
    switch.stop();
}

#[test]
fn a_controller_that_floods_a_port_is_told_so_and_costs_that_ports_tenant() {
    let _alone = alone();
    const BURN: u32 = 2_000_000;
    let switch = BenchSwitch::start(&config(), &[1.0; 2], rules(&[Op::Output(PortIndex(0))]));
    let mut refused = 0;
    for _ in 0..600 {
        let ops = vec![Op::Burn(BURN), Op::Output(PortIndex(1))];
        match switch.packet_out(Some(PortIndex(0)), &[0; 64], ops) {
            Ok(()) => {}
            Err(InjectError::Full) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0, "no bound was met");
    wait_until(|| switch.ports[0].counters().injected == 600 - refused);
    let counters = switch.quiet_counters(0);
    // The guest has no ring; every frame is accounted for all the same.
    assert_eq!(drops(&counters, DropReason::TxNoQueue), counters.injected);
    assert_eq!(counters.entered(), counters.accounted(), "{counters:?}");
    let charged = switch.pmd().tenant(switch.tenants[0]).cycles;
    let burned = counters.injected * u64::from(BURN);
    // Where the kernel has run something else meanwhile, that part is `stolen`.
    assert!(charged + switch.pmd().stolen_cycles >= burned, "{charged} of {burned}");
    assert!(switch.pmd().system_cycles() < burned / 4);
    switch.stop();
}

#[test]
fn what_is_put_in_at_no_port_takes_a_tenth_of_the_core_at_most() {
    let _alone = alone();
    const BURN: u32 = 2_000_000;
    let switch = BenchSwitch::start(&config(), &[1.0; 2], rules(&[]));
    let before = switch.pmd();
    for _ in 0..100 {
        let ops = vec![Op::Burn(BURN), Op::Output(PortIndex(1))];
        switch.packet_out(None, &[0; 64], ops).unwrap();
    }
    wait_until(|| switch.datapath.portless_counters().injected >= 50);
    let after = switch.pmd();
    let elapsed = after.elapsed_cycles - before.elapsed_cycles;
    let system = after.system_cycles() - before.system_cycles();
    assert!(elapsed > 9 * system, "{system} of {elapsed}");
    // The kernel takes its part of burns too.
    let stolen = after.stolen_cycles - before.stolen_cycles;
    assert!(system + stolen >= 49 * u64::from(BURN), "{system}, {stolen} stolen");
    switch.stop();
}
