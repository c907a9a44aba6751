//! Bridges and ports coming and going.

use super::bridge::{Bridge, BridgeId, PortInfo, TableLimits};
use super::core::Core;
use super::error::BridgeError;
use super::events::{Event, PortReason, PortStatusEvent};
use crate::limits::MAX_OFPORT;

use tollgate_packet::PortIndex;

impl Core {
    pub(super) fn bridge_add(
        &self,
        name: &str,
        limits: TableLimits,
    ) -> Result<BridgeId, BridgeError> {
        let mut state = self.write();
        if state.bridges.values().any(|bridge| bridge.name == name) {
            return Err(BridgeError::Exists);
        }
        let id = BridgeId(state.next_bridge);
        state.next_bridge += 1;
        state.bridges.insert(id, Bridge::new(name.to_owned(), limits));
        Ok(id)
    }

    pub(super) fn bridge_remove(&self, id: BridgeId) -> Result<(), BridgeError> {
        let mut state = self.write();
        let bridge = state.bridges.get(&id).ok_or(BridgeError::NoSuchBridge)?;
        if bridge.ports().next().is_some() {
            return Err(BridgeError::HasPorts);
        }
        // Without ports no decision rests on its rules any more.
        state.bridges.remove(&id);
        Ok(())
    }

    pub(super) fn port_attach(&self, id: BridgeId, port: PortInfo) -> Result<(), BridgeError> {
        let mut state = self.write();
        if !(1..=MAX_OFPORT).contains(&port.ofport) {
            return Err(BridgeError::BadOfport);
        }
        if state.ports.contains_key(&port.index) {
            return Err(BridgeError::PortTaken);
        }
        let bridge = state.bridges.get_mut(&id).ok_or(BridgeError::NoSuchBridge)?;
        if bridge.port(port.ofport).is_some() {
            return Err(BridgeError::OfportTaken);
        }
        let (index, ofport) = (port.index, port.ofport);
        bridge.port_insert(port.clone());
        state.ports.insert(index, (id, ofport));
        self.shadow().port_changed(id, ofport);
        self.tell(id, Event::PortStatus(PortStatusEvent { reason: PortReason::Add, port }));
        Ok(())
    }

    pub(super) fn port_detach(&self, index: PortIndex) -> Result<PortInfo, BridgeError> {
        let mut state = self.write();
        let (id, ofport) = state.ports.remove(&index).ok_or(BridgeError::NoSuchPort)?;
        let bridge = state.bridges.get_mut(&id).ok_or(BridgeError::NoSuchBridge)?;
        let port = bridge.port_remove(ofport).ok_or(BridgeError::NoSuchPort)?;
        let gone = bridge.fdb().forget_port(ofport);
        let mut shadow = self.shadow();
        shadow.stations_changed(id, &gone);
        shadow.port_changed(id, ofport);
        let event = PortStatusEvent { reason: PortReason::Delete, port: port.clone() };
        self.tell(id, Event::PortStatus(event));
        Ok(port)
    }
}
