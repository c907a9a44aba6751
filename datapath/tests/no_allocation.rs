//! A PMD in steady state neither allocates nor frees: a counting allocator watches its thread.
#![allow(missing_docs, missing_debug_implementations)]

mod bench_switch;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use bench_switch::{BenchSwitch, Rules, config};
use tollgate_datapath::{Meter, MeterBand, MeterConfig, MeterUnit, Op, TenantSettings};
use tollgate_frame::DropReason;
use tollgate_guest::generator::Phase;
use tollgate_guest::pair::PairConfig;
use tollgate_packet::HeaderField;
use tollgate_packet::PortIndex;
use tollgate_packet::edit::Edit;
use tollgate_policy::Ended;

/// Counts what one thread allocates and frees.
struct Watching;

static WATCHED_THREAD: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);

fn note() {
    let watched = WATCHED_THREAD.load(Ordering::Relaxed);
    if watched != 0 && rustix::thread::gettid().as_raw_nonzero().get() == watched {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note();
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn thread_named(name: &str) -> i32 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let is_it = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let mut found = threads.filter_map(Result::ok).filter(|entry| is_it(&entry.path()));
    found.next().unwrap().file_name().to_str().unwrap().parse().unwrap()
}

fn rules() -> Rules {
    // Odd ports answer through actions that edit between outputs; port 3's packets go to the
    // controller as far as a meter lets them, and are dropped.
    Box::new(|miss| {
        let edit = Op::Edit(Edit::set(HeaderField::L4Dst, 9));
        let ops = match miss.port.0 {
            0 => vec![Op::Output(PortIndex(1)), edit, Op::Output(PortIndex(2))],
            3 => vec![Op::Meter(0), edit, Op::Punt],
            port => vec![Op::Output(PortIndex(port ^ 1))],
        };
        (ops, DropReason::RuleDrop)
    })
}

#[test]
fn a_pmd_allocates_and_frees_nothing_from_its_first_packet_on() {
    let bands = vec![MeterBand { rate: 100_000, burst: 0 }, MeterBand { rate: 50_000, burst: 10 }];
    let meter = MeterConfig { unit: MeterUnit::Packets, bands };
    let meter = Arc::new(Meter::new(&meter, 1_000_000_000, 0).unwrap());
    let switch = BenchSwitch::start_metered(&config(), &[1.0; 4], vec![meter], rules());
    let mut guests = switch.attach(|_| ());
    let settings = TenantSettings { punt_pps: 20_000, ..TenantSettings::default() };
    WATCHED_THREAD.store(thread_named("pmd-0"), Ordering::Relaxed);
    // One recording that fills up, and below one that a change of settings ends.
    switch.datapath.recording_start(0, 500).unwrap();
    // Everything from the start of polling: misses, answers, installs, hits, drops, multiple
    // outputs, copies for controllers, meters, many flows, and orders that reach the PMD while it
    // works. In the first round the stages of some tasks are timed.
    let mut many = PairConfig::stream("many", "p0", "p1");
    many.flows = 500;
    let mut big = PairConfig::stream("big", "p2", "p3");
    (big.frame_bytes, big.segments) = (1800, 4);
    let lost = PairConfig::stream("lost", "p3", "p2");
    let phase = Phase::new("steady", Duration::from_millis(400), vec![many, big, lost]);
    let mut recordings = Vec::new();
    for round in 0..2 {
        let sampling = (round == 0).then(|| switch.datapath.sample_stages(None).unwrap());
        guests.run(&phase).unwrap();
        drop(sampling);
        // The second time round the decisions are made anew.
        let stale = std::mem::take(&mut *switch.given.lock().unwrap());
        switch.datapath.tables_changed(2, &stale).unwrap();
        switch.generation.store(2, Ordering::SeqCst);
        recordings.push(switch.datapath.recording_read(0).unwrap());
        switch.datapath.recording_start(0, 100_000).unwrap();
        switch.datapath.tenant_set(switch.tenants[3], settings).unwrap();
    }
    for ingress in [Some(PortIndex(0)), None] {
        let ops = vec![Op::Meter(0), Op::Output(PortIndex(1)), Op::Punt];
        (0..20).for_each(|_| switch.packet_out(ingress, &[9; 200], ops.clone()).unwrap());
    }
    switch.datapath.set_protection(false).unwrap();
    for port in 0..4 {
        assert!(switch.quiet_counters(port).rx_packets > 0 || port == 1);
    }
    let counted = COUNT.load(Ordering::Relaxed);
    WATCHED_THREAD.store(0, Ordering::Relaxed);
    // All of that has happened.
    let (controlled, put_in) = (switch.quiet_counters(3), switch.quiet_counters(0));
    assert!(
        controlled.consumed > 0 && put_in.injected == 20 && put_in.consumed > 0,
        "{controlled:?} {put_in:?}"
    );
    assert!(switch.pmd().stages.tasks > 0);
    assert!(switch.pmd().forgotten > 0 && switch.datapath.portless_counters().injected > 0);
    let ended: Vec<_> = recordings.iter().map(|recording| recording.ended()).collect();
    assert_eq!(
        (ended, recordings[0].events().len()),
        (vec![Some(Ended::Full), Some(Ended::Settings)], 500)
    );
    assert_eq!(counted, 0, "allocations and frees on the PMD's thread");
    drop(guests);
    switch.stop();
}
