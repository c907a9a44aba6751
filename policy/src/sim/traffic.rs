//! Synthetic traffic.

use std::collections::VecDeque;

use crate::weight::Weight;

/// Packets that a simulated ring holds.
const RING_PACKETS: usize = 256;

/// One tenant of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct TenantSpec {
    /// Its weight.
    pub weight: Weight,
    /// What each of its packets costs.
    pub cost_cycles: u64,
    /// When its packets come.
    pub arrivals: Arrivals,
}

/// When packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Never.
    Silent,
    /// There is always another one.
    Saturating,
    /// `packets` at once every `period_cycles`, whatever happened to the ones before.
    Every {
        /// From one arrival to the next.
        period_cycles: u64,
        /// How many come together.
        packets: u32,
        /// When the first ones come.
        first_cycles: u64,
    },
    /// Saturating for `on_cycles`, then silent for `off_cycles`, and so on.
    OnOff {
        /// Length of the busy spell.
        on_cycles: u64,
        /// Length of the silence.
        off_cycles: u64,
    },
}

/// Arrivals unrolled in time.
#[derive(Clone, Debug)]
pub(super) struct Source {
    spec: TenantSpec,
    /// Arrival times of the packets in the ring.
    ring: VecDeque<u64>,
    next_cycles: Option<u64>,
    /// An on-off source is busy until then.
    on_until_cycles: u64,
}

impl Source {
    pub(super) fn new(spec: TenantSpec) -> Self {
        let mut source =
            Self { spec, ring: VecDeque::new(), next_cycles: None, on_until_cycles: 0 };
        source.replace(spec.arrivals, 0);
        source
    }

    pub(super) fn replace(&mut self, arrivals: Arrivals, now_cycles: u64) {
        self.spec.arrivals = arrivals;
        self.ring.clear();
        self.next_cycles = match arrivals {
            Arrivals::Silent => None,
            Arrivals::Saturating | Arrivals::OnOff { .. } => Some(now_cycles),
            Arrivals::Every { first_cycles, .. } => Some(now_cycles + first_cycles),
        };
    }

    pub(super) fn next_arrival_cycles(&self) -> Option<u64> {
        self.next_cycles
    }

    pub(super) fn cost_cycles(&self) -> u64 {
        self.spec.cost_cycles
    }

    pub(super) fn is_saturating(&self) -> bool {
        matches!(self.spec.arrivals, Arrivals::Saturating | Arrivals::OnOff { .. })
    }

    /// Takes in what has arrived; how many packets found the ring full.
    pub(super) fn arrive(&mut self, now_cycles: u64) -> u64 {
        let mut lost = 0;
        while let Some(at_cycles) = self.next_cycles.filter(|at_cycles| *at_cycles <= now_cycles) {
            match self.spec.arrivals {
                Arrivals::Silent | Arrivals::Saturating => self.next_cycles = None,
                Arrivals::OnOff { on_cycles, off_cycles } => {
                    self.on_until_cycles = at_cycles + on_cycles;
                    self.next_cycles = Some(self.on_until_cycles + off_cycles);
                }
                Arrivals::Every { period_cycles, packets, .. } => {
                    for _ in 0..packets {
                        if self.ring.len() < RING_PACKETS {
                            self.ring.push_back(at_cycles);
                        } else {
                            lost += 1;
                        }
                    }
                    self.next_cycles = Some(at_cycles + period_cycles.max(1));
                }
            }
        }
        lost
    }

    pub(super) fn has_work(&self, now_cycles: u64) -> bool {
        match self.spec.arrivals {
            Arrivals::Silent => false,
            Arrivals::Saturating => true,
            Arrivals::OnOff { .. } => now_cycles < self.on_until_cycles,
            Arrivals::Every { .. } => !self.ring.is_empty(),
        }
    }

    /// The next packet, by its arrival time.
    pub(super) fn take(&mut self, now_cycles: u64) -> Option<u64> {
        match self.spec.arrivals {
            Arrivals::Every { .. } => self.ring.pop_front(),
            Arrivals::Silent | Arrivals::Saturating | Arrivals::OnOff { .. } => {
                self.has_work(now_cycles).then_some(now_cycles)
            }
        }
    }
}
