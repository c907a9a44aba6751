//! The refill by a coordinator: what it grants, and a scheduler that lives on grants.

use std::collections::VecDeque;

use super::{A, B, any_weight, index, turn, weight};
use crate::coordinator::grants;
use crate::limits::BOOST_THOUSANDTHS_MAX;
use crate::{Refill, Scheduler, SchedulerConfig, Stage, TenantIndex, Turn, Verdict, Weight};
use proptest::prelude::*;

const TSC_HZ: u64 = 2_500_000_000;

fn config() -> SchedulerConfig {
    SchedulerConfig::coordinated(TSC_HZ)
}

fn coordinated(weights: &[&str]) -> Scheduler {
    let mut s = Scheduler::new(config(), weights.len() as u16 + 1).unwrap();
    for (t, text) in (1..).zip(weights) {
        s.tenant_add(index(t), weight(text)).unwrap();
    }
    s
}

proptest! {
    /// However time is cut into periods, each tenant gets boost x elapsed x w / sum(w), to a cycle.
    #[test]
    fn grants_add_up_exactly_however_short_the_periods(
        weights in prop::collection::vec(any_weight(), 1..20),
        start in 0u64..1 << 50,
        periods in prop::collection::vec(0u64..5000, 1..300),
        boost in 1..=BOOST_THOUSANDTHS_MAX,
    ) {
        let mut got = vec![0i64; weights.len()];
        let mut now = start;
        for period in periods {
            for (got, grant) in got.iter_mut().zip(grants(now, now + period, &weights, boost)) {
                prop_assert!(grant >= 0);
                *got += grant;
            }
            now += period;
        }
        let total: f64 = weights.iter().map(|weight| weight.as_f64()).sum();
        let elapsed = (now - start) as f64 * f64::from(boost) / 1000.0;
        for (got, weight) in got.iter().zip(&weights) {
            let exact = elapsed * weight.as_f64() / total;
            prop_assert!((*got as f64 - exact).abs() < 1.001, "{got} of {exact}");
        }
    }
}

#[test]
fn grants_of_odd_times_are_bounded_and_those_of_nobody_are_none() {
    assert_eq!(grants(0, 5000, &[], 850).count(), 0);
    let one = [Weight::ONE];
    assert_eq!(grants(5000, 0, &one, 850).collect::<Vec<_>>(), [0]);
    let age: Vec<i64> = grants(0, u64::MAX, &one, BOOST_THOUSANDTHS_MAX).collect();
    assert_eq!(age, [1 << 31]);
    assert_eq!(grants(0, 1000, &[weight("1"), weight("3")], 850).collect::<Vec<_>>(), [212, 637]);
}

#[test]
fn knobs_of_the_coordinator_are_held_to_their_ranges() {
    assert_eq!(config().validate(), Ok(()));
    let with = |period_cycles, boost_thousandths| SchedulerConfig {
        refill: Refill::Coordinator { period_cycles, boost_thousandths },
        ..SchedulerConfig::default()
    };
    let cases = [
        (with(0, 850), "period_cycles is 0; it must be 1 to 1073741824"),
        (with(1 << 31, 850), "period_cycles is 2147483648; it must be 1 to 1073741824"),
        (with(2500, 0), "boost_thousandths is 0; it must be 1 to 2000"),
        (with(2500, 2001), "boost_thousandths is 2001; it must be 1 to 2000"),
    ];
    for (config, message) in cases {
        assert_eq!(Scheduler::new(config, 4).unwrap_err().to_string(), message);
    }
}

#[test]
fn grants_are_for_coordinated_schedulers_only() {
    let mut s = super::scheduler(&["1", "1"]);
    s.wake(A, 0);
    s.wake(B, 0);
    s.charge(B, 100_000, 0);
    let before = s.credit_cycles(B);
    s.refill_grant(B, 50_000);
    assert_eq!(s.credit_cycles(B), before);
}

#[test]
fn a_broke_tenant_waits_for_its_grant_and_runs_in_slack_uncharged() {
    let mut s = coordinated(&["1", "1"]);
    s.wake(A, 0);
    s.wake(B, 0);
    assert_eq!(turn(&mut s, 20_000, true), Some(A));
    assert_eq!(s.credit_cycles(A), -5000);
    for _ in 0..3 {
        assert_eq!(turn(&mut s, 4000, true), Some(B), "A waits while B is funded");
    }
    assert!(s.must_yield(A));
    assert_eq!(s.verdict(A, Stage::PostAttribution, true), Verdict::Drop);
    assert_eq!(turn(&mut s, 4000, true), Some(B));
    // Both are broke: round robin, and nobody pays.
    assert!(!s.must_yield(A) && !s.any_funded_with_work());
    let before = (s.credit_cycles(A), s.credit_cycles(B));
    let order: Vec<_> = (0..4).map(|_| turn(&mut s, 9000, true).unwrap()).collect();
    assert_eq!(order, [A, B, A, B]);
    assert_eq!((s.credit_cycles(A), s.credit_cycles(B)), before);
    // A grant that does not lift it out of debt changes nothing yet.
    s.refill_grant(A, 5000);
    assert_eq!(s.credit_cycles(A), 0);
    assert_eq!(turn(&mut s, 100, true), Some(A));
    s.refill_grant(B, 1001);
    assert_eq!(s.next(0), Some(Turn { tenant: B, budget_cycles: 5000, slack: false }));
}

#[test]
fn a_budget_is_capped_and_an_idle_core_forgives_nothing() {
    let mut s = coordinated(&["1"]);
    s.charge(A, 500_000, 0);
    let owed = s.credit_cycles(A);
    s.wake(A, u64::MAX / 2);
    assert_eq!(s.credit_cycles(A), owed);
    for grant in [i64::MAX, 1, 0, -5, i64::MIN] {
        s.refill_grant(A, grant);
        assert_eq!(s.credit_cycles(A), config().cap_cycles as i64);
    }
}

/// The scheduler against the mechanism written plainly.
struct Model {
    budgets: [i64; TENANTS],
    funded: VecDeque<usize>,
    broke: VecDeque<usize>,
    running: Option<(usize, bool)>,
}

const TENANTS: usize = 5;

#[derive(Clone, Debug)]
enum Op {
    Wake(usize),
    Next,
    Finish(u64, bool),
    ChargeOther(usize, u64),
    Grant(usize, i64),
}

fn op() -> impl Strategy<Value = Op> {
    let t = || 1..TENANTS;
    prop_oneof![
        5 => t().prop_map(Op::Wake),
        10 => Just(Op::Next),
        10 => (1u64..20_000, any::<bool>()).prop_map(|(cycles, more)| Op::Finish(cycles, more)),
        2 => (t(), 1u64..2_000_000).prop_map(|(t, cycles)| Op::ChargeOther(t, cycles)),
        10 => (t(), -10i64..12_000).prop_map(|(t, cycles)| Op::Grant(t, cycles)),
    ]
}

impl Model {
    fn waits(&self, t: usize) -> bool {
        self.funded.contains(&t) || self.broke.contains(&t)
    }

    fn enqueue(&mut self, t: usize) {
        if self.budgets[t] > 0 { &mut self.funded } else { &mut self.broke }.push_back(t);
    }

    fn spend(&mut self, t: usize, cycles: u64) {
        let floor = -(config().floor_cycles as i64);
        self.budgets[t] = (self.budgets[t] - cycles as i64).max(floor);
        if self.budgets[t] <= 0 && self.funded.contains(&t) {
            self.funded.retain(|other| *other != t);
            self.broke.push_back(t);
        }
    }

    fn apply(&mut self, s: &mut Scheduler, op: Op) {
        match op {
            Op::Wake(t) => {
                s.wake(index(t as u16), 0);
                if !self.waits(t) && self.running.is_none_or(|(runs, _)| runs != t) {
                    self.enqueue(t);
                }
            }
            Op::Next if self.running.is_none() => {
                let slack = self.funded.is_empty();
                let next = self.funded.pop_front().or_else(|| self.broke.pop_front());
                let expected = next.map(|t| Turn {
                    tenant: index(t as u16),
                    budget_cycles: config().quantum_cycles,
                    slack,
                });
                assert_eq!(s.next(0), expected);
                self.running = next.map(|t| (t, slack));
            }
            Op::Finish(cycles, more) => {
                let Some((t, slack)) = self.running.take() else { return };
                s.charge(index(t as u16), cycles, 0);
                s.done(index(t as u16), more, 0);
                if !slack {
                    self.spend(t, cycles);
                }
                if more {
                    self.enqueue(t);
                }
            }
            Op::ChargeOther(t, cycles) => {
                if self.running.is_some_and(|(runs, _)| runs == t) {
                    return;
                }
                s.charge(index(t as u16), cycles, 0);
                self.spend(t, cycles);
            }
            Op::Grant(t, cycles) => {
                s.refill_grant(index(t as u16), cycles);
                let cap = config().cap_cycles as i64;
                self.budgets[t] = (self.budgets[t] + cycles.max(0)).min(cap);
                if self.budgets[t] > 0 && self.broke.contains(&t) {
                    self.broke.retain(|other| *other != t);
                    self.funded.push_back(t);
                }
            }
            Op::Next => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_coordinated_scheduler_agrees_with_the_plain_mechanism(
        ops in prop::collection::vec(op(), 1..300)
    ) {
        let mut s = coordinated(&["1", "2", "0.5", "1.71"]);
        let budgets = [config().cap_cycles as i64; TENANTS];
        let (funded, broke) = (VecDeque::new(), VecDeque::new());
        let mut model = Model { budgets, funded, broke, running: None };
        for op in ops {
            model.apply(&mut s, op);
            for t in 1..TENANTS {
                prop_assert_eq!(s.credit_cycles(index(t as u16)), model.budgets[t], "{}", t);
                let broke = model.budgets[t] <= 0;
                let must_yield = broke && !model.funded.is_empty();
                prop_assert_eq!(s.must_yield(index(t as u16)), must_yield);
            }
            prop_assert_eq!(s.any_funded_with_work(), !model.funded.is_empty());
        }
    }
}

/// What makes the two refills differ: registered tenants that do nothing take their part of the
/// grants with them, and what they leave is slack, which weights do not rule.
#[test]
fn idle_registered_tenants_dilute_the_shares_of_a_coordinated_refill_and_not_of_ours() {
    let share_of_heavy = |config, idle: usize| {
        let mut weights = vec![weight("1"), weight("3")];
        weights.extend(std::iter::repeat_n(weight("4"), idle));
        let port = |tenant| crate::sim::PortSpec {
            tenant,
            pmd: 0,
            cost_cycles: 500,
            arrivals: crate::sim::Arrivals::Saturating,
        };
        let ports = [port(A), port(B)];
        let mut switch = crate::sim::Switch::new(config, 1, weights, &ports).unwrap();
        switch.run(100_000_000);
        let cycles = |tenant: TenantIndex| switch.outcome(tenant).cycles as f64;
        cycles(B) / (cycles(A) + cycles(B))
    };
    let local = SchedulerConfig::default();
    for idle in [0, 9] {
        assert!((share_of_heavy(local, idle) - 0.75).abs() < 0.005);
    }
    // 0.85 by weight; the rest goes to the light one, which is broke first and so first in line.
    assert!((share_of_heavy(config(), 0) - 0.85 * 0.75).abs() < 0.01);
    // Nine tenths of the grants go to those who do nothing, and nearly all time is slack.
    assert!((share_of_heavy(config(), 9) - 0.5).abs() < 0.01);
}
