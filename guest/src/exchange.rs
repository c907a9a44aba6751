//! The loop of one phase: receive from every port, send for every pair, until the time is over.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_accel::tsc;

use crate::frame::{self, Stamp};
use crate::histogram::Times;
use crate::port::Port;
use crate::queue::{QueueCounters, RxFrame, TxQueue};
use crate::traffic::{Traffic, Verdict, Window};
use crate::wait::Waiter;

/// A sleeping generator wakes up this much before a frame is due: a timer is late by about as much.
const WAKE_AHEAD: Duration = Duration::from_micros(60);
/// Frames that keep coming, from whomever, may lengthen a drain up to this many times.
const DRAIN_TIMES_MAX: u64 = 20;
/// A sleeping generator looks around at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// A round longer than this was not work: the thread's CPU was taken away. A round of full bursts
/// over a dozen ports takes a fifth of it.
const STALL: Duration = Duration::from_micros(200);

/// How the loop itself did, inside the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopAccount {
    pub(crate) rounds: Times,
    /// In rounds that moved something, and did not stall.
    pub(crate) busy_cycles: u64,
    /// Frames sent and received, replies included.
    pub(crate) frames: u64,
    pub(crate) stalls: u64,
    pub(crate) stalled_cycles: u64,
}

/// What a port counted in a phase that its queues do not, and where those stood before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortSeen {
    pub(crate) alien: u64,
    pub(crate) stale: u64,
    pub(crate) interrupts: u64,
    pub(crate) rx_before: QueueCounters,
    pub(crate) tx_before: QueueCounters,
}

/// One phase at work.
pub(crate) struct Exchange<'g> {
    pub(crate) ports: &'g mut [Port],
    pub(crate) seen: &'g mut [PortSeen],
    pub(crate) traffic: &'g mut [Traffic],
    pub(crate) window: Window,
    pub(crate) phase: u8,
    /// To sleep on, when all ports do.
    pub(crate) waiter: Option<&'g Waiter>,
    pub(crate) stop: &'g AtomicBool,
    pub(crate) scratch: &'g mut Vec<u8>,
    pub(crate) account: LoopAccount,
    /// The pair that sends first in this round.
    pub(crate) first_pair: usize,
}

impl Exchange<'_> {
    /// Runs to the end; returns the window as it was in the end, and how the loop did.
    pub(crate) fn run(mut self, drain_cycles: u64) -> (Window, LoopAccount) {
        let stall_cycles = (STALL.as_secs_f64() * self.window.tsc_hz as f64) as u64;
        let mut now = tsc::now();
        let mut last_moved = now;
        loop {
            // The last round's publications have reached the device by now, so asking for its
            // wishes costs little; and frames to send arrive in the cache while others are received.
            self.ports.iter_mut().for_each(Port::kick);
            if now < self.window.end {
                self.prepare_all();
            }
            let mut moved = self.receive_all();
            if now < self.window.end {
                moved += self.send_all();
                if self.stop.load(Ordering::Relaxed) {
                    // After all that was sent in this round.
                    self.cut_window(tsc::now() + 1);
                }
            } else if moved == 0 && self.is_over(now, last_moved, drain_cycles) {
                return (self.window, self.account);
            }
            let end = tsc::now();
            let stalled = end - now > stall_cycles;
            if self.window.contains(now) {
                self.account_round(end - now, moved, stalled);
            }
            if stalled {
                self.pass_on_stall(end);
            }
            now = end;
            if moved > 0 {
                last_moved = now;
            } else if let Some(waiter) = self.waiter {
                self.sleep(waiter, now);
                now = tsc::now();
            }
        }
    }

    /// Whether nothing more is to be waited for after the window.
    fn is_over(&self, now: u64, last_moved: u64, drain_cycles: u64) -> bool {
        self.traffic.iter().all(Traffic::is_settled)
            || now >= last_moved.max(self.window.end) + drain_cycles
            || now >= self.window.end + DRAIN_TIMES_MAX * drain_cycles
    }

    #[inline]
    fn account_round(&mut self, cycles: u64, moved: usize, stalled: bool) {
        self.account.rounds.record(cycles);
        if stalled {
            self.account.stalls += 1;
            self.account.stalled_cycles += cycles;
        } else if moved > 0 {
            self.account.frames += moved as u64;
            self.account.busy_cycles += cycles;
        }
    }

    /// The thread was away until `until`.
    #[cold]
    fn pass_on_stall(&mut self, until: u64) {
        for pair in self.traffic.iter_mut() {
            pair.generator_stalled(until);
        }
    }

    fn cut_window(&mut self, end: u64) {
        self.window.end = end.max(self.window.start);
        for pair in self.traffic.iter_mut() {
            pair.set_window(self.window);
        }
    }

    #[inline]
    fn prepare_all(&mut self) {
        for pair in self.traffic.iter() {
            if let Some(port) = self.ports.get_mut(pair.from) {
                pair.prepare(port);
            }
        }
    }

    #[inline]
    fn send_all(&mut self) -> usize {
        // Another pair is first in each round: with a fixed order, one that floods a port would
        // take all the room there as soon as there is some.
        self.first_pair =
            if self.first_pair + 1 < self.traffic.len() { self.first_pair + 1 } else { 0 };
        let (later, earlier) = self.traffic.split_at_mut(self.first_pair);
        let mut sent = 0;
        for pair in earlier.iter_mut().chain(later) {
            if let Some(port) = self.ports.get_mut(pair.from) {
                sent += pair.send(port);
            }
        }
        sent
    }

    #[inline]
    fn receive_all(&mut self) -> usize {
        let mut frames = 0;
        for (index, (port, seen)) in self.ports.iter_mut().zip(self.seen.iter_mut()).enumerate() {
            if !port.config().drain {
                continue;
            }
            let Port { rx, tx, .. } = port;
            for (rx, tx) in rx.iter_mut().zip(tx) {
                let mut arrivals = Arrivals {
                    port: index,
                    phase: self.phase,
                    window: &self.window,
                    traffic: self.traffic,
                    answers: &mut tx.queue,
                    late_answers: &mut tx.waiting,
                    scratch: self.scratch,
                    seen,
                    answered: 0,
                    seen_at: None,
                };
                arrivals.answer_late();
                // A ring fault shows in the port's report; the ring then yields nothing more.
                frames += rx.queue.poll(|frame| arrivals.take(frame)).unwrap_or(0);
                let answered = arrivals.answered;
                if answered > 0 {
                    frames += answered;
                    tx.queue.publish();
                }
            }
        }
        frames
    }

    /// Sleeps until a frame arrives or is due.
    fn sleep(&mut self, waiter: &Waiter, now: u64) {
        if self.traffic.iter().any(Traffic::is_flat_out_stream) {
            return;
        }
        let sending = now < self.window.end;
        let due = self.traffic.iter().filter_map(|pair| sending.then(|| pair.next_due())?).min();
        let until_due = due.map_or(SLEEP_MAX, |due| {
            let cycles = due.saturating_sub(now) as f64;
            Duration::from_secs_f64(cycles / self.window.tsc_hz as f64)
        });
        let timeout = until_due.saturating_sub(WAKE_AHEAD).min(SLEEP_MAX);
        if timeout.is_zero() {
            return;
        }
        let waiting = self.ports.iter_mut().any(Port::arm);
        if !waiting {
            // If the system refuses to sleep, the loop polls on.
            let _ = waiter.wait(timeout);
        }
        for (port, seen) in self.ports.iter_mut().zip(self.seen.iter_mut()) {
            seen.interrupts += port.disarm() as u64;
        }
    }
}

/// One burst of received frames.
struct Arrivals<'a> {
    port: usize,
    phase: u8,
    window: &'a Window,
    traffic: &'a mut [Traffic],
    answers: &'a mut TxQueue,
    /// Answers that found the ring full.
    late_answers: &'a mut VecDeque<Vec<u8>>,
    scratch: &'a mut Vec<u8>,
    seen: &'a mut PortSeen,
    answered: usize,
    /// The time and the interval of the burst: read once, when its first frame is there.
    seen_at: Option<(u64, Option<usize>)>,
}

impl Arrivals<'_> {
    #[inline]
    fn take(&mut self, frame: &RxFrame<'_>) {
        let (now, interval) = *self.seen_at.get_or_insert_with(|| {
            let now = tsc::now();
            (now, self.window.interval(now))
        });
        let Some(stamp) = Stamp::of(frame) else {
            self.seen.alien += 1;
            return;
        };
        let pair = self.traffic.get_mut(usize::from(stamp.pair));
        let Some(pair) = pair.filter(|_| stamp.phase == self.phase) else {
            self.seen.stale += 1;
            return;
        };
        if pair.receive(frame, stamp, self.port, now, interval) == Verdict::Answer {
            self.answer(frame, stamp);
        }
    }

    /// Sends a request back as its reply, whole: what the switch did to it on the way comes back.
    fn answer(&mut self, frame: &RxFrame<'_>, stamp: Stamp) {
        self.scratch.resize(frame.len(), 0);
        frame.copy_to(self.scratch);
        frame::make_reply(self.scratch, stamp);
        // A full ring is this guest's doing, not the switch's: the answer waits, it is not lost.
        if !self.late_answers.is_empty() || !send_whole(self.answers, self.scratch) {
            self.late_answers.push_back(self.scratch.clone());
        } else {
            self.answered += 1;
        }
    }

    #[inline]
    fn answer_late(&mut self) {
        while let Some(answer) = self.late_answers.front() {
            if !send_whole(self.answers, answer) {
                break;
            }
            self.answered += 1;
            self.late_answers.pop_front();
        }
    }
}

/// Offers one frame; false when there is no room. One that can never fit is dropped.
fn send_whole(queue: &mut TxQueue, frame: &[u8]) -> bool {
    if frame.len() > queue.frame_bytes_max() {
        return true;
    }
    if queue.room(1, 1) == 0 {
        return false;
    }
    if let Some(buffer) = queue.buffer() {
        buffer.write(0, frame);
        *buffer.content = 0;
    }
    queue.send(frame.len(), 1).is_ok()
}
