//! The time-stamp counter: the unit of every account in the switch.

use std::arch::x86_64::{__cpuid, _rdtsc};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The counter cannot be used as a clock on this machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "this CPU's time-stamp counter is not invariant (CPUID 0x80000007 EDX bit 8): cycles would not measure time"
)]
pub struct TscNotInvariant;

/// Cycles since some fixed moment; about 28 cycles a call. Not serialising: the readings of one
/// thread are ordered well enough for intervals of hundreds of cycles.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 and user mode may execute it (Linux leaves CR4.TSD
    // clear unless a process asks for PR_TSC_SIGSEGV for itself).
    unsafe { _rdtsc() }
}

/// The frequency of [`now`], found by comparing it with CLOCK_MONOTONIC_RAW for 20 ms.
///
/// # Errors
/// When the counter stops or changes speed with power states, so that it measures nothing.
pub fn calibrate_hz() -> Result<u64, TscNotInvariant> {
    const INVARIANT_TSC: u32 = 1 << 8;
    let has_leaf = __cpuid(0x8000_0000).eax >= 0x8000_0007;
    if !has_leaf || __cpuid(0x8000_0007).edx & INVARIANT_TSC == 0 {
        return Err(TscNotInvariant);
    }
    // A preemption between the two readings of a pair spoils it; the tightest of several is kept.
    let start = tightest_pair();
    #[allow(clippy::disallowed_methods, reason = "at start, before there is a PMD")]
    std::thread::sleep(Duration::from_millis(20));
    let end = tightest_pair();
    let elapsed_ns = u128::from(end.1.saturating_sub(start.1).max(1));
    let cycles = u128::from(end.0.saturating_sub(start.0));
    Ok(u64::try_from(cycles * 1_000_000_000 / elapsed_ns).unwrap_or(u64::MAX))
}

fn tightest_pair() -> (u64, u64) {
    (0..16)
        .map(|_| {
            let before = now();
            let time = clock_gettime(ClockId::MonotonicRaw);
            let after = now();
            let ns = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
                + u64::try_from(time.tv_nsec).unwrap_or(0);
            (after - before, (before + (after - before) / 2, ns))
        })
        .min_by_key(|(width, _)| *width)
        .map_or((0, 0), |(_, pair)| pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_moves_forward_at_a_plausible_rate() {
        let before = now();
        let hz = calibrate_hz().expect("development machines have an invariant TSC");
        assert!(now() > before);
        assert!((500_000_000..10_000_000_000).contains(&hz), "{hz} Hz");
    }
}
