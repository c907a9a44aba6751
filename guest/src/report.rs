//! What a phase measured, for machines (JSON) and for people (tables).

use std::fmt;

use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;

use crate::histogram::Quantiles;

/// The result of one phase.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The phase's name.
    pub phase: String,
    /// Measured time.
    pub seconds: f64,
    /// Whether it was stopped before its time.
    pub stopped: bool,
    /// Frequency of the clock.
    pub tsc_hz: u64,
    /// When the measured time began, in TSC cycles.
    pub start_tsc: u64,
    /// Length of each interval.
    pub interval_seconds: f64,
    /// How long the generator's one thread took for a round over all ports and pairs: how late it
    /// may have seen a frame.
    pub loop_us: Option<Quantiles>,
    /// What else that thread did.
    pub generator: LoopReport,
    /// By port.
    pub ports: Vec<PortReport>,
    /// By pair.
    pub pairs: Vec<PairReport>,
}

/// How the generator's one thread did: it is part of every figure.
#[derive(Clone, Debug, Serialize)]
pub struct LoopReport {
    /// Time spent in rounds that moved something. Near 100, the generator is the limit.
    pub busy_percent: f64,
    /// Of that time, per frame sent or received.
    pub cycles_per_frame: f64,
    /// How often its CPU was taken away (rounds over 200 us).
    pub stalls: u64,
    /// For how long in all.
    pub stalled_ms: f64,
}

/// What one port saw in one phase.
#[derive(Clone, Debug, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Whether the switch still held the connection at the end.
    pub connected: bool,
    /// How the switch broke a ring's rules, if it did.
    pub fault: Option<String>,
    /// Acknowledged virtio features.
    pub features: String,
    /// Frames sent into the switch.
    pub tx_frames: u64,
    /// Frames taken from the switch.
    pub rx_frames: u64,
    /// Received frames that were not the generator's.
    pub alien: u64,
    /// Received frames of an earlier phase.
    pub stale: u64,
    /// Received frames whose virtio-net header or lengths broke the rules.
    pub malformed: u64,
    /// Kicks written.
    pub kicks: u64,
    /// Interrupts taken.
    pub interrupts: u64,
}

/// What became of one pair's frames in one phase: of those that were to be sent inside the measured
/// time; faults (from `late` to `verified`) are counted whenever they happened.
#[derive(Clone, Debug, Serialize)]
pub struct PairReport {
    /// Its name.
    pub name: String,
    /// `stream`, `rpc` or `dctcp`.
    pub mode: &'static str,
    /// Bytes of each frame.
    pub frame_bytes: usize,
    /// Flows.
    pub flows: u64,
    /// Frames per second asked for; 0 for as many as possible.
    pub rate_pps: f64,
    /// Frames (requests) that the rate asks for.
    pub intended: u64,
    /// Frames (requests) sent.
    pub sent: u64,
    /// Frames (replies) received.
    pub received: u64,
    /// Sent and never received.
    pub lost: u64,
    /// Asked for and never sent, because the ring was full or replies did not come.
    pub unsent: u64,
    /// Received of those intended.
    pub completed_percent: f64,
    /// Requests given up.
    pub timed_out: u64,
    /// Replies that came after that.
    pub late: u64,
    /// Received behind a later frame of the same flow.
    pub reordered: u64,
    /// Received with ECN's congestion mark; of `dctcp` only.
    pub marked: u64,
    /// Received twice in a row.
    pub duplicated: u64,
    /// Received on another port than the right one.
    pub misdelivered: u64,
    /// Received with wrong length, checksum or content.
    pub corrupted: u64,
    /// Checked whole.
    pub verified: u64,
    /// Attempts to send that found the ring full.
    pub ring_full: u64,
    /// Millions of frames sent per second.
    pub tx_mpps: f64,
    /// Millions of frames received per second, by time of arrival.
    pub rx_mpps: f64,
    /// The same in gigabits of frames (without FCS, preamble and gap).
    pub rx_gbps: f64,
    /// From the intended time of sending to arrival (of the reply).
    pub latency_us: Option<Quantiles>,
    /// The same of those frames alone that met no stall of the generator's own thread, neither on
    /// their way nor through the backlog it left.
    pub undisturbed_us: Option<Quantiles>,
    /// From the actual time of sending to arrival of the reply.
    pub service_us: Option<Quantiles>,
    /// From the intended time of sending to arrival of the request.
    pub request_us: Option<Quantiles>,
    /// By interval.
    pub intervals: Vec<IntervalReport>,
}

/// One interval of one pair, by the time at which things happened.
#[derive(Clone, Debug, Serialize)]
pub struct IntervalReport {
    /// Frames sent.
    pub sent: u64,
    /// Frames (replies) that arrived.
    pub received: u64,
    /// Latency of those that arrived, where intervals are few enough to keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Quantiles>,
}

impl Report {
    /// A pair's part, by name.
    pub fn pair(&self, name: &str) -> Option<&PairReport> {
        self.pairs.iter().find(|pair| pair.name == name)
    }

    /// A port's part, by name.
    pub fn port(&self, name: &str) -> Option<&PortReport> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// What a switch must never do, in words; empty when all is well. Loss is not among it.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for port in &self.ports {
            if !port.connected {
                faults.push(format!("port {}: the switch closed the connection", port.name));
            }
            if let Some(fault) = &port.fault {
                faults.push(format!("port {}: {fault}", port.name));
            }
            if port.malformed > 0 {
                faults.push(format!("port {}: {} malformed frames", port.name, port.malformed));
            }
        }
        for pair in &self.pairs {
            let counts = [
                (pair.corrupted, "corrupted"),
                (pair.misdelivered, "misdelivered"),
                (pair.duplicated, "duplicated"),
                (pair.reordered, "reordered"),
            ];
            for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
                faults.push(format!("pair {}: {count} frames {what}", pair.name));
            }
        }
        faults
    }

    /// One line per pair.
    pub fn pair_table(&self) -> Table {
        let header = [
            "pair", "mode", "size", "Mpps out", "Mpps in", "Gbit/s", "done %", "lost", "p50 us",
            "p99 us", "p99.9 us", "max us",
        ];
        let rows = self.pairs.iter().map(|pair| {
            let latency = pair.latency_us.as_ref();
            let us = |value: fn(&Quantiles) -> f64| {
                latency.map_or("-".to_owned(), |times| format!("{:.1}", value(times)))
            };
            vec![
                pair.name.clone(),
                pair.mode.to_owned(),
                pair.frame_bytes.to_string(),
                format!("{:.4}", pair.tx_mpps),
                format!("{:.4}", pair.rx_mpps),
                format!("{:.3}", pair.rx_gbps),
                format!("{:.2}", pair.completed_percent),
                pair.lost.to_string(),
                us(|times| times.p50),
                us(|times| times.p99),
                us(|times| times.p99_9),
                us(|times| times.max),
            ]
        });
        table(&header, rows)
    }

    /// One line per interval and pair.
    pub fn interval_table(&self) -> Table {
        let header = ["second", "pair", "frames out", "frames in", "p50 us", "p99 us", "max us"];
        let count = self.pairs.iter().map(|pair| pair.intervals.len()).max().unwrap_or(0);
        let rows = (0..count).flat_map(|index| {
            self.pairs.iter().filter_map(move |pair| {
                let interval = pair.intervals.get(index)?;
                let latency = interval.latency_us.as_ref();
                let us = |value: fn(&Quantiles) -> f64| {
                    latency.map_or("-".to_owned(), |times| format!("{:.1}", value(times)))
                };
                Some(vec![
                    format!("{:.3}", index as f64 * self.interval_seconds),
                    pair.name.clone(),
                    interval.sent.to_string(),
                    interval.received.to_string(),
                    us(|times| times.p50),
                    us(|times| times.p99),
                    us(|times| times.max),
                ])
            })
        });
        table(&header, rows)
    }
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN).set_header(header);
    for row in rows {
        let cells = row.into_iter().enumerate().map(|(column, text)| {
            // Names to the left, numbers to the right.
            let numeric = column > 0 && text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            let alignment = if numeric { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(alignment)
        });
        table.add_row(cells);
    }
    table
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stopped = if self.stopped { ", stopped early" } else { "" };
        writeln!(f, "phase {}: {:.3} s measured{stopped}", self.phase, self.seconds)?;
        writeln!(f, "{}", self.pair_table())?;
        let own = &self.generator;
        if let Some(times) = &self.loop_us {
            writeln!(
                f,
                "generator: {:.0} % busy, {:.0} cycles a frame; round p99 {:.2} us, max {:.0} us; \
                 away {} times, {:.1} ms",
                own.busy_percent,
                own.cycles_per_frame,
                times.p99,
                times.max,
                own.stalls,
                own.stalled_ms
            )?;
        }
        for fault in self.faults() {
            writeln!(f, "FAULT {fault}")?;
        }
        Ok(())
    }
}
