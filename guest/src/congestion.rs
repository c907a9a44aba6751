//! A sender that heeds congestion as DCTCP does (RFC 8257): its window grows by a frame a round trip,
//! shrinks by as much as frames come back marked, and by half when one is lost. The receiver is in
//! the same process, so its echo needs no frame: it takes a set time instead.
//!
//! A pure state machine over times in cycles and sequence numbers that count up by one. Frames of a
//! pair arrive in the order in which they were sent, so whatever a frame has overtaken is lost.

use std::collections::VecDeque;

use crate::limits::CONGESTION_WINDOW_MAX;

/// How much of the latest round goes into the estimate of the marked part: RFC 8257's g.
const GAIN: f64 = 1.0 / 16.0;

/// The window of a new sender: RFC 6928.
const WINDOW_INITIAL: f64 = 10.0;

/// What the sender will hear of an arrival.
#[derive(Clone, Copy, Debug)]
struct Echo {
    due: u64,
    seq: u32,
    marked: bool,
}

/// One sender and its receiver.
#[derive(Debug)]
pub(crate) struct Sender {
    window: Window,
    delay_cycles: u64,
    timeout_cycles: u64,
    echoes: VecDeque<Echo>,
    /// When something was heard last, or the first frame under way was sent.
    heard: u64,
}

impl Sender {
    /// Echoes are heard `delay_cycles` after arrival; after `timeout_cycles` without any, all that is
    /// under way is lost.
    pub(crate) fn new(delay_cycles: u64, timeout_cycles: u64) -> Self {
        let echoes = VecDeque::with_capacity(CONGESTION_WINDOW_MAX);
        Self { window: Window::new(), delay_cycles, timeout_cycles, echoes, heard: 0 }
    }

    /// How many frames may be sent at `now`.
    pub(crate) fn room(&mut self, now: u64) -> usize {
        while let Some(echo) = self.echoes.front().copied().filter(|echo| echo.due <= now) {
            self.echoes.pop_front();
            self.window.echoed(echo.seq, echo.marked);
            self.heard = now;
        }
        let silent = now.saturating_sub(self.heard) > self.timeout_cycles;
        if silent && self.window.under_way() > 0 && self.echoes.is_empty() {
            self.window.timed_out();
        }
        self.window.room()
    }

    /// One more frame was sent.
    pub(crate) fn sent(&mut self, now: u64) {
        if self.window.under_way() == 0 {
            self.heard = now;
        }
        self.window.sent();
    }

    /// The receiver has frame `seq`, with ECN's CE or without.
    pub(crate) fn arrived(&mut self, seq: u32, marked: bool, now: u64) {
        self.echoes.push_back(Echo { due: now + self.delay_cycles, seq, marked });
    }
}

/// The congestion window, in frames.
#[derive(Debug)]
struct Window {
    frames: f64,
    /// Below it the window doubles each round.
    threshold: f64,
    /// Estimate of the part of frames that is marked: RFC 8257's alpha.
    marked_part: f64,
    /// The next frame to be sent, and the first that is neither echoed nor lost.
    next: u32,
    settled: u32,
    /// What was sent before this belongs to this round.
    round_end: u32,
    round_echoed: u32,
    round_marked: u32,
    /// Until this is echoed the window is not cut again.
    cut_end: u32,
}

impl Window {
    fn new() -> Self {
        Self {
            frames: WINDOW_INITIAL,
            threshold: CONGESTION_WINDOW_MAX as f64,
            // As RFC 8257 (3.3) has it: a mark on the first frames halves the window.
            marked_part: 1.0,
            next: 0,
            settled: 0,
            round_end: 0,
            round_echoed: 0,
            round_marked: 0,
            cut_end: 0,
        }
    }

    fn under_way(&self) -> u32 {
        self.next.wrapping_sub(self.settled)
    }

    fn room(&self) -> usize {
        (self.frames as usize).saturating_sub(self.under_way() as usize)
    }

    fn sent(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    fn echoed(&mut self, seq: u32, marked: bool) {
        let overtaken = seq.wrapping_sub(self.settled);
        if overtaken >= self.under_way() {
            // Given up before, or never sent.
            return;
        }
        self.settled = seq.wrapping_add(1);
        self.round_echoed += 1;
        self.round_marked += u32::from(marked);
        if overtaken > 0 {
            self.cut(seq, 0.5);
        } else if marked {
            self.cut(seq, 1.0 - self.marked_part / 2.0);
        } else {
            self.grow();
        }
        if is_at_or_past(seq, self.round_end) {
            let marked = f64::from(self.round_marked) / f64::from(self.round_echoed);
            self.marked_part += GAIN * (marked - self.marked_part);
            self.round_end = self.next;
            (self.round_echoed, self.round_marked) = (0, 0);
        }
    }

    fn grow(&mut self) {
        self.frames += if self.frames < self.threshold { 1.0 } else { 1.0 / self.frames };
        self.frames = self.frames.min(CONGESTION_WINDOW_MAX as f64);
    }

    /// At most once for what was sent before it.
    fn cut(&mut self, seq: u32, factor: f64) {
        if is_at_or_past(seq, self.cut_end) {
            self.frames = (self.frames * factor).max(1.0);
            self.threshold = self.frames.max(2.0);
            self.cut_end = self.next;
        }
    }

    /// All that is under way is lost.
    fn timed_out(&mut self) {
        self.threshold = (self.frames / 2.0).max(2.0);
        self.frames = 1.0;
        self.settled = self.next;
        (self.round_end, self.cut_end) = (self.next, self.next);
        (self.round_echoed, self.round_marked) = (0, 0);
    }
}

/// In sequence numbers, which wrap.
fn is_at_or_past(seq: u32, end: u32) -> bool {
    seq.wrapping_sub(end) as i32 >= 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DELAY: u64 = 100;
    const TIMEOUT: u64 = 10_000;

    /// Sends all that the window allows.
    fn fill(sender: &mut Sender, now: u64) -> usize {
        let room = sender.room(now);
        (0..room).for_each(|_| sender.sent(now));
        room
    }

    /// A path that marks what finds more than `mark` frames queued and drops what finds more than
    /// `drop`, and serves one frame every `service` cycles. Returns frames sent, lost and marked.
    fn bottleneck(mark: usize, drop: usize, service: u64, cycles: u64) -> (u32, u32, u32) {
        let mut sender = Sender::new(DELAY, TIMEOUT);
        let mut queue = VecDeque::new();
        let (mut seq, mut lost, mut marks) = (0_u32, 0, 0);
        for now in 0..cycles {
            for _ in 0..sender.room(now) {
                if queue.len() >= drop {
                    lost += 1;
                } else {
                    queue.push_back((seq, queue.len() >= mark));
                }
                sender.sent(now);
                seq += 1;
            }
            if now % service == 0
                && let Some((seq, marked)) = queue.pop_front()
            {
                marks += u32::from(marked);
                sender.arrived(seq, marked, now);
            }
        }
        (seq, lost, marks)
    }

    #[test]
    fn marks_keep_the_link_busy_without_loss_where_only_drops_lose() {
        let (sent, lost, marks) = bottleneck(16, 64, 10, 200_000);
        assert_eq!(lost, 0);
        assert!(marks > 0);
        // One frame every ten cycles is all there is.
        assert!(sent > 19_000, "{sent}");
        let (sent, lost, marks) = bottleneck(64, 64, 10, 200_000);
        assert!(lost > 10 && marks == 0, "{lost} lost, {marks} marked");
        assert!(sent > 15_000, "{sent}");
    }

    #[test]
    fn a_threshold_of_nothing_keeps_the_window_small() {
        let (sent, lost, marks) = bottleneck(0, 64, 10, 200_000);
        assert_eq!(lost, 0);
        assert!(marks >= sent - 64, "all are marked");
        assert!(sent < 6_000, "{sent}: a frame or two each round");
    }

    #[test]
    fn the_window_doubles_each_round_until_a_mark_cuts_it_once_and_then_grows_by_one() {
        let mut sender = Sender::new(DELAY, TIMEOUT);
        let (mut now, mut seq) = (0, 0);
        let mut round = |sender: &mut Sender, marked: bool| {
            let sent = fill(sender, now);
            for number in 0..sent {
                sender.arrived(seq, marked && number == 0, now);
                seq += 1;
            }
            now += DELAY;
            sent
        };
        assert_eq!([false; 3].map(|marked| round(&mut sender, marked)), [10, 20, 40]);
        assert_eq!(round(&mut sender, true), 80);
        // After three rounds without one; the frames behind it do not cut again, but grow it.
        let marked_part = (15.0_f64 / 16.0).powi(3);
        let expected = 80.0 * (1.0 - marked_part / 2.0) + 79.0 / 48.0;
        let cut = round(&mut sender, false);
        assert!((cut as f64 - expected).abs() <= 1.0, "{cut} for {expected}");
        let grown = [(); 8].map(|()| round(&mut sender, false))[7];
        assert!((7..=9).contains(&(grown - cut)), "{grown} after {cut}");
    }

    #[test]
    fn rare_marks_cut_less_than_a_loss() {
        let cut = |marked_part: f64, lose: bool| {
            let mut window = Window { frames: 100.0, threshold: 1.0, marked_part, ..Window::new() };
            (0..100).for_each(|_| window.sent());
            window.echoed(u32::from(lose), !lose);
            window.frames
        };
        assert!((cut(0.1, false) - 95.0).abs() < 1e-9);
        assert!((cut(1.0, false) - 50.0).abs() < 1e-9);
        assert!((cut(0.1, true) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn silence_is_waited_out_once_and_then_one_frame_asks() {
        let mut sender = Sender::new(DELAY, TIMEOUT);
        assert_eq!(fill(&mut sender, 5), 10);
        assert_eq!(sender.room(5 + TIMEOUT), 0);
        assert_eq!(fill(&mut sender, 6 + TIMEOUT), 1);
        assert_eq!(sender.room(7 + TIMEOUT), 0, "the time-out begins anew");
        // What was given up changes nothing when it comes after all; the new frame does.
        sender.arrived(9, false, 8 + TIMEOUT);
        assert_eq!(sender.room(8 + TIMEOUT + DELAY), 0);
        sender.arrived(10, false, 9 + TIMEOUT);
        assert_eq!(sender.room(9 + TIMEOUT + DELAY), 2);
    }

    proptest! {
        /// Whatever arrives, is marked, lost, late or made up, the window stays within its bounds and
        /// the sender never stops for good.
        #[test]
        fn the_window_is_bounded_and_never_closes(
            events in prop::collection::vec((0u8..4, any::<u32>(), any::<bool>()), 1..400),
        ) {
            let mut sender = Sender::new(DELAY, TIMEOUT);
            let (mut now, mut sent) = (0, 0_u32);
            for (kind, number, marked) in events {
                now += u64::from(number % 50);
                match kind {
                    0 => sent += fill(&mut sender, now) as u32,
                    1 => sender.arrived(number % (sent + 1), marked, now),
                    2 => sender.arrived(number, marked, now),
                    _ => now += u64::from(number % 3) * TIMEOUT / 2,
                }
                let window = &sender.window;
                prop_assert!(window.under_way() as usize <= CONGESTION_WINDOW_MAX);
                prop_assert!((1.0..=CONGESTION_WINDOW_MAX as f64).contains(&window.frames));
                prop_assert!((0.0..=1.0).contains(&window.marked_part));
            }
            // The echoes that are left are heard, then the silence is long enough.
            sender.room(now + DELAY);
            let room = sender.room(now + DELAY + TIMEOUT + 1);
            prop_assert!(room > 0 || sender.window.under_way() == 0);
        }
    }
}
