//! Saturated tenants get cycles by weight, whatever their packets cost.

use super::{config, index, weight};
use crate::sim::{Arrivals, Simulation, TenantSpec};
use proptest::prelude::*;

const RUN_CYCLES: u64 = 400_000_000;

fn saturated(weights: &[&str], costs: &[u64]) -> Simulation {
    let specs = weights.iter().zip(costs).map(|(text, cost)| TenantSpec {
        weight: weight(text),
        cost_cycles: *cost,
        arrivals: Arrivals::Saturating,
    });
    Simulation::new(config(), specs.collect()).unwrap()
}

/// How far the worst share is from its entitlement, relative to that.
fn worst_share_error(simulation: &Simulation, weights: &[&str]) -> f64 {
    let weights: Vec<f64> = weights.iter().map(|text| weight(text).as_f64()).collect();
    let total: f64 = weights.iter().sum();
    let errors = (1..).zip(&weights).map(|(tenant, weight)| {
        let entitled = weight / total;
        (simulation.share(index(tenant)) / entitled - 1.0).abs()
    });
    errors.fold(0.0, f64::max)
}

fn share_case() -> impl Strategy<Value = (&'static [&'static str], Vec<u64>)> {
    const SETS: &[&[&str]] = &[
        &["1", "1"],
        &["1", "3"],
        &["1", "1.71"],
        &["1", "2", "4", "8"],
        &["1", "1", "1", "1", "1", "1", "1", "8"],
    ];
    prop::sample::select(SETS)
        .prop_flat_map(|set| (Just(set), prop::collection::vec(100u64..=50_000, set.len())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn saturated_shares_equal_weights_within_one_percent((weights, costs) in share_case()) {
        let mut simulation = saturated(weights, &costs);
        simulation.run(RUN_CYCLES);
        let error = worst_share_error(&simulation, weights);
        prop_assert!(error < 0.01, "{weights:?} {costs:?}: {error}");
    }
}
