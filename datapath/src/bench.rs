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

const SENDER: u16 = 1;
const RECEIVER: u16 = 2;
/// As long as a guest's memory in `mock` allows, and enough for seven full bursts.
const RING_ENTRIES: u16 = 256;
const FRAME_BYTES: usize = 60;

/// Turns after which a quiet ring has been looked at for certain.
const TURNS_UNTIL_FOUND: u64 = 2 * QUIET_RING_LATE_US * (TSC_HZ / 1_000_000) / TURN_CYCLES;
const BURST_PACKETS: u64 = TASK_PACKETS as u64;

/// Bursts that one filling of the ring is good for.
pub const TURNS: usize = 7;

/// One tenant that sends full bursts to another port, beside tenants whose rings are started and
/// silent.
pub struct BusyTurns {
    pmd: Pmd,
    sender: Guest,
    receiver: Guest,
    _idle: Vec<Guest>,
    now_tsc: u64,
}

impl fmt::Debug for BusyTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyTurns").finish_non_exhaustive()
    }
}

impl BusyTurns {
    /// With `idle` silent tenants; caches are warm, and the silent have been so for long.
    ///
    /// # Panics
    /// With more tenants than a datapath holds.
    #[must_use]
    pub fn new(idle: u16) -> Self {
        // So large that not even an emulated CPU's clock cuts a turn short.
        let scheduler = SchedulerConfig {
            quantum_cycles: 1 << 28,
            cap_cycles: 1 << 29,
            floor_cycles: 1 << 29,
            horizon_cycles: 1 << 29,
            ..SchedulerConfig::default()
        };
        let config = DatapathConfig {
            scheduler,
            megaflows_max: 64,
            exact_entries: 64,
            ..DatapathConfig::default()
        };
        let mut pmd = pmd(&config).0;
        pmd.start_clock();
        let idle = (0..idle).map(|number| add_guest(&mut pmd, RECEIVER + 1 + number)).collect();
        add_port(&mut pmd, RECEIVER, &PortSettings::default());
        let receiver = add_ring_of(&mut pmd, RECEIVER, mock::TO_GUEST, RING_ENTRIES);
        add_port(&mut pmd, SENDER, &PortSettings::default());
        let sender = add_ring_of(&mut pmd, SENDER, mock::FROM_GUEST, RING_ENTRIES);
        for guest in [&sender, &receiver] {
            guest.driver.set_avail_flags(1);
        }
        pmd.install(forward());
        let mut bench = Self { pmd, sender, receiver, _idle: idle, now_tsc: tsc::now() };
        let settled_tsc = bench.now_tsc + SETTLE_CYCLES;
        while bench.now_tsc < settled_tsc {
            bench.now_tsc += TURN_CYCLES;
            bench.pmd.look_around(bench.now_tsc);
        }
        // The first filling is found when the ring is looked at, and warms the caches; what it leaves
        // stays, so that the ring never runs dry.
        bench.send(usize::from(RING_ENTRIES));
        let mut moved = 0;
        for _ in 0..TURNS_UNTIL_FOUND {
            moved += bench.turn();
            if moved + BURST_PACKETS >= u64::from(RING_ENTRIES) {
                break;
            }
        }
        assert!(moved > 0, "the sender is not seen");
        bench.send(moved as usize);
        bench
    }

    /// Puts frames into the sender's ring, and posts a buffer for each.
    fn send(&mut self, frames: usize) {
        let header_bytes = Features::offered(1).net_header_bytes();
        self.sender.driver.take_used();
        self.receiver.driver.take_used();
        // One flow.
        let frame = mock::frame(FRAME_BYTES, 1);
        for _ in 0..frames {
            self.receiver.driver.post(256);
            self.sender.driver.transmit(header_bytes, &frame);
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

/// Everything that the sender sends goes to the receiver.
fn forward() -> Arc<Megaflow> {
    let key = FlowKey { in_port: SENDER.into(), ..FlowKey::default() };
    let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
    Arc::new(Megaflow {
        matcher: FlowMatch::new(&key, mask),
        ops: [Op::Output(PortIndex(RECEIVER))].into(),
        meters: Box::default(),
        drop_reason: DropReason::RuleDrop,
        owner: TenantIndex(SENDER),
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
            assert_eq!(BusyTurns::new(idle).turns(), TURNS as u64 * BURST_PACKETS);
        }
    }
}
