//! Nobody comes out ahead by hoarding, by coming and going, or by having been alone.

use super::{A, B, any_weight, config, index, scheduler, turn};
use crate::sim::{Arrivals, Simulation, TenantSpec};
use crate::{Scheduler, Weight};
use proptest::prelude::*;

const TURN_CYCLES: u64 = 5000;

/// Runs saturated turns and returns the furthest that A was ahead of B and B of A.
fn leads(scheduler: &mut Scheduler, turns: u32) -> (i64, i64) {
    let (mut ahead, mut most_a, mut most_b) = (0i64, 0, 0);
    for _ in 0..turns {
        let runs = turn(scheduler, TURN_CYCLES, true).unwrap();
        ahead += if runs == A { TURN_CYCLES as i64 } else { -(TURN_CYCLES as i64) };
        most_a = ahead.max(most_a);
        most_b = (-ahead).max(most_b);
    }
    (most_a, most_b)
}

#[test]
fn an_hour_alone_costs_nothing_and_earns_nothing_when_a_newcomer_arrives() {
    let cap_cycles = config().cap_cycles as i64;
    for hour_turn_cycles in [5000, 999_999, 50_000_000] {
        let mut s = scheduler(&["1", "1"]);
        s.wake(B, 0);
        let hour_cycles: u64 = 3600 * 2_500_000_000;
        for _ in 0..(hour_cycles / hour_turn_cycles).min(200_000) {
            assert_eq!(turn(&mut s, hour_turn_cycles, true), Some(B));
        }
        // Not to count the last turn of the hour, which is debt like any other.
        assert_eq!(turn(&mut s, TURN_CYCLES, true), Some(B));
        s.wake(A, 0);
        let (a_ahead, b_ahead) = leads(&mut s, 10_000);
        let turns_cycles = 2 * TURN_CYCLES as i64;
        assert!(a_ahead <= cap_cycles + turns_cycles, "the newcomer was {a_ahead} ahead");
        assert!(b_ahead <= cap_cycles + TURN_CYCLES as i64, "the old tenant was {b_ahead} ahead");
    }
}

#[test]
fn a_waking_tenant_leads_by_the_cap_at_most() {
    let cap_cycles = config().cap_cycles as i64;
    for asleep_turns in [0, 1, 7, 100, 100_000] {
        let mut s = scheduler(&["1", "1"]);
        s.wake(A, 0);
        s.wake(B, 0);
        leads(&mut s, 101);
        s.done(A, false, 0);
        for _ in 0..asleep_turns {
            assert_eq!(turn(&mut s, TURN_CYCLES, true), Some(B));
        }
        s.wake(A, 0);
        let (a_ahead, b_ahead) = leads(&mut s, 10_000);
        // The cap, B's own last turn, and the one of A's that ends in debt.
        assert!(a_ahead <= cap_cycles + 2 * TURN_CYCLES as i64, "{a_ahead}");
        assert!(b_ahead <= TURN_CYCLES as i64, "{b_ahead}");
    }
}

#[test]
fn old_debt_is_forgotten_by_an_idle_core_but_not_before() {
    let horizon_cycles = config().horizon_cycles;
    for (idle_cycles, in_debt) in [(horizon_cycles - 1, true), (horizon_cycles, false)] {
        let mut s = scheduler(&["1", "1"]);
        s.wake(A, 0);
        s.wake(B, 0);
        s.charge(A, 900_000, 0);
        s.done(A, false, 0);
        assert_eq!(turn(&mut s, 100, false), Some(B));
        s.wake(B, idle_cycles);
        assert_eq!(s.in_debt(A), in_debt, "{idle_cycles}");
    }
}

fn spec(weight: Weight, arrivals: Arrivals) -> TenantSpec {
    TenantSpec { weight, cost_cycles: 700, arrivals }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    /// Whatever rhythm the others try, a tenant that always has work gets its share, and one that
    /// comes and goes gets no more than its own.
    #[test]
    fn coming_and_going_gains_nothing(
        rhythms in prop::collection::vec((1u64..100_000, 1u64..3_000_000, 0u32..3), 1..5),
    ) {
        let weights = [500, 1000, 3000].map(|w| Weight::from_thousandths(w).unwrap());
        let mut specs = vec![spec(Weight::ONE, Arrivals::Saturating)];
        specs.extend(rhythms.iter().map(|(on_cycles, off_cycles, weight)| {
            let arrivals = Arrivals::OnOff { on_cycles: *on_cycles, off_cycles: *off_cycles };
            spec(weights[*weight as usize], arrivals)
        }));
        let total: f64 = specs.iter().map(|spec| spec.weight.as_f64()).sum();
        let entitled: Vec<f64> = specs.iter().map(|spec| spec.weight.as_f64() / total).collect();
        let mut simulation = Simulation::new(config(), specs).unwrap();
        simulation.run(200_000_000);
        let steady = simulation.share(index(1));
        prop_assert!(steady > entitled[0] - 0.01, "{steady} of {}", entitled[0]);
        if let [_, entitled] = entitled[..] {
            let flapping = simulation.share(index(2));
            prop_assert!(flapping < entitled + 0.01, "{flapping} of {entitled}");
        }
    }

    /// Start-time fairness: over any time in which two tenants always have work, what they get by
    /// weight differs by no more than a cap and a turn of each, whatever the others do.
    #[test]
    fn two_busy_tenants_stay_together_whatever_the_others_do(
        weights in prop::collection::vec(any_weight(), 6),
        steps in prop::collection::vec((3u16..7, 1u64..9000, any::<bool>()), 1..600),
    ) {
        let mut s = Scheduler::new(config(), 7).unwrap();
        for (t, weight) in (1..).zip(&weights) {
            s.tenant_add(index(t), *weight).unwrap();
        }
        let (w_a, w_b) = (weights[0].as_f64(), weights[1].as_f64());
        let most = (config().cap_cycles + 9000) as f64;
        s.wake(A, 0);
        s.wake(B, 0);
        let (mut got_a, mut got_b) = (0.0, 0.0);
        for (waker, cycles, more) in steps {
            s.wake(index(waker), 0);
            let runs = s.next(0).unwrap().tenant;
            s.charge(runs, cycles, 0);
            s.done(runs, more || runs == A || runs == B, 0);
            got_a += if runs == A { cycles as f64 } else { 0.0 };
            got_b += if runs == B { cycles as f64 } else { 0.0 };
            let apart = (got_a / w_a - got_b / w_b).abs();
            prop_assert!(apart <= most / w_a + most / w_b, "{apart}");
        }
    }
}
