//! A token bucket that several threads draw from, in one atomic word and without a division.
//!
//! The tokens made so far follow from the time since the start, so that rounding never adds up;
//! the word counts those that are gone, taken or overflowed. Both counts wrap.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::TAKE_ATTEMPTS;

/// Binary places of [`TokenBucket::tokens_per_cycle`]: rounding gives less than two tokens in a year
/// at 3 GHz, and the whole part has room for 255 tokens.
const FRACTION_BITS: u32 = 56;

/// Tokens that may be gone before they are made, because another thread's clock is ahead: more
/// than any skew of clocks explains. A difference beyond it is a long pause: up to 2^63 tokens, which
/// is months at the greatest rate there is and centuries at a gigabyte per second.
const SKEW_TOKENS: u64 = 1 << 50;

/// Starts full.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// Fixed point, [`FRACTION_BITS`].
    tokens_per_cycle: u64,
    burst_tokens: u64,
    epoch_tsc: u64,
    gone_tokens: AtomicU64,
}

impl TokenBucket {
    /// A bucket of `burst_tokens` (less than 2^50) that fills with `tokens_per_s`, at most 255 in a
    /// cycle.
    pub(crate) fn new(tokens_per_s: u64, burst_tokens: u64, tsc_hz: u64, now_tsc: u64) -> Self {
        let tokens_per_cycle =
            (u128::from(tokens_per_s) << FRACTION_BITS).div_ceil(u128::from(tsc_hz.max(1)));
        let burst_tokens = burst_tokens.min(SKEW_TOKENS - 1);
        Self {
            tokens_per_cycle: u64::try_from(tokens_per_cycle).unwrap_or(u64::MAX),
            burst_tokens,
            epoch_tsc: now_tsc,
            gone_tokens: AtomicU64::new(0_u64.wrapping_sub(burst_tokens)),
        }
    }

    /// Takes tokens, if there are so many. `false` also when other threads have got ahead of this
    /// one too often: a limit errs on the side of less.
    #[inline]
    pub(crate) fn take(&self, tokens: u64, now_tsc: u64) -> bool {
        let made = self.made(now_tsc);
        let mut gone = self.gone_tokens.load(Ordering::Relaxed);
        for _ in 0..TAKE_ATTEMPTS {
            let held = self.held(made, gone);
            if held < tokens {
                return false;
            }
            // What is not held is gone: taken, or overflowed since the last time.
            let next = made.wrapping_sub(held).wrapping_add(tokens);
            let (order, cell) = (Ordering::Relaxed, &self.gone_tokens);
            match cell.compare_exchange(gone, next, order, order) {
                Ok(_) => return true,
                Err(other) => gone = other,
            }
        }
        false
    }

    #[inline]
    fn made(&self, now_tsc: u64) -> u64 {
        let elapsed_cycles = u128::from(now_tsc.saturating_sub(self.epoch_tsc));
        ((elapsed_cycles * u128::from(self.tokens_per_cycle)) >> FRACTION_BITS) as u64
    }

    #[inline]
    fn held(&self, made: u64, gone: u64) -> u64 {
        let held = made.wrapping_sub(gone);
        if held > u64::MAX - SKEW_TOKENS { 0 } else { held.min(self.burst_tokens) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bucket that fills steadily, in fractions of a token: level and cap times `hz`.
    struct Fluid {
        level: u128,
        cap: u128,
        rate: u128,
        hz: u128,
        seen_tsc: u64,
    }

    impl Fluid {
        fn new(rate: u64, burst: u64, hz: u64, now_tsc: u64) -> Self {
            let (rate, hz) = (u128::from(rate), u128::from(hz));
            let cap = u128::from(burst) * hz;
            Self { level: cap, cap, rate, hz, seen_tsc: now_tsc }
        }

        fn fill(&mut self, now_tsc: u64) {
            let elapsed = u128::from(now_tsc - self.seen_tsc);
            self.level = (self.level + elapsed * self.rate).min(self.cap);
            self.seen_tsc = now_tsc;
        }
    }

    /// Tokens by which the bucket may differ: one for whole tokens, one for the rounded rate.
    const TOLERANCE: u128 = 2;

    proptest! {
        // Every decision agrees with the fluid bucket that has seen the same decisions, to two
        // tokens (of 256 a packet, or bytes): so neither the long-run rate nor the burst is ever off by
        // a packet.
        #[test]
        fn decisions_are_those_of_a_fluid_bucket(
            hz in 1_000_000_u64..5_000_000_000,
            rate in prop_oneof![0..1000_u64, 0..100_000_000_u64],
            burst in prop_oneof![0..1000_u64, 0..10_000_000_u64, 0..1_u64 << 40],
            epoch in any::<u32>(),
            steps in prop::collection::vec(
                (prop_oneof![0..1000_u64, 0..1_000_000_000_u64, 0..1_u64 << 48], 1..100_000_u64),
                1..200),
        ) {
            let mut now_tsc = u64::from(epoch);
            let bucket = TokenBucket::new(rate, burst, hz, now_tsc);
            let mut fluid = Fluid::new(rate, burst, hz, now_tsc);
            for (gap_cycles, tokens) in steps {
                now_tsc += gap_cycles;
                fluid.fill(now_tsc);
                let (cost, slack) = (u128::from(tokens) * fluid.hz, TOLERANCE * fluid.hz);
                if bucket.take(tokens, now_tsc) {
                    prop_assert!(fluid.level + slack >= cost, "took what is not there");
                    fluid.level = fluid.level.saturating_sub(cost);
                } else {
                    prop_assert!(fluid.level < cost + slack, "refused what is there");
                }
            }
        }
    }

    /// Takes as often as it can, every `step_cycles`, until `until_tsc`.
    fn drain(bucket: &TokenBucket, tokens: u64, step_cycles: u64, until_tsc: u64) -> u64 {
        let steps = (0..=until_tsc).step_by(step_cycles as usize);
        steps
            .map(|now_tsc| {
                std::iter::repeat_with(|| bucket.take(tokens, now_tsc))
                    .take_while(|took| *took)
                    .count() as u64
            })
            .sum()
    }

    #[test]
    fn in_the_long_run_it_gives_its_rate() {
        const HZ: u64 = 3_000_000_000;
        // Whose periods are no whole number of cycles; a year for the slowest.
        for (rate, seconds) in [(7, 31_536_000), (997, 86_400), (123_457, 3600), (99_999_989, 60)] {
            let bucket = TokenBucket::new(rate, 1, HZ, 0);
            // Somebody who tries up to a hundred times for each token.
            let step_cycles = (HZ / rate / 100).max(1);
            let (mut taken, mut now_tsc) = (0, 0);
            while taken < 20_000 {
                taken += u64::from(bucket.take(1, now_tsc));
                now_tsc += step_cycles;
            }
            let expected = (u128::from(now_tsc) * u128::from(rate) / u128::from(HZ)) as u64 + 1;
            assert!(taken.abs_diff(expected) <= 1, "{rate}: {taken} instead of {expected}");
            // And after a long time the count of tokens is still right.
            let made = bucket.made(seconds * HZ);
            assert!(made.abs_diff(seconds * rate) <= 2, "{rate}: {made} in {seconds} s");
        }
    }

    #[test]
    fn a_pause_gives_the_burst_and_no_more() {
        let bucket = TokenBucket::new(1000, 50, 1_000_000, 0);
        assert_eq!(drain(&bucket, 1, 1, 0), 50);
        assert!(!bucket.take(1, 999) && bucket.take(1, 1000) && !bucket.take(1, 1000));
        for pause_s in [1, 1 << 20, 1 << 40] {
            let now_tsc = pause_s * 1_000_000;
            assert!(bucket.take(50, now_tsc) && !bucket.take(1, now_tsc), "{pause_s} s");
        }
    }

    #[test]
    fn the_greatest_rates_bursts_and_gaps_neither_overflow_nor_stop_it() {
        let (rate, burst) = (u64::from(u32::MAX) * 256, u64::from(u32::MAX) * 256);
        let bucket = TokenBucket::new(rate, burst, 2_000_000_000, 0);
        // Two months each: the counts wrap several times.
        for now_tsc in (0..=u64::MAX).step_by(1 << 54) {
            assert!(bucket.take(burst, now_tsc), "{now_tsc}");
            assert!(!bucket.take(1, now_tsc), "{now_tsc}");
        }
        // In a second it refills, and not before.
        let bucket = TokenBucket::new(rate, burst, 10_000_000_000, u64::MAX - 10_000_000_000);
        assert!(bucket.take(burst, 0));
        assert!(!bucket.take(burst, u64::MAX - 1_000_000));
        assert!(bucket.take(burst, u64::MAX));
        // Nothing comes of a rate of nothing.
        let bucket = TokenBucket::new(0, 3, 1, 0);
        assert!(bucket.take(3, 0) && !bucket.take(1, u64::MAX));
    }

    #[test]
    fn a_clock_that_is_behind_gets_no_second_burst() {
        let bucket = TokenBucket::new(1_000_000, 1000, 1_000_000, 0);
        assert!(bucket.take(1000, 5_000_000));
        for behind in [4_999_999, 3_000_000, 0] {
            assert!(!bucket.take(1, behind));
        }
        assert!(!bucket.take(2, 5_000_001) && bucket.take(1, 5_000_001));
    }

    #[test]
    fn threads_together_take_no_more_than_there_is() {
        const TOKENS: u64 = 200_000;
        let bucket = TokenBucket::new(0, TOKENS, 1, 0);
        let taken: u64 = std::thread::scope(|scope| {
            let take = || (0..TOKENS).filter(|_| bucket.take(1, 0)).count() as u64;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // Some tries give up although tokens are left; none of those is lost.
        assert_eq!(taken + drain(&bucket, 1, 1, 0), TOKENS);
    }
}
