//! Copies of frames for controllers, on their way to the slow path.

use tollgate_frame::{DropReason, Packet, Segment};
use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;

use crate::counters::PortCounters;
use crate::lane::PmdLane;
use crate::pmd::Pmd;
use crate::pmd::egress::Egress;
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
        let Self { burst, tenants, egress, scratch, accounts, .. } = self;
        let lane = tenants.get_mut(tenant).map(|slot| &mut slot.lane);
        let outcome = match (lane, burst.packet(index)) {
            (Some(lane), Some(packet)) => {
                let frame = (packet, burst.payload(index));
                queue_punt(lane, egress, port, frame, &mut scratch.frame, accounts.last_tsc())
            }
            _ => Err(DropReason::ControllerQueueFull),
        };
        self.count_punt(tenant, outcome, counters)
    }

    /// The same for a packet that the switch owns.
    pub(crate) fn punt_packet(
        &mut self,
        tenant: TenantIndex,
        port: PortIndex,
        packet: &Packet,
        payload: &[Segment<'_>],
        counters: &PortCounters,
    ) {
        let Self { tenants, egress, scratch, accounts, .. } = self;
        let outcome = match tenants.get_mut(tenant).map(|slot| &mut slot.lane) {
            Some(lane) => {
                let frame = (packet, payload);
                queue_punt(lane, egress, port, frame, &mut scratch.frame, accounts.last_tsc())
            }
            None => Err(DropReason::ControllerQueueFull),
        };
        self.count_punt(tenant, outcome, counters);
    }

    fn count_punt(
        &mut self,
        tenant: TenantIndex,
        outcome: Result<(), DropReason>,
        counters: &PortCounters,
    ) -> bool {
        match outcome {
            Ok(()) => {
                counters.consumed();
                self.wake_slow_path(tenant);
            }
            Err(reason) => counters.dropped(reason, 1),
        }
        outcome.is_ok()
    }

    /// Lets the slow path know of what was just queued in the tenant's lane.
    pub(crate) fn wake_slow_path(&mut self, tenant: TenantIndex) {
        let now_tsc = self.accounts.last_tsc();
        let lane = self.tenants.get_mut(tenant).map(|slot| &mut slot.lane);
        let before_tsc = lane.map_or(now_tsc, |lane| lane.queued_before(now_tsc));
        self.rousing.wake(&self.waker, before_tsc, now_tsc);
    }
}

/// Puts a packet, with the header that it was received with, together in `scratch` and queues it.
fn queue_punt(
    lane: &mut PmdLane,
    egress: &Egress,
    port: PortIndex,
    (packet, payload): (&Packet, &[Segment<'_>]),
    scratch: &mut [u8],
    now_tsc: u64,
) -> Result<(), DropReason> {
    // Before the copy is made: a flood of them costs next to nothing.
    if !lane.admits_punt(now_tsc) {
        return Err(DropReason::ControllerLimit);
    }
    let len = copy_frame(egress.received_header(packet).bytes(), payload, scratch);
    let frame = scratch.get(..len).unwrap_or_default();
    if lane.punt(port, &packet.key, frame) { Ok(()) } else { Err(DropReason::ControllerQueueFull) }
}
