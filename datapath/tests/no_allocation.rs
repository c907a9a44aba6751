//! A PMD in steady state neither allocates nor frees: a counting allocator watches its thread.
#![allow(missing_docs, missing_debug_implementations)]

mod bench_switch;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use bench_switch::{BenchSwitch, config};
use tollgate_datapath::Op;
use tollgate_frame::DropReason;
use tollgate_guest::generator::Phase;
use tollgate_guest::pair::PairConfig;
use tollgate_packet::HeaderField;
use tollgate_packet::PortIndex;
use tollgate_packet::edit::Edit;

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

#[test]
fn a_pmd_allocates_and_frees_nothing_from_its_first_packet_on() {
    // Odd ports answer through actions that edit between outputs; port 3's packets are dropped.
    let switch = BenchSwitch::start(
        &config(),
        &[1.0; 4],
        Box::new(|miss| {
            let ops = match miss.port.0 {
                0 => vec![
                    Op::Output(PortIndex(1)),
                    Op::Edit(Edit::set(HeaderField::L4Dst, 9)),
                    Op::Output(PortIndex(2)),
                ],
                3 => vec![],
                port => vec![Op::Output(PortIndex(port ^ 1))],
            };
            (ops, DropReason::RuleDrop)
        }),
    );
    let mut guests = switch.attach(|_| ());
    WATCHED_THREAD.store(thread_named("pmd-0"), Ordering::Relaxed);
    // Everything from the start of polling: misses, answers, installs, hits, drops, multiple
    // outputs, many flows, and an order that reaches the PMD while it works.
    let mut many = PairConfig::stream("many", "p0", "p1");
    many.flows = 500;
    let mut big = PairConfig::stream("big", "p2", "p3");
    (big.frame_bytes, big.segments) = (1800, 4);
    let lost = PairConfig::stream("lost", "p3", "p2");
    guests.run(&Phase::new("steady", Duration::from_millis(400), vec![many, big, lost])).unwrap();
    switch.datapath.tables_changed(2, &[]).unwrap();
    switch.datapath.set_protection(false).unwrap();
    for port in 0..4 {
        assert!(switch.quiet_counters(port).rx_packets > 0 || port == 1);
    }
    let counted = COUNT.load(Ordering::Relaxed);
    WATCHED_THREAD.store(0, Ordering::Relaxed);
    assert_eq!(counted, 0, "allocations and frees on the PMD's thread");
    drop(guests);
    switch.stop();
}
