//! Runs of packets that all go, as they are, to one port: most of what a switch does. They are
//! copied to it at once, without the list of outputs that other decisions need.

use tollgate_accel::tsc;
use tollgate_frame::{Burst, DropReason};
use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;

use crate::limits::{PENDING_BYTES, SHORT_RUN_PACKETS};
use crate::pmd::Pmd;
use crate::pmd::egress::{Egress, Source};
use crate::pmd::port_decision::Simple;
use crate::pmd::ports::PortTable;
use crate::pmd::task::Tally;
use crate::stages::Stage;

/// What a run has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) packets: usize,
    pub(crate) bytes: u64,
    /// The turn's time is up.
    pub(crate) is_late: bool,
}

impl Pmd {
    /// Forwards the packets from `first` on that go to one and the same port and nowhere else, if
    /// they are enough to be worth it: else none.
    pub(crate) fn forward_run(
        &mut self,
        tenant: TenantIndex,
        first: usize,
        deadline_tsc: u64,
        tally: &mut Tally,
        source: Source<'_>,
    ) -> Moved {
        // A packet whose flow is in the slow path must wait for it, which is seen to one by one.
        let waits = self.tenants.get(tenant).is_none_or(|slot| slot.lane.pending.packets() > 0);
        let Some((port, len)) = self.run_from(first).filter(|_| !waits) else {
            return Moved::default();
        };
        // Of what was listed before, some may be for the same port.
        self.egress.flush(&self.burst, &mut self.ports, source);
        let end = first + len;
        let hashes = self.scratch.flow_hashes.get(first..end).unwrap_or_default();
        let (ports, burst) = (&mut self.ports, &self.burst);
        let mut moved = self.egress.send_run(port, first, hashes, burst, ports, source);
        self.egress.stopwatch.lap(Stage::Deliver, moved.packets);
        let decisions = self.scratch.decisions.get(first..first + moved.packets);
        let mut frames = self.burst.frames_from(first);
        for alike in decisions.unwrap_or_default().chunk_by(|one, other| one == other) {
            let frames = frames.by_ref().take(alike.len());
            let bytes = frames.map(|(packet, _)| u64::from(packet.frame_len)).sum();
            let decision = alike.first().copied().flatten();
            tally.count(decision, alike.len() as u64, bytes, &self.cache, source.now_tsc);
        }
        self.egress.stopwatch.lap(Stage::Account, 0);
        // As much as is worth a look at the clock. A run to another PMD's port is not moved here, and
        // its packets are late at the earliest when one of them is.
        moved.is_late = (1..len).contains(&moved.packets) && tsc::now() >= deadline_tsc;
        moved
    }

    /// The port that packet `first` goes to and nowhere else, and how many packets from there on do
    /// so too; not a short run unless it is all that is left.
    fn run_from(&self, first: usize) -> Option<(PortIndex, usize)> {
        let decisions = self.scratch.decisions.get(first..self.burst.len())?;
        let mut target = None;
        let mut last = None;
        let mut len = 0;
        for decision in decisions {
            if *decision != last {
                let megaflow = decision.and_then(|slot| self.cache.get(slot));
                let Some(Simple::Output(port)) = megaflow.and_then(|flow| Simple::of(flow)) else {
                    break;
                };
                if *target.get_or_insert(port) != port {
                    break;
                }
                last = *decision;
            }
            len += 1;
        }
        let is_long = len >= SHORT_RUN_PACKETS || (first == 0 && len == decisions.len());
        Some((target?, len)).filter(|_| is_long)
    }
}

impl Egress {
    /// Copies packets of the burst, from `first` on as many as there are `hashes`, to one port, until
    /// it is a good part of a quantum. The guest sees them only after [`publish`](Self::publish).
    fn send_run(
        &mut self,
        port: PortIndex,
        first: usize,
        hashes: &[u64],
        burst: &Burst,
        ports: &mut PortTable,
        source: Source<'_>,
    ) -> Moved {
        let pmd = self.pmd();
        let Some(slot) = ports.get_mut(port).filter(|slot| slot.home == pmd) else {
            return Moved::default();
        };
        let choice = slot.rx_choice();
        let mut frames = burst.frames_from(first).zip(hashes).peekable();
        let mut moved = Moved::default();
        let (mut frames_out, mut bytes_out) = (0_u64, 0_u64);
        // Ring by ring; mostly there is one.
        while let Some(pair) = frames.peek().map(|(_, hash)| choice.pick(**hash))
            && moved.bytes <= PENDING_BYTES
        {
            let mut ring = pair.and_then(|pair| self.open(slot, pair));
            if let Some(ring) = &mut ring {
                ring.prefetch(hashes.len() - moved.packets);
            }
            while moved.bytes <= PENDING_BYTES
                && let Some(((packet, payload), _)) =
                    frames.next_if(|(_, hash)| choice.pick(**hash) == pair)
            {
                moved.packets += 1;
                moved.bytes += u64::from(packet.frame_len);
                let outcome = match &mut ring {
                    Some(ring) => ring.deliver(packet.header.bytes(), payload),
                    None => Err(DropReason::TxNoQueue),
                };
                match outcome {
                    Ok(()) => {
                        frames_out += 1;
                        bytes_out += u64::from(packet.frame_len);
                    }
                    Err(reason) => source.counters.dropped(reason, 1),
                }
            }
        }
        let unsent = slot.end_run();
        if unsent.frames > 0 {
            frames_out -= unsent.frames;
            bytes_out -= unsent.bytes;
            source.counters.dropped(DropReason::TxRingFull, unsent.frames);
        }
        slot.counters.transmitted(frames_out, bytes_out);
        slot.counters.refused(moved.packets as u64 - frames_out);
        source.counters.forwarded(frames_out);
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_packet::{FlowKey, FlowMask, FlowMatch};
    use tollgate_policy::Turn;
    use tollgate_vhost::{Features, mock};

    use super::*;
    use crate::control::DatapathConfig;
    use crate::counters::PortSnapshot;
    use crate::megaflow::{Megaflow, MegaflowStats, Op};
    use crate::pmd::bench::{add_guest, add_port, pmd};
    use crate::pmd::ports::RingRef;
    use crate::settings::PortSettings;

    const SENDER: u16 = 1;
    const RECEIVER: u16 = 2;

    /// They were given back to the ring before one of them was handed over, turn after turn, where
    /// looking at them took the time of a turn.
    #[test]
    fn bug_packets_to_another_pmds_port_get_on_however_late_their_turn_is() {
        let config =
            DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
        let mut pmd = pmd(&config).0;
        pmd.accounts.start();
        let mut guest = add_guest(&mut pmd, SENDER);
        add_port(&mut pmd, RECEIVER, &PortSettings::default());
        pmd.ports.get_mut(PortIndex(RECEIVER)).unwrap().home = 1;
        let key = FlowKey { in_port: SENDER.into(), ..FlowKey::default() };
        // The ports of entry alone would decide without a look.
        let mask = FlowKey { in_port: u32::MAX, eth_type: u16::MAX, ..FlowKey::default() };
        let frame = mock::frame(60, 1);
        let eth_type = u16::from_be_bytes([frame[12], frame[13]]);
        pmd.cache.install(Arc::new(Megaflow {
            matcher: FlowMatch::new(&FlowKey { eth_type, ..key }, FlowMask(mask)),
            ops: [Op::Output(PortIndex(RECEIVER))].into(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(SENDER),
            generation: 1,
            stats: MegaflowStats::default(),
        }));
        guest.driver.transmit(Features::offered(1).net_header_bytes(), &frame);
        let (tenant, at) = (TenantIndex(SENDER), RingRef { port: PortIndex(SENDER), pair: 0 });
        assert!(pmd.ports.polled(at).is_some());
        pmd.tenants.get_mut(tenant).unwrap().ring_ready(at);
        pmd.task(Turn { tenant, budget_cycles: 1, slack: true });
        let counters = Arc::clone(&pmd.ports.get(PortIndex(SENDER)).unwrap().counters);
        let counters = PortSnapshot::of(&[counters]);
        assert_eq!((counters.rx_packets, counters.queued), (1, 0), "{counters:?}");
    }
}
