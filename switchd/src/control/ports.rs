//! Ports: a guest's socket or a network card, a place in the datapath, a number on a bridge, a tenant.

use std::time::Instant;

use tollgate_datapath::{PortHandle, PortSnapshot};
use tollgate_packet::MacAddr;

use super::attachment::AttachmentSummary;
use super::registry::{PortEntry, Registry};
use super::{Refusal, Switch};
use crate::config::PortConfig;
use crate::pipeline::PortInfo;

/// A port and its counters.
#[derive(Debug)]
pub struct PortSummary {
    /// Its name.
    pub name: String,
    /// Its bridge.
    pub bridge: String,
    /// Its OpenFlow number.
    pub ofport: u32,
    /// Who is charged for it.
    pub tenant: String,
    /// The PMD that polls it.
    pub pmd: usize,
    /// What is behind it.
    pub attachment: AttachmentSummary,
    /// Whether it stands for a network card.
    pub uplink: bool,
    /// The configured address of the guest behind it.
    pub mac: Option<MacAddr>,
    /// Its counters.
    pub counters: PortSnapshot,
}

impl Switch {
    /// Adds a port to a bridge and begins to listen or connect.
    ///
    /// # Errors
    /// When a name or number is taken, there is no such bridge or PMD, or no room; nothing is left
    /// of it then.
    pub fn port_add(&self, port: &PortConfig) -> Result<u32, Refusal> {
        let _change = self.change()?;
        let ofport = self.ofport_for(port)?;
        let tenant = port.tenant.as_ref().unwrap_or(&port.name);
        let index = self.tenant_for_port(tenant)?;
        let added = self.datapath.port_add(index, port.settings()).map_err(Refusal::from).and_then(
            |handle| {
                self.attach(port, ofport, tenant, handle.clone(), index).inspect_err(|_| {
                    self.forget_in_datapath(&port.name, &handle);
                })
            },
        );
        match added {
            Ok(entry) => {
                self.registry_mut().ports.insert(port.name.clone(), entry);
                Ok(ofport)
            }
            Err(refusal) => {
                self.forget_unused_tenant(tenant);
                Err(refusal)
            }
        }
    }

    /// The new port's OpenFlow number, if its names are free.
    fn ofport_for(&self, port: &PortConfig) -> Result<u32, Refusal> {
        let registry = self.registry();
        if registry.ports.contains_key(&port.name) {
            return Err(Refusal::exists("port", &port.name));
        }
        if registry.bridges.contains_key(&port.name) {
            return Err(Refusal::exists("bridge", &port.name));
        }
        if !registry.bridges.contains_key(&port.bridge) {
            return Err(Refusal::unknown("bridge", &port.bridge));
        }
        let Some(ofport) = port.ofport else {
            return registry.free_ofport(&port.bridge).ok_or(Refusal::NoFreeOfport);
        };
        match registry.ports_of(&port.bridge).find(|(_, other)| other.ofport == ofport) {
            Some((holder, _)) => Err(Refusal::OfportTaken { ofport, holder: holder.clone() }),
            None => Ok(ofport),
        }
    }

    fn attach(
        &self,
        port: &PortConfig,
        ofport: u32,
        tenant: &str,
        handle: PortHandle,
        tenant_index: tollgate_policy::TenantIndex,
    ) -> Result<PortEntry, Refusal> {
        let bridge = self.registry().bridges.get(&port.bridge).map(|bridge| bridge.id);
        let bridge = bridge.ok_or_else(|| Refusal::unknown("bridge", &port.bridge))?;
        let info = PortInfo {
            name: port.name.clone(),
            ofport,
            index: handle.index,
            tenant: tenant_index,
            uplink: port.is_uplink(),
            config: 0,
        };
        self.pipeline.port_attach(bridge, info)?;
        let attachment = self.attachment(port, &handle).inspect_err(|_| {
            // It was attached a moment ago.
            let _ = self.pipeline.port_detach(handle.index);
        })?;
        Ok(PortEntry {
            bridge: port.bridge.clone(),
            ofport,
            tenant: tenant.to_owned(),
            attachment,
            uplink: port.is_uplink(),
            mac: port.mac,
            handle,
            added: Instant::now(),
        })
    }

    /// Ends a port's session, or lets go of its network card, and removes it.
    ///
    /// # Errors
    /// When there is none of that name on that bridge.
    pub fn port_remove(&self, bridge: &str, name: &str) -> Result<(), Refusal> {
        let _change = self.change()?;
        find(&self.registry(), bridge, name)?;
        // Out of sight first; then nothing outputs to it, then nothing comes from it.
        let removed = self.registry_mut().ports.remove(name);
        let port = removed.ok_or_else(|| Refusal::unknown("port", name))?;
        self.pipeline.port_detach(port.handle.index)?;
        port.attachment.end(&self.datapath, &port.handle);
        self.forget_in_datapath(name, &port.handle);
        self.forget_unused_tenant(&port.tenant);
        Ok(())
    }

    /// The ports of `bridge`, or all, by name.
    ///
    /// # Errors
    /// When there is no such bridge.
    pub fn ports(&self, bridge: Option<&str>) -> Result<Vec<PortSummary>, Refusal> {
        let registry = self.registry();
        if let Some(bridge) = bridge.filter(|bridge| !registry.bridges.contains_key(*bridge)) {
            return Err(Refusal::unknown("bridge", bridge));
        }
        let listed = registry
            .ports
            .iter()
            .filter(|(_, port)| bridge.is_none_or(|bridge| port.bridge == bridge));
        Ok(listed.map(|(name, port)| summary(name, port)).collect())
    }

    /// One port, and its network card's own counters if it has one.
    ///
    /// # Errors
    /// When there is none of that name on that bridge.
    pub fn port(
        &self,
        bridge: &str,
        name: &str,
    ) -> Result<(PortSummary, Vec<(String, u64)>), Refusal> {
        let registry = self.registry();
        let port = find(&registry, bridge, name)?;
        Ok((summary(name, port), port.attachment.xstats()))
    }

    fn forget_in_datapath(&self, name: &str, handle: &PortHandle) {
        if let Err(error) = self.datapath.port_remove(handle.index) {
            tracing::warn!(port = name, %error, "the datapath cannot forget a port");
        }
    }
}

/// The port of that name on that bridge.
fn find<'a>(registry: &'a Registry, bridge: &str, name: &str) -> Result<&'a PortEntry, Refusal> {
    if !registry.bridges.contains_key(bridge) {
        return Err(Refusal::unknown("bridge", bridge));
    }
    let port = registry.ports.get(name).ok_or_else(|| Refusal::unknown("port", name))?;
    if port.bridge != bridge {
        let (port, bridge) = (name.to_owned(), port.bridge.clone());
        return Err(Refusal::OnOtherBridge { port, bridge });
    }
    Ok(port)
}

fn summary(name: &str, port: &PortEntry) -> PortSummary {
    PortSummary {
        name: name.to_owned(),
        bridge: port.bridge.clone(),
        ofport: port.ofport,
        tenant: port.tenant.clone(),
        pmd: port.handle.pmd,
        attachment: port.attachment.summary(),
        uplink: port.uplink,
        mac: port.mac,
        counters: port.handle.counters(),
    }
}
