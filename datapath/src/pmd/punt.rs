//! Copies of frames for controllers, on their way to the slow path.

use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;

use crate::counters::PortCounters;
use crate::pmd::Pmd;
use crate::pmd::frames::copy_frame;

impl Pmd {
    /// Queues the packet at `index` of the burst, as it was received, within its tenant's limit.
    pub(crate) fn punt(
        &mut self,
        tenant: TenantIndex,
        port: PortIndex,
        index: usize,
        counters: &PortCounters,
    ) {
        let now_tsc = self.accounts.last_tsc();
        let (Some(packet), Some(slot)) = (self.burst.packet(index), self.tenants.get_mut(tenant))
        else {
            return;
        };
        let header = self.egress.received_header(packet).bytes();
        let len = copy_frame(header, self.burst.payload(index), &mut self.scratch.frame);
        let frame = self.scratch.frame.get(..len).unwrap_or_default();
        match slot.lane.punt(port, &packet.key, frame, now_tsc) {
            Ok(()) => {
                counters.consumed();
                self.waker.wake();
            }
            Err(reason) => counters.dropped(reason, 1),
        }
    }
}
