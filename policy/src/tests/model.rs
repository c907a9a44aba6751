//! The scheduler against an oracle that does everything the plain way: every credit is brought up
//! to date at every step of the clock, and every choice is a scan of all tenants.

use std::collections::VecDeque;

use super::{any_weight, index};
use crate::limits::{CREDIT_CYCLES_MAX, EMPTY_TURN_CYCLES};
use crate::{RxOverrun, Scheduler, SchedulerConfig, Stage, TenantKnobs, Turn, Verdict, Weight};
use proptest::prelude::*;

const TENANTS: u16 = 7;
const ONE_CYCLE: i128 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Asleep,
    New,
    Old,
    Debt,
    Running,
}

#[derive(Clone, Debug)]
struct Tenant {
    weight: i128,
    credit: i128,
    cap: i128,
    floor: i128,
    overrun: RxOverrun,
    mark_depth: i128,
    state: State,
    old_since: u64,
    charged: bool,
    emptied: Option<u64>,
    used: u64,
    later: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Model {
    quantum: u64,
    cap: i128,
    floor: i128,
    horizon: u64,
    protection: bool,
    now: i128,
    furthest: i128,
    remainder: i128,
    tenants: Vec<Option<Tenant>>,
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    sequence: u64,
    busy_until: u64,
}

impl Model {
    fn new(config: SchedulerConfig) -> Self {
        Self {
            quantum: config.quantum_cycles,
            cap: i128::from(config.cap_cycles) * ONE_CYCLE,
            floor: i128::from(config.floor_cycles) * ONE_CYCLE,
            horizon: config.horizon_cycles,
            protection: true,
            now: 0,
            furthest: 0,
            remainder: 0,
            tenants: vec![None; usize::from(TENANTS)],
            new: VecDeque::new(),
            old: VecDeque::new(),
            sequence: 0,
            busy_until: 0,
        }
    }

    fn get(&self, t: u16) -> Option<&Tenant> {
        self.tenants[usize::from(t)].as_ref()
    }

    fn at(&mut self, t: u16) -> &mut Tenant {
        self.tenants[usize::from(t)].as_mut().unwrap()
    }

    fn busy(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.iter().flatten().filter(|tenant| tenant.state != State::Asleep)
    }

    fn tag(&self, tenant: &Tenant) -> i128 {
        self.now + (-tenant.credit).max(0) / tenant.weight
    }

    fn debtors(&self) -> Vec<(i128, u16)> {
        let all = (0u16..).zip(&self.tenants).filter_map(|(t, tenant)| Some((t, tenant.as_ref()?)));
        let in_debt = all.filter(|(_, tenant)| tenant.state == State::Debt);
        let mut debtors: Vec<_> = in_debt.map(|(t, tenant)| (self.tag(tenant), t)).collect();
        debtors.sort_unstable();
        debtors
    }

    fn first_tag(&self) -> Option<i128> {
        self.debtors().first().map(|(tag, _)| *tag)
    }

    fn move_to(&mut self, target: i128) {
        let step = (target - self.now).max(0);
        for tenant in self.tenants.iter_mut().flatten() {
            tenant.credit = (tenant.credit + tenant.weight * step).min(tenant.cap);
        }
        self.now += step;
    }

    fn forget_after_idling(&mut self, time: u64) {
        if self.busy().count() == 0 && time - self.busy_until >= self.horizon {
            self.move_to(self.now + 2 * i128::from(CREDIT_CYCLES_MAX) * ONE_CYCLE);
        }
        self.busy_until = time;
    }

    fn unlist(&mut self, t: u16) {
        self.new.retain(|other| *other != t);
        self.old.retain(|other| *other != t);
    }

    fn enqueue_again(&mut self, t: u16) {
        if !self.protection || self.get(t).unwrap().credit > 0 {
            self.at(t).state = State::Old;
            self.at(t).old_since = self.sequence;
            self.sequence += 1;
            self.old.push_back(t);
        } else {
            self.at(t).state = State::Debt;
        }
    }

    fn waits_since_before(&self, moment: u64) -> bool {
        self.old.iter().any(|t| self.get(*t).unwrap().old_since < moment)
    }

    fn wake(&mut self, t: u16, time: u64) {
        if self.get(t).is_none_or(|tenant| tenant.state != State::Asleep) {
            return;
        }
        self.forget_after_idling(time);
        let tenant = self.get(t).unwrap().clone();
        let (used, later) = match tenant.emptied.filter(|at| self.waits_since_before(*at)) {
            None => (0, None),
            Some(emptied) => match tenant.later {
                Some((at, used)) if !self.waits_since_before(at) => (used, Some((emptied, 0))),
                later => (tenant.used, later.or(Some((emptied, 0)))),
            },
        };
        self.at(t).used = used;
        self.at(t).later = later;
        if self.protection && tenant.credit > 0 && used < self.quantum {
            self.at(t).state = State::New;
            self.new.push_back(t);
        } else {
            self.enqueue_again(t);
        }
    }

    fn next(&mut self, turn: Option<Turn>) {
        let Some(turn) = turn else {
            assert!(self.busy().all(|tenant| tenant.state == State::Running));
            if self.busy().count() == 0 {
                self.move_to(self.furthest);
                // But for the fraction of a cycle by which tags are rounded down.
                let mut all = self.tenants.iter().flatten();
                assert!(all.all(|tenant| tenant.credit > -ONE_CYCLE));
            }
            return;
        };
        let t = turn.tenant.0;
        let tenant = self.get(t).unwrap().clone();
        let mut expected = (self.quantum, false);
        if let Some(first) = self.new.front() {
            assert_eq!(t, *first);
            expected.0 -= tenant.used;
        } else if let Some(first) = self.old.front() {
            assert_eq!(t, *first);
        } else {
            assert_eq!(Some(t), self.debtors().first().map(|(_, t)| *t));
            expected.1 = true;
        }
        if !self.protection {
            expected = (u64::MAX, false);
        }
        assert_eq!((turn.budget_cycles, turn.slack), expected);
        self.move_to(self.tag(&tenant));
        self.unlist(t);
        self.at(t).state = State::Running;
        self.at(t).charged = false;
    }

    fn charge(&mut self, t: u16, cycles: u64, time: u64) {
        if cycles == 0 || self.get(t).is_none() {
            return;
        }
        self.forget_after_idling(time);
        let before = self.get(t).unwrap().clone();
        let protection = self.protection;
        let tenant = self.at(t);
        tenant.credit = (tenant.credit - i128::from(cycles) * ONE_CYCLE).max(-tenant.floor);
        if tenant.state == State::Running {
            tenant.charged = true;
            tenant.used = tenant.used.saturating_add(cycles);
            tenant.later = tenant.later.map(|(at, used)| (at, used.saturating_add(cycles)));
        }
        self.owed_at_rest(t);
        let listed = matches!(before.state, State::New | State::Old);
        let tenant = self.at(t);
        if listed && protection && tenant.credit <= 0 {
            tenant.state = State::Debt;
            self.unlist(t);
        }
        if !self.new.is_empty() || !self.old.is_empty() {
            return;
        }
        let first_tag = self.first_tag();
        if before.state == State::Asleep {
            let own = self.tag(&before);
            self.move_to(first_tag.map_or(own, |first| own.min(first)));
        }
        if let Some(ceiling) = first_tag.filter(|ceiling| *ceiling > self.now) {
            let weight: i128 = self.busy().map(|tenant| tenant.weight).sum();
            let scaled = i128::from(cycles) * ONE_CYCLE + self.remainder;
            self.remainder = scaled % weight;
            self.move_to((self.now + scaled / weight).min(ceiling));
        }
    }

    fn done(&mut self, t: u16, more: bool, time: u64) {
        match self.get(t).map(|tenant| (tenant.state, tenant.charged)) {
            Some((State::Running, true)) => {}
            Some((State::Running, false)) => self.charge(t, EMPTY_TURN_CYCLES, time),
            Some((State::New | State::Old | State::Debt, _)) if !more => self.unlist(t),
            Some((State::Asleep, _)) if more => return self.wake(t, time),
            _ => return,
        }
        self.busy_until = time;
        if more {
            self.enqueue_again(t);
        } else {
            self.at(t).emptied = Some(self.sequence);
            self.at(t).state = State::Asleep;
            self.owed_at_rest(t);
        }
    }

    fn owed_at_rest(&mut self, t: u16) {
        let tenant = self.get(t).unwrap();
        if tenant.state == State::Asleep {
            self.furthest = self.furthest.max(self.tag(tenant));
        }
    }

    fn add(&mut self, t: u16, weight: Weight) {
        self.tenants[usize::from(t)].get_or_insert(Tenant {
            weight: i128::from(weight.thousandths()),
            credit: self.cap,
            cap: self.cap,
            floor: self.floor,
            overrun: RxOverrun::Drop,
            mark_depth: 0,
            state: State::Asleep,
            old_since: 0,
            charged: false,
            emptied: None,
            used: 0,
            later: None,
        });
    }

    fn remove(&mut self, t: u16) {
        self.unlist(t);
        self.tenants[usize::from(t)] = None;
    }

    fn set_weight(&mut self, t: u16, weight: Weight) {
        if self.get(t).is_some() {
            self.at(t).weight = i128::from(weight.thousandths());
            self.owed_at_rest(t);
        }
    }

    fn set_knobs(&mut self, t: u16, knobs: &TenantKnobs) {
        if self.get(t).is_some() {
            let tenant = self.at(t);
            tenant.weight = i128::from(knobs.weight.thousandths());
            tenant.cap = i128::from(knobs.cap_cycles) * ONE_CYCLE;
            tenant.floor = i128::from(knobs.floor_cycles) * ONE_CYCLE;
            tenant.credit = tenant.credit.clamp(-tenant.floor, tenant.cap);
            tenant.overrun = knobs.rx_overrun;
            tenant.mark_depth = i128::from(knobs.mark_depth_cycles) * ONE_CYCLE;
            self.owed_at_rest(t);
        }
    }

    /// As the rules are written, one by one.
    fn verdict(&self, t: u16, stage: Stage, ecn_capable: bool) -> Verdict {
        let Some(tenant) = self.get(t).filter(|_| self.must_yield(t)) else {
            return Verdict::Deliver;
        };
        let markable = ecn_capable && stage == Stage::PostAttribution;
        let shallow = tenant.credit > -tenant.mark_depth;
        match (tenant.overrun, ecn_capable, shallow) {
            (RxOverrun::Drop, _, _)
            | (RxOverrun::MarkThenDrop, false, _)
            | (RxOverrun::MarkThenDrop, true, false) => Verdict::Drop,
            (RxOverrun::Mark | RxOverrun::MarkThenDrop, _, _) if markable => Verdict::Mark,
            _ => Verdict::Deliver,
        }
    }

    fn must_yield(&self, t: u16) -> bool {
        let Some(tenant) = self.get(t) else { return false };
        let listed = !self.new.is_empty() || !self.old.is_empty();
        let behind = self.first_tag().is_some_and(|first| first < self.tag(tenant));
        let quantum = i128::from(self.quantum) * ONE_CYCLE;
        self.protection && tenant.credit <= -quantum && (listed || behind)
    }

    fn set_protection(&mut self, on: bool) {
        if self.protection == on {
            return;
        }
        self.protection = on;
        let mut order: Vec<u16> = self.new.drain(..).chain(self.old.drain(..)).collect();
        order.extend(self.debtors().into_iter().map(|(_, t)| t));
        for t in order {
            self.enqueue_again(t);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Wake(u16),
    Next,
    Charge(u16, u64),
    /// Charges and ends the turn that began first.
    Finish(u64, bool),
    Done(u16, bool),
    Add(u16, Weight),
    Remove(u16),
    SetWeight(u16, Weight),
    SetKnobs(u16, TenantKnobs),
    SetProtection(bool),
    Pass(u64),
}

fn cycles() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 1u64..6000,
        2 => 0u64..60_000,
        1 => 0u64..5_000_000,
        1 => Just(u64::MAX),
    ]
}

fn knobs() -> impl Strategy<Value = TenantKnobs> {
    let overrun = prop::sample::select(RxOverrun::ALL.as_slice());
    (any_weight(), 10_000u64..100_000, 5000u64..300_000, overrun, 0u64..100_000).prop_map(
        |(weight, cap_cycles, floor_cycles, rx_overrun, depth)| TenantKnobs {
            weight,
            cap_cycles,
            floor_cycles,
            rx_overrun,
            mark_depth_cycles: depth.min(floor_cycles),
            ..TenantKnobs::new(&config())
        },
    )
}

fn config() -> SchedulerConfig {
    SchedulerConfig { floor_cycles: 300_000, horizon_cycles: 300_000, ..SchedulerConfig::default() }
}

fn op() -> impl Strategy<Value = Op> {
    let t = || 0..TENANTS;
    prop_oneof![
        10 => t().prop_map(Op::Wake),
        20 => Just(Op::Next),
        5 => (t(), cycles()).prop_map(|(t, cycles)| Op::Charge(t, cycles)),
        20 => (cycles(), prop::bool::weighted(0.7)).prop_map(|(c, more)| Op::Finish(c, more)),
        2 => (t(), any::<bool>()).prop_map(|(t, more)| Op::Done(t, more)),
        2 => (t(), any_weight()).prop_map(|(t, weight)| Op::Add(t, weight)),
        1 => t().prop_map(Op::Remove),
        1 => (t(), any_weight()).prop_map(|(t, weight)| Op::SetWeight(t, weight)),
        1 => (t(), knobs()).prop_map(|(t, knobs)| Op::SetKnobs(t, knobs)),
        1 => prop::bool::weighted(0.8).prop_map(Op::SetProtection),
        3 => (0u64..400_000).prop_map(Op::Pass),
    ]
}

struct Pair {
    real: Scheduler,
    model: Model,
    running: VecDeque<u16>,
    time: u64,
}

impl Pair {
    fn new() -> Self {
        let real = Scheduler::new(config(), TENANTS).unwrap();
        let mut pair =
            Self { real, model: Model::new(config()), running: VecDeque::new(), time: 0 };
        for t in 1..TENANTS - 1 {
            pair.apply(Op::Add(t, Weight::from_thousandths(u32::from(t) * 700).unwrap()));
        }
        pair
    }

    fn apply(&mut self, op: Op) {
        let (real, model, time) = (&mut self.real, &mut self.model, self.time);
        match op {
            Op::Wake(t) => {
                real.wake(index(t), time);
                model.wake(t, time);
            }
            Op::Next => {
                let turn = real.next(time);
                model.next(turn);
                self.running.extend(turn.map(|turn| turn.tenant.0));
            }
            Op::Charge(t, cycles) => {
                real.charge(index(t), cycles, time);
                model.charge(t, cycles, time);
            }
            Op::Finish(cycles, more) => {
                let Some(t) = self.running.pop_front() else { return };
                real.charge(index(t), cycles, time);
                model.charge(t, cycles, time);
                real.done(index(t), more, time);
                model.done(t, more, time);
            }
            Op::Done(t, more) => {
                real.done(index(t), more, time);
                model.done(t, more, time);
            }
            Op::Add(t, weight) if t > 0 => {
                let added = real.tenant_add(index(t), weight).is_ok();
                assert_eq!(added, model.get(t).is_none());
                model.add(t, weight);
            }
            Op::Remove(t) => {
                assert_eq!(real.tenant_remove(index(t)).is_ok(), model.get(t).is_some());
                model.remove(t);
            }
            Op::SetWeight(t, weight) => {
                assert_eq!(real.set_weight(index(t), weight).is_ok(), model.get(t).is_some());
                model.set_weight(t, weight);
            }
            Op::SetKnobs(t, knobs) => {
                let known = model.get(t).is_some();
                assert_eq!(real.set_knobs(index(t), &knobs).is_ok(), known);
                model.set_knobs(t, &knobs);
            }
            Op::SetProtection(on) => {
                real.set_protection(on);
                model.set_protection(on);
            }
            Op::Pass(cycles) => self.time += cycles,
            Op::Add(..) => {}
        }
    }

    fn check(&self) {
        let (real, model) = (&self.real, &self.model);
        for t in 0..TENANTS {
            let credit = model.get(t).map(|tenant| tenant.credit);
            assert_eq!(real.credit_scaled(index(t)).map(i128::from), credit, "credit of {t}");
            assert_eq!(real.in_debt(index(t)), credit.is_some_and(|credit| credit <= 0));
            if let Some(Tenant { credit, cap, floor, .. }) = model.get(t).cloned() {
                assert!((-floor..=cap).contains(&credit), "credit of {t}: {credit}");
                assert_eq!(i128::from(real.credit_cycles(index(t))), ceil(credit));
            }
        }
        let listed = !model.new.is_empty() || !model.old.is_empty();
        assert_eq!(real.any_funded_with_work(), listed && model.protection);
        if model.protection {
            for t in model.new.iter().chain(&model.old) {
                assert!(model.get(*t).unwrap().credit > 0, "{t} is listed without credit");
            }
            assert!(model.first_tag().is_none_or(|first| first >= model.now));
        }
        for t in 0..TENANTS {
            assert_eq!(real.must_yield(index(t)), model.must_yield(t), "{t}");
            for (stage, ecn_capable) in [
                (Stage::Early, false),
                (Stage::Early, true),
                (Stage::PostAttribution, false),
                (Stage::PostAttribution, true),
            ] {
                let verdict = real.verdict(index(t), stage, ecn_capable);
                assert_eq!(verdict, model.verdict(t, stage, ecn_capable), "{t}");
            }
        }
    }
}

fn ceil(scaled: i128) -> i128 {
    scaled.div_euclid(ONE_CYCLE) + i128::from(scaled.rem_euclid(ONE_CYCLE) != 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn scheduler_agrees_with_the_plain_oracle(ops in prop::collection::vec(op(), 1..300)) {
        let mut pair = Pair::new();
        for op in ops {
            pair.apply(op);
            pair.check();
        }
    }
}
