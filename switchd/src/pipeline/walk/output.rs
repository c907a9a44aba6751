//! Outputs: to ports, to all of them, to where a station was last seen.

use tollgate_datapath::Op;
use tollgate_frame::DropReason;
use tollgate_openflow::port::{OFPPC_NO_FWD, OFPPC_PORT_DOWN};
use tollgate_packet::edit::Edit;
use tollgate_packet::key::VLAN_PRESENT;
use tollgate_packet::{FlowKey, FlowMask, HeaderField, MacAddr, is_vlan_tpid};

use super::super::bridge::PortInfo;
use super::super::fdb::Station;
use super::super::program::Target;
use super::machine::Machine;
use crate::limits::MAX_OFPORT;

impl Machine<'_> {
    pub(super) fn output(&mut self, target: Target) {
        match target {
            Target::Port(ofport) => {
                self.dependencies.ofports.push(ofport);
                self.send(ofport);
            }
            Target::InPort => self.send_back(),
            Target::Flood => self.flood(),
            Target::Normal => self.normal(),
            Target::Table => self.resubmit(None, Some(0)),
        }
    }

    /// To one port; never back where the packet came from (OpenFlow 1.3.5, section 4.5: that takes
    /// IN_PORT).
    fn send(&mut self, ofport: u32) {
        if ofport == self.tracker.key().in_port {
            self.drop_reason = DropReason::TxSelf;
            return;
        }
        match self.bridge.port(ofport) {
            Some(port) => self.send_to(port),
            None => self.drop_reason = DropReason::NoSuchPort,
        }
    }

    fn send_back(&mut self) {
        let in_port = self.tracker.key().in_port;
        self.dependencies.ofports.push(in_port);
        match self.bridge.port(in_port) {
            Some(port) => self.send_to(port),
            None => self.drop_reason = DropReason::NoSuchPort,
        }
    }

    fn send_to(&mut self, port: &PortInfo) {
        if port.config & (OFPPC_NO_FWD | OFPPC_PORT_DOWN) == 0 {
            self.push(Op::Output(port.index));
        } else {
            self.drop_reason = DropReason::PortDown;
        }
    }

    fn flood(&mut self) {
        self.dependencies.flooded = true;
        let (bridge, in_port) = (self.bridge, self.tracker.key().in_port);
        self.drop_reason = DropReason::NoSuchPort;
        for port in bridge.ports().filter(|port| port.ofport != in_port) {
            self.send_to(port);
        }
    }

    /// Forwards as a learning bridge does (IEEE 802.1Q-2018, 8.6 and 8.7), independently per VLAN.
    fn normal(&mut self) {
        self.tracker.look_at_stations();
        let key = *self.tracker.key();
        let tagged = key.vlan_tci & VLAN_PRESENT != 0;
        if is_link_local(key.eth_dst) || (!tagged && self.has_broken_tag(&key)) {
            self.drop_reason = DropReason::RuleDrop;
            return;
        }
        self.dependencies.ofports.push(key.in_port);
        let has_port = self.bridge.port(key.in_port).is_some();
        if !has_port && key.in_port <= MAX_OFPORT {
            self.drop_reason = DropReason::NoSuchPort;
            return;
        }
        let vlan = if tagged { key.vlan_tci & 0x0fff } else { 0 };
        let source = Station { vlan, mac: key.eth_src };
        // What comes from a controller teaches nothing.
        if has_port && !source.mac.is_multicast() {
            self.dependencies.stations.push(source);
            self.learned.push((source, key.in_port));
        }
        if tagged && vlan == 0 {
            // Whether the tag says anything is one more thing to look at.
            let tag = FlowKey { vlan_tci: u16::MAX, vlan_tpid: u16::MAX, ..FlowKey::ZERO };
            self.tracker.look(&FlowMask(tag));
        }
        let destination = Station { vlan, mac: key.eth_dst };
        if key.vlan_tci == VLAN_PRESENT {
            self.forward_untagged(destination, key.vlan_tpid);
        } else {
            self.forward(destination);
        }
    }

    /// Whether an untagged packet starts with a tag all the same: one that is cut off, so that its
    /// VLAN is unknown.
    fn has_broken_tag(&mut self, key: &FlowKey) -> bool {
        self.tracker.look(&FlowMask(FlowKey { eth_type: u16::MAX, ..FlowKey::ZERO }));
        is_vlan_tpid(key.eth_type)
    }

    /// A tag with neither a VLAN nor a priority says nothing: the frame leaves without it, as with
    /// Open vSwitch. It has the tag again for what follows.
    fn forward_untagged(&mut self, destination: Station, tpid: u16) {
        self.edit(Edit::PopVlan);
        self.forward(destination);
        self.edit(Edit::PushVlan { tpid });
        self.edit(Edit::set(HeaderField::VlanVid, 0));
        self.edit(Edit::set(HeaderField::VlanPcp, 0));
    }

    fn forward(&mut self, destination: Station) {
        if destination.mac.is_multicast() {
            return self.flood();
        }
        self.dependencies.stations.push(destination);
        match self.locate(destination) {
            Some(ofport) => {
                self.dependencies.ofports.push(ofport);
                self.send(ofport);
            }
            None => self.flood(),
        }
    }

    /// Where a station is, with what this very packet teaches taken in.
    fn locate(&mut self, station: Station) -> Option<u32> {
        let here = self.learned.iter().rfind(|(learned, _)| *learned == station);
        if let Some((_, ofport)) = here {
            return Some(*ofport);
        }
        let known = self.fdb.lookup(station);
        self.asked.push((station, known));
        known
    }
}

/// The group addresses that no bridge forwards (IEEE 802.1Q-2018, table 8-1).
fn is_link_local(mac: MacAddr) -> bool {
    let [a, b, c, d, e, last] = mac.0;
    [a, b, c, d, e] == [0x01, 0x80, 0xc2, 0, 0] && last <= 0x0f
}
