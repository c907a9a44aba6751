//! Which queues to look at this turn.
//!
//! A look at an empty queue costs a cache miss or two. A queue that was busy a moment ago is worth
//! that every turn; a hundred that have been silent for a second are not. So the time between two
//! looks at a queue grows with its silence: it is never more than 1/1024 of that
//! ([`BACKOFF_SILENCE_PARTS`]), nor more than a configured bound.
//!
//! ```text
//! hot      looked at every turn
//! level 0  every bound/32 cycles, after a silence of 32 x bound
//!   ...
//! level 5  every bound, after a silence of 1024 x bound
//! ```
//!
//! What a turn costs: of q queues on a level, looks are spread evenly over its time, so a turn of x
//! cycles makes about q x / bound on the last one.

use crate::limits::{BACKOFF_CYCLES_MIN, BACKOFF_LEVELS, BACKOFF_SILENCE_PARTS};
use crate::list::{Links, List};

/// Looks are paced to get round in 7/8 of a level's time, so that each finds its queue before it
/// is due although turns differ in length.
const PACE: (u64, u64) = (8, 7);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not polled: unknown, or it has work and is served in turns.
    Nowhere,
    Hot,
    Level(u8),
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    place: Place,
    /// When it was found empty after it had work.
    silent_since_cycles: u64,
    looked_at_cycles: u64,
}

/// Queues that are looked at equally often, those first that were looked at longest ago.
#[derive(Clone, Copy, Debug)]
struct Level {
    interval_cycles: u64,
    queues: List,
    count: u64,
    /// Cycles times queues not yet spent on looks; one costs 7/8 of `interval_cycles`.
    pace: u64,
}

/// When to look at each of many queues. Queues are numbered by the caller, from 0.
///
/// [`scan`](Self::scan) takes a few steps for the levels and one for each queue looked at, whatever
/// the number of the others; nothing is allocated after construction.
#[derive(Clone, Debug)]
pub struct Backoff {
    queues: Box<[Queue]>,
    links: Links,
    hot: List,
    levels: [Level; BACKOFF_LEVELS],
    scanned_cycles: u64,
}

impl Backoff {
    /// For queues 0 to `queues - 1`, none of them polled yet, each of which is to be seen at most
    /// `late_cycles_max` after it has work (no less than [`BACKOFF_CYCLES_MIN`]) by a caller that
    /// scans every turn.
    #[must_use]
    pub fn new(queues: u16, late_cycles_max: u64) -> Self {
        let unknown = Queue { place: Place::Nowhere, silent_since_cycles: 0, looked_at_cycles: 0 };
        let mut interval_cycles = late_cycles_max.max(BACKOFF_CYCLES_MIN);
        let mut levels =
            [Level { interval_cycles, queues: List::EMPTY, count: 0, pace: 0 }; BACKOFF_LEVELS];
        for level in levels.iter_mut().rev() {
            level.interval_cycles = interval_cycles;
            interval_cycles /= 2;
        }
        Self {
            queues: vec![unknown; usize::from(queues)].into(),
            links: Links::new(queues),
            hot: List::EMPTY,
            levels,
            scanned_cycles: 0,
        }
    }

    /// Polls a queue from now on, and every turn at first: it is new, or has just been served until
    /// it was empty. Without effect for one that is polled.
    pub fn emptied(&mut self, queue: u16, now_cycles: u64) {
        let Some(entry) = self.queues.get_mut(usize::from(queue)) else { return };
        if entry.place == Place::Nowhere {
            entry.silent_since_cycles = now_cycles;
            self.put(queue, Place::Hot, now_cycles);
        }
    }

    /// Polls a queue no more: it has gone, or is known to have work. Without effect for one that is
    /// not polled.
    pub fn remove(&mut self, queue: u16) {
        let Some(entry) = self.queues.get_mut(usize::from(queue)) else { return };
        match std::mem::replace(&mut entry.place, Place::Nowhere) {
            Place::Nowhere => {}
            Place::Hot => {
                self.links.remove(&mut self.hot, queue);
            }
            Place::Level(level) => {
                if let Some(level) = self.levels.get_mut(usize::from(level)) {
                    self.links.remove(&mut level.queues, queue);
                    level.count -= 1;
                }
            }
        }
    }

    /// Looks at every queue that is due: `has_work` says whether it has work, in which case it is
    /// polled no more until [`emptied`](Self::emptied). Each queue is looked at once at most.
    #[inline]
    pub fn scan(&mut self, now_cycles: u64, mut has_work: impl FnMut(u16) -> bool) {
        let elapsed_cycles = now_cycles.saturating_sub(self.scanned_cycles);
        self.scanned_cycles = self.scanned_cycles.max(now_cycles);
        // Downwards, so that what moves up a level is not looked at again.
        for at in (0..BACKOFF_LEVELS).rev() {
            self.scan_level(at, elapsed_cycles, now_cycles, &mut has_work);
        }
        let mut next = self.hot.head();
        while let Some(queue) = next {
            next = self.links.after(queue);
            if has_work(queue) {
                self.remove(queue);
            } else if let place @ Place::Level(_) = self.place_of(queue, now_cycles) {
                self.remove(queue);
                self.put(queue, place, now_cycles);
            }
        }
    }

    /// Looks at a few queues that are not due, those first that were looked at longest ago: for a
    /// core that has nothing else to do.
    #[inline]
    pub fn scan_ahead(
        &mut self,
        now_cycles: u64,
        looks: usize,
        mut has_work: impl FnMut(u16) -> bool,
    ) {
        for _ in 0..looks {
            let heads = self.levels.iter().filter_map(|level| level.queues.head());
            let looked_at = |queue: &u16| {
                self.queues.get(usize::from(*queue)).map_or(0, |entry| entry.looked_at_cycles)
            };
            let oldest = heads.min_by_key(looked_at);
            let Some(queue) = oldest.filter(|queue| looked_at(queue) < now_cycles) else { break };
            self.look(queue, now_cycles, &mut has_work);
        }
    }

    /// Looks at the queues of a level that have waited longest: as many as the pace has it, and all
    /// that are due.
    fn scan_level(
        &mut self,
        at: usize,
        elapsed_cycles: u64,
        now_cycles: u64,
        has_work: &mut impl FnMut(u16) -> bool,
    ) {
        let Some(level) = self.levels.get_mut(at).filter(|level| level.count > 0) else { return };
        let interval_cycles = level.interval_cycles;
        let cost = interval_cycles / PACE.0 * PACE.1;
        // No more than one look at each.
        let round = level.count * cost;
        level.pace =
            level.pace.saturating_add(elapsed_cycles.saturating_mul(level.count)).min(round);
        for _ in 0..level.count {
            let Some((queue, pace)) = self.levels.get(at).and_then(Level::first) else { break };
            let Some(entry) = self.queues.get(usize::from(queue)) else { break };
            // Compared with this turn's length too: the next scan may come too late for it.
            let waited_cycles = now_cycles.saturating_sub(entry.looked_at_cycles);
            if pace < cost && waited_cycles.saturating_add(elapsed_cycles) < interval_cycles {
                break;
            }
            if let Some(level) = self.levels.get_mut(at) {
                level.pace = pace.saturating_sub(cost);
            }
            self.look(queue, now_cycles, has_work);
        }
    }

    fn look(&mut self, queue: u16, now_cycles: u64, has_work: &mut impl FnMut(u16) -> bool) {
        self.remove(queue);
        if !has_work(queue) {
            self.put(queue, self.place_of(queue, now_cycles), now_cycles);
        }
    }

    /// Where a queue belongs after its silence.
    #[inline]
    fn place_of(&self, queue: u16, now_cycles: u64) -> Place {
        let Some(entry) = self.queues.get(usize::from(queue)) else { return Place::Hot };
        let silence_cycles = now_cycles.saturating_sub(entry.silent_since_cycles);
        let late_cycles = silence_cycles / BACKOFF_SILENCE_PARTS;
        let fits = self.levels.iter().take_while(|level| level.interval_cycles <= late_cycles);
        fits.count().checked_sub(1).map_or(Place::Hot, |level| Place::Level(level as u8))
    }

    /// Appends a queue that is not polled.
    fn put(&mut self, queue: u16, place: Place, now_cycles: u64) {
        let Some(entry) = self.queues.get_mut(usize::from(queue)) else { return };
        entry.place = place;
        entry.looked_at_cycles = now_cycles;
        match place {
            Place::Nowhere => {}
            Place::Hot => {
                self.links.push_back(&mut self.hot, queue);
            }
            Place::Level(level) => {
                if let Some(level) = self.levels.get_mut(usize::from(level)) {
                    self.links.push_back(&mut level.queues, queue);
                    level.count += 1;
                }
            }
        }
    }
}

impl Level {
    fn first(&self) -> Option<(u16, u64)> {
        self.queues.head().map(|queue| (queue, self.pace))
    }
}
