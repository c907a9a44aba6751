//! A replayed trace against what was measured when it was recorded.

use super::pmd::Simulation;
use crate::tenant::TenantIndex;

/// What is compared, of one tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Whose.
    pub tenant: TenantIndex,
    /// Its part of all cycles spent for tenants, 0 to 1.
    pub share: f64,
    /// Median time from a packet's arrival to the end of its processing.
    pub sojourn_p50_cycles: u64,
    /// The 99th percentile of that.
    pub sojourn_p99_cycles: u64,
}

impl Figures {
    /// Those of a simulation.
    #[must_use]
    pub fn of(simulation: &Simulation, tenant: TenantIndex) -> Self {
        let outcome = simulation.outcome(tenant);
        Self {
            tenant,
            share: simulation.share(tenant),
            sojourn_p50_cycles: outcome.sojourn_quantile_cycles(0.5),
            sojourn_p99_cycles: outcome.sojourn_quantile_cycles(0.99),
        }
    }
}

/// A figure in which the two differ by more than was allowed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("tenant {}: {figure} is {wire:.3} on the wire and {simulated:.3} simulated", tenant.0)]
pub struct Disagreement {
    /// Whose.
    pub tenant: TenantIndex,
    /// Which figure, as its field is called.
    pub figure: &'static str,
    /// What was measured.
    pub wire: f64,
    /// What was simulated.
    pub simulated: f64,
}

/// Where a simulation and the wire disagree by more than `tolerance` (0.1 is a tenth) of the larger
/// value.
#[must_use]
pub fn disagreements(
    simulation: &Simulation,
    wire: &[Figures],
    tolerance: f64,
) -> Vec<Disagreement> {
    let mut found = Vec::new();
    for measured in wire {
        let tenant = measured.tenant;
        let own = Figures::of(simulation, tenant);
        let cycles = |cycles: u64| cycles as f64;
        let pairs = [
            ("share", measured.share, own.share),
            (
                "sojourn_p50_cycles",
                cycles(measured.sojourn_p50_cycles),
                cycles(own.sojourn_p50_cycles),
            ),
            (
                "sojourn_p99_cycles",
                cycles(measured.sojourn_p99_cycles),
                cycles(own.sojourn_p99_cycles),
            ),
        ];
        let differing = pairs.into_iter().filter(|(_, wire, simulated)| {
            (wire - simulated).abs() > tolerance * wire.abs().max(simulated.abs())
        });
        found.extend(differing.map(|(figure, wire, simulated)| Disagreement {
            tenant,
            figure,
            wire,
            simulated,
        }));
    }
    found
}
