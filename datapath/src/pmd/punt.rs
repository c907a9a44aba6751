//! Copies of frames for controllers, on their way to the slow path.

use tollgate_frame::DropReason;
use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;

use crate::counters::PortCounters;
use crate::pmd::Pmd;
use crate::pmd::frames::copy_frame;

impl Pmd {
    /// Queues the packet at `index` of the burst, as it was received, within its tenant's limit;
    /// whether that was done.
    pub(crate) fn punt(
        &mut self,
        tenant: TenantIndex,
        port: PortIndex,
        index: usize,
        counters: &PortCounters,
    ) -> bool {
        let outcome = self.queue_punt(tenant, port, index);
        match outcome {
            Ok(()) => {
                counters.consumed();
                self.waker.wake();
            }
            Err(reason) => counters.dropped(reason, 1),
        }
        outcome.is_ok()
    }

    fn queue_punt(
        &mut self,
        tenant: TenantIndex,
        port: PortIndex,
        index: usize,
    ) -> Result<(), DropReason> {
        const NO_QUEUE: DropReason = DropReason::ControllerQueueFull;
        let lane = &mut self.tenants.get_mut(tenant).ok_or(NO_QUEUE)?.lane;
        // Before the copy is made: a flood of them costs next to nothing.
        if !lane.admits_punt(self.accounts.last_tsc()) {
            return Err(DropReason::ControllerLimit);
        }
        let packet = self.burst.packet(index).ok_or(NO_QUEUE)?;
        let header = self.egress.received_header(packet).bytes();
        let len = copy_frame(header, self.burst.payload(index), &mut self.scratch.frame);
        let frame = self.scratch.frame.get(..len).unwrap_or_default();
        if lane.punt(port, &packet.key, frame) { Ok(()) } else { Err(NO_QUEUE) }
    }
}
