//! Nothing that a PMD calls allocates once the tables stand.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tollgate_policy::{
    Account, Backoff, Books, Recording, RxOverrun, Scheduler, SchedulerConfig, SetupBucket, Stage,
    TenantIndex, TenantKnobs, Weight, coordinator,
};

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

const TENANTS: u16 = 1000;

/// Every tenant comes, is charged in turns and outside of them, changes and goes.
fn live(
    scheduler: &mut Scheduler,
    books: &mut Books,
    backoff: &mut Backoff,
    knobs: &TenantKnobs,
    recording: Box<Recording>,
) -> Option<Box<Recording>> {
    let tenants = || (1..=TENANTS).map(TenantIndex);
    let mut now = 0;
    for tenant in tenants() {
        assert!(scheduler.tenant_add(tenant, Weight::ONE).is_ok());
        scheduler.wake(tenant, now);
        backoff.emptied(tenant.0, now);
    }
    assert!(scheduler.start_recording(recording).is_ok());
    for step in 0..20_000u64 {
        now += 5000;
        backoff.scan(now, |queue, ()| (u64::from(queue) + step).is_multiple_of(97));
        let Some(turn) = scheduler.next(now) else { break };
        scheduler.charge(turn.tenant, 3000 + step % 4000, now);
        let receiver = TenantIndex((step % u64::from(TENANTS)) as u16 + 1);
        scheduler.charge(receiver, 900, now);
        let _ = scheduler.verdict(receiver, Stage::PostAttribution, true);
        scheduler.refill_grant(receiver, 2000);
        books.charge(Account::Tenant(turn.tenant), 3000);
        scheduler.done(turn.tenant, !step.is_multiple_of(5), now);
        scheduler.wake(receiver, now);
        backoff.emptied(receiver.0, now);
        let _ = scheduler.counters(receiver);
    }
    let recording = scheduler.stop_recording();
    scheduler.set_protection(false);
    scheduler.set_protection(true);
    for tenant in tenants() {
        assert!(scheduler.set_knobs(tenant, knobs).is_ok());
        assert!(scheduler.tenant_remove(tenant).is_ok());
        backoff.remove(tenant.0);
    }
    recording
}

#[test]
fn a_schedulers_life_takes_no_memory() {
    for config in [SchedulerConfig::default(), SchedulerConfig::coordinated(2_500_000_000)] {
        let mut scheduler = Scheduler::new(config, TENANTS + 1).unwrap();
        let mut books = Books::new(TENANTS + 1);
        let mut backoff = Backoff::new(TENANTS + 1, 250_000);
        let rx_overrun = RxOverrun::MarkThenDrop;
        let knobs = TenantKnobs { rx_overrun, ..TenantKnobs::new(&config) };
        let mut bucket = SetupBucket::new(1000, 2_500_000_000);
        let weights = [Weight::ONE; 100];
        let recording = Box::new(Recording::new(TENANTS + 1, 10_000).unwrap());
        let before = ALLOCATIONS.get();
        let recording = live(&mut scheduler, &mut books, &mut backoff, &knobs, recording);
        let taken = (0..1000).filter(|now| bucket.take(now * 5000)).count();
        let granted: i64 = coordinator::grants(0, 250_000, &weights, 850).sum();
        assert_eq!(ALLOCATIONS.get(), before);
        assert_eq!(recording.unwrap().events().len(), 10_000);
        assert!(taken > 100 && granted > 200_000);
    }
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get(), before + 2, "the counter counts");
}
