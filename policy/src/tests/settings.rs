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
