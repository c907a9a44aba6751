//! Nothing that a PMD calls allocates once the tables stand.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tollgate_accel::hash::HashSecret;
use tollgate_classifier::{ExactTable, MegaflowCache};
use tollgate_packet::edit::apply;
use tollgate_packet::parse::parse;
use tollgate_packet::{Edit, FlowKey, FlowMask, FlowMatch, HeaderBuf, HeaderField, PortIndex};

struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system's allocator unchanged; the counter is a thread-local
// integer without a destructor, so counting neither allocates nor runs after its end.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `GlobalAlloc::dealloc`'s contract, and `alloc` above got the
        // block from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A UDP frame of one of many flows.
fn frame(flow: u16) -> [u8; 60] {
    let mut frame = [2; 60];
    frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 46]);
    frame[18..26].copy_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    frame[36..38].copy_from_slice(&flow.to_be_bytes());
    frame
}

/// A mask with `flow % 70` bits of the destination address.
fn mask(flow: u16) -> FlowMask {
    let bits = u128::MAX << (128 - 1 - u32::from(flow % 70));
    FlowMask(FlowKey {
        in_port: u32::MAX,
        l4_dst: u16::MAX,
        ip_dst: bits.to_be_bytes(),
        ..FlowKey::default()
    })
}

#[test]
fn the_life_of_flows_takes_no_memory() {
    const QUOTA: u32 = 100;
    let mut megaflows = MegaflowCache::new(200, 100, HashSecret::random());
    let mut exact = ExactTable::new(256, 4, HashSecret::random());
    exact.set_quota(1, QUOTA);
    let mut header = HeaderBuf::new();
    let (mut hits, mut refused) = (0, 0);

    let before = ALLOCATIONS.get();
    for round in 0..2000u16 {
        let bytes = frame(round);
        header.reset(bytes.len()).copy_from_slice(&bytes);
        let mut parsed = parse(header.bytes(), 60, PortIndex(round % 3));
        let hash = exact.hash(&parsed.key);
        exact.prefetch(hash);
        if exact.lookup(hash, &parsed.key).is_none() && megaflows.lookup(&parsed.key).is_none() {
            match megaflows.insert(FlowMatch::new(&parsed.key, mask(round)), round) {
                Ok(slot) => {
                    let is_stale = |slot| megaflows.get(slot).is_none();
                    exact.insert_over_stale(hash, &parsed.key, slot, 1, is_stale);
                }
                Err(_) => refused += 1,
            }
        }
        for edit in
            [Edit::PushVlan { tpid: 0x8100 }, Edit::set(HeaderField::L4Dst, 5), Edit::DecTtl]
        {
            apply(&edit, &mut header, &mut parsed.layout, &parsed.key).unwrap();
        }
        hits += usize::from(megaflows.lookup(&parsed.key).is_some());
        megaflows.rank();
        let (mut swept, _) = megaflows.iter_from(u32::from(round) % 200, 1);
        if let Some((slot, _)) = swept.next()
            && round % 2 == 0
        {
            drop(swept);
            megaflows.remove(slot);
        }
        exact.sweep(u32::from(round) % 256, 8, |slot| megaflows.get(slot).is_none());
        exact.set_quota(1, QUOTA - u32::from(round % 7));
        exact.trim(1, 1);
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(hits > 1000 && refused > 0, "{hits} hits, {refused} refused");
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 2);
}
