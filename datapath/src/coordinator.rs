//! The coordinator: a thread that grants every registered tenant its part of the time that elapses,
//! on every PMD, each period. It exists while the refill is [`Refill::Coordinator`].
//!
//! The PMDs do not wait for it. When it is late (it shares a core, and the kernel runs something
//! else), nobody is granted anything meanwhile and all of it afterwards, up to the caps.
#![allow(clippy::disallowed_methods)] // control side

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate_accel::tsc;
use tollgate_policy::coordinator::grants;
use tollgate_policy::{Refill, TenantIndex, Weight};

use crate::limits::COORDINATOR_SLEEP_MIN_US;
use crate::shared::PmdShared;

/// The running thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Coordinator {
    roll: Arc<Roll>,
    thread: Option<JoinHandle<()>>,
}

/// Who is granted what, and for how long.
#[derive(Debug)]
struct Roll {
    tenants: Mutex<Registered>,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Registered {
    indices: Vec<TenantIndex>,
    weights: Vec<Weight>,
}

/// What is granted to, and how.
struct Rounds {
    roll: Arc<Roll>,
    pmds: Vec<Arc<PmdShared>>,
    period_cycles: u64,
    boost_thousandths: u32,
    tsc_hz: u64,
}

impl Coordinator {
    /// Starts the thread if `refill` is a coordinated one.
    pub(crate) fn start(
        refill: Refill,
        tsc_hz: u64,
        pmds: Vec<Arc<PmdShared>>,
        tenants: impl IntoIterator<Item = (TenantIndex, Weight)>,
    ) -> std::io::Result<Option<Self>> {
        let Refill::Coordinator { period_cycles, boost_thousandths } = refill else {
            return Ok(None);
        };
        let (indices, weights) = tenants.into_iter().unzip();
        let tenants = Mutex::new(Registered { indices, weights });
        let roll = Arc::new(Roll { tenants, stopping: AtomicBool::new(false) });
        let roll_of_thread = Arc::clone(&roll);
        let rounds =
            Rounds { roll: roll_of_thread, pmds, period_cycles, boost_thousandths, tsc_hz };
        let thread = std::thread::Builder::new().name("coordinator".to_owned());
        let thread = Some(thread.spawn(move || rounds.run())?);
        Ok(Some(Self { roll, thread }))
    }

    /// From now on the tenant is granted its part by this weight.
    pub(crate) fn register(&self, tenant: TenantIndex, weight: Weight) {
        let mut tenants = self.roll.tenants();
        let known = tenants.indices.iter().position(|index| *index == tenant);
        match known.and_then(|at| tenants.weights.get_mut(at)) {
            Some(known) => *known = weight,
            None => {
                tenants.indices.push(tenant);
                tenants.weights.push(weight);
            }
        }
    }

    /// From now on the tenant is granted nothing.
    pub(crate) fn unregister(&self, tenant: TenantIndex) {
        let mut tenants = self.roll.tenants();
        if let Some(at) = tenants.indices.iter().position(|index| *index == tenant) {
            tenants.indices.swap_remove(at);
            tenants.weights.swap_remove(at);
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.roll.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Roll {
    fn tenants(&self) -> std::sync::MutexGuard<'_, Registered> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rounds {
    fn run(&self) {
        let mut since_cycles = tsc::now();
        while !self.roll.stopping.load(Ordering::Acquire) {
            let elapsed_cycles = tsc::now().saturating_sub(since_cycles);
            let left_cycles = self.period_cycles.saturating_sub(elapsed_cycles);
            if left_cycles > 0 {
                self.wait(left_cycles);
                continue;
            }
            let now_cycles = tsc::now();
            self.grant(since_cycles, now_cycles);
            since_cycles = now_cycles;
        }
    }

    /// Until then, or earlier.
    fn wait(&self, cycles: u64) {
        let us = cycles.saturating_mul(1_000_000) / self.tsc_hz.max(1);
        if us >= COORDINATOR_SLEEP_MIN_US {
            std::thread::park_timeout(Duration::from_micros(us));
        } else {
            std::hint::spin_loop();
        }
    }

    fn grant(&self, since_cycles: u64, now_cycles: u64) {
        let tenants = self.roll.tenants();
        let granted = grants(since_cycles, now_cycles, &tenants.weights, self.boost_thousandths);
        for (tenant, cycles) in tenants.indices.iter().zip(granted) {
            for pmd in &self.pmds {
                pmd.grants.add(*tenant, cycles);
            }
        }
        self.pmds.iter().for_each(|pmd| pmd.grants.end_round());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 1_000_000_000;
    const EVERY_MS: Refill =
        Refill::Coordinator { period_cycles: HZ / 1000, boost_thousandths: 500 };

    fn taken(pmd: &PmdShared, tenant: u16) -> i64 {
        pmd.grants.take(TenantIndex(tenant))
    }

    /// Waits until so many rounds have ended on a PMD.
    fn rounds(pmd: &PmdShared, rounds: u64) {
        let before = pmd.grants.rounds();
        while pmd.grants.rounds() < before + rounds {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_local_refill_has_no_coordinator() {
        assert!(Coordinator::start(Refill::Local, HZ, vec![], []).unwrap().is_none());
    }

    #[test]
    fn registered_tenants_are_granted_by_weight_on_every_pmd_and_others_nothing() {
        let pmds = [(); 2].map(|()| Arc::new(PmdShared::new()));
        let weight = |weight: &str| weight.parse::<Weight>().unwrap();
        let began = tsc::now();
        let tenants = [(TenantIndex(1), weight("1")), (TenantIndex(2), weight("3"))];
        let coordinator = Coordinator::start(EVERY_MS, HZ, pmds.to_vec(), tenants);
        let coordinator = coordinator.unwrap().unwrap();
        rounds(&pmds[0], 3);
        coordinator.unregister(TenantIndex(1));
        let elapsed = tsc::now().saturating_sub(began) as i64;
        // The sums on two PMDs are the same; a period's parts differ by a cycle at most.
        let got = [0, 1].map(|pmd: usize| taken(&pmds[pmd], 1));
        assert!(got[0] > 0 && got[0] == got[1] && got[0] <= elapsed / 8 + 1, "{got:?}");
        let after = taken(&pmds[0], 2);
        assert!(after >= 3 * got[0] - 10, "{after} and {got:?}");
        rounds(&pmds[1], 3);
        assert_eq!((taken(&pmds[0], 1), taken(&pmds[0], 3)), (0, 0));
        coordinator.register(TenantIndex(3), weight("2"));
        coordinator.register(TenantIndex(3), weight("3"));
        rounds(&pmds[0], 2);
        let last = [2, 3].map(|tenant| {
            taken(&pmds[0], tenant);
            rounds(&pmds[0], 3);
            taken(&pmds[0], tenant)
        });
        assert!(last.iter().all(|cycles| *cycles > 0), "{last:?}");
        drop(coordinator);
        let ended = pmds[0].grants.rounds();
        std::thread::yield_now();
        assert_eq!(pmds[0].grants.rounds(), ended);
    }
}
