//! What large tables take of memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_accel::hash::HashSecret;
use tollgate_classifier::{ExactTable, ExtraMatch, Rule, RuleMatch, RuleTable};
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

struct MeasuringAllocator;

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What a block takes in the heap of a common C library: a header, and rounded up.
fn footprint(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

// SAFETY: every call is handed to the system's allocator unchanged; counting touches an atomic
// integer only.
unsafe impl GlobalAlloc for MeasuringAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(footprint(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(footprint(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc::dealloc`'s contract, and `alloc` above got the
        // block from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: MeasuringAllocator = MeasuringAllocator;

#[allow(clippy::print_stdout, reason = "the measured numbers")]
fn bytes_per_entry<T>(what: &str, entries: usize, make: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATED_BYTES.load(Ordering::Relaxed);
    let made = make();
    let bytes = (ALLOCATED_BYTES.load(Ordering::Relaxed) - before) / entries;
    println!("{what}: {bytes} bytes for each of {entries}");
    (bytes, made)
}

struct Acl {
    priority: u16,
    matcher: RuleMatch,
}

impl Rule for Acl {
    fn priority(&self) -> u16 {
        self.priority
    }

    fn matcher(&self) -> &RuleMatch {
        &self.matcher
    }
}

/// As many as make hash tables emptiest, relative to their size: just more than half of theirs.
/// A million is such a number, but for a factor of eight.
const RULES: u32 = 125_000;

fn table(mask: FlowMask) -> RuleTable<Arc<Acl>> {
    let mut table = RuleTable::new();
    for n in 0..RULES {
        let mut key = FlowKey { eth_type: 0x800, ip_proto: 6, ..FlowKey::default() };
        let spread = n.wrapping_mul(0x9e37_79b1).to_be_bytes();
        key.ip_src = [spread; 4].concat().try_into().unwrap();
        key.ip_dst = [spread; 4].concat().try_into().unwrap();
        (key.l4_src, key.l4_dst) = (n as u16, (n >> 4) as u16);
        let matcher = table.matcher(&FlowMatch::new(&key, mask), &ExtraMatch::ANY);
        table.insert(Arc::new(Acl { priority: 1, matcher }));
    }
    table
}

// One test: others would be measured along.
#[test]
fn large_tables_take_no_more_memory_than_planned() {
    let mut mask = FlowKey { eth_type: u16::MAX, ip_proto: u8::MAX, ..FlowKey::default() };
    mask.ip_dst[..4].fill(0xff);
    mask.l4_dst = u16::MAX;
    let rules = RULES as usize;
    let (bytes, _) = bytes_per_entry("IPv4 rules", rules, || table(FlowMask(mask)));
    assert!(bytes < 230, "{bytes} bytes for each rule");
    (mask.ip_src, mask.ip_dst, mask.l4_src) = ([0xff; 16], [0xff; 16], u16::MAX);
    let (bytes, mut table) = bytes_per_entry("IPv6 rules", rules, || table(FlowMask(mask)));
    assert!(bytes < 380, "{bytes} bytes for each rule");
    // What is taken out takes its memory with it, except for its place, which waits for others.
    let before = ALLOCATED_BYTES.load(Ordering::Relaxed);
    let all: Vec<_> = table.iter().cloned().collect();
    for rule in all {
        assert!(table.remove(rule.priority, &rule.matcher).is_some());
    }
    let freed = (before - ALLOCATED_BYTES.load(Ordering::Relaxed)) / rules;
    assert!(bytes - freed < 40, "{freed} of {bytes} bytes freed");

    let entries = 1 << 20;
    let make = || ExactTable::new(entries, 256, HashSecret::from_words(1, 2));
    let (bytes, _) = bytes_per_entry("exact-match entries", entries, make);
    assert!(bytes <= 146, "{bytes} bytes for each entry");
}
