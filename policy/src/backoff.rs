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

/// Looks are paced to get round in 7/8 of a level's time, so that each finds its queue before it
/// is due although turns differ in length.
const PACE: (u64, u64) = (8, 7);

const NOBODY: u16 = u16::MAX;

/// A level of none: the queue is looked at every turn.
const HOT: u8 = BACKOFF_LEVELS as u8;
/// Not polled: unknown, or it has work and is served in turns.
const NOWHERE: u8 = u8::MAX;

/// All that a look needs of a queue, on one cache line if the note is small: a task pushes it out
/// of the core's first cache between two looks.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Queue<N> {
    note: N,
    /// When it was found empty after it had work.
    silent_since_cycles: u64,
    looked_at_cycles: u64,
    /// Its neighbours in the circle that it is in.
    before: u16,
    after: u16,
    /// A level, [`HOT`] or [`NOWHERE`].
    place: u8,
}

/// Queues that are looked at equally often, in a circle: it begins with the one that was looked at
/// longest ago. To move that to the end is to begin with the next.
#[derive(Clone, Copy, Debug)]
struct Circle {
    first: u16,
    count: u16,
}

impl Circle {
    const EMPTY: Self = Self { first: NOBODY, count: 0 };
}

#[derive(Clone, Copy, Debug)]
struct Level {
    interval_cycles: u64,
    /// How long a silence keeps a queue here.
    silence_cycles_max: u64,
    /// Cycles times queues not yet spent on looks; one costs 7/8 of `interval_cycles`.
    pace: u64,
    circle: Circle,
}

/// When to look at each of many queues. Queues are numbered by the caller, from 0; what a look needs
/// to know of one is the caller's `N`ote on it, which is kept where the look comes by anyway.
///
/// [`scan`](Self::scan) takes a few steps for the levels and one for each queue looked at, whatever
/// the number of the others; nothing is allocated after construction.
#[derive(Clone, Debug)]
pub struct Backoff<N = ()> {
    queues: Box<[Queue<N>]>,
    hot: Circle,
    hot_silence_cycles: u64,
    scanned_cycles: u64,
    /// Bit per level that has queues.
    occupied: u8,
    levels: [Level; BACKOFF_LEVELS],
}

const _: () = assert!(BACKOFF_LEVELS <= 8, "a bit for each");

impl<N: Default> Backoff<N> {
    /// For queues 0 to `queues - 1`, none of them polled yet, each of which is to be seen at most
    /// `late_cycles_max` after it has work (no less than [`BACKOFF_CYCLES_MIN`]) by a caller that
    /// scans every turn.
    #[must_use]
    pub fn new(queues: u16, late_cycles_max: u64) -> Self {
        let unknown = |_| Queue {
            note: N::default(),
            silent_since_cycles: 0,
            looked_at_cycles: 0,
            before: NOBODY,
            after: NOBODY,
            place: NOWHERE,
        };
        let mut interval_cycles = late_cycles_max.max(BACKOFF_CYCLES_MIN);
        let mut silence_cycles_max = u64::MAX;
        let empty = Level { interval_cycles, silence_cycles_max, pace: 0, circle: Circle::EMPTY };
        let mut levels = [empty; BACKOFF_LEVELS];
        for level in levels.iter_mut().rev() {
            *level = Level { interval_cycles, silence_cycles_max, ..empty };
            // The one below ends where this begins.
            silence_cycles_max = interval_cycles.saturating_mul(BACKOFF_SILENCE_PARTS);
            interval_cycles /= 2;
        }
        Self {
            queues: (0..queues).map(unknown).collect(),
            hot: Circle::EMPTY,
            hot_silence_cycles: silence_cycles_max,
            scanned_cycles: 0,
            occupied: 0,
            levels,
        }
    }
}

impl<N> Backoff<N> {
    /// What is kept of each queue, the note included.
    pub const QUEUE_BYTES: usize = size_of::<Queue<N>>();

    /// The note on a queue; `None` if its number is too large.
    pub fn note_mut(&mut self, queue: u16) -> Option<&mut N> {
        self.queues.get_mut(usize::from(queue)).map(|entry| &mut entry.note)
    }

    /// Whether a queue is polled.
    pub fn is_polled(&self, queue: u16) -> bool {
        self.queues.get(usize::from(queue)).is_some_and(|entry| entry.place != NOWHERE)
    }

    /// Polls a queue from now on, and every turn at first: it is new, or has just been served until
    /// it was empty. Without effect for one that is polled.
    pub fn emptied(&mut self, queue: u16, now_cycles: u64) {
        let Some(entry) = self.queues.get_mut(usize::from(queue)) else { return };
        if entry.place == NOWHERE {
            entry.silent_since_cycles = now_cycles;
            self.put(queue, HOT, now_cycles);
        }
    }

    /// As [`emptied`](Self::emptied) for a queue that was asked whether it had work, because a look
    /// cannot tell, and had none: it goes on being as silent as it was.
    pub fn found_empty(&mut self, queue: u16, now_cycles: u64) {
        let Some(entry) = self.queues.get(usize::from(queue)) else { return };
        if entry.place == NOWHERE {
            let silence_cycles = now_cycles.saturating_sub(entry.silent_since_cycles);
            self.put(queue, self.place_after(silence_cycles), now_cycles);
        }
    }

    /// Polls a queue no more: it has gone, or is known to have work. Without effect for one that is
    /// not polled.
    pub fn remove(&mut self, queue: u16) {
        let Some(entry) = self.queues.get_mut(usize::from(queue)) else { return };
        let (before, after) = (entry.before, entry.after);
        let place = std::mem::replace(&mut entry.place, NOWHERE);
        if place == NOWHERE {
            return;
        }
        if let Some(entry) = self.queues.get_mut(usize::from(before)) {
            entry.after = after;
        }
        if let Some(entry) = self.queues.get_mut(usize::from(after)) {
            entry.before = before;
        }
        let circle = self.circle_mut(place);
        circle.count -= 1;
        if circle.count == 0 {
            *circle = Circle::EMPTY;
            self.occupied &= !bit(place);
        } else if circle.first == queue {
            circle.first = after;
        }
    }

    /// Looks at every queue that is due: `has_work` says whether it has work, in which case it is
    /// polled no more until [`emptied`](Self::emptied). Each queue is looked at once at most.
    #[inline]
    pub fn scan(&mut self, now_cycles: u64, mut has_work: impl FnMut(u16, &mut N) -> bool) {
        let elapsed_cycles = now_cycles.saturating_sub(self.scanned_cycles);
        self.scanned_cycles = self.scanned_cycles.max(now_cycles);
        // Downwards, so that what moves up a level is not looked at again.
        let mut left = self.occupied;
        while left != 0 {
            let level = left.ilog2() as u8;
            left ^= 1 << level;
            self.scan_level(level, elapsed_cycles, now_cycles, &mut has_work);
        }
        let Circle { mut first, count } = self.hot;
        for _ in 0..count {
            let Some(entry) = self.queues.get_mut(usize::from(first)) else { break };
            let (queue, silent_since_cycles) = (first, entry.silent_since_cycles);
            first = entry.after;
            if has_work(queue, &mut entry.note) {
                self.remove(queue);
            } else if now_cycles.saturating_sub(silent_since_cycles) >= self.hot_silence_cycles {
                self.move_up(queue, now_cycles);
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
        mut has_work: impl FnMut(u16, &mut N) -> bool,
    ) {
        for _ in 0..looks {
            let looked_at = |level: &Level| {
                let entry = self.queues.get(usize::from(level.circle.first))?;
                Some((entry.looked_at_cycles, entry.place))
            };
            let oldest = self.levels.iter().filter_map(looked_at).min();
            let Some((_, level)) = oldest.filter(|(looked_at, _)| *looked_at < now_cycles) else {
                break;
            };
            self.look(level, now_cycles, &mut has_work);
        }
    }

    /// Looks at the queues of a level that have waited longest: as many as the pace has it, and all
    /// that are due.
    #[inline]
    fn scan_level(
        &mut self,
        at: u8,
        elapsed_cycles: u64,
        now_cycles: u64,
        has_work: &mut impl FnMut(u16, &mut N) -> bool,
    ) {
        let Some(level) = self.levels.get_mut(usize::from(at)) else { return };
        let interval_cycles = level.interval_cycles;
        let cost = interval_cycles / PACE.0 * PACE.1;
        let count = level.circle.count;
        // No more than one look at each.
        let round = u64::from(count) * cost;
        let earned = elapsed_cycles.saturating_mul(count.into());
        level.pace = level.pace.saturating_add(earned).min(round);
        for _ in 0..count {
            let Some(level) = self.levels.get_mut(usize::from(at)) else { break };
            let Some(entry) = self.queues.get(usize::from(level.circle.first)) else { break };
            // Compared with this turn's length too: the next scan may come too late for it.
            let waited_cycles = now_cycles.saturating_sub(entry.looked_at_cycles);
            if level.pace < cost && waited_cycles.saturating_add(elapsed_cycles) < interval_cycles {
                break;
            }
            level.pace = level.pace.saturating_sub(cost);
            self.look(at, now_cycles, has_work);
        }
    }

    /// Looks at the first queue of a level. Most have nothing and stay: then nothing is touched but
    /// its entry and the level.
    #[inline]
    fn look(&mut self, at: u8, now_cycles: u64, has_work: &mut impl FnMut(u16, &mut N) -> bool) {
        let Some(level) = self.levels.get_mut(usize::from(at)) else { return };
        let queue = level.circle.first;
        let Some(entry) = self.queues.get_mut(usize::from(queue)) else { return };
        if has_work(queue, &mut entry.note) {
            self.remove(queue);
        } else if now_cycles.saturating_sub(entry.silent_since_cycles) < level.silence_cycles_max {
            entry.looked_at_cycles = now_cycles;
            level.circle.first = entry.after;
        } else {
            self.move_up(queue, now_cycles);
        }
    }

    /// Moves a queue to where it belongs after its silence.
    #[cold]
    fn move_up(&mut self, queue: u16, now_cycles: u64) {
        let Some(entry) = self.queues.get(usize::from(queue)) else { return };
        let silence_cycles = now_cycles.saturating_sub(entry.silent_since_cycles);
        self.remove(queue);
        self.put(queue, self.level_after(silence_cycles), now_cycles);
    }

    /// Where a queue belongs after such a silence.
    fn place_after(&self, silence_cycles: u64) -> u8 {
        if silence_cycles < self.hot_silence_cycles {
            return HOT;
        }
        self.level_after(silence_cycles)
    }

    fn level_after(&self, silence_cycles: u64) -> u8 {
        let fits = |level: &&Level| silence_cycles < level.silence_cycles_max;
        let level = self.levels.iter().take_while(|level| !fits(level)).count();
        // An endless silence is one for the last.
        level.min(BACKOFF_LEVELS - 1) as u8
    }

    /// Appends a queue that is not polled.
    fn put(&mut self, queue: u16, place: u8, now_cycles: u64) {
        let circle = self.circle_mut(place);
        circle.count += 1;
        let is_alone = circle.count == 1;
        if is_alone {
            circle.first = queue;
        }
        let after = circle.first;
        self.occupied |= bit(place);
        let last = self.queues.get(usize::from(after)).map_or(NOBODY, |entry| entry.before);
        let before = if is_alone { queue } else { last };
        if let Some(entry) = self.queues.get_mut(usize::from(queue)) {
            (entry.before, entry.after) = (before, after);
            (entry.place, entry.looked_at_cycles) = (place, now_cycles);
        }
        if let Some(entry) = self.queues.get_mut(usize::from(before)) {
            entry.after = queue;
        }
        if let Some(entry) = self.queues.get_mut(usize::from(after)) {
            entry.before = queue;
        }
    }

    fn circle_mut(&mut self, place: u8) -> &mut Circle {
        match self.levels.get_mut(usize::from(place)) {
            Some(level) => &mut level.circle,
            None => &mut self.hot,
        }
    }
}

/// A level's bit; the hot ones have none.
fn bit(place: u8) -> u8 {
    if place < HOT { 1 << place } else { 0 }
}
