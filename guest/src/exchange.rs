//! The loop of one phase: receive from every port, send for every pair, until the time is over.

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
/// A sleeping generator looks around at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// What a port counted in a phase that its queues do not, and where those stood before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortSeen {
    pub(crate) alien: u64,
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
    pub(crate) loop_times: Times,
}

impl Exchange<'_> {
    /// Runs to the end; returns the window as it was in the end, and how long rounds took.
    pub(crate) fn run(mut self, drain_cycles: u64) -> (Window, Times) {
        let mut now = tsc::now();
        loop {
            let mut moved = self.receive_all();
            if now < self.window.end {
                moved += self.send_all();
                if self.stop.load(Ordering::Relaxed) {
                    self.cut_window(now);
                }
            } else if now >= self.window.end + drain_cycles
                || moved == 0 && self.traffic.iter().all(Traffic::is_settled)
            {
                return (self.window, self.loop_times);
            }
            let end = tsc::now();
            if self.window.contains(now) {
                self.loop_times.record(end - now);
            }
            now = end;
            if moved == 0
                && let Some(waiter) = self.waiter
            {
                self.sleep(waiter, now);
                now = tsc::now();
            }
        }
    }

    fn cut_window(&mut self, now: u64) {
        self.window.end = now.max(self.window.start);
        for pair in self.traffic.iter_mut() {
            pair.set_window(self.window);
        }
    }

    #[inline]
    fn send_all(&mut self) -> usize {
        let mut sent = 0;
        for pair in self.traffic.iter_mut() {
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
                    scratch: self.scratch,
                    alien: 0,
                    answered: 0,
                    seen_at: None,
                };
                // A ring fault shows in the port's report; the ring then yields nothing more.
                let polled = rx.queue.poll(&rx.events.kick, |frame| arrivals.take(frame));
                seen.alien += arrivals.alien;
                if arrivals.answered > 0 {
                    tx.queue.publish(&tx.events.kick);
                }
                frames += polled.unwrap_or(0);
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
    scratch: &'a mut Vec<u8>,
    alien: u64,
    answered: u64,
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
        let stamp = Stamp::of(frame).filter(|stamp| stamp.phase == self.phase);
        let pair = stamp.and_then(|stamp| {
            self.traffic.get_mut(usize::from(stamp.pair)).map(|pair| (stamp, pair))
        });
        let Some((stamp, pair)) = pair else {
            self.alien += 1;
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
        if self.answers.room(1, 1) == 0 || frame.len() > self.answers.frame_bytes_max() {
            return;
        }
        if let Some(buffer) = self.answers.buffer() {
            buffer.write(0, self.scratch);
            *buffer.content = 0;
        }
        if self.answers.send(self.scratch.len(), 1).is_ok() {
            self.answered += 1;
        }
    }
}
