//! PORT_MOD (OpenFlow 1.3.5, section 7.3.4.3): what ports do with their packets.

use tollgate_openflow::ErrorCode;
use tollgate_openflow::port::{OFPPC_NO_FWD, OFPPC_NO_PACKET_IN, OFPPC_NO_RECV, OFPPC_PORT_DOWN};
use tollgate_openflow::port_mod::PortMod;

use super::bridge::BridgeId;
use super::core::Core;
use super::error::FlowError;
use super::events::{Event, PortReason, PortStatusEvent};

const CONFIGURABLE: u32 = OFPPC_PORT_DOWN | OFPPC_NO_RECV | OFPPC_NO_FWD | OFPPC_NO_PACKET_IN;

impl Core {
    pub(super) fn port_mod(&self, id: BridgeId, request: &PortMod) -> Result<(), FlowError> {
        let &PortMod { port_no, config, mask, advertise, .. } = request;
        let refused = |code, detail| Err(FlowError::new(code, detail));
        let mut state = self.write();
        let Some(port) = state.bridge_mut(id)?.port_mut(port_no) else {
            return refused(ErrorCode::OFPPMFC_BAD_PORT, "there is no such port");
        };
        if mask & !CONFIGURABLE != 0 {
            return refused(ErrorCode::OFPPMFC_BAD_CONFIG, "a port has no such setting");
        }
        if advertise != 0 {
            return refused(
                ErrorCode::OFPPMFC_BAD_ADVERTISE,
                "a vhost-user port has no speeds to advertise",
            );
        }
        let changed = (port.config & !mask) | (config & mask);
        if changed == port.config {
            return Ok(());
        }
        port.config = changed;
        let port = port.clone();
        self.shadow().port_changed(id, port_no);
        let event = PortStatusEvent { reason: PortReason::Modify, port };
        self.tell(id, Event::PortStatus(event));
        Ok(())
    }
}
