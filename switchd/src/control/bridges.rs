//! Bridges: a set of tables in the pipeline and an OpenFlow socket each.

use std::sync::Arc;

use super::of_bridge::OpenFlowBridge;
use super::registry::BridgeEntry;
use super::{Refusal, Switch};
use crate::limits::MAX_BRIDGES;
use crate::openflow;
use crate::pipeline::TableLimits;
use crate::rundir::{BoundSocket, RunDirError};

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSummary {
    /// Its name.
    pub name: String,
    /// Its OpenFlow identity.
    pub datapath_id: u64,
    /// Its ports' names.
    pub ports: Vec<String>,
    /// Flows in its tables.
    pub flows: usize,
}

impl Switch {
    /// Makes a bridge without flows, whose tables take so many, and listens for OpenFlow on its
    /// socket.
    ///
    /// # Errors
    /// When the name is taken or the socket cannot be had.
    pub fn bridge_add(&self, name: &str, limits: TableLimits) -> Result<(), Refusal> {
        let _change = self.change()?;
        {
            let registry = self.registry();
            if registry.bridges.contains_key(name) {
                return Err(Refusal::exists("bridge", name));
            }
            if registry.ports.contains_key(name) {
                return Err(Refusal::exists("port", name));
            }
            if registry.bridges.len() >= MAX_BRIDGES {
                return Err(Refusal::TooManyBridges);
            }
        }
        let (socket, listener) = BoundSocket::listen(&self.run_dir.openflow_socket(name))?;
        let id = self.pipeline.bridge_add(name, limits)?;
        let datapath_id = self.host.datapath_id(name);
        let face = OpenFlowBridge::new(
            name,
            id,
            datapath_id,
            self.host.clone(),
            Arc::clone(&self.pipeline),
            Arc::clone(&self.registry),
        );
        let audience = self.events.audience(id);
        let server = openflow::BridgeServer::start(
            self.runtime.clone(),
            (socket, listener),
            Arc::new(face),
            audience,
            openflow::Timing::default(),
        );
        let server = server.map_err(|source| {
            // It was empty, so nothing can keep it.
            let _ = self.pipeline.bridge_remove(id);
            self.events.forget(id);
            let path = self.run_dir.openflow_socket(name);
            RunDirError::Io { action: "listen on", path, source }
        })?;
        let entry = BridgeEntry { id, datapath_id, server };
        self.registry_mut().bridges.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Removes a bridge without ports, its flows and its socket.
    ///
    /// # Errors
    /// When there is none of that name, or it has ports.
    pub fn bridge_remove(&self, name: &str) -> Result<(), Refusal> {
        let _change = self.change()?;
        let registry = self.registry();
        let entry = registry.bridges.get(name).ok_or_else(|| Refusal::unknown("bridge", name))?;
        let id = entry.id;
        let ports: Vec<&str> = registry.ports_of(name).map(|(port, _)| port.as_str()).collect();
        if !ports.is_empty() {
            return Err(Refusal::HasPorts { bridge: name.to_owned(), ports: ports.join(", ") });
        }
        drop(registry);
        self.pipeline.bridge_remove(id)?;
        self.events.forget(id);
        // Its connections end here, after the lock of the registry is given up.
        let removed = self.registry_mut().bridges.remove(name);
        drop(removed);
        Ok(())
    }

    /// All bridges, by name.
    pub fn bridges(&self) -> Vec<BridgeSummary> {
        let tables = self.pipeline.bridges();
        let flows = |id| tables.iter().find(|bridge| bridge.id == id).map_or(0, |b| b.flows);
        let registry = self.registry();
        let summary = |(name, entry): (&String, &BridgeEntry)| BridgeSummary {
            name: name.clone(),
            datapath_id: entry.datapath_id,
            ports: registry.ports_of(name).map(|(port, _)| port.clone()).collect(),
            flows: flows(entry.id),
        };
        registry.bridges.iter().map(summary).collect()
    }
}
