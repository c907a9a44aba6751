//! A polling core in miniature: synthetic tenants, a fake clock, and the very scheduler and books
//! that the PMD uses. Deterministic: the same input gives the same figures on every machine.

mod traffic;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::books::{Account, Books};
use crate::config::{ConfigError, SchedulerConfig};
use crate::scheduler::{Scheduler, Turn};
use crate::tenant::TenantIndex;
use traffic::Source;
pub use traffic::{Arrivals, TenantSpec};

/// Most packets of one turn, as in the PMD.
pub const TURN_PACKETS_MAX: u32 = 32;

/// What one tenant got.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cycles spent for it.
    pub cycles: u64,
    /// Packets processed.
    pub packets: u64,
    /// Packets that found its ring full.
    pub lost: u64,
    /// Turns taken.
    pub turns: u64,
    /// From the arrival of each packet to the end of its processing; not for saturating traffic.
    pub sojourn_cycles: Vec<u64>,
    /// The longest that it stood with work before a turn began.
    pub wait_cycles_max: u64,
}

impl Outcome {
    /// The q-quantile of the sojourn times (0 to 1); 0 without any.
    #[must_use]
    pub fn sojourn_quantile_cycles(&self, q: f64) -> u64 {
        let mut sorted = self.sojourn_cycles.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * q).round() as usize).copied().unwrap_or(0)
    }
}

#[derive(Debug)]
struct Simulated {
    source: Source,
    outcome: Outcome,
    /// Since when it has stood with work, waiting for a turn.
    waits_since_cycles: Option<u64>,
}

/// A PMD with tenants 1..=n.
#[derive(Debug)]
pub struct Simulation {
    /// The scheduler that is driven; may be changed between runs.
    pub scheduler: Scheduler,
    /// Every cycle simulated, by account.
    pub books: Books,
    now_cycles: u64,
    turn_overhead_cycles: u64,
    tenants: Vec<Simulated>,
    /// When a tenant's next packet arrives.
    events: BinaryHeap<Reverse<(u64, u16)>>,
}

impl Simulation {
    /// A core with the given tenants, which start at time 0.
    ///
    /// # Errors
    /// When a knob of `config` is out of range.
    pub fn new(config: SchedulerConfig, specs: Vec<TenantSpec>) -> Result<Self, ConfigError> {
        // The table is sized to fit, so that no tenant can be refused.
        let slots = u16::try_from(specs.len() + 1).unwrap_or(u16::MAX);
        let mut simulation = Self {
            scheduler: Scheduler::new(config, slots)?,
            books: Books::new(slots),
            now_cycles: 0,
            turn_overhead_cycles: 0,
            tenants: Vec::new(),
            events: BinaryHeap::new(),
        };
        for (index, spec) in (1..slots).zip(specs) {
            let added = simulation.scheduler.tenant_add(TenantIndex(index), spec.weight);
            debug_assert!(added.is_ok());
            let source = Source::new(spec);
            simulation.schedule(index, &source);
            simulation.tenants.push(Simulated {
                source,
                outcome: Outcome::default(),
                waits_since_cycles: None,
            });
        }
        Ok(simulation)
    }

    /// Cycles that the switch spends on itself in every turn.
    #[must_use]
    pub fn with_turn_overhead_cycles(mut self, cycles: u64) -> Self {
        self.turn_overhead_cycles = cycles;
        self
    }

    /// The time.
    #[must_use]
    pub fn now_cycles(&self) -> u64 {
        self.now_cycles
    }

    /// What a tenant got so far.
    #[must_use]
    pub fn outcome(&self, tenant: TenantIndex) -> Outcome {
        self.get(tenant).map(|tenant| tenant.outcome.clone()).unwrap_or_default()
    }

    /// Forgets all outcomes, for figures without the start.
    pub fn reset_outcomes(&mut self) {
        for tenant in &mut self.tenants {
            tenant.outcome = Outcome::default();
        }
    }

    /// Gives a tenant other traffic from now on. Its weight stays the scheduler's.
    pub fn set_arrivals(&mut self, tenant: TenantIndex, arrivals: Arrivals) {
        let now_cycles = self.now_cycles;
        let Some(simulated) = self.get_mut(tenant) else { return };
        simulated.source.replace(arrivals, now_cycles);
        let source = simulated.source.clone();
        self.schedule(tenant.0, &source);
    }

    /// The tenant's share of all cycles spent for tenants, 0 to 1.
    #[must_use]
    pub fn share(&self, tenant: TenantIndex) -> f64 {
        let total: u64 = self.tenants.iter().map(|tenant| tenant.outcome.cycles).sum();
        self.outcome(tenant).cycles as f64 / total.max(1) as f64
    }

    /// Runs for `cycles` more; the turn that crosses the end is finished.
    pub fn run(&mut self, cycles: u64) {
        let end_cycles = self.now_cycles + cycles;
        while self.now_cycles < end_cycles {
            self.take_arrivals();
            match self.scheduler.next(self.now_cycles) {
                Some(turn) => self.take_turn(turn),
                None => self.idle_until(end_cycles),
            }
        }
    }

    fn get(&self, tenant: TenantIndex) -> Option<&Simulated> {
        self.tenants.get(usize::from(tenant.0.checked_sub(1)?))
    }

    fn get_mut(&mut self, tenant: TenantIndex) -> Option<&mut Simulated> {
        self.tenants.get_mut(usize::from(tenant.0.checked_sub(1)?))
    }

    fn schedule(&mut self, index: u16, source: &Source) {
        if let Some(at_cycles) = source.next_arrival_cycles() {
            self.events.push(Reverse((at_cycles, index)));
        }
    }

    /// Wakes whoever has packets by now.
    fn take_arrivals(&mut self) {
        while let Some(&Reverse((at_cycles, index))) = self.events.peek() {
            if at_cycles > self.now_cycles {
                break;
            }
            self.events.pop();
            let (tenant, now_cycles) = (TenantIndex(index), self.now_cycles);
            let Some(simulated) = self.get_mut(tenant) else { continue };
            simulated.outcome.lost += simulated.source.arrive(now_cycles);
            let has_work = simulated.source.has_work(now_cycles);
            if has_work && simulated.waits_since_cycles.is_none() {
                simulated.waits_since_cycles = Some(at_cycles);
            }
            let source = simulated.source.clone();
            self.schedule(index, &source);
            if has_work {
                self.scheduler.wake(tenant, now_cycles);
            }
        }
    }

    fn idle_until(&mut self, end_cycles: u64) {
        let next = self.events.peek().map_or(end_cycles, |Reverse((at_cycles, _))| *at_cycles);
        let until_cycles = next.clamp(self.now_cycles, end_cycles).max(self.now_cycles + 1);
        self.books.charge(Account::Idle, until_cycles - self.now_cycles);
        self.now_cycles = until_cycles;
    }

    fn take_turn(&mut self, turn: Turn) {
        let begun_cycles = self.now_cycles;
        let Some(simulated) = self.get_mut(turn.tenant) else { return };
        let outcome = &mut simulated.outcome;
        if let Some(since_cycles) = simulated.waits_since_cycles.take() {
            outcome.wait_cycles_max = outcome.wait_cycles_max.max(begun_cycles - since_cycles);
        }
        let (mut spent_cycles, mut packets) = (0, 0);
        while packets < TURN_PACKETS_MAX && spent_cycles < turn.budget_cycles {
            let Some(arrived_cycles) = simulated.source.take(begun_cycles + spent_cycles) else {
                break;
            };
            spent_cycles += simulated.source.cost_cycles();
            packets += 1;
            if !simulated.source.is_saturating() {
                outcome.sojourn_cycles.push(begun_cycles + spent_cycles - arrived_cycles);
            }
        }
        outcome.cycles += spent_cycles;
        outcome.packets += u64::from(packets);
        outcome.turns += 1;
        let now_cycles = begun_cycles + spent_cycles;
        let has_more_work = simulated.source.has_work(now_cycles);
        simulated.waits_since_cycles = has_more_work.then_some(now_cycles);
        self.now_cycles = now_cycles;
        self.books.charge(Account::Tenant(turn.tenant), spent_cycles);
        self.scheduler.charge(turn.tenant, spent_cycles, now_cycles);
        self.scheduler.done(turn.tenant, has_more_work, now_cycles);
        // An empty turn takes time too, else a simulated core could stand still.
        let overhead_cycles = self.turn_overhead_cycles.max(u64::from(spent_cycles == 0));
        self.books.charge(Account::Tenant(TenantIndex::SYSTEM), overhead_cycles);
        self.scheduler.charge(TenantIndex::SYSTEM, overhead_cycles, now_cycles);
        self.now_cycles += overhead_cycles;
    }
}
