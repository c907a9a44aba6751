//! A bridge: its ports by OpenFlow number, its tables, its forwarding database.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;

use super::fdb::Fdb;
use super::limits::{FDB_STATIONS, TABLES};
use super::tables::Table;

/// A bridge's number inside the pipeline; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BridgeId(pub u32);

/// A port on a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// Its number in OpenFlow, on this bridge.
    pub ofport: u32,
    /// Its number in the datapath.
    pub index: PortIndex,
    /// Who pays for its packets.
    pub tenant: TenantIndex,
    /// `OFPPC_*` bits, as PORT_MOD sets them.
    pub config: u32,
}

/// A bridge.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) name: String,
    ports: BTreeMap<u32, PortInfo>,
    tables: Vec<Table>,
    fdb: Mutex<Fdb>,
}

impl Bridge {
    pub(super) fn new(name: String) -> Self {
        let tables = (0..TABLES).map(|_| Table::default()).collect();
        Self { name, ports: BTreeMap::new(), tables, fdb: Mutex::new(Fdb::new(FDB_STATIONS)) }
    }

    pub(super) fn port(&self, ofport: u32) -> Option<&PortInfo> {
        self.ports.get(&ofport)
    }

    /// All ports in the order of their OpenFlow numbers.
    pub(super) fn ports(&self) -> impl Iterator<Item = &PortInfo> {
        self.ports.values()
    }

    pub(super) fn port_insert(&mut self, port: PortInfo) {
        self.ports.insert(port.ofport, port);
    }

    pub(super) fn port_remove(&mut self, ofport: u32) -> Option<PortInfo> {
        self.ports.remove(&ofport)
    }

    pub(super) fn table(&self, table: u8) -> Option<&Table> {
        self.tables.get(usize::from(table))
    }

    pub(super) fn table_mut(&mut self, table: u8) -> Option<&mut Table> {
        self.tables.get_mut(usize::from(table))
    }

    /// The tables with their numbers.
    pub(super) fn tables(&self) -> impl Iterator<Item = (u8, &Table)> {
        (0..).zip(&self.tables)
    }

    /// Rules in all tables.
    pub(super) fn flow_count(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// The forwarding database. Taken after the lock of the tables and before that of the shadow.
    pub(super) fn fdb(&self) -> MutexGuard<'_, Fdb> {
        self.fdb.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
