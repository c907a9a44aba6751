//! A PMD's turns without its thread and at a clock of our own, so that what they execute can be counted.
#![allow(clippy::disallowed_methods)] // control side
#![allow(clippy::unwrap_used, reason = "for benches only")]

use std::fmt;
use std::sync::Arc;

use tollgate_accel::tsc;
use tollgate_frame::DropReason;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};
use tollgate_policy::{SchedulerConfig, TenantIndex};
use tollgate_vhost::{Features, mock};

use crate::control::DatapathConfig;
use crate::limits::{QUIET_RING_LATE_US, TASK_PACKETS};
use crate::megaflow::{Megaflow, MegaflowStats, Op};
use crate::pmd::Pmd;
use crate::pmd::bench::{Guest, TSC_HZ, add_guest, add_port, add_ring_of, pmd};
use crate::settings::PortSettings;

/// What a turn of a full burst takes on real hardware, about: by how much the clock moves.
const TURN_CYCLES: u64 = 5000;
/// Every quiet ring has gone to the slowest rhythm after so long.
const SETTLE_CYCLES: u64 = 2048 * QUIET_RING_LATE_US * (TSC_HZ / 1_000_000);

/// Where frames enter.
pub const SENDER: PortIndex = PortIndex(1);
const RECEIVER: PortIndex = PortIndex(2);
/// As long as a guest's memory in `mock` allows, and enough for seven full bursts.
const RING_ENTRIES: usize = 256;
/// The largest that the buffers in `mock` hold with their virtio-net headers.
const RECEIVE_BYTES: u32 = 2048;

/// Turns after which a quiet ring has been looked at for certain.
const TURNS_UNTIL_FOUND: u64 = 2 * QUIET_RING_LATE_US * (TSC_HZ / 1_000_000) / TURN_CYCLES;
const BURST_PACKETS: usize = TASK_PACKETS;

/// Bursts that one filling of the ring is good for.
pub const TURNS: usize = 7;

/// Packets of [`TURNS`] turns.
pub const PACKETS: usize = TURNS * BURST_PACKETS;

/// One tenant that sends full bursts to another port, beside tenants whose rings are started and
/// silent.
pub struct BusyTurns {
    pmd: Pmd,
    sender: Guest,
    receiver: Guest,
    _idle: Vec<Guest>,
    now_tsc: u64,
    /// What the sender sends, again and again, and which is next.
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl fmt::Debug for BusyTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyTurns").finish_non_exhaustive()
    }
}

impl BusyTurns {
    /// Frames that are all decided on by their port of entry, beside `idle` silent tenants, who have
    /// been so for long.
    ///
    /// # Panics
    /// With more tenants than a datapath holds.
    #[must_use]
    pub fn new(idle: u16) -> Self {
        let key = FlowKey { in_port: SENDER.0.into(), ..FlowKey::default() };
        let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
        Self::of(vec![mock::frame(60, 1)], &[FlowMatch::new(&key, mask)], idle)
    }

    /// `frames` in turn, from [`SENDER`], and a megaflow for each of `matchers`, all of which send to
    /// the same receiver. Caches are warm.
    ///
    /// # Panics
    /// With more tenants, megaflows or frames than the tables or the warming-up are made for, or
    /// frames longer than a buffer.
    #[must_use]
    pub fn of(frames: Vec<Vec<u8>>, matchers: &[FlowMatch], idle: u16) -> Self {
        assert!(frames.len() <= RING_ENTRIES, "each is to be met while caches are warmed");
        let mut pmd = pmd(&config()).0;
        pmd.start_clock();
        pmd.suspect_no_gap();
        let silent = (0..idle).map(|number| add_guest(&mut pmd, RECEIVER.0 + 1 + number)).collect();
        let mut guest = |port: PortIndex, index| {
            add_port(&mut pmd, port.0, &PortSettings::default());
            let guest = add_ring_of(&mut pmd, port.0, index, RING_ENTRIES as u16);
            guest.driver.set_avail_flags(1);
            guest
        };
        let receiver = guest(RECEIVER, mock::TO_GUEST);
        let sender = guest(SENDER, mock::FROM_GUEST);
        matchers.iter().for_each(|matcher| pmd.install(to_receiver(*matcher)));
        let now_tsc = tsc::now();
        let mut bench = Self { pmd, sender, receiver, _idle: silent, now_tsc, frames, next: 0 };
        bench.settle();
        bench.warm_up();
        bench
    }

    /// Lets silent rings grow old.
    fn settle(&mut self) {
        let settled_tsc = self.now_tsc + SETTLE_CYCLES;
        while self.now_tsc < settled_tsc {
            self.now_tsc += TURN_CYCLES;
            self.pmd.look_around(self.now_tsc);
        }
    }

    /// The first filling is found when the ring is looked at; one burst stays, so that the ring never
    /// runs dry. By the second all frames have been met, and by the third their decisions are cached.
    fn warm_up(&mut self) {
        self.send(RING_ENTRIES);
        let mut moved = 0;
        for _ in 0..TURNS_UNTIL_FOUND {
            moved += self.turn();
            if moved == PACKETS as u64 {
                break;
            }
        }
        assert_eq!(moved, PACKETS as u64, "what the sender has sent");
        for _ in 0..2 {
            self.refill();
            self.turns();
        }
        self.refill();
    }

    /// Puts as many frames into the sender's ring as [`turns`](Self::turns) has moved.
    pub fn refill(&mut self) {
        self.send(PACKETS);
    }

    /// Puts frames into the sender's ring, and posts a buffer for each.
    fn send(&mut self, frames: usize) {
        let header_bytes = Features::offered(1).net_header_bytes();
        self.sender.driver.take_used();
        self.receiver.driver.take_used();
        for _ in 0..frames {
            self.receiver.driver.post(RECEIVE_BYTES);
            let frame = self.frames.get(self.next).map(Vec::as_slice).unwrap_or_default();
            self.sender.driver.transmit(header_bytes, frame);
            self.next = (self.next + 1) % self.frames.len();
        }
    }

    /// Takes [`TURNS`] turns; returns how many packets they moved.
    pub fn turns(&mut self) -> u64 {
        (0..TURNS).map(|_| self.turn()).sum()
    }

    fn turn(&mut self) -> u64 {
        let before = self.pmd.packets_moved();
        self.now_tsc += TURN_CYCLES;
        self.pmd.one_turn(self.now_tsc);
        self.pmd.packets_moved() - before
    }
}

/// A turn so large that not even an emulated CPU's clock cuts it short, and tables that hold what
/// the sender sends several times over.
fn config() -> DatapathConfig {
    let scheduler = SchedulerConfig {
        quantum_cycles: 1 << 28,
        cap_cycles: 1 << 29,
        floor_cycles: 1 << 29,
        horizon_cycles: 1 << 29,
        ..SchedulerConfig::default()
    };
    DatapathConfig {
        scheduler,
        megaflows_max: 4 * RING_ENTRIES,
        exact_entries: 16 * RING_ENTRIES,
        ..DatapathConfig::default()
    }
}

/// What `matcher` says goes to the receiver.
fn to_receiver(matcher: FlowMatch) -> Arc<Megaflow> {
    Arc::new(Megaflow {
        matcher,
        ops: [Op::Output(RECEIVER)].into(),
        meters: Box::default(),
        drop_reason: DropReason::RuleDrop,
        owner: TenantIndex(SENDER.0),
        generation: 1,
        stats: MegaflowStats::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_moves_a_full_burst_however_many_are_idle() {
        for idle in [0, 100] {
            assert_eq!(BusyTurns::new(idle).turns(), PACKETS as u64);
        }
    }
}
