//! When quiet queues are looked at: soon enough, and not all in one turn.

use crate::Backoff;
use crate::limits::{BACKOFF_CYCLES_MIN, BACKOFF_LEVELS, BACKOFF_SILENCE_PARTS};
use proptest::prelude::*;

const LATE_CYCLES: u64 = 250_000;

/// Scans once; who was looked at.
fn looked(backoff: &mut Backoff, now: u64, has_work: impl Fn(u16) -> bool) -> Vec<u16> {
    let mut looked = Vec::new();
    backoff.scan(now, |queue, ()| {
        looked.push(queue);
        has_work(queue)
    });
    looked
}

/// Queues 0.. that have been quiet for long enough to be on the last level, at this time.
fn quiet(queues: u16, turn_cycles: u64) -> (Backoff, u64) {
    let mut backoff = Backoff::new(queues, LATE_CYCLES);
    (0..queues).for_each(|queue| backoff.emptied(queue, 0));
    let mut now = 0;
    while now < 2 * BACKOFF_SILENCE_PARTS * LATE_CYCLES {
        now += turn_cycles;
        backoff.scan(now, |_, ()| false);
    }
    (backoff, now)
}

#[test]
fn a_queue_that_was_busy_lately_is_looked_at_every_turn() {
    let mut backoff = Backoff::new(3, LATE_CYCLES);
    assert_eq!(looked(&mut backoff, 5, |_| false), [0u16; 0], "nobody polls it yet");
    backoff.emptied(0, 10);
    backoff.emptied(2, 10);
    // The lowest level's time is 1/32 of the bound.
    let hot_until = 10 + BACKOFF_SILENCE_PARTS * (LATE_CYCLES / 32);
    let mut now = 10;
    while now + 5000 < hot_until {
        now += 5000;
        assert_eq!(looked(&mut backoff, now, |_| false), [0, 2], "{now}");
    }
    assert_eq!(looked(&mut backoff, hot_until, |_| false), [0, 2]);
    assert_eq!(looked(&mut backoff, hot_until + 500, |_| false), [0u16; 0]);
}

/// A look cannot tell whether such a queue has work, so each ends in a question; it is asked the less often
/// all the same the longer the answer was no.
#[test]
fn a_queue_that_must_be_asked_is_asked_the_less_often_the_longer_it_has_nothing() {
    let mut backoff = Backoff::new(1, LATE_CYCLES);
    backoff.emptied(0, 0);
    let turn_cycles = 2000;
    let (mut now, mut asked, mut asked_late, mut waited) = (0, 0, 0, 0);
    let quiet_cycles = BACKOFF_SILENCE_PARTS * LATE_CYCLES;
    while now < 2 * quiet_cycles {
        now += turn_cycles;
        waited += turn_cycles;
        if !looked(&mut backoff, now, |_| true).is_empty() {
            assert!(waited <= LATE_CYCLES, "{waited} at {now}");
            waited = 0;
            backoff.found_empty(0, now);
            backoff.found_empty(0, now);
            asked += 1;
            asked_late += u64::from(now >= quiet_cycles);
        }
    }
    assert!(asked_late <= quiet_cycles / LATE_CYCLES * 2, "{asked_late}");
    assert!(asked > 2 * asked_late, "{asked} in all, {asked_late} when it was quiet");
    backoff.remove(0);
    backoff.emptied(0, now);
    assert_eq!(looked(&mut backoff, now + 1, |_| false), [0], "hot again");
}

#[test]
fn work_takes_a_queue_out_until_it_is_emptied_and_then_it_is_hot_again() {
    let (mut backoff, mut now) = quiet(2, 2000);
    let found = (0..10 * LATE_CYCLES / 2000).find(|_| {
        now += 2000;
        looked(&mut backoff, now, |queue| queue == 0).contains(&0)
    });
    assert!(found.is_some());
    for _ in 0..1000 {
        now += 2000;
        assert!(!looked(&mut backoff, now, |_| false).contains(&0));
    }
    backoff.emptied(0, now);
    for _ in 0..100 {
        now += 2000;
        assert!(looked(&mut backoff, now, |_| false).contains(&0));
    }
    backoff.remove(0);
    backoff.remove(1);
    assert_eq!(looked(&mut backoff, now + 10 * LATE_CYCLES, |_| false), [0u16; 0]);
}

/// The cost of idle ports: of a hundred, a turn looks at its part of the time, and never at many.
#[test]
fn a_hundred_quiet_queues_do_not_cost_a_turn_a_hundred_looks() {
    for turn_cycles in [1000, 5000, 20_000] {
        let (mut backoff, mut now) = quiet(100, turn_cycles);
        let turns = 40 * LATE_CYCLES / turn_cycles;
        let (mut looks, mut most) = (0, 0);
        for _ in 0..turns {
            now += turn_cycles;
            let in_turn = looked(&mut backoff, now, |_| false).len() as u64;
            looks += in_turn;
            most = most.max(in_turn);
        }
        // All of them in 7/8 of the bound, evenly.
        let even = 100 * turn_cycles * 8 / 7 / LATE_CYCLES;
        assert!(most <= even + 2, "{most} looks in a turn of {turn_cycles}");
        let rounds = looks as f64 / 100.0 / 40.0;
        assert!((1.0..1.2).contains(&rounds), "{rounds} rounds in the bound");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Scan(u64),
    Arrive(u16),
    Remove(u16),
    Silence,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => prop_oneof![4 => 50u64..6000, 1 => 1u64..200_000].prop_map(Op::Scan),
        3 => (0u16..40).prop_map(Op::Arrive),
        1 => (0u16..40).prop_map(Op::Remove),
        1 => Just(Op::Silence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    /// However turns vary and others come and go: at every scan each queue is looked at whose last
    /// look is as long ago as its silence allows, so that one that wakes is seen within the bound;
    /// and none is looked at twice.
    #[test]
    fn a_waking_queue_is_seen_within_the_bound(
        late_cycles in prop_oneof![Just(0u64), 1000u64..100_000],
        ops in prop::collection::vec(op(), 1..400),
    ) {
        let mut backoff = Backoff::new(40, late_cycles);
        let bound = late_cycles.max(BACKOFF_CYCLES_MIN);
        // Per queue: silent since, last looked at; or not polled.
        let mut model: Vec<Option<(u64, u64)>> = vec![Some((0, 0)); 40];
        (0..40).for_each(|queue| backoff.emptied(queue, 0));
        let mut has_work = [false; 40];
        let mut now = 0;
        for op in ops {
            match op {
                Op::Arrive(queue) => has_work[usize::from(queue)] = true,
                Op::Remove(queue) => {
                    backoff.remove(queue);
                    model[usize::from(queue)] = None;
                }
                // Hours in which nobody scans are one long turn.
                Op::Silence => now += 200 * bound,
                Op::Scan(cycles) => {
                    now += cycles;
                    let seen = looked(&mut backoff, now, |queue| has_work[usize::from(queue)]);
                    for (queue, entry) in (0u16..).zip(&mut model) {
                        let looks = seen.iter().filter(|looked| **looked == queue).count();
                        prop_assert!(looks <= 1, "{queue} was looked at {looks} times");
                        let Some((silent_since, looked_at)) = entry else {
                            prop_assert_eq!(looks, 0);
                            continue;
                        };
                        // What its silence had come to when it was last looked at.
                        let silence = *looked_at - *silent_since;
                        let allowed = bound.min(silence / BACKOFF_SILENCE_PARTS);
                        prop_assert!(looks == 1 || now - *looked_at < allowed, "{queue} is late");
                        if looks == 1 {
                            *looked_at = now;
                        }
                        if looks == 1 && has_work[usize::from(queue)] {
                            // Served at once, and empty again.
                            has_work[usize::from(queue)] = false;
                            backoff.emptied(queue, now);
                            *entry = Some((now, now));
                        }
                    }
                }
            }
        }
    }
}

/// A look at a queue is paid for when it is due; those that are not cost nothing.
#[test]
fn levels_double_up_to_the_bound() {
    let mut backoff = Backoff::new(1, LATE_CYCLES);
    backoff.emptied(0, 0);
    let (mut now, mut last, mut gaps) = (0, 0, Vec::new());
    while now < 2 * BACKOFF_SILENCE_PARTS * LATE_CYCLES {
        now += 500;
        if !looked(&mut backoff, now, |_| false).is_empty() {
            gaps.push(now - last);
            last = now;
        }
    }
    gaps.dedup_by(|a, b| a.abs_diff(*b) <= 1000);
    assert_eq!(gaps.len(), BACKOFF_LEVELS + 1, "{gaps:?}");
    assert!(gaps.is_sorted() && gaps.iter().all(|gap| *gap <= LATE_CYCLES), "{gaps:?}");
}

/// An idle core sees all of them soon, and none twice in a turn.
#[test]
fn spare_looks_go_round() {
    let (mut backoff, mut now) = quiet(10, 2000);
    let mut looked = Vec::new();
    for _ in 0..5 {
        now += 100;
        backoff.scan_ahead(now, 4, |queue, ()| {
            looked.push(queue);
            queue == 3
        });
    }
    // Every one of ten, then again but for the one that has work.
    assert_eq!(looked.len(), 20);
    let times = |queue: u16| looked.iter().filter(|looked| **looked == queue).count();
    assert_eq!(times(3), 1);
    assert!((0..10).filter(|queue| *queue != 3).all(|queue| (2..=3).contains(&times(queue))));
    now += 100;
    let mut count = 0;
    backoff.scan_ahead(now, 100, |_, ()| {
        count += 1;
        false
    });
    assert_eq!(count, 9);
}

/// What the caller has noted on a queue comes with each look at it, wherever the queue has moved to,
/// and stays while nobody polls it.
#[test]
fn a_note_stays_with_its_queue() {
    let mut backoff = Backoff::<(u16, u64)>::new(20, LATE_CYCLES);
    for queue in 0..20 {
        *backoff.note_mut(queue).unwrap() = (queue, 0);
        backoff.emptied(queue, 0);
    }
    assert_eq!(backoff.note_mut(20), None);
    let (mut now, mut looks) = (0, 0);
    while now < 2 * BACKOFF_SILENCE_PARTS * LATE_CYCLES {
        now += 2000;
        backoff.scan(now, |queue, (noted, times)| {
            assert_eq!(*noted, queue);
            *times += 1;
            looks += 1;
            // They leave one by one, from the middle of all places.
            queue % 4 == 1 && *times > 900 + u64::from(queue)
        });
    }
    let times: Vec<u64> = (0..20).map(|queue| backoff.note_mut(queue).unwrap().1).collect();
    assert_eq!(times.iter().sum::<u64>(), looks);
    for (queue, times) in (0..20).zip(times) {
        assert!(
            if queue % 4 == 1 { times == 901 + queue } else { times > 1000 },
            "{queue}: {times}"
        );
    }
}
