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
