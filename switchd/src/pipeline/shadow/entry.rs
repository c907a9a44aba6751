//! One decision that was given out.

use std::sync::Arc;

use tollgate_datapath::{Megaflow, Meter};

use super::super::bridge::BridgeId;
use super::super::fdb::Station;
use super::super::walk::{Dependencies, Visit, Walk, with_port};
use super::additions::Additions;

/// Whether PMDs may hold a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Given to a PMD to be cached.
    Cached,
    /// Stale or idle: the PMDs are to be told.
    Doomed,
    /// Cached nowhere, but an answer that uses it may be on its way: kept for its count.
    Uncached,
}

/// One decision. A PMD that needs it too gets one of its own, for its counts have one writer.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) megaflow: Arc<Megaflow>,
    pub(super) bridge: BridgeId,
    /// The ingress port's OpenFlow number.
    pub(super) ofport: u32,
    pub(super) visits: Vec<Visit>,
    pub(super) dependencies: Dependencies,
    pub(super) learned: Vec<(Station, u32)>,
    pub(super) state: State,
    /// The generation up to which it is known to be what the tables decide.
    pub(super) valid_generation: u64,
    pub(super) used_ms: u64,
    pub(super) counted_packets: u64,
    pub(super) counted_bytes: u64,
}

/// Packets of a decision that were not passed on before.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Collected<'a> {
    pub(in super::super) bridge: BridgeId,
    pub(in super::super) visits: &'a [Visit],
    /// Stations behind a port, as every packet shows.
    pub(in super::super) learned: &'a [(Station, u32)],
    pub(in super::super) packets: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) used_ms: u64,
}

fn same_meters(a: &[Arc<Meter>], b: &[Arc<Meter>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

impl Entry {
    /// Whether the tables may now decide otherwise about some packet of this decision.
    pub(super) fn is_suspect(&self, additions: &Additions) -> bool {
        let retired = |visit: &Visit| visit.rule.as_ref().is_some_and(|rule| rule.is_retired());
        if self.visits.iter().any(retired) {
            return true;
        }
        let whole = with_port(&self.megaflow.matcher, self.ofport);
        let may_lose = |visit| additions.may_win(self.bridge, visit, &whole, self.valid_generation);
        self.visits.iter().any(may_lose)
    }

    /// Whether a walk under the present tables decides all packets of this decision as it does. It
    /// started from one of them and looked at no bit in which they may differ.
    pub(super) fn agrees_with(&self, walk: &Walk) -> bool {
        let megaflow = &self.megaflow;
        megaflow.matcher.mask().contains(walk.matcher.mask())
            && *megaflow.ops == *walk.ops
            && same_meters(&megaflow.meters, &walk.meters)
            && megaflow.drop_reason == walk.drop_reason
            && self.dependencies == walk.dependencies
            && self.learned == walk.learned
    }

    /// Passes on what it has counted since the last time.
    pub(super) fn collect(
        &mut self,
        ms_of_tsc: impl Fn(u64) -> u64,
        take: &mut impl FnMut(Collected<'_>),
    ) {
        let stats = &self.megaflow.stats;
        let (packets, bytes) = (stats.packets(), stats.bytes());
        let used_ms = self.used_ms.max(ms_of_tsc(stats.last_used_tsc()));
        // The three are written one after the other: what is missed now is found the next time.
        if (packets, bytes, used_ms) == (self.counted_packets, self.counted_bytes, self.used_ms) {
            return;
        }
        self.used_ms = used_ms;
        take(Collected {
            bridge: self.bridge,
            visits: &self.visits,
            learned: &self.learned,
            packets: packets.wrapping_sub(self.counted_packets),
            bytes: bytes.wrapping_sub(self.counted_bytes),
            used_ms,
        });
        (self.counted_packets, self.counted_bytes) = (packets, bytes);
    }
}
