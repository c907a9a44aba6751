//! Traces of real traffic as text: what came when, for whom, and what it cost.
//!
//! ```text
//! # a comment
//! time_cycles,tenant,cost_cycles
//! 120,1,640
//! 180,2,4100
//! ```
//!
//! One line a packet, in the order of time; the heading may be left out.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::traffic::{Arrivals, RecordedPacket, TenantSpec};
use crate::limits::{CREDIT_CYCLES_MAX, TENANTS_MAX};
use crate::tenant::TenantIndex;
use crate::weight::Weight;

const HEADING: &str = "time_cycles,tenant,cost_cycles";

/// Packets of several tenants on one PMD, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    packets: Vec<(TenantIndex, RecordedPacket)>,
}

/// A line of a trace is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: TraceProblem,
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceProblem {
    /// Not three columns.
    #[error("{columns} columns; there must be 3: {HEADING}")]
    Columns {
        /// How many there are.
        columns: usize,
    },
    /// A column is no number, or out of range.
    #[error("{column} is {given:?}; it must be a number from {least} to {most}")]
    Number {
        /// The column.
        column: &'static str,
        /// What stands there.
        given: String,
        /// The smallest allowed.
        least: u64,
        /// The largest allowed.
        most: u64,
    },
    /// Earlier than the line before.
    #[error("time_cycles is {given}, before the packet above it ({before})")]
    Backwards {
        /// The packet's time.
        given: u64,
        /// The time above.
        before: u64,
    },
}

impl Trace {
    /// Adds a packet; one that comes before the last is taken to come with it.
    pub fn push(&mut self, tenant: TenantIndex, packet: RecordedPacket) {
        let last_cycles = self.packets.last().map_or(0, |(_, last)| last.time_cycles);
        let time_cycles = packet.time_cycles.max(last_cycles);
        self.packets.push((tenant, RecordedPacket { time_cycles, ..packet }));
    }

    /// Its packets.
    pub fn packets(&self) -> impl Iterator<Item = (TenantIndex, RecordedPacket)> {
        self.packets.iter().copied()
    }

    /// What a simulation replays: the tenants 1..=n of these weights, with what was recorded for
    /// each. Packets of other tenants are left out.
    #[must_use]
    pub fn specs(&self, weights: &[Weight]) -> Vec<TenantSpec> {
        let mut of: BTreeMap<TenantIndex, Vec<RecordedPacket>> = BTreeMap::new();
        for (tenant, packet) in &self.packets {
            of.entry(*tenant).or_default().push(*packet);
        }
        let spec = |(tenant, weight): (TenantIndex, &Weight)| TenantSpec {
            weight: *weight,
            cost_cycles: 0,
            arrivals: Arrivals::Recorded(Arc::from(of.remove(&tenant).unwrap_or_default())),
        };
        (1..).map(TenantIndex).zip(weights).map(spec).collect()
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut before = 0;
        for (line, row) in (1..).zip(text.lines()) {
            let row = row.trim();
            if row.is_empty() || row.starts_with('#') || row == HEADING {
                continue;
            }
            let (tenant, packet) =
                parse_row(row).map_err(|problem| TraceError { line, problem })?;
            if packet.time_cycles < before {
                let problem = TraceProblem::Backwards { given: packet.time_cycles, before };
                return Err(TraceError { line, problem });
            }
            before = packet.time_cycles;
            trace.packets.push((tenant, packet));
        }
        Ok(trace)
    }
}

fn parse_row(row: &str) -> Result<(TenantIndex, RecordedPacket), TraceProblem> {
    let columns: Vec<&str> = row.split(',').map(str::trim).collect();
    let &[time, tenant, cost] = columns.as_slice() else {
        return Err(TraceProblem::Columns { columns: columns.len() });
    };
    // A time beyond half the range could overflow when a simulation starts later than at 0.
    let time_cycles = parse_number("time_cycles", time, 0, u64::MAX / 2)?;
    let tenant = parse_number("tenant", tenant, 1, u64::from(TENANTS_MAX) - 1)?;
    let cost_cycles = parse_number("cost_cycles", cost, 1, CREDIT_CYCLES_MAX)?;
    // In range, so the conversion is exact.
    Ok((TenantIndex(tenant as u16), RecordedPacket { time_cycles, cost_cycles }))
}

fn parse_number(
    column: &'static str,
    text: &str,
    least: u64,
    most: u64,
) -> Result<u64, TraceProblem> {
    let parsed = text.parse().ok().filter(|number| (least..=most).contains(number));
    let given = || text.chars().take(32).collect();
    parsed.ok_or_else(|| TraceProblem::Number { column, given: given(), least, most })
}

/// The text that parses back to the same trace.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}")?;
        for (TenantIndex(tenant), RecordedPacket { time_cycles, cost_cycles }) in &self.packets {
            writeln!(f, "{time_cycles},{tenant},{cost_cycles}")?;
        }
        Ok(())
    }
}
