//! One simulated PMD.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::outcome::{Longest, Outcome};
use super::receive::{Nic, StreamSpec};
use super::traffic::{Arrivals, Source, TenantSpec};
use crate::books::{Account, Books};
use crate::config::{ConfigError, SchedulerConfig};
use crate::scheduler::{Scheduler, Turn};
use crate::tenant::TenantIndex;
use crate::verdict::{Stage, Verdict};

/// Most packets of one turn or one look at the network card, as in the PMD.
pub const TURN_PACKETS_MAX: u32 = 32;

#[derive(Debug)]
struct Simulated {
    source: Source,
    outcome: Outcome,
    /// Since when it has stood with work, waiting for a turn.
    waits_since_cycles: Option<u64>,
}

/// Who has a packet to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Tenant(u16),
    Stream(u16),
}

/// A PMD with tenants 1..=n.
#[derive(Debug)]
pub struct Simulation {
    /// The scheduler that is driven; may be changed between runs.
    pub scheduler: Scheduler,
    /// Every cycle simulated, by account.
    pub books: Books,
    /// The longest pieces of work so far.
    pub longest: Longest,
    now_cycles: u64,
    turn_overhead_cycles: u64,
    tenants: Vec<Simulated>,
    nic: Nic,
    /// When a tenant's or a stream's next packet arrives.
    events: BinaryHeap<Reverse<(u64, Origin)>>,
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
            longest: Longest::default(),
            now_cycles: 0,
            turn_overhead_cycles: 0,
            tenants: Vec::new(),
            nic: Nic::default(),
            events: BinaryHeap::new(),
        };
        for (index, spec) in (1..slots).zip(specs) {
            let added = simulation.scheduler.tenant_add(TenantIndex(index), spec.weight);
            debug_assert!(added.is_ok());
            let source = Source::new(spec);
            simulation.schedule(source.next_arrival_cycles(), Origin::Tenant(index));
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

    /// A sender in the network begins to send now.
    pub fn add_stream(&mut self, spec: StreamSpec) {
        let (stream, first_cycles) = self.nic.add(spec, self.now_cycles);
        self.schedule(Some(first_cycles), Origin::Stream(stream));
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

    /// Since when a tenant has stood with work that no turn of its own has begun for.
    #[must_use]
    pub fn waits_since_cycles(&self, tenant: TenantIndex) -> Option<u64> {
        self.get(tenant)?.waits_since_cycles
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
        let next_cycles = simulated.source.next_arrival_cycles();
        self.schedule(next_cycles, Origin::Tenant(tenant.0));
    }

    /// The tenant's share of all cycles spent for tenants, 0 to 1.
    #[must_use]
    pub fn share(&self, tenant: TenantIndex) -> f64 {
        let total: u64 = self.tenants.iter().map(|tenant| tenant.outcome.cycles).sum();
        self.get(tenant).map_or(0, |tenant| tenant.outcome.cycles) as f64 / total.max(1) as f64
    }

    /// Runs for `cycles` more; the turn that crosses the end is finished.
    pub fn run(&mut self, cycles: u64) {
        self.run_until(self.now_cycles + cycles);
    }

    /// Runs until then, unless it is later already.
    pub fn run_until(&mut self, end_cycles: u64) {
        while self.now_cycles < end_cycles {
            self.step(end_cycles);
        }
    }

    /// Once around the poll loop; whose turn it was.
    pub fn step(&mut self, end_cycles: u64) -> Option<TenantIndex> {
        self.take_arrivals();
        self.receive();
        let turn = self.scheduler.next(self.now_cycles);
        match turn {
            Some(turn) => self.take_turn(turn),
            None if self.nic.is_empty() => self.idle_until(end_cycles),
            // Else a core that only receives would do so for nothing.
            None => self.spend_on_system(),
        }
        turn.map(|turn| turn.tenant)
    }

    fn get(&self, tenant: TenantIndex) -> Option<&Simulated> {
        self.tenants.get(usize::from(tenant.0.checked_sub(1)?))
    }

    fn get_mut(&mut self, tenant: TenantIndex) -> Option<&mut Simulated> {
        self.tenants.get_mut(usize::from(tenant.0.checked_sub(1)?))
    }

    fn schedule(&mut self, at_cycles: Option<u64>, origin: Origin) {
        if let Some(at_cycles) = at_cycles {
            self.events.push(Reverse((at_cycles, origin)));
        }
    }

    /// Takes in all packets that have come by now.
    fn take_arrivals(&mut self) {
        while let Some(&Reverse((at_cycles, origin))) = self.events.peek() {
            if at_cycles > self.now_cycles {
                break;
            }
            self.events.pop();
            match origin {
                Origin::Tenant(index) => self.arrive(TenantIndex(index), at_cycles),
                Origin::Stream(stream) => {
                    let arrived = self.nic.arrive(stream, self.now_cycles);
                    let Some((owner, lost, next_cycles)) = arrived else { continue };
                    if let Some(owner) = self.get_mut(owner) {
                        owner.outcome.received.lost += lost;
                    }
                    self.schedule(Some(next_cycles), origin);
                }
            }
        }
    }

    fn arrive(&mut self, tenant: TenantIndex, at_cycles: u64) {
        let now_cycles = self.now_cycles;
        let Some(simulated) = self.get_mut(tenant) else { return };
        simulated.outcome.lost += simulated.source.arrive(now_cycles);
        let has_work = simulated.source.has_work(now_cycles);
        if has_work && simulated.waits_since_cycles.is_none() {
            simulated.waits_since_cycles = Some(at_cycles);
        }
        let next_cycles = simulated.source.next_arrival_cycles();
        self.schedule(next_cycles, Origin::Tenant(tenant.0));
        if has_work {
            self.scheduler.wake(tenant, now_cycles);
        }
    }

    /// Looks at the network card: a burst, of no more than a quantum.
    fn receive(&mut self) {
        let begun_cycles = self.now_cycles;
        let deadline_cycles = begun_cycles + self.scheduler.config().quantum_cycles;
        for _ in 0..TURN_PACKETS_MAX {
            let Some((stream, spec)) = self.nic.take() else { break };
            let verdict = self.receive_one(&spec);
            if verdict != Verdict::Deliver {
                self.nic.tell(stream);
            }
            if self.now_cycles >= deadline_cycles {
                break;
            }
        }
        self.longest.rx_cycles = self.longest.rx_cycles.max(self.now_cycles - begun_cycles);
    }

    /// Both verdicts come before the packet's own cost is charged.
    fn receive_one(&mut self, spec: &StreamSpec) -> Verdict {
        let owner = spec.owner;
        let verdict = |stage| self.scheduler.verdict(owner, stage, spec.ecn_capable);
        let dropped_early = spec.early && verdict(Stage::Early) == Verdict::Drop;
        let verdict = verdict(Stage::PostAttribution);
        let (verdict, cost_cycles) = match verdict {
            _ if dropped_early => (Verdict::Drop, 0),
            Verdict::Drop => (verdict, spec.classify_cycles),
            _ => (verdict, spec.classify_cycles + spec.deliver_cycles),
        };
        self.charge(owner, spec.parse_cycles + cost_cycles);
        if let Some(owner) = self.get_mut(owner) {
            let received = &mut owner.outcome.received;
            received.dropped += u64::from(verdict == Verdict::Drop);
            received.delivered += u64::from(verdict != Verdict::Drop);
            received.marked += u64::from(verdict == Verdict::Mark);
        }
        verdict
    }

    /// Spends time on a tenant.
    fn charge(&mut self, tenant: TenantIndex, cycles: u64) {
        self.now_cycles += cycles;
        self.books.charge(Account::Tenant(tenant), cycles);
        self.scheduler.charge(tenant, cycles, self.now_cycles);
        if let Some(simulated) = self.get_mut(tenant) {
            simulated.outcome.cycles += cycles;
        }
    }

    fn idle_until(&mut self, end_cycles: u64) {
        let next = self.events.peek().map_or(end_cycles, |Reverse((at_cycles, _))| *at_cycles);
        let until_cycles = next.min(end_cycles).max(self.now_cycles + 1);
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
            let Some(packet) = simulated.source.take(begun_cycles + spent_cycles) else { break };
            spent_cycles += packet.cost_cycles;
            packets += 1;
            if !simulated.source.is_saturating() {
                outcome.sojourn_cycles.push(begun_cycles + spent_cycles - packet.time_cycles);
            }
        }
        outcome.packets += u64::from(packets);
        outcome.turns += 1;
        let end_cycles = begun_cycles + spent_cycles;
        let has_more_work = simulated.source.has_work(end_cycles);
        simulated.waits_since_cycles = has_more_work.then_some(end_cycles);
        self.charge(turn.tenant, spent_cycles);
        self.scheduler.done(turn.tenant, has_more_work, end_cycles);
        self.longest.task_cycles = self.longest.task_cycles.max(spent_cycles);
        self.spend_on_system();
        // An empty turn takes time too, else a simulated core could stand still.
        if self.now_cycles == begun_cycles {
            self.books.charge(Account::Tenant(TenantIndex::SYSTEM), 1);
            self.now_cycles += 1;
        }
    }

    fn spend_on_system(&mut self) {
        let cycles = self.turn_overhead_cycles;
        self.books.charge(Account::Tenant(TenantIndex::SYSTEM), cycles);
        self.scheduler.charge(TenantIndex::SYSTEM, cycles, self.now_cycles);
        self.now_cycles += cycles;
        self.longest.system_cycles = self.longest.system_cycles.max(cycles);
    }
}
