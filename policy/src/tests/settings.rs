//! What an operator may set, and what he is told when he may not.

use crate::{ConfigError, Scheduler, SchedulerConfig, TenantError, TenantIndex, Weight};
use proptest::prelude::*;

#[test]
fn weights_are_exact() {
    for (text, thousandths) in
        [("1.71", 1710), ("0.001", 1), ("1000", 1_000_000), ("1000.000", 1_000_000), ("3", 3000)]
    {
        assert_eq!(text.parse::<Weight>().unwrap().thousandths(), thousandths);
        let number: f64 = text.parse().unwrap();
        assert_eq!(Weight::try_from(number).unwrap().thousandths(), thousandths);
    }
}

#[test]
fn weights_out_of_range_or_too_fine_are_refused() {
    let refused = [
        "", ".", "1.", ".5", "0", "0.0005", "1.7100", "1000.001", "-1", "+1", "1e3", "inf", "99999",
    ];
    for text in refused {
        let error = text.parse::<Weight>().unwrap_err();
        assert!(error.to_string().contains("0.001 to 1000"), "{text}");
    }
    for number in [0.0, -1.0, 0.0005, 1.2345, 1000.001, f64::NAN, f64::INFINITY] {
        assert!(Weight::try_from(number).is_err(), "{number}");
    }
    assert!(Weight::from_thousandths(0).is_err());
}

proptest! {
    #[test]
    fn weights_survive_text_and_json(thousandths in 1u32..=1_000_000) {
        let weight = Weight::from_thousandths(thousandths).unwrap();
        prop_assert_eq!(weight.to_string().parse(), Ok(weight));
        prop_assert_eq!(Weight::try_from(weight.as_f64()), Ok(weight));
    }
}

#[test]
fn knobs_out_of_range_are_refused_by_name() {
    let good = SchedulerConfig::default();
    assert_eq!(good.validate(), Ok(()));
    let cases = [
        (SchedulerConfig { quantum_cycles: 0, ..good }, "quantum_cycles"),
        (SchedulerConfig { quantum_cycles: u64::MAX, ..good }, "quantum_cycles"),
        (SchedulerConfig { cap_cycles: 2 * good.quantum_cycles - 1, ..good }, "cap_cycles"),
        (SchedulerConfig { cap_cycles: u64::MAX, ..good }, "cap_cycles"),
        (SchedulerConfig { floor_cycles: good.quantum_cycles - 1, ..good }, "floor_cycles"),
        (SchedulerConfig { floor_cycles: 1 << 31, ..good }, "floor_cycles"),
        (SchedulerConfig { horizon_cycles: good.floor_cycles - 1, ..good }, "horizon_cycles"),
    ];
    for (config, knob) in cases {
        let error: ConfigError = config.validate().unwrap_err();
        assert!(error.to_string().starts_with(knob), "{error}");
        assert_eq!(Scheduler::new(config, 4).unwrap_err(), error);
    }
}

#[test]
fn tenants_are_added_once_and_within_the_table() {
    let mut scheduler = Scheduler::new(SchedulerConfig::default(), 2).unwrap();
    let (one, two) = (TenantIndex(1), TenantIndex(2));
    assert_eq!(scheduler.tenant_add(TenantIndex::SYSTEM, Weight::ONE), Err(TenantError::System));
    assert_eq!(scheduler.tenant_add(one, Weight::ONE), Ok(()));
    assert_eq!(scheduler.tenant_add(one, Weight::ONE), Err(TenantError::Exists(1)));
    assert_eq!(
        scheduler.tenant_add(two, Weight::ONE),
        Err(TenantError::OutOfRange { index: 2, tenants: 2 })
    );
    assert_eq!(scheduler.set_weight(two, Weight::ONE), Err(TenantError::Unknown(2)));
    assert_eq!(scheduler.tenant_remove(two), Err(TenantError::Unknown(2)));
    assert_eq!(scheduler.tenant_remove(one), Ok(()));
    assert_eq!(scheduler.tenant_add(one, Weight::ONE), Ok(()));
}

proptest! {
    /// However often the refill changes, whoever has work is served, credits stay in their bounds,
    /// and from then on weights hold as if there had never been another.
    #[test]
    fn a_refill_that_comes_and_goes_loses_nobody_and_leaves_no_trace(
        changes in prop::collection::vec((any::<bool>(), 0usize..12, 1u64..9000), 1..40),
        weights in prop::array::uniform3(500u32..4000),
    ) {
        let local = SchedulerConfig::default();
        let coordinated = SchedulerConfig { cap_cycles: local.cap_cycles, ..SchedulerConfig::coordinated(2_500_000_000) };
        let mut s = Scheduler::new(local, 4).unwrap();
        let tenants = [1, 2, 3].map(TenantIndex);
        for (tenant, weight) in tenants.into_iter().zip(weights) {
            s.tenant_add(tenant, Weight::from_thousandths(weight).unwrap()).unwrap();
            s.wake(tenant, 0);
        }
        let mut now = 0;
        for (to_local, turns, cost) in changes {
            s.set_config(if to_local { local } else { coordinated }).unwrap();
            for _ in 0..turns {
                let turn = s.next(now).unwrap();
                now += cost;
                s.charge(turn.tenant, cost, now);
                s.done(turn.tenant, true, now);
                tenants.iter().for_each(|tenant| s.refill_grant(*tenant, (cost / 4) as i64));
            }
            for tenant in tenants {
                let (cap, floor) = (local.cap_cycles as i64, local.floor_cycles as i64);
                prop_assert!((-floor..=cap).contains(&s.credit_cycles(tenant)));
            }
        }
        s.set_config(local).unwrap();
        let mut spent = [0u64; 3];
        let total: u64 = 40_000_000;
        while spent.iter().sum::<u64>() < total {
            let turn = s.next(now).unwrap();
            now += 5000;
            s.charge(turn.tenant, 5000, now);
            s.done(turn.tenant, true, now);
            spent[usize::from(turn.tenant.0) - 1] += 5000;
        }
        // Leads and debts of the time before count, but no more than they can be.
        let slack = (local.cap_cycles + local.floor_cycles) as f64 / total as f64;
        for (spent, weight) in spent.into_iter().zip(weights) {
            let share = spent as f64 / total as f64;
            let wanted = f64::from(weight) / f64::from(weights.iter().sum::<u32>());
            prop_assert!((share - wanted).abs() < slack + 0.01, "{share} of {wanted}");
        }
    }
}

#[test]
fn a_refused_configuration_changes_nothing() {
    let mut s = super::scheduler(&["1"]);
    let bad = SchedulerConfig { quantum_cycles: 0, ..SchedulerConfig::default() };
    assert_eq!(s.set_config(bad).unwrap_err().knob, "quantum_cycles");
    assert_eq!(s.config(), &SchedulerConfig::default());
}

#[test]
fn boosts_are_exact_and_held_to_their_range() {
    for (number, thousandths) in [(0.85, 850), (0.001, 1), (1.1, 1100), (2.0, 2000)] {
        assert_eq!(crate::Boost::try_from(number).unwrap().thousandths(), thousandths);
    }
    for number in [0.0, -1.0, 0.0005, 2.001, 0.8501, f64::NAN, f64::INFINITY] {
        let error = crate::Boost::try_from(number).unwrap_err().to_string();
        assert!(error.contains("0.001 to 2"), "{error}");
    }
}
