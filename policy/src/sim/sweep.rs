//! One victim among adversaries, over weights x load x cost x tenants x PMDs: what it waits, and
//! whether the rest is shared by weight.

use std::fmt;

use super::switch::{PortSpec, Switch};
use super::traffic::Arrivals;
use crate::config::{ConfigError, Refill, SchedulerConfig};
use crate::tenant::TenantIndex;
use crate::weight::Weight;

/// What one request of the victim costs.
pub const VICTIM_COST_CYCLES: u64 = 800;
/// From one request of the victim to the next: 100 us at 2.5 GHz, or as much longer as it takes to
/// stay within a quarter of its share.
pub const VICTIM_PERIOD_CYCLES_MIN: u64 = 250_000;
/// Adversaries send in bursts of this many.
const BURST_PACKETS: u32 = 32;
/// Turns of the lightest adversary, at least: what a turn is off by must not show in the shares.
const ROUNDS: u64 = 250;
/// Requests of the victim, at least.
const REQUESTS: u64 = 100;
/// At this load every adversary has work at all times, and shares are compared.
const SATURATING_PERCENT: u64 = 400;

/// A scene: tenant 1 sends a request now and then from PMD 0, and all others load every PMD.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scheduler's knobs.
    pub config: SchedulerConfig,
    /// The adversaries' weights, again and again; the victim's is 1.
    pub weights: Vec<Weight>,
    /// Tenants, the victim among them: 2 or more.
    pub tenants: u16,
    /// PMDs.
    pub pmds: usize,
    /// What the adversaries offer together on each PMD, in percent of it.
    pub load_percent: u64,
    /// What each of their packets costs.
    pub cost_cycles: u64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Row {
    /// The scene.
    pub case: Case,
    /// Requests of the victim that were served.
    pub requests: u64,
    /// From a request to the end of its processing: median and 99th percentile.
    pub sojourn_p50_cycles: u64,
    /// See [`sojourn_p50_cycles`](Self::sojourn_p50_cycles).
    pub sojourn_p99_cycles: u64,
    /// The longest that a request waited for its turn.
    pub wait_cycles_max: u64,
    /// The longest turn of an adversary on the victim's PMD.
    pub task_cycles_max: u64,
    /// How far an adversary's cycles were off its weight, in thousandths of those, at most; when
    /// all had work at all times.
    pub share_error_thousandths: Option<f64>,
}

impl Case {
    fn weight_of(&self, tenant: u16) -> Weight {
        let adversary = usize::from(tenant).checked_sub(2);
        let place = adversary.and_then(|at| at.checked_rem(self.weights.len()));
        place.and_then(|at| self.weights.get(at)).copied().unwrap_or(Weight::ONE)
    }

    /// The sum of all weights, in the victim's and in the lightest adversary's.
    fn total_weight(&self) -> (u64, u64) {
        let thousandths = |tenant| u64::from(self.weight_of(tenant).thousandths());
        let total: u64 = (1..=self.tenants).map(thousandths).sum();
        let lightest = (2..=self.tenants).map(thousandths).min().unwrap_or(1000);
        (total.div_ceil(thousandths(1)), total.div_ceil(lightest))
    }

    fn victim_period_cycles(&self) -> u64 {
        VICTIM_PERIOD_CYCLES_MIN.max(4 * VICTIM_COST_CYCLES * self.total_weight().0)
    }

    fn ports(&self, warm_cycles: u64) -> Vec<PortSpec> {
        let adversaries = u64::from(self.tenants - 1);
        let burst_cycles = self.cost_cycles * u64::from(BURST_PACKETS);
        let period_cycles = burst_cycles * adversaries * 100 / self.load_percent.max(1);
        let arrivals = Arrivals::Every {
            period_cycles: self.victim_period_cycles(),
            packets: 1,
            first_cycles: warm_cycles + 77,
        };
        let tenant = TenantIndex(1);
        let mut ports =
            vec![PortSpec { tenant, pmd: 0, cost_cycles: VICTIM_COST_CYCLES, arrivals }];
        for pmd in 0..self.pmds {
            ports.extend((0..adversaries).zip(2..).map(|(nth, tenant)| PortSpec {
                tenant: TenantIndex(tenant),
                pmd,
                cost_cycles: self.cost_cycles,
                arrivals: Arrivals::Every {
                    period_cycles,
                    packets: BURST_PACKETS,
                    // Spread over a period, and not alike on two PMDs.
                    first_cycles: (nth * period_cycles / adversaries
                        + pmd as u64 * 10_007 % period_cycles)
                        % period_cycles,
                },
            }));
        }
        ports
    }

    /// Runs the scene.
    ///
    /// # Errors
    /// When a knob of `config` is out of range.
    pub fn run(self) -> Result<Row, ConfigError> {
        let turn_cycles = self.cost_cycles.max(self.config.quantum_cycles);
        let round_cycles = turn_cycles * self.total_weight().1;
        let requests_cycles = REQUESTS * self.victim_period_cycles();
        // Until then all adversaries are newcomers like the victim.
        let warm_cycles = 10 * round_cycles;
        let weights = (1..=self.tenants).map(|tenant| self.weight_of(tenant)).collect();
        let mut switch = Switch::new(self.config, self.pmds, weights, &self.ports(warm_cycles))?;
        switch.run(warm_cycles);
        switch.reset_outcomes();
        switch.run((ROUNDS * round_cycles).max(requests_cycles));
        let victim = switch.outcome(TenantIndex(1));
        let longest = switch.pmds.first().map(|pmd| pmd.longest).unwrap_or_default();
        Ok(Row {
            requests: victim.packets,
            sojourn_p50_cycles: victim.sojourn_quantile_cycles(0.5),
            sojourn_p99_cycles: victim.sojourn_quantile_cycles(0.99),
            wait_cycles_max: victim.wait_cycles_max,
            task_cycles_max: longest.task_cycles,
            share_error_thousandths: (self.load_percent >= SATURATING_PERCENT)
                .then(|| self.share_error_thousandths(&switch)),
            case: self,
        })
    }

    fn share_error_thousandths(&self, switch: &Switch) -> f64 {
        let mut worst = 0.0_f64;
        for pmd in &switch.pmds {
            let got: Vec<(f64, f64)> = (2..=self.tenants)
                .map(|tenant| {
                    let cycles = pmd.outcome(TenantIndex(tenant)).cycles as f64;
                    (cycles, self.weight_of(tenant).as_f64())
                })
                .collect();
            let cycles: f64 = got.iter().map(|(cycles, _)| cycles).sum();
            let weights: f64 = got.iter().map(|(_, weight)| weight).sum();
            for (own_cycles, weight) in got {
                let entitled = cycles * weight / weights;
                worst = worst.max((own_cycles / entitled - 1.0).abs() * 1000.0);
            }
        }
        worst
    }
}

/// The heading of a table of [`Row`]s.
pub const HEADING: &str = "refill      tenants pmds weights    load%   cost | requests     p50     p99 wait-max task-max share-err%";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = &self.case;
        let refill = match case.config.refill {
            Refill::Local => "local",
            Refill::Coordinator { .. } => "coordinator",
        };
        let weights: Vec<String> = case.weights.iter().map(Weight::to_string).collect();
        let weights = weights.join(":");
        let error = match self.share_error_thousandths {
            Some(thousandths) => format!("{:.2}", thousandths / 10.0),
            None => "-".to_owned(),
        };
        write!(
            f,
            "{refill:<11} {:>7} {:>4} {weights:<10} {:>5} {:>6} | {:>8} {:>7} {:>7} {:>8} {:>8} {error:>10}",
            case.tenants,
            case.pmds,
            case.load_percent,
            case.cost_cycles,
            self.requests,
            self.sojourn_p50_cycles,
            self.sojourn_p99_cycles,
            self.wait_cycles_max,
            self.task_cycles_max,
        )
    }
}
