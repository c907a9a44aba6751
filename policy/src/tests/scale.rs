//! What a turn costs does not depend on who has no work, and hardly on who has.

use super::index;
use crate::{Scheduler, SchedulerConfig, Weight};

/// A scheduler in which `busy` tenants have work and `idle` ones had some a moment ago.
fn crowd(busy: u16, idle: u16) -> Scheduler {
    let mut s = Scheduler::new(SchedulerConfig::default(), busy + idle + 1).unwrap();
    for t in 1..=busy + idle {
        s.tenant_add(index(t), Weight::ONE).unwrap();
    }
    for t in (1..=busy + idle).rev() {
        s.wake(index(t), 0);
    }
    for _ in 0..busy + idle {
        let turn = s.next(0).unwrap();
        s.charge(turn.tenant, 300, 0);
        s.done(turn.tenant, turn.tenant.0 <= busy, 0);
    }
    s
}

/// Heap steps in this many turns, each the worst seen and the sum.
fn steps(s: &mut Scheduler, turns: u32) -> (u64, u64) {
    let begun = s.heap_exchanges();
    let mut worst = 0;
    for turn in 0..turns {
        let before = s.heap_exchanges();
        let tenant = s.next(0).unwrap().tenant;
        s.charge(tenant, 4000 + u64::from(turn % 7) * 300, 0);
        s.done(tenant, true, 0);
        worst = worst.max(s.heap_exchanges() - before);
    }
    (worst, s.heap_exchanges() - begun)
}

#[test]
fn idle_tenants_add_no_steps_to_a_turn() {
    let alone = steps(&mut crowd(3, 0), 10_000);
    let among_idle = steps(&mut crowd(3, 1000), 10_000);
    // Three tenants: the two heaps are at most two levels deep.
    assert!(alone.0 <= 6 && among_idle.0 <= 6, "{alone:?} {among_idle:?}");
}

#[test]
fn a_thousand_indebted_neighbours_cost_a_few_heap_levels() {
    let mut s = crowd(1000, 0);
    for t in 1..=1000 {
        s.charge(index(t), 40_000 + u64::from(t) * 17 % 1000, 0);
    }
    // A turn leaves the debt heap, moves in the heap of caps, and enters the debt heap again:
    // at most three passes of ten levels.
    let (worst, _) = steps(&mut s, 20_000);
    assert!(worst <= 40, "{worst}");
}
