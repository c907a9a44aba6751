//! Whoever has work gets a turn in bounded time, however deep its debt and whatever the others do.

use super::{any_weight, config, index};
use crate::{Scheduler, Weight};
use proptest::prelude::*;

const TENANTS: u16 = 6;
/// Longest turn in these tests.
const TURN_CYCLES_MAX: u64 = 12_000;

/// Cycles of others after which a tenant in the deepest debt must have had a turn: they use up the
/// leads that they have, pass it for a task each, and are given by weight what it takes to lift it
/// out of debt.
fn bound_cycles(weights: &[Weight], victim: usize) -> f64 {
    let others: f64 = (0..weights.len())
        .filter(|other| *other != victim)
        .map(|other| weights[other].as_f64())
        .sum();
    let leads = (weights.len() as u64 * (config().cap_cycles + 2 * TURN_CYCLES_MAX)) as f64;
    let debt = (config().floor_cycles + TURN_CYCLES_MAX) as f64;
    leads + debt / weights[victim].as_f64() * others
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn nobody_starves(
        weights in prop::collection::vec(any_weight(), usize::from(TENANTS)),
        steps in prop::collection::vec(
            (1..=TENANTS, 1u64..TURN_CYCLES_MAX, any::<bool>(), prop::bool::weighted(0.02)),
            1..2000,
        ),
    ) {
        let mut s = Scheduler::new(config(), TENANTS + 1).unwrap();
        for (t, weight) in (1..).zip(&weights) {
            s.tenant_add(index(t), *weight).unwrap();
        }
        // Tenant 1 always has work, and is put into the deepest debt now and then.
        s.wake(index(1), 0);
        s.charge(index(1), u64::MAX, 0);
        let most = bound_cycles(&weights, 0);
        let mut others_cycles = 0.0;
        for (waker, cycles, more, sunk) in steps.into_iter().cycle().take(10_000) {
            s.wake(index(waker), 0);
            let runs = s.next(0).unwrap().tenant;
            s.charge(runs, cycles, 0);
            s.done(runs, more || runs == index(1), 0);
            if runs != index(1) {
                others_cycles += cycles as f64;
                prop_assert!(others_cycles <= most, "{others_cycles} of others, not {most}");
                continue;
            }
            others_cycles = 0.0;
            if sunk {
                s.charge(index(1), u64::MAX, 0);
            }
        }
    }
}
