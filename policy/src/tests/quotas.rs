//! A tenant's knobs, and the rate of its set-ups.

use super::{A, scheduler};
use crate::limits::{
    ARENA_BYTES_MAX, ARENA_BYTES_MIN, EXACT_ENTRIES_MAX, MEGAFLOWS_MAX, SETUPS_PER_SECOND_MAX,
    SUBTABLES_MAX,
};
use crate::{SchedulerConfig, SetupBucket, TenantError, TenantIndex, TenantKnobs};
use proptest::prelude::*;

fn knobs() -> TenantKnobs {
    TenantKnobs::new(&SchedulerConfig::default())
}

/// Each knob at both ends of its range and one beyond: accepted, and refused by name and range.
#[test]
fn each_knob_is_held_to_its_range_and_named() {
    let scheduler = SchedulerConfig::default();
    type Set = fn(&mut TenantKnobs, u64);
    let cases: [(&str, Set, u64, u64); 8] = [
        ("cap_cycles", |k, v| k.cap_cycles = v, 10_000, 1 << 30),
        ("floor_cycles", |k, v| (k.floor_cycles, k.mark_depth_cycles) = (v, 0), 5000, 1_000_000),
        ("mark_depth_cycles", |k, v| k.mark_depth_cycles = v, 0, 1_000_000),
        ("setups_per_second", |k, v| k.setups_per_second = v, 1, SETUPS_PER_SECOND_MAX),
        ("megaflows", |k, v| k.megaflows = v, 1, MEGAFLOWS_MAX),
        ("subtables", |k, v| k.subtables = v, 1, SUBTABLES_MAX),
        ("arena_bytes", |k, v| k.arena_bytes = v, ARENA_BYTES_MIN, ARENA_BYTES_MAX),
        ("exact_entries", |k, v| k.exact_entries = v, 1, EXACT_ENTRIES_MAX),
    ];
    assert_eq!(knobs().validate(&scheduler), Ok(()));
    for (name, set, least, most) in cases {
        let check = |value| {
            let mut knobs = knobs();
            set(&mut knobs, value);
            knobs.validate(&scheduler)
        };
        for value in [least, most] {
            assert_eq!(check(value), Ok(()), "{name} = {value}");
        }
        for value in [least.checked_sub(1), Some(most + 1), Some(u64::MAX)].into_iter().flatten() {
            let error = check(value).unwrap_err();
            assert_eq!((error.knob, error.given), (name, value));
            let text = error.to_string();
            for part in [name, &value.to_string(), &least.to_string(), &most.to_string()] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}

#[test]
fn a_message_says_where_a_limit_comes_from() {
    let error = TenantKnobs { cap_cycles: 9999, ..knobs() };
    let error = error.validate(&SchedulerConfig::default()).unwrap_err().to_string();
    assert_eq!(error, "cap_cycles is 9999; it must be 10000 (two quanta) to 1073741824");
    let knobs = TenantKnobs { floor_cycles: 2_000_000, ..knobs() };
    let error = knobs.validate(&SchedulerConfig::default()).unwrap_err().to_string();
    let range = "5000 (one quantum) to 1000000 (horizon_cycles)";
    assert_eq!(error, format!("floor_cycles is 2000000; it must be {range}"));
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut s = scheduler(&["1"]);
    let before = s.credit_cycles(A);
    let refused = TenantKnobs { weight: super::weight("8"), cap_cycles: 1, ..knobs() };
    assert!(matches!(s.set_knobs(A, &refused), Err(TenantError::Knob(_))));
    assert_eq!(s.credit_cycles(A), before);
    let unknown = s.set_knobs(TenantIndex(9), &knobs());
    assert_eq!(unknown, Err(TenantError::Unknown(9)));
}

/// A tenant's own cap and floor hold for it and for nobody else.
#[test]
fn a_tenants_own_cap_and_floor_bound_its_credit() {
    let mut s = scheduler(&["1", "1"]);
    let small = TenantKnobs { cap_cycles: 10_000, floor_cycles: 30_000, ..knobs() };
    let small = TenantKnobs { mark_depth_cycles: 0, ..small };
    s.set_knobs(A, &small).unwrap();
    assert_eq!((s.credit_cycles(A), s.credit_cycles(super::B)), (10_000, 20_000));
    for tenant in [A, super::B] {
        s.charge(tenant, 10_000_000, 0);
    }
    assert_eq!((s.credit_cycles(A), s.credit_cycles(super::B)), (-30_000, -1_000_000));
    // Less is remembered from now on.
    s.set_knobs(super::B, &TenantKnobs { floor_cycles: 50_000, ..knobs() }).unwrap();
    assert_eq!(s.credit_cycles(super::B), -50_000);
}

proptest! {
    /// Whatever is asked for when: over any time no more than the burst and the rate, and whoever
    /// asks often enough gets that.
    #[test]
    fn set_ups_keep_to_their_rate(
        per_second in 1u64..=SETUPS_PER_SECOND_MAX,
        tsc_hz in 1_000_000u64..5_000_000_000,
        gaps in prop::collection::vec(0u64..3_000_000, 1..400),
    ) {
        let mut bucket = SetupBucket::new(per_second, tsc_hz);
        let burst = bucket.burst();
        let mut level = u128::from(burst * tsc_hz);
        let mut now = 0;
        let mut taken = 0u128;
        for gap in gaps {
            now += gap;
            level = (level + u128::from(gap * per_second)).min(u128::from(burst * tsc_hz));
            let expected = level >= u128::from(tsc_hz);
            if expected {
                level -= u128::from(tsc_hz);
            }
            prop_assert_eq!(bucket.take(now), expected);
            taken += u128::from(expected);
            let most = u128::from(burst) + u128::from(now) * u128::from(per_second) / u128::from(tsc_hz);
            prop_assert!(taken <= most, "{taken} of {most}");
        }
    }
}

#[test]
fn a_burst_of_set_ups_refills_and_a_clock_that_steps_back_gives_nothing() {
    let tsc_hz = 2_500_000_000;
    let mut bucket = knobs().setup_bucket(tsc_hz);
    let burst = bucket.burst();
    assert_eq!(burst, 12_500);
    let take_all =
        |bucket: &mut SetupBucket, now| (0..1_000_000).take_while(|_| bucket.take(now)).count();
    assert_eq!(take_all(&mut bucket, 0), 12_500);
    assert_eq!(take_all(&mut bucket, tsc_hz / 100), 1000);
    for now in [0, tsc_hz / 100] {
        assert_eq!(take_all(&mut bucket, now), 0);
    }
    assert_eq!(take_all(&mut bucket, tsc_hz), 12_500);
    // A lower rate does not give back what was used, and keeps to its own burst.
    bucket.set_rate(8000, tsc_hz);
    assert!(!bucket.take(tsc_hz));
    assert_eq!(take_all(&mut bucket, 10 * tsc_hz), 1000);
}
