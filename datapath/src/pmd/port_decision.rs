//! Ports whose packets are all treated alike (the rules look at nothing but `in_port`): then there
//! is nothing to read in a packet, and neither parsing nor looking up is done.

use tollgate_classifier::FlowSlot;
use tollgate_packet::{FlowKey, FlowMask, PortIndex};
use tollgate_policy::TenantIndex;

use crate::megaflow::{Megaflow, Op};
use crate::pmd::Pmd;
use crate::pmd::ports::RingRef;

/// Looks at the port of entry only.
const PORT_ONLY: FlowMask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::ZERO });

/// A decision that needs nothing of a packet, as most are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Simple {
    /// One copy, as received.
    Output(PortIndex),
    Drop,
}

impl Simple {
    /// What `megaflow` says, if it is that simple.
    #[inline]
    pub(crate) fn of(megaflow: &Megaflow) -> Option<Self> {
        match &*megaflow.ops {
            [Op::Output(port)] => Some(Self::Output(*port)),
            [] => Some(Self::Drop),
            _ => None,
        }
    }
}

impl Pmd {
    /// Decides on the whole burst by the port that it came from, if one decision is for all that
    /// comes from there. The packets' keys and layouts are left as they were.
    pub(crate) fn decide_by_port(&mut self, tenant: TenantIndex, at: RingRef) -> bool {
        let Some(slot) = self.port_decision(tenant, at) else { return false };
        let packets = self.burst.len();
        self.scratch.decisions.iter_mut().take(packets).for_each(|place| *place = Some(slot));
        self.scratch.flow_hashes.iter_mut().take(packets).for_each(|hash| *hash = 0);
        self.cache.port_hits += packets as u64;
        true
    }

    #[inline]
    fn port_decision(&self, tenant: TenantIndex, at: RingRef) -> Option<FlowSlot> {
        let slot = self.ports.get(at.port)?.decision?;
        let megaflow = self.cache.get(slot)?;
        // Packets that wait for the slow path are known by their hashes, which nobody computes here.
        let lane = &self.tenants.get(tenant)?.lane;
        let needs_no_hash = match Simple::of(megaflow)? {
            Simple::Drop => true,
            Simple::Output(port) => {
                self.ports.get(port).is_none_or(|port| port.takes_any_hash(self.egress.pmd()))
            }
        };
        (needs_no_hash && lane.pending.packets() == 0).then_some(slot)
    }

    /// Remembers the decision on the burst's first packet for its port, if it is for all packets.
    pub(crate) fn learn_port_decision(&mut self, at: RingRef) {
        if let Some(slot) = self.scratch.decisions.first().copied().flatten()
            && let Some(megaflow) = self.cache.get(slot)
            && *megaflow.matcher.mask() == PORT_ONLY
            && Simple::of(megaflow).is_some()
            && let Some(port) = self.ports.get_mut(at.port)
        {
            port.decision = Some(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_frame::DropReason;
    use tollgate_packet::FlowMatch;
    use tollgate_policy::{Account, Refill, SchedulerConfig};
    use tollgate_vhost::{Features, mock};

    use super::*;
    use crate::control::DatapathConfig;
    use crate::megaflow::MegaflowStats;
    use crate::pmd::bench::{Guest, add_guest, add_port, add_ring, pmd};
    use crate::settings::PortSettings;

    const FROM: u16 = 1;
    const TO: u16 = 2;
    const ELSEWHERE: u16 = 3;

    /// Everything from `FROM`, or what is sent to one station.
    fn megaflow(to: u16, eth_dst: Option<u8>) -> Arc<Megaflow> {
        let address = |last| tollgate_packet::MacAddr([2, 0, 0, 0, 0, last]);
        let mut mask = PORT_ONLY;
        let mut key = FlowKey { in_port: FROM.into(), ..FlowKey::ZERO };
        if let Some(last) = eth_dst {
            mask.0.eth_dst = tollgate_packet::MacAddr::BROADCAST;
            key.eth_dst = address(last);
        }
        Arc::new(Megaflow {
            matcher: FlowMatch::new(&key, mask),
            ops: [Op::Output(PortIndex(to))].into(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(FROM),
            generation: 1,
            stats: MegaflowStats::default(),
        })
    }

    /// So large that a slow machine cuts no task.
    const SCHEDULER: SchedulerConfig = SchedulerConfig {
        quantum_cycles: 10_000_000,
        cap_cycles: 40_000_000,
        floor_cycles: 500_000_000,
        horizon_cycles: 500_000_000,
        refill: Refill::Local,
    };

    const TURNS: usize = 1000;

    struct Scene {
        pmd: Pmd,
        from: Guest,
        to: Vec<Guest>,
    }

    /// A sender, and receivers with so many queue pairs.
    fn scene(pairs: u16) -> Scene {
        let config = DatapathConfig {
            scheduler: SCHEDULER,
            megaflows_max: 64,
            exact_entries: 64,
            ..DatapathConfig::default()
        };
        let mut pmd = pmd(&config).0;
        pmd.start_clock();
        let from = add_guest(&mut pmd, FROM);
        let mut to = Vec::new();
        for port in [TO, ELSEWHERE] {
            add_port(&mut pmd, port, &PortSettings::default());
            to.extend((0..pairs).map(|pair| {
                let mut guest = add_ring(&mut pmd, port, mock::TO_GUEST + 2 * pair);
                (0..8).for_each(|_| guest.driver.post(256));
                guest
            }));
        }
        Scene { pmd, from, to }
    }

    impl Scene {
        /// Sends frames to these stations in one burst; how many were decided on by port.
        fn send(&mut self, stations: &[u8]) -> u64 {
            let before = self.pmd.cache.port_hits;
            for station in stations {
                let mut frame = mock::frame(60, *station);
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, *station]);
                self.from.driver.transmit(Features::offered(1).net_header_bytes(), &frame);
            }
            // A ring rests for a while after it was served.
            for _ in 0..TURNS {
                self.pmd.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
                self.pmd.one_turn(self.pmd.accounts.last_tsc());
            }
            self.pmd.cache.port_hits - before
        }

        /// Frames that arrived, by receive ring.
        fn received(&mut self) -> Vec<usize> {
            let header_bytes = Features::offered(1).net_header_bytes();
            self.to.iter_mut().map(|guest| guest.driver.receive(header_bytes).len()).collect()
        }
    }

    #[test]
    fn packets_of_a_port_with_one_decision_are_not_looked_up() {
        let mut scene = scene(1);
        let flow = megaflow(TO, None);
        scene.pmd.install(Arc::clone(&flow));
        assert_eq!(scene.send(&[1, 2]), 0, "not known yet");
        assert_eq!(scene.send(&[3, 4, 5]), 3);
        assert_eq!(scene.received(), [5, 0]);
        assert_eq!((flow.stats.packets(), scene.pmd.packets_moved()), (5, 5));
    }

    #[test]
    fn a_decision_that_was_forgotten_decides_on_nothing() {
        let mut scene = scene(1);
        let flow = megaflow(TO, None);
        scene.pmd.install(Arc::clone(&flow));
        scene.send(&[1]);
        assert_eq!(scene.send(&[1]), 1);
        scene.pmd.cache.forget(&flow).unwrap();
        scene.pmd.install(megaflow(ELSEWHERE, Some(7)));
        assert_eq!(scene.send(&[7, 7]), 0);
        assert_eq!(scene.received(), [2, 2]);
    }

    #[test]
    fn a_decision_that_looks_at_packets_is_not_for_the_port() {
        let mut scene = scene(1);
        scene.pmd.install(megaflow(TO, Some(7)));
        scene.pmd.install(megaflow(ELSEWHERE, Some(8)));
        assert_eq!(scene.send(&[7, 7]) + scene.send(&[8, 7, 8]), 0);
        assert_eq!(scene.received(), [3, 2]);
    }

    /// With several receive rings each flow keeps to one, which takes its hash.
    #[test]
    fn flows_to_a_guest_with_several_queues_are_told_apart() {
        let mut scene = scene(2);
        scene.pmd.install(megaflow(TO, None));
        let stations: Vec<u8> = (0..8).collect();
        assert_eq!(scene.send(&stations[..4]) + scene.send(&stations[4..]), 0);
        let received = scene.received();
        assert_eq!(received.iter().sum::<usize>(), 8);
    }

    /// A flow whose first packets are in the slow path is known by its hash.
    #[test]
    fn nothing_overtakes_what_is_in_the_slow_path() {
        let mut scene = scene(1);
        scene.send(&[1]);
        scene.pmd.install(megaflow(TO, None));
        assert_eq!(scene.send(&[2]) + scene.send(&[3, 1]) + scene.send(&[4]), 0);
        assert_eq!(scene.received(), [2, 0], "1 waits, and 4 behind it");
    }
}
