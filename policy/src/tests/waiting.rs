//! How long a funded tenant with work waits, and for whom.

use super::{any_weight, config, index, weight};
use crate::sim::{Arrivals, Simulation, TenantSpec};
use crate::{Scheduler, TenantIndex, Weight};
use proptest::prelude::*;

const TENANTS: usize = 8;

#[derive(Clone, Debug)]
enum Op {
    Wake(usize),
    /// A whole turn that costs this much, and whether work is left.
    Turn(u64, bool),
    ChargeOutsideTurn(usize, u64),
    SetWeight(usize, Weight),
}

fn op() -> impl Strategy<Value = Op> {
    let cost = || prop_oneof![4 => 1u64..8000, 1 => 1u64..100_000];
    prop_oneof![
        10 => (1..TENANTS).prop_map(Op::Wake),
        20 => (cost(), prop::bool::weighted(0.6)).prop_map(|(c, more)| Op::Turn(c, more)),
        2 => (1..TENANTS, cost()).prop_map(|(t, cycles)| Op::ChargeOutsideTurn(t, cycles)),
        1 => (1..TENANTS, any_weight()).prop_map(|(t, weight)| Op::SetWeight(t, weight)),
    ]
}

/// Who has passed whom: for every tenant that waits with credit, what each of the others has spent
/// in turns that began since it has done so.
struct Watch {
    scheduler: Scheduler,
    has_work: [bool; TENANTS],
    passed_cycles: [Option<[u64; TENANTS]>; TENANTS],
}

impl Watch {
    fn new() -> Self {
        let mut scheduler = Scheduler::new(config(), TENANTS as u16).unwrap();
        for t in 1..TENANTS as u16 {
            scheduler.tenant_add(index(t), weight(["1", "2", "0.5"][usize::from(t) % 3])).unwrap();
        }
        Self { scheduler, has_work: [false; TENANTS], passed_cycles: [None; TENANTS] }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Wake(t) => {
                self.scheduler.wake(index(t as u16), 0);
                self.has_work[t] = true;
            }
            Op::Turn(cycles, more) => self.turn(cycles, more),
            Op::ChargeOutsideTurn(t, cycles) => self.scheduler.charge(index(t as u16), cycles, 0),
            Op::SetWeight(t, weight) => {
                self.scheduler.set_weight(index(t as u16), weight).unwrap();
            }
        }
        for t in 1..TENANTS {
            let waits_funded = self.has_work[t] && !self.scheduler.in_debt(index(t as u16));
            self.passed_cycles[t] =
                waits_funded.then(|| self.passed_cycles[t].unwrap_or([0; TENANTS]));
        }
    }

    fn turn(&mut self, cycles: u64, more: bool) {
        let Some(turn) = self.scheduler.next(0) else {
            assert_eq!(self.has_work, [false; TENANTS], "work, but no turn");
            return;
        };
        let runs = turn.tenant.slot();
        assert!(self.has_work[runs], "a turn without work");
        self.passed_cycles[runs] = None;
        for passed in self.passed_cycles.iter_mut().flatten() {
            assert!(!turn.slack, "slack although a funded tenant waits");
            assert!(passed[runs] < config().quantum_cycles, "{runs} passed for a quantum already");
            passed[runs] += cycles;
        }
        self.scheduler.charge(turn.tenant, cycles, 0);
        self.scheduler.done(turn.tenant, more, 0);
        self.has_work[runs] = more;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// The promise: a funded tenant with work waits for at most one quantum (and what the last
    /// packet runs over) of each other tenant, and for no slack turn; and the scheduler is work
    /// conserving.
    #[test]
    fn nobody_passes_a_waiting_funded_tenant_for_more_than_a_quantum(
        ops in prop::collection::vec(op(), 1..400)
    ) {
        let mut watch = Watch::new();
        for op in ops {
            watch.apply(op);
        }
    }
}

/// One request every 100 us (at 2.5 GHz) beside saturating neighbours.
fn interactive_among(neighbours: usize, cost_cycles: u64) -> Simulation {
    let arrivals = Arrivals::Every { period_cycles: 250_000, packets: 1, first_cycles: 20_000_077 };
    let victim = TenantSpec { weight: Weight::ONE, cost_cycles: 800, arrivals };
    let neighbour = TenantSpec { weight: Weight::ONE, cost_cycles, arrivals: Arrivals::Saturating };
    let specs = std::iter::once(victim).chain(std::iter::repeat_n(neighbour, neighbours));
    Simulation::new(config(), specs.collect()).unwrap()
}

const VICTIM: TenantIndex = TenantIndex(1);

/// As long as its use in one round of the others stays below the cap.
#[test]
fn an_interactive_tenant_waits_for_one_task_however_many_neighbours_saturate() {
    let crowds = [(1, 50_000), (2, 150), (8, 50_000), (32, 900), (32, 50_000), (256, 7000)];
    for (neighbours, cost_cycles) in crowds {
        let mut simulation = interactive_among(neighbours, cost_cycles);
        // Until then all neighbours are newcomers like itself and before it in the new list.
        simulation.run(20_000_000);
        for _ in 0..400 {
            simulation.run(25_000);
            let credit_cycles = simulation.scheduler.credit_cycles(VICTIM);
            assert!(credit_cycles > 0, "{neighbours} x {cost_cycles}: {credit_cycles}");
        }
        let victim = simulation.outcome(VICTIM);
        assert!(victim.packets >= 30, "{neighbours} x {cost_cycles}: {victim:?}");
        let task_cycles = config().quantum_cycles + cost_cycles;
        assert!(
            victim.wait_cycles_max <= task_cycles,
            "{neighbours} x {cost_cycles}: waited {}",
            victim.wait_cycles_max
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Below its share a tenant does not fall into debt, so nobody in debt ever runs before it;
    /// given that no newcomer uses up a lead and that one turn of a neighbour, by weight, is well
    /// below the cap.
    #[test]
    fn a_tenant_below_its_share_is_never_in_debt(
        thousandths in 100u32..2000,
        neighbours in prop::collection::vec((0u32..2000, 100u64..5000), 1..12),
        cost_cycles in 100u64..3000,
        packets in 1u32..4,
    ) {
        let weight = |thousandths| Weight::from_thousandths(thousandths).unwrap();
        let mut specs: Vec<TenantSpec> = neighbours
            .iter()
            .map(|(more, cost_cycles)| TenantSpec {
                weight: weight(thousandths + more),
                cost_cycles: *cost_cycles,
                arrivals: Arrivals::Saturating,
            })
            .collect();
        let total: u32 = specs.iter().map(|spec| spec.weight.thousandths()).sum::<u32>();
        // Nine tenths of its share.
        let busy_cycles = cost_cycles * u64::from(packets);
        let share_divisor = u64::from(total + thousandths) * 10;
        let period_cycles = busy_cycles * share_divisor / u64::from(thousandths) / 9 + 1;
        let arrivals = Arrivals::Every { period_cycles, packets, first_cycles: 2_000_000 };
        specs.insert(0, TenantSpec { weight: weight(thousandths), cost_cycles, arrivals });
        let mut simulation = Simulation::new(config(), specs).unwrap();
        for _ in 0..2000 {
            simulation.run(10_000);
            prop_assert!(!simulation.scheduler.in_debt(VICTIM));
        }
        prop_assert_eq!(simulation.outcome(VICTIM).lost, 0);
    }
}
