//! A pair at work: its schedule, what it sends, and the account of what came back.

use std::time::Duration;

use tollgate_accel::tsc;

use crate::congestion::Sender;
use crate::flows::{FlowFields, Flows};
use crate::frame::{self, FrameSpec, Kind, Stamp, Template};
use crate::histogram::Times;
use crate::limits::ORDERED_FLOWS_MAX;
use crate::pair::{Content, Mode, PairConfig};
use crate::port::{Attached, Port};
use crate::queue::{RxFrame, TxQueue};
use crate::report::{IntervalReport, PairReport};
use crate::schedule::Schedule;

/// A paced stream that is further behind than this (in seconds) gives up the frames it missed: the
/// switch does not take that rate, and catching up would only hide it.
const STREAM_BACKLOG_SECONDS: f64 = 0.1;

/// The measured part of a phase, in TSC cycles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) interval_cycles: u64,
    pub(crate) tsc_hz: u64,
}

impl Window {
    pub(crate) fn contains(&self, cycles: u64) -> bool {
        (self.start..self.end).contains(&cycles)
    }

    /// The interval that `now` lies in, if it is inside the window.
    pub(crate) fn interval(&self, now: u64) -> Option<usize> {
        let since = self.contains(now).then(|| now - self.start)?;
        usize::try_from(since / self.interval_cycles).ok()
    }
}

/// What a pair counts: traffic of frames that were to be sent inside the window, and faults of all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) timed_out: u64,
    pub(crate) late: u64,
    pub(crate) marked: u64,
    pub(crate) reordered: u64,
    pub(crate) duplicated: u64,
    pub(crate) misdelivered: u64,
    pub(crate) corrupted: u64,
    pub(crate) verified: u64,
    /// Attempts to send that found the ring full.
    pub(crate) ring_full: u64,
    /// By arrival inside the window, whenever sent.
    pub(crate) arrived: u64,
}

/// One interval's account, by time of sending and time of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct IntervalCounts {
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    pub(crate) latency: Option<Times>,
}

/// A request under way.
#[derive(Clone, Copy, Debug, Default)]
struct Outstanding {
    busy: bool,
    seq: u32,
    sent: u64,
}

/// What to do with a frame after it was accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Answer,
}

/// One pair in one phase.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) config: PairConfig,
    pub(crate) from: usize,
    pub(crate) to: usize,
    number: u8,
    phase: u8,
    window: Window,
    spec: FrameSpec,
    template: Template,
    flows: Flows,
    /// The fields of the only flow, when there is one.
    only: Option<FlowFields>,
    schedule: Schedule,
    seq: u32,
    /// One-way frames sent and not arrived anywhere, inside the window or not.
    under_way: u64,
    /// Highest sequence number seen, plus one, by flow.
    order: Box<[u32]>,
    outstanding: Box<[Outstanding]>,
    /// Of a sender that heeds congestion.
    congestion: Option<Sender>,
    busy: usize,
    timeout_cycles: u64,
    until_verify: u32,
    scratch: Vec<u8>,
    pub(crate) counts: Counts,
    pub(crate) intervals: Vec<IntervalCounts>,
    pub(crate) latency: Times,
    /// Of those whose way no stall of the generator's own thread touched.
    pub(crate) undisturbed: Times,
    /// Frames due from here on are not touched by the last stall; never, while one is caught up.
    calm_since: u64,
    /// From the actual sending on.
    pub(crate) service: Times,
    /// Of the request alone.
    pub(crate) request: Times,
}

fn schedule_of(config: &PairConfig, tsc_hz: u64) -> Schedule {
    let schedule = Schedule::new(config.rate_pps, tsc_hz);
    let cycles = |time: std::time::Duration| (time.as_secs_f64() * tsc_hz as f64) as u64;
    match config.on_off {
        Some((on, off)) => schedule.with_pauses(cycles(on), cycles(off)),
        None => schedule,
    }
}

/// What tells the pairs of one phase apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) number: u8,
    pub(crate) phase: u8,
    /// Not 0, and not used by an earlier phase.
    pub(crate) template: u32,
}

impl Traffic {
    pub(crate) fn new(
        config: PairConfig,
        id: Identity,
        ports: [&Port; 2],
        window: Window,
        intervals: Vec<IntervalCounts>,
    ) -> Self {
        let [from, to] = ports.map(Port::config);
        let spec = FrameSpec {
            smac: config.smac.unwrap_or(from.mac),
            dmac: config.dmac.unwrap_or(to.mac),
            vlan: config.vlan,
            ecn: matches!(config.mode, Mode::Dctcp { .. }),
            bytes: config.frame_bytes,
            pattern_seed: u64::from(id.number),
        };
        let base = FlowFields {
            sip: config.sip.unwrap_or(from.ip.into()),
            dip: config.dip.unwrap_or(to.ip.into()),
            sport: config.sport,
            dport: config.dport,
        };
        let seed = u64::from(id.number) << 32;
        let flows = Flows::new(base, config.flows, config.vary, config.random_order, seed);
        let cycles = |time: Duration| (time.as_secs_f64() * window.tsc_hz as f64) as u64;
        let (inflight, timeout, congestion) = match config.mode {
            Mode::Stream => (0, Duration::ZERO, None),
            Mode::Dctcp { delay, timeout } => {
                (0, Duration::ZERO, Some(Sender::new(cycles(delay), cycles(timeout))))
            }
            Mode::Rpc { inflight, timeout } => (inflight, timeout, None),
        };
        let outstanding =
            (0..inflight as u32).map(|seq| Outstanding { busy: false, seq, sent: 0 }).collect();
        Self {
            from: id.from,
            to: id.to,
            number: id.number,
            phase: id.phase,
            window,
            template: Template::new(&spec, id.template),
            spec,
            flows,
            only: (config.flows == 1).then(|| flows.fields(0)),
            schedule: schedule_of(&config, window.tsc_hz),
            seq: 0,
            under_way: 0,
            order: vec![0; config.flows.min(ORDERED_FLOWS_MAX) as usize].into(),
            outstanding,
            congestion,
            busy: 0,
            timeout_cycles: cycles(timeout),
            until_verify: config.verify_every,
            scratch: Vec::with_capacity(config.frame_bytes),
            counts: Counts::default(),
            intervals,
            latency: Times::new(),
            undisturbed: Times::new(),
            calm_since: 0,
            service: Times::new(),
            request: Times::new(),
            config,
        }
    }

    /// Starts the clock. Pairs get different starts, so that not all are due at once.
    pub(crate) fn start(&mut self, window: Window, at: u64) {
        self.window = window;
        self.schedule.start(at);
    }

    /// Cycles after which its schedule repeats itself; 0 flat out.
    pub(crate) fn period_cycles(&self) -> u64 {
        self.schedule.period_cycles()
    }

    /// The generator's thread was away until `until`. What was under way or due then is late by no
    /// fault of the switch, and so is what waits behind it until the schedule is caught up.
    pub(crate) fn generator_stalled(&mut self, until: u64) {
        self.calm_since = if self.schedule.is_paced() { u64::MAX } else { until };
    }

    /// Nothing is due any more at `now`.
    #[inline]
    fn caught_up(&mut self, now: u64) {
        if self.calm_since == u64::MAX {
            self.calm_since = now;
        }
    }

    /// Takes over a window that was cut short.
    pub(crate) fn set_window(&mut self, window: Window) {
        self.window = window;
    }

    /// Whether the pair waits for nothing but room.
    pub(crate) fn is_flat_out_stream(&self) -> bool {
        !self.schedule.is_paced() && self.config.mode.is_one_way()
    }

    /// When it next wants to send, as far as that is up to the clock.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let waits_for_reply = !self.outstanding.is_empty() && self.busy == self.outstanding.len();
        (self.schedule.is_paced() && !waits_for_reply).then(|| self.schedule.due())
    }

    /// Whether everything that was sent has come back.
    pub(crate) fn is_settled(&self) -> bool {
        match self.config.mode {
            Mode::Stream | Mode::Dctcp { .. } => self.under_way == 0,
            Mode::Rpc { .. } => self.busy == 0,
        }
    }

    /// Fetches the lines that the next burst will write, if it is certain to come.
    #[inline]
    pub(crate) fn prepare(&self, port: &mut Port) {
        if let Some(Attached { queue, .. }) = port.tx.get_mut(self.config.queue)
            && self.is_flat_out_stream()
        {
            let room = queue.room(self.config.burst, self.config.segments);
            queue.prefetch(room, self.template.stamp_offset());
        }
    }

    /// Sends what is due on the pair's own port. Returns how many frames.
    #[inline]
    pub(crate) fn send(&mut self, port: &mut Port) -> usize {
        // What is paced is not due in a pause.
        if self.config.on_off.is_some()
            && !self.schedule.is_paced()
            && self.schedule.pauses_at(tsc::now())
        {
            return 0;
        }
        let Some(Attached { queue, .. }) = port.tx.get_mut(self.config.queue) else {
            return 0;
        };
        let sent = match self.config.mode {
            Mode::Stream | Mode::Dctcp { .. } => self.send_stream(queue),
            Mode::Rpc { .. } => self.send_requests(queue),
        };
        if sent > 0 {
            queue.publish();
        }
        sent
    }

    #[inline]
    fn send_stream(&mut self, queue: &mut TxQueue) -> usize {
        let now = tsc::now();
        let wanted = if self.schedule.is_paced() {
            match self.schedule.backlog(now).min(self.config.burst as u64) {
                0 => {
                    self.caught_up(now);
                    return 0;
                }
                due => due as usize,
            }
        } else {
            self.config.burst
        };
        let wanted = match &mut self.congestion {
            Some(sender) => wanted.min(sender.room(now)),
            None => wanted,
        };
        if wanted == 0 {
            return 0;
        }
        let room = queue.room(wanted, self.config.segments);
        // Flat out, part of a burst is not worth an index write: the rest will fit in a moment.
        if room < wanted && !self.schedule.is_paced() || room == 0 {
            self.counts.ring_full += 1;
            self.give_up_backlog(now);
            return 0;
        }
        if self.schedule.is_paced() {
            queue.prefetch(room, self.template.stamp_offset());
        }
        for _ in 0..room {
            let intended = if self.schedule.is_paced() { self.schedule.due() } else { now };
            let seq = self.seq;
            if !self.put(queue, Kind::OneWay, seq, intended) {
                break;
            }
            self.seq = seq.wrapping_add(1);
            self.schedule.take(1);
            if let Some(sender) = &mut self.congestion {
                sender.sent(now);
            }
        }
        self.give_up_backlog(now);
        self.count_interval_sent(now, room as u64);
        room
    }

    fn give_up_backlog(&mut self, now: u64) {
        if !self.schedule.is_paced() {
            return;
        }
        let behind = now.saturating_sub(self.schedule.due());
        if behind as f64 > STREAM_BACKLOG_SECONDS * self.window.tsc_hz as f64 {
            self.schedule.take(self.schedule.backlog(now));
        }
    }

    fn send_requests(&mut self, queue: &mut TxQueue) -> usize {
        let now = tsc::now();
        if self.busy == self.outstanding.len() {
            self.expire(now);
        }
        let mut sent = 0;
        while self.busy < self.outstanding.len() {
            if self.schedule.is_paced() && now < self.schedule.due() {
                self.caught_up(now);
                break;
            }
            if queue.room(1, self.config.segments) == 0 {
                self.counts.ring_full += 1;
                break;
            }
            let intended = if self.schedule.is_paced() { self.schedule.due() } else { now };
            // A request's number names its place: seq modulo inflight.
            let Some(place) = self.outstanding.iter().position(|place| !place.busy) else { break };
            let Some(seq) = self.outstanding.get(place).map(|place| place.seq) else { break };
            if !self.put(queue, Kind::Request, seq, intended) {
                break;
            }
            if let Some(place) = self.outstanding.get_mut(place) {
                *place = Outstanding { busy: true, seq, sent: now };
            }
            self.busy += 1;
            self.schedule.take(1);
            sent += 1;
        }
        self.count_interval_sent(now, sent);
        sent as usize
    }

    fn count_interval_sent(&mut self, now: u64, frames: u64) {
        if frames > 0
            && let Some(interval) = self.window.interval(now)
            && let Some(counts) = self.intervals.get_mut(interval)
        {
            counts.sent += frames;
        }
    }

    /// Frees the places of requests that nobody will answer any more.
    fn expire(&mut self, now: u64) {
        let inflight = self.outstanding.len() as u32;
        for place in &mut self.outstanding {
            if place.busy && now.saturating_sub(place.sent) > self.timeout_cycles {
                place.busy = false;
                place.seq = place.seq.wrapping_add(inflight);
                self.busy -= 1;
                self.counts.timed_out += 1;
            }
        }
    }

    /// Fills and offers one frame.
    #[inline]
    fn put(&mut self, queue: &mut TxQueue, kind: Kind, seq: u32, intended: u64) -> bool {
        let stamp = Stamp { pair: self.number, kind, phase: self.phase, seq, intended };
        let fields = self.only.unwrap_or_else(|| self.flows.fields(self.flows.flow_of(seq)));
        let Some(mut buffer) = queue.buffer() else { return false };
        match self.config.content {
            Content::Fixed => self.template.write(&mut buffer, &fields, stamp),
            Content::Fresh => {
                self.template.write_fresh(&mut buffer, &fields, stamp, &mut self.scratch);
            }
        }
        let sent = queue.send(self.template.bytes(), self.config.segments).is_ok();
        if sent {
            self.under_way += u64::from(kind == Kind::OneWay);
            self.counts.sent += u64::from(self.window.contains(intended));
        }
        sent
    }

    /// Accounts for a frame of this pair that arrived at `port`.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        frame: &RxFrame<'_>,
        stamp: Stamp,
        port: usize,
        now: u64,
        interval: Option<usize>,
    ) -> Verdict {
        self.under_way = self.under_way.saturating_sub(u64::from(stamp.kind == Kind::OneWay));
        let expected = if stamp.kind == Kind::Reply { self.from } else { self.to };
        if port != expected || (stamp.kind == Kind::OneWay) != self.config.mode.is_one_way() {
            self.counts.misdelivered += 1;
            return Verdict::Done;
        }
        let counted = self.window.contains(stamp.intended);
        self.verify(frame, stamp);
        let latency = now.saturating_sub(stamp.intended);
        match stamp.kind {
            Kind::Request => {
                if counted {
                    self.request.record(latency);
                }
                return Verdict::Answer;
            }
            Kind::Reply => {
                let Some(sent) = self.settle(stamp.seq) else {
                    self.counts.late += 1;
                    return Verdict::Done;
                };
                if counted {
                    self.service.record(now.saturating_sub(sent));
                }
            }
            Kind::OneWay => {
                self.check_order(stamp.seq);
                if let Some(sender) = &mut self.congestion {
                    let marked = frame::is_congested(frame);
                    sender.arrived(stamp.seq, marked, now);
                    self.counts.marked += u64::from(marked && counted);
                }
            }
        }
        if counted && stamp.intended >= self.calm_since {
            self.undisturbed.record(latency);
        }
        self.account(latency, counted, interval);
        Verdict::Done
    }

    #[inline]
    fn account(&mut self, latency: u64, counted: bool, interval: Option<usize>) {
        let counts = interval.and_then(|interval| self.intervals.get_mut(interval));
        if interval.is_some() {
            self.counts.arrived += 1;
        }
        let mut times = None;
        if let Some(counts) = counts {
            counts.arrived += 1;
            times = counts.latency.as_mut();
        }
        if counted {
            self.counts.received += 1;
            // What arrives after the window's end belongs to no interval, but is not left out.
            times.unwrap_or(&mut self.latency).record(latency);
        }
    }

    /// Marks a request as answered; returns when it was sent, unless it is too late.
    fn settle(&mut self, seq: u32) -> Option<u64> {
        let inflight = self.outstanding.len() as u32;
        let place = self.outstanding.get_mut(seq.checked_rem(inflight)? as usize)?;
        if !place.busy || place.seq != seq {
            return None;
        }
        place.busy = false;
        place.seq = seq.wrapping_add(inflight);
        self.busy -= 1;
        Some(place.sent)
    }

    #[inline]
    fn check_order(&mut self, seq: u32) {
        let flow = if self.only.is_some() { 0 } else { self.flows.flow_of(seq) };
        let Some(expected) = self.order.get_mut((flow % ORDERED_FLOWS_MAX) as usize) else {
            return;
        };
        let ahead = seq.wrapping_sub(*expected) as i32;
        if ahead >= 0 {
            *expected = seq.wrapping_add(1);
        } else if ahead == -1 {
            self.counts.duplicated += 1;
        } else {
            self.counts.reordered += 1;
        }
    }

    #[inline]
    fn verify(&mut self, frame: &RxFrame<'_>, stamp: Stamp) {
        if self.config.verify_every == 0 {
            return;
        }
        self.until_verify -= 1;
        if self.until_verify > 0 {
            // Cheap, and a wrong length is the likeliest fault.
            let tags = 2 * 4;
            if frame.len().abs_diff(self.spec.bytes) > tags {
                self.counts.corrupted += 1;
            }
            return;
        }
        self.until_verify = self.config.verify_every;
        self.counts.verified += 1;
        self.scratch.resize(frame.len(), 0);
        frame.copy_to(&mut self.scratch);
        let seed = match self.config.content {
            Content::Fixed => self.spec.pattern_seed,
            Content::Fresh => frame::pattern_seed(stamp),
        };
        if frame::verify(&self.scratch, &self.spec, seed).is_err() {
            self.counts.corrupted += 1;
        }
    }

    /// How many frames the schedule wanted inside the window; those sent, when flat out.
    pub(crate) fn intended(&self) -> u64 {
        if !self.schedule.is_paced() {
            return self.counts.sent;
        }
        let due_before = |cycles| self.schedule.due_by(cycles - 1);
        due_before(self.window.end) - due_before(self.window.start)
    }

    /// The account of a phase that took `seconds`.
    pub(crate) fn report(mut self, seconds: f64) -> PairReport {
        let tsc_hz = self.window.tsc_hz;
        let (counts, intended) = (self.counts, self.intended());
        let mut latency = self.latency;
        let intervals = self.intervals.into_iter().map(|mut interval| {
            let latency_us = interval.latency.as_mut().and_then(|times| times.summary(tsc_hz));
            if let Some(times) = interval.latency {
                latency.add(times);
            }
            IntervalReport { sent: interval.sent, received: interval.arrived, latency_us }
        });
        let intervals = intervals.collect();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let bits = self.spec.bytes as f64 * 8.0;
        PairReport {
            mode: match self.config.mode {
                Mode::Stream => "stream",
                Mode::Dctcp { .. } => "dctcp",
                Mode::Rpc { .. } => "rpc",
            },
            name: self.config.name,
            frame_bytes: self.spec.bytes,
            flows: self.config.flows,
            rate_pps: self.config.rate_pps,
            intended,
            sent: counts.sent,
            received: counts.received,
            lost: counts.sent.saturating_sub(counts.received),
            unsent: intended.saturating_sub(counts.sent),
            completed_percent: match intended {
                0 => 0.0,
                intended => counts.received as f64 * 100.0 / intended as f64,
            },
            timed_out: counts.timed_out,
            late: counts.late,
            marked: counts.marked,
            reordered: counts.reordered,
            duplicated: counts.duplicated,
            misdelivered: counts.misdelivered,
            corrupted: counts.corrupted,
            verified: counts.verified,
            ring_full: counts.ring_full,
            tx_mpps: per_second(counts.sent) / 1e6,
            rx_mpps: per_second(counts.arrived) / 1e6,
            rx_gbps: per_second(counts.arrived) * bits / 1e9,
            latency_us: latency.summary(tsc_hz),
            undisturbed_us: self.undisturbed.summary(tsc_hz),
            service_us: self.service.summary(tsc_hz),
            request_us: self.request.summary(tsc_hz),
            intervals,
        }
    }
}
