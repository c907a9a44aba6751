//! Synthetic traffic, and recorded traffic played back.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::weight::Weight;

/// Packets that a simulated ring holds.
const RING_PACKETS: usize = 256;

/// One tenant of a simulation.
#[derive(Clone, Debug)]
pub struct TenantSpec {
    /// Its weight.
    pub weight: Weight,
    /// What each of its packets costs; recorded ones say so themselves.
    pub cost_cycles: u64,
    /// When its packets come.
    pub arrivals: Arrivals,
}

/// When packets come.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// As recorded, in the order of time.
    Recorded(Arc<[RecordedPacket]>),
}

/// One packet of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPacket {
    /// When it came.
    pub time_cycles: u64,
    /// What it cost.
    pub cost_cycles: u64,
}

/// Arrivals unrolled in time.
#[derive(Clone, Debug)]
pub(super) struct Source {
    spec: TenantSpec,
    /// The packets in the ring.
    ring: VecDeque<RecordedPacket>,
    next_cycles: Option<u64>,
    /// An on-off source is busy until then.
    on_until_cycles: u64,
    /// How much of a recording has been played.
    played: usize,
    /// Recorded times count from here.
    began_cycles: u64,
}

impl Source {
    pub(super) fn new(spec: TenantSpec) -> Self {
        let arrivals = spec.arrivals.clone();
        let mut source = Self {
            spec,
            ring: VecDeque::new(),
            next_cycles: None,
            on_until_cycles: 0,
            played: 0,
            began_cycles: 0,
        };
        source.replace(arrivals, 0);
        source
    }

    pub(super) fn replace(&mut self, arrivals: Arrivals, now_cycles: u64) {
        self.spec.arrivals = arrivals;
        self.ring.clear();
        self.played = 0;
        self.began_cycles = now_cycles;
        self.next_cycles = match &self.spec.arrivals {
            Arrivals::Silent => None,
            Arrivals::Saturating | Arrivals::OnOff { .. } => Some(now_cycles),
            Arrivals::Every { first_cycles, .. } => Some(now_cycles + first_cycles),
            Arrivals::Recorded(packets) => {
                packets.first().map(|packet| now_cycles + packet.time_cycles)
            }
        };
    }

    pub(super) fn next_arrival_cycles(&self) -> Option<u64> {
        self.next_cycles
    }

    pub(super) fn is_saturating(&self) -> bool {
        matches!(self.spec.arrivals, Arrivals::Saturating | Arrivals::OnOff { .. })
    }

    /// Takes in what has arrived; how many packets found the ring full.
    pub(super) fn arrive(&mut self, now_cycles: u64) -> u64 {
        let mut lost = 0;
        while let Some(at_cycles) = self.next_cycles.filter(|at_cycles| *at_cycles <= now_cycles) {
            let cost_cycles = self.spec.cost_cycles;
            match &self.spec.arrivals {
                Arrivals::Silent | Arrivals::Saturating => self.next_cycles = None,
                Arrivals::OnOff { on_cycles, off_cycles } => {
                    self.on_until_cycles = at_cycles + on_cycles;
                    self.next_cycles = Some(self.on_until_cycles + off_cycles);
                }
                Arrivals::Every { period_cycles, packets, .. } => {
                    let (period_cycles, packets) = (*period_cycles, *packets);
                    let packet = RecordedPacket { time_cycles: at_cycles, cost_cycles };
                    lost += (0..packets).filter(|_| !self.push(packet)).count() as u64;
                    self.next_cycles = Some(at_cycles + period_cycles.max(1));
                }
                Arrivals::Recorded(packets) => {
                    let packet = packets.get(self.played).copied();
                    self.played += 1;
                    let next = packets.get(self.played);
                    self.next_cycles = next.map(|next| self.began_cycles + next.time_cycles);
                    let arrived =
                        packet.map(|packet| RecordedPacket { time_cycles: at_cycles, ..packet });
                    lost += u64::from(arrived.is_some_and(|packet| !self.push(packet)));
                }
            }
        }
        lost
    }

    fn push(&mut self, packet: RecordedPacket) -> bool {
        let room = self.ring.len() < RING_PACKETS;
        if room {
            self.ring.push_back(packet);
        }
        room
    }

    pub(super) fn has_work(&self, now_cycles: u64) -> bool {
        match self.spec.arrivals {
            Arrivals::Silent => false,
            Arrivals::Saturating => true,
            Arrivals::OnOff { .. } => now_cycles < self.on_until_cycles,
            Arrivals::Every { .. } | Arrivals::Recorded(_) => !self.ring.is_empty(),
        }
    }

    /// The next packet, with the time at which it came.
    pub(super) fn take(&mut self, now_cycles: u64) -> Option<RecordedPacket> {
        match self.spec.arrivals {
            Arrivals::Every { .. } | Arrivals::Recorded(_) => self.ring.pop_front(),
            Arrivals::Silent | Arrivals::Saturating | Arrivals::OnOff { .. } => {
                let cost_cycles = self.spec.cost_cycles;
                let packet = RecordedPacket { time_cycles: now_cycles, cost_cycles };
                self.has_work(now_cycles).then_some(packet)
            }
        }
    }
}
