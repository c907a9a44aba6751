//! What is there, by name.

use std::collections::BTreeMap;
use std::time::Instant;

use tollgate_datapath::{PortHandle, TenantSettings};
use tollgate_packet::MacAddr;
use tollgate_policy::TenantIndex;

use super::attachment::Attachment;
use crate::config::SchedulerSection;
use crate::limits::MAX_OFPORT;
use crate::openflow::BridgeServer;
use crate::pipeline::BridgeId;

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) bridges: BTreeMap<String, BridgeEntry>,
    pub(super) ports: BTreeMap<String, PortEntry>,
    pub(super) tenants: BTreeMap<String, TenantEntry>,
    /// As it was set; the datapath has what follows from it.
    pub(super) scheduler: SchedulerSection,
}

#[derive(Debug)]
pub(super) struct BridgeEntry {
    pub(super) id: BridgeId,
    pub(super) datapath_id: u64,
    pub(super) server: BridgeServer,
}

#[derive(Debug)]
pub(super) struct PortEntry {
    pub(super) bridge: String,
    pub(super) ofport: u32,
    pub(super) tenant: String,
    pub(super) attachment: Attachment,
    pub(super) uplink: bool,
    pub(super) mac: Option<MacAddr>,
    pub(super) handle: PortHandle,
    pub(super) added: Instant,
}

#[derive(Clone, Debug)]
pub(super) struct TenantEntry {
    pub(super) index: TenantIndex,
    pub(super) settings: TenantSettings,
    /// Somebody asked for it by name; the others go with their last port, or when they owe nothing.
    pub(super) kept: bool,
    /// When its last port went, of one that stays only because it owes.
    pub(super) departed: Option<Instant>,
}

impl Registry {
    /// The ports of a bridge, by name.
    pub(super) fn ports_of<'a>(
        &'a self,
        bridge: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a PortEntry)> {
        self.ports.iter().filter(move |(_, port)| port.bridge == bridge)
    }

    /// The names of a tenant's ports.
    pub(super) fn ports_of_tenant(&self, tenant: &str) -> Vec<String> {
        let ports = self.ports.iter().filter(|(_, port)| port.tenant == tenant);
        ports.map(|(name, _)| name.clone()).collect()
    }

    /// The tenants that stay only because they owe, those first whose last port went first.
    pub(super) fn departed(&self) -> Vec<(String, TenantIndex)> {
        let departed = |(name, entry): (&String, &TenantEntry)| {
            Some((entry.departed?, name.clone(), entry.index))
        };
        let mut departed: Vec<_> = self.tenants.iter().filter_map(departed).collect();
        departed.sort_unstable();
        departed.into_iter().map(|(_, name, index)| (name, index)).collect()
    }

    /// The name of an account of the books.
    pub(super) fn tenant_name(&self, index: TenantIndex) -> Option<&str> {
        let mut tenants = self.tenants.iter();
        tenants.find(|(_, entry)| entry.index == index).map(|(name, _)| name.as_str())
    }

    /// The lowest OpenFlow number that no port of the bridge has.
    pub(super) fn free_ofport(&self, bridge: &str) -> Option<u32> {
        let mut taken: Vec<u32> = self.ports_of(bridge).map(|(_, port)| port.ofport).collect();
        taken.sort_unstable();
        let gap = (1..).zip(&taken).find(|(number, taken)| number != *taken);
        let free = gap.map_or(taken.len() as u32 + 1, |(number, _)| number);
        (free <= MAX_OFPORT).then_some(free)
    }
}
