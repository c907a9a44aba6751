//! What comes in from the network: packets whose owner is known only after they were looked at.

use std::collections::VecDeque;

use crate::tenant::TenantIndex;

/// Packets that a simulated receive ring of a network card holds, for all tenants together.
const NIC_RING_PACKETS: usize = 1024;

/// A sender in the network, and what its packets cost the core.
#[derive(Clone, Copy, Debug)]
pub struct StreamSpec {
    /// The tenant that its packets are for.
    pub owner: TenantIndex,
    /// To fetch and parse a packet, after which its owner is known.
    pub parse_cycles: u64,
    /// To classify it, after which its owner is known in any case.
    pub classify_cycles: u64,
    /// To deliver it.
    pub deliver_cycles: u64,
    /// Its packets can be marked.
    pub ecn_capable: bool,
    /// The owner is known from the operator's configuration, before classification.
    pub early: bool,
    /// How it sends.
    pub sender: Sender,
}

/// How packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// One every `period_cycles`, whatever becomes of them.
    OpenLoop {
        /// From one packet to the next.
        period_cycles: u64,
    },
    /// A window of packets every round trip: one more after a round without a mark or a loss, half
    /// as many after one with.
    Adaptive {
        /// Length of a round.
        round_cycles: u64,
    },
}

/// What became of one tenant's received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Delivered, marked ones included.
    pub delivered: u64,
    /// Delivered with a mark.
    pub marked: u64,
    /// Dropped because the owner was over its share.
    pub dropped: u64,
    /// Found the card's ring full.
    pub lost: u64,
}

#[derive(Clone, Debug)]
struct Stream {
    spec: StreamSpec,
    next_cycles: u64,
    /// An adaptive sender's, in packets.
    window: u64,
    /// Something was marked or lost in this round.
    told: bool,
}

/// The receive ring of one core's network card and those who fill it.
#[derive(Clone, Debug, Default)]
pub(super) struct Nic {
    streams: Vec<Stream>,
    /// The streams of the packets that wait, in the order of their arrival.
    ring: VecDeque<u16>,
}

impl Nic {
    /// The new stream's number and when its first packet comes.
    pub(super) fn add(&mut self, spec: StreamSpec, now_cycles: u64) -> (u16, u64) {
        self.streams.push(Stream { spec, next_cycles: now_cycles, window: 1, told: false });
        ((self.streams.len() - 1) as u16, now_cycles)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Takes in what a stream has sent by now: its owner, how many packets found the ring full, and
    /// when it sends again.
    pub(super) fn arrive(
        &mut self,
        stream: u16,
        now_cycles: u64,
    ) -> Option<(TenantIndex, u64, u64)> {
        let Stream { spec, next_cycles, window, told } =
            self.streams.get_mut(usize::from(stream))?;
        let mut lost = 0;
        while *next_cycles <= now_cycles {
            let (packets, rest_cycles) = match spec.sender {
                Sender::OpenLoop { period_cycles } => (1, period_cycles),
                Sender::Adaptive { round_cycles } => {
                    *window = if *told { (*window / 2).max(1) } else { *window + 1 };
                    *told = false;
                    (*window, round_cycles)
                }
            };
            for _ in 0..packets {
                if self.ring.len() < NIC_RING_PACKETS {
                    self.ring.push_back(stream);
                } else {
                    lost += 1;
                    *told = true;
                }
            }
            *next_cycles += rest_cycles.max(1);
        }
        Some((spec.owner, lost, *next_cycles))
    }

    /// The next packet: its stream, by number and kind.
    pub(super) fn take(&mut self) -> Option<(u16, StreamSpec)> {
        let stream = self.ring.pop_front()?;
        self.streams.get(usize::from(stream)).map(|entry| (stream, entry.spec))
    }

    /// A mark or a loss reaches the sender.
    pub(super) fn tell(&mut self, stream: u16) {
        if let Some(stream) = self.streams.get_mut(usize::from(stream)) {
            stream.told = true;
        }
    }
}
