//! Keeps what a peer can provoke from filling the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Events that may be logged in one interval.
const BURST: u32 = 5;
const INTERVAL: Duration = Duration::from_secs(5);

/// Allows a few events per interval and counts the others. One for all that a kind of peer can
/// provoke: a limit per connection would be no limit.
#[derive(Debug)]
pub(crate) struct RateLimit(Mutex<State>);

#[derive(Debug)]
struct State {
    interval_start: Instant,
    in_interval: u32,
    suppressed: u64,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self(Mutex::new(State { interval_start: Instant::now(), in_interval: 0, suppressed: 0 }))
    }
}

impl RateLimit {
    /// Whether this event may be logged: then with how many were not since the last one.
    pub(crate) fn allow(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).allow(Instant::now())
    }
}

impl State {
    fn allow(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.interval_start) >= INTERVAL {
            self.interval_start = now;
            self.in_interval = 0;
        }
        if self.in_interval >= BURST {
            self.suppressed += 1;
            return None;
        }
        self.in_interval += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_the_count_told_later() {
        let start = Instant::now();
        let mut limit = State { interval_start: start, in_interval: 0, suppressed: 0 };
        let allowed = (0..1000).filter(|_| limit.allow(start).is_some()).count();
        assert_eq!(allowed, BURST as usize);
        assert_eq!(limit.allow(start + INTERVAL), Some(1000 - u64::from(BURST)));
        assert_eq!(limit.allow(start + INTERVAL), Some(0));
    }
}
