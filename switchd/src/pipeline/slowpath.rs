//! The thread that walks the tables for packets that no cached decision covers.
//!
//! It serves the tenants by the same scheduler and weights as the PMDs do, with books of its own:
//! whose packets miss pays for the walks.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::Thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tollgate_accel::tsc;
use tollgate_datapath::limits::MAX_TENANTS;
use tollgate_datapath::{Miss, MissKind, SlowPathEnd};
use tollgate_packet::FlowKey;
use tollgate_policy::{
    Account, Books, ConfigError, Scheduler, SchedulerConfig, TenantIndex, Turn, Weight,
};

use super::bridge::BridgeId;
use super::core::{Answer, Core};
use super::limits::{
    ERRANDS_PER_ROUND, LONG_LAP_CYCLES, LOOK_INTERVAL_CYCLES, RECENT_ANSWERS,
    SLOW_PATH_QUANTUM_CYCLES, SLOW_PATH_SLEEP_MS,
};
use super::packet_out::Errand;
use super::shadow::EntryId;
use super::walk::Punt;
use crate::ratelimit::RateLimit;

/// What the control side tells the slow path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// The tenant may have misses from now on; its weight is 1 unless one was set.
    TenantSeen(TenantIndex),
    TenantSet(TenantIndex, Weight),
    TenantRemove(TenantIndex),
    Protection(bool),
}

/// CPU time that the slow path has spent, in cycles: written by its thread, read by anybody.
#[derive(Debug)]
pub(super) struct Ledger {
    tenants: Box<[AtomicU64]>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        let tenants = (0..MAX_TENANTS).map(|_| AtomicU64::new(0)).collect();
        Self { tenants }
    }

    /// Cycles spent for a tenant; for [`TenantIndex::SYSTEM`], those that are nobody's.
    pub(super) fn of(&self, tenant: TenantIndex) -> u64 {
        let cell = self.tenants.get(usize::from(tenant.0));
        cell.map_or(0, |cycles| cycles.load(Ordering::Relaxed))
    }

    fn publish(&self, tenant: TenantIndex, books: &Books) {
        if let Some(cell) = self.tenants.get(usize::from(tenant.0)) {
            cell.store(books.of(Account::Tenant(tenant)), Ordering::Relaxed);
        }
    }
}

/// The thread's state.
pub(super) struct SlowPath {
    core: Arc<Core>,
    end: SlowPathEnd,
    orders: mpsc::Receiver<Order>,
    errands: mpsc::Receiver<Errand>,
    stopping: Arc<AtomicBool>,
    revalidator: Thread,
    scheduler: Scheduler,
    books: Books,
    ledger: Arc<Ledger>,
    cpu: CpuClock,
    looked_tsc: u64,
    recent: RecentAnswers,
    log: RateLimit,
}

/// What a [`SlowPath`] is made from.
pub(super) struct SlowPathParts {
    pub(super) core: Arc<Core>,
    pub(super) end: SlowPathEnd,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) errands: mpsc::Receiver<Errand>,
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) revalidator: Thread,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tsc_hz: u64,
}

impl SlowPath {
    pub(super) fn new(parts: SlowPathParts) -> Result<Self, ConfigError> {
        let SlowPathParts { core, end, orders, errands, stopping, revalidator, ledger, tsc_hz } =
            parts;
        let default = SchedulerConfig::default();
        let scale = |cycles: u64| cycles / default.quantum_cycles * SLOW_PATH_QUANTUM_CYCLES;
        let config = SchedulerConfig {
            quantum_cycles: SLOW_PATH_QUANTUM_CYCLES,
            cap_cycles: scale(default.cap_cycles),
            floor_cycles: scale(default.floor_cycles),
            horizon_cycles: scale(default.horizon_cycles),
            ..default
        };
        Ok(Self {
            core,
            end,
            orders,
            errands,
            stopping,
            revalidator,
            scheduler: Scheduler::new(config, MAX_TENANTS as u16)?,
            books: Books::new(MAX_TENANTS as u16),
            ledger,
            cpu: CpuClock { tsc_hz, read_ns: 0, read_tsc: 0, booked_cycles: 0 },
            looked_tsc: 0,
            recent: RecentAnswers::new(),
            log: RateLimit::default(),
        })
    }

    pub(super) fn run(&mut self) {
        self.cpu.restart();
        // Its naps are shorter than the slack that timers have by default.
        let _slack_stays = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !self.stopping.load(Ordering::Acquire) {
            self.take_orders();
            self.take_evicted();
            let is_busy = self.run_errands();
            let now_tsc = tsc::now();
            if now_tsc.saturating_sub(self.looked_tsc) >= LOOK_INTERVAL_CYCLES {
                self.look_for_work(now_tsc);
            }
            let turn = self.scheduler.next(now_tsc).or_else(|| {
                self.look_for_work(now_tsc);
                self.scheduler.next(now_tsc)
            });
            self.lap(TenantIndex::SYSTEM);
            match turn {
                Some(turn) => self.serve(turn),
                None if is_busy => {}
                None => self.end.wait(Duration::from_millis(SLOW_PATH_SLEEP_MS)),
            }
        }
    }

    fn look_for_work(&mut self, now_tsc: u64) {
        self.looked_tsc = now_tsc;
        let scheduler = &mut self.scheduler;
        self.end.waiting(|tenant| scheduler.wake(tenant, now_tsc));
    }

    fn take_orders(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            // A tenant that is there already only changes its weight; one that is gone is gone.
            match order {
                Order::TenantSeen(tenant) => {
                    let _ = self.scheduler.tenant_add(tenant, Weight::ONE);
                }
                Order::TenantSet(tenant, weight) => {
                    let _ = self
                        .scheduler
                        .set_weight(tenant, weight)
                        .or_else(|_| self.scheduler.tenant_add(tenant, weight));
                }
                Order::TenantRemove(tenant) => {
                    let _ = self.scheduler.tenant_remove(tenant);
                }
                Order::Protection(on) => self.scheduler.set_protection(on),
            }
        }
    }

    /// Sends packets of controllers, some at a time. Says whether there were any.
    fn run_errands(&mut self) -> bool {
        for done in 0..ERRANDS_PER_ROUND {
            let Ok(errand) = self.errands.try_recv() else { return done > 0 };
            match errand {
                Errand::Fence(waiting) => {
                    // Whoever waited may have gone.
                    let _ = waiting.send(());
                }
                Errand::Send(outgoing) => {
                    self.lap(TenantIndex::SYSTEM);
                    let sent = self.core.send_out(*outgoing, &mut self.end);
                    if let Err(error) = sent.outcome
                        && let Some(suppressed) = self.log.allow()
                    {
                        tracing::info!(%error, suppressed, "a controller's packet was not sent");
                    }
                    if sent.stale {
                        self.revalidator.unpark();
                    }
                    let cycles = self.lap(sent.tenant);
                    self.scheduler.charge(sent.tenant, cycles, tsc::now());
                }
            }
        }
        true
    }

    fn take_evicted(&mut self) {
        while let Some(evicted) = self.end.take_evicted() {
            self.core.evicted(&evicted.megaflow);
        }
    }

    /// Walks for one tenant until its budget or its misses are used up.
    fn serve(&mut self, turn: Turn) {
        let started_tsc = tsc::now();
        let mut now_tsc = started_tsc;
        let mut has_more = true;
        while now_tsc.saturating_sub(started_tsc) < turn.budget_cycles.min(SLOW_PATH_QUANTUM_CYCLES)
        {
            let Some(miss) = self.end.take(turn.tenant) else {
                has_more = false;
                break;
            };
            self.answer(miss);
            now_tsc = tsc::now();
        }
        self.end.answered();
        let cycles = self.lap(turn.tenant);
        self.scheduler.charge(turn.tenant, cycles, now_tsc);
        self.scheduler.done(turn.tenant, has_more, now_tsc);
    }

    fn answer(&mut self, mut miss: Miss) {
        if miss.kind == MissKind::Punt {
            let copies = self.core.copies_of(miss.port, &miss.key);
            return self.send_copies(&mut miss, copies);
        }
        // A packet close behind another one of its flow gets the same answer.
        let leader = if miss.follower { self.recent.get(&miss) } else { None };
        if let Some(verdict) = leader.and_then(|entry| self.core.repeat(entry)) {
            return self.end.reply(miss, verdict);
        }
        let frame_bytes = u32::try_from(miss.frame_len).unwrap_or(u32::MAX);
        let Answer { verdict, entry, stale, copies } =
            self.core.answer(miss.port, &miss.key, frame_bytes);
        if let Some(entry) = entry {
            self.recent.put(&miss, entry);
        }
        self.send_copies(&mut miss, copies);
        self.end.reply(miss, verdict);
        if stale {
            self.revalidator.unpark();
        }
    }

    /// Sends controllers their copies of a packet, within its tenant's limit.
    fn send_copies(&mut self, miss: &mut Miss, copies: Option<(BridgeId, Vec<Punt>)>) {
        if let Some((bridge, punts)) = copies
            && self.end.admits_punt(miss, tsc::now())
        {
            let frame = self.end.frame(miss);
            self.core.send_copies(bridge, &punts, frame);
        }
    }

    /// Books the CPU time since the last lap.
    fn lap(&mut self, tenant: TenantIndex) -> u64 {
        let cycles = self.cpu.lap_cycles();
        self.books.charge(Account::Tenant(tenant), cycles);
        self.ledger.publish(tenant, &self.books);
        cycles
    }
}

/// The last answers to flows of PMDs. Each flow has one place, which another flow's may take: what is
/// not there is walked for again.
struct RecentAnswers(Box<[Option<(usize, FlowKey, EntryId)>]>);

impl RecentAnswers {
    fn new() -> Self {
        Self(vec![None; RECENT_ANSWERS].into())
    }

    fn place(miss: &Miss) -> usize {
        miss.key_hash() as usize % RECENT_ANSWERS
    }

    fn get(&self, miss: &Miss) -> Option<EntryId> {
        let (pmd, key, entry) = self.0.get(Self::place(miss))?.as_ref()?;
        (*pmd == miss.pmd && *key == miss.key).then_some(*entry)
    }

    fn put(&mut self, miss: &Miss, entry: EntryId) {
        if let Some(place) = self.0.get_mut(Self::place(miss)) {
            *place = Some((miss.pmd, miss.key, entry));
        }
    }
}

/// CPU time of the calling thread, so that nobody pays for the time in which this thread, the least
/// important one, was kept waiting. The kernel is asked only where that may have been.
#[derive(Debug)]
struct CpuClock {
    tsc_hz: u64,
    /// What the kernel said the last time.
    read_ns: u64,
    /// The counter at the end of the last lap.
    read_tsc: u64,
    /// Laps since the kernel was asked.
    booked_cycles: u64,
}

impl CpuClock {
    fn restart(&mut self) {
        (self.read_ns, self.read_tsc) = (thread_cpu_ns(), tsc::now());
        self.booked_cycles = 0;
    }

    fn lap_cycles(&mut self) -> u64 {
        let now_tsc = tsc::now();
        let lap_cycles = now_tsc.saturating_sub(self.read_tsc);
        self.read_tsc = now_tsc;
        if lap_cycles < LONG_LAP_CYCLES {
            self.booked_cycles += lap_cycles;
            return lap_cycles;
        }
        self.long_lap_cycles(thread_cpu_ns())
    }

    /// What of the time since the kernel was asked is not booked yet.
    fn long_lap_cycles(&mut self, now_ns: u64) -> u64 {
        let used_ns = u128::from(now_ns.saturating_sub(self.read_ns));
        self.read_ns = now_ns;
        let used_cycles = used_ns * u128::from(self.tsc_hz) / 1_000_000_000;
        let used_cycles = u64::try_from(used_cycles).unwrap_or(u64::MAX);
        used_cycles.saturating_sub(std::mem::take(&mut self.booked_cycles))
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time without the CPU is nobody's, and what was booked by the counter is not booked again.
    #[test]
    fn a_long_lap_is_what_the_thread_has_used_beyond_its_short_ones() {
        let mut cpu = CpuClock {
            tsc_hz: 2_000_000_000,
            read_ns: 1_000_000,
            read_tsc: 0,
            booked_cycles: 30_000,
        };
        // 50 us of CPU time, however long it took.
        assert_eq!(cpu.long_lap_cycles(1_050_000), 70_000);
        assert_eq!(cpu.long_lap_cycles(1_060_000), 20_000);
        // Shorter laps were partly spent waiting: nobody is given anything back.
        cpu.booked_cycles = 50_000;
        assert_eq!(cpu.long_lap_cycles(1_070_000), 0);
        assert_eq!(cpu.long_lap_cycles(1_080_000), 20_000);
    }

    #[test]
    fn short_laps_are_booked_by_the_counter() {
        let mut cpu = CpuClock { tsc_hz: 1, read_ns: 0, read_tsc: tsc::now(), booked_cycles: 0 };
        let before_tsc = cpu.read_tsc;
        let laps: u64 = (0..3).map(|_| cpu.lap_cycles()).sum();
        // Unless this thread was kept waiting just now, by a clock of 1 Hz no CPU time was used.
        assert!(laps == cpu.read_tsc - before_tsc || laps < LONG_LAP_CYCLES * 3);
    }
}
