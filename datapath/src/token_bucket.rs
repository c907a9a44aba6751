//! A token bucket that several threads draw from, in one atomic word and without a division.
//!
//! The tokens made so far follow from the time since the start, so that rounding never adds up;
//! the word counts those that are gone, taken or overflowed. Both counts wrap.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::TAKE_ATTEMPTS;

/// Binary places of [`TokenBucket::tokens_per_cycle`]: rounding costs less than two tokens in a year
/// at 3 GHz, and the whole part has room for 255 tokens.
const FRACTION_BITS: u32 = 56;

/// Tokens that may be gone before they are made, because another thread's clock is ahead: more
/// than any skew of clocks explains. A difference beyond it is a long pause.
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
            (u128::from(tokens_per_s) << FRACTION_BITS) / u128::from(tsc_hz.max(1));
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
