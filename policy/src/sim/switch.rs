//! Several simulated PMDs with the same tenants, and the coordinator beside them.

use super::outcome::Outcome;
use super::pmd::Simulation;
use super::traffic::{Arrivals, TenantSpec};
use crate::config::{ConfigError, Refill, SchedulerConfig};
use crate::coordinator;
use crate::tenant::TenantIndex;
use crate::weight::Weight;

/// One tenant's traffic on one PMD.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Whose.
    pub tenant: TenantIndex,
    /// The PMD that polls it, from 0.
    pub pmd: usize,
    /// What each of its packets costs.
    pub cost_cycles: u64,
    /// When its packets come.
    pub arrivals: Arrivals,
}

/// PMDs that share nothing but the tenants' weights. Under [`Refill::Coordinator`] a coordinator
/// grants to all of them, for every tenant wherever it has ports.
#[derive(Debug)]
pub struct Switch {
    /// Each PMD; may be changed between runs.
    pub pmds: Vec<Simulation>,
    weights: Vec<Weight>,
    refill: Refill,
    now_cycles: u64,
}

impl Switch {
    /// A switch with tenants 1..=n of these weights. A tenant has at most one port on a PMD: of
    /// several, the last counts.
    ///
    /// # Errors
    /// When a knob of `config` is out of range.
    pub fn new(
        config: SchedulerConfig,
        pmds: usize,
        weights: Vec<Weight>,
        ports: &[PortSpec],
    ) -> Result<Self, ConfigError> {
        let silent = |weight: &Weight| TenantSpec {
            weight: *weight,
            cost_cycles: 1,
            arrivals: Arrivals::Silent,
        };
        let pmd = |at: usize| {
            let mut specs: Vec<TenantSpec> = weights.iter().map(silent).collect();
            for port in ports.iter().filter(|port| port.pmd == at) {
                if let Some(spec) = specs.get_mut(port.tenant.slot().wrapping_sub(1)) {
                    spec.cost_cycles = port.cost_cycles;
                    spec.arrivals = port.arrivals.clone();
                }
            }
            Simulation::new(config, specs)
        };
        let pmds = (0..pmds).map(pmd).collect::<Result<_, _>>()?;
        Ok(Self { pmds, weights, refill: config.refill, now_cycles: 0 })
    }

    /// Runs every PMD for `cycles` more; a turn that crosses the end is finished.
    pub fn run(&mut self, cycles: u64) {
        let end_cycles = self.now_cycles + cycles;
        let (step_cycles, boost_thousandths) = match self.refill {
            Refill::Local => (cycles, None),
            Refill::Coordinator { period_cycles, boost_thousandths } => {
                (period_cycles, Some(boost_thousandths))
            }
        };
        while self.now_cycles < end_cycles {
            let since_cycles = self.now_cycles;
            self.now_cycles = (since_cycles + step_cycles).min(end_cycles);
            for pmd in &mut self.pmds {
                pmd.run_until(self.now_cycles);
            }
            if let Some(boost_thousandths) = boost_thousandths {
                self.grant(since_cycles, boost_thousandths);
            }
        }
    }

    fn grant(&mut self, since_cycles: u64, boost_thousandths: u32) {
        let grants =
            coordinator::grants(since_cycles, self.now_cycles, &self.weights, boost_thousandths);
        for (tenant, cycles) in (1..).map(TenantIndex).zip(grants) {
            for pmd in &mut self.pmds {
                pmd.scheduler.refill_grant(tenant, cycles);
            }
        }
    }

    /// Forgets all outcomes, for figures without the start.
    pub fn reset_outcomes(&mut self) {
        self.pmds.iter_mut().for_each(Simulation::reset_outcomes);
    }

    /// What a tenant got on all PMDs so far.
    #[must_use]
    pub fn outcome(&self, tenant: TenantIndex) -> Outcome {
        let mut sum = Outcome::default();
        for pmd in &self.pmds {
            sum.add(&pmd.outcome(tenant));
        }
        sum
    }
}
