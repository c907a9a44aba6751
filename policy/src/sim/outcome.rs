//! What a simulation found.

use super::receive::Received;

/// What one tenant got.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cycles spent for it, received packets included.
    pub cycles: u64,
    /// Packets processed in its turns.
    pub packets: u64,
    /// Packets that found its ring full.
    pub lost: u64,
    /// Turns taken.
    pub turns: u64,
    /// From the arrival of each packet to the end of its processing; not for saturating traffic.
    pub sojourn_cycles: Vec<u64>,
    /// The longest that it stood with work before a turn began.
    pub wait_cycles_max: u64,
    /// What became of the packets that it received.
    pub received: Received,
}

impl Outcome {
    /// The q-quantile of the sojourn times (0 to 1); 0 without any.
    #[must_use]
    pub fn sojourn_quantile_cycles(&self, q: f64) -> u64 {
        let mut sorted = self.sojourn_cycles.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * q).round() as usize).copied().unwrap_or(0)
    }

    /// Adds what it got elsewhere.
    pub(super) fn add(&mut self, other: &Self) {
        self.cycles += other.cycles;
        self.packets += other.packets;
        self.lost += other.lost;
        self.turns += other.turns;
        self.sojourn_cycles.extend_from_slice(&other.sojourn_cycles);
        self.wait_cycles_max = self.wait_cycles_max.max(other.wait_cycles_max);
        self.received.delivered += other.received.delivered;
        self.received.marked += other.received.marked;
        self.received.dropped += other.received.dropped;
        self.received.lost += other.received.lost;
    }
}

/// The longest that each kind of work held the core: the terms of the promise on waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// D_task: one turn.
    pub task_cycles: u64,
    /// D_rx: received packets, between two turns.
    pub rx_cycles: u64,
    /// D_system: what the switch spends on itself, between two turns.
    pub system_cycles: u64,
}
