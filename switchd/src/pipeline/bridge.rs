//! A bridge: its ports by OpenFlow number, its tables, its forwarding database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;

use super::behaviours::Behaviours;
use super::fdb::Fdb;
use super::limits::{FDB_STATIONS, RULES_PER_TABLE, TABLES};
use super::meters::Meters;
use super::rule::Rule;
use super::table::{Table, TableCounters};

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
    /// What enters here is paid for by those that it is for.
    pub uplink: bool,
    /// `OFPPC_*` bits, as PORT_MOD sets them.
    pub config: u32,
}

/// What happens when a table that is full is to take one more rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// The rule is refused with OFPFMFC_TABLE_FULL.
    #[default]
    Refuse,
    /// The rule that its timeouts would end soonest makes room. Rules without a timeout stay; if
    /// there are no others, the new one is refused.
    Evict,
}

/// How many rules each table of a bridge takes, and what happens beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// Most rules in one table.
    pub rules: usize,
    /// What happens to one more.
    pub overflow: Overflow,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self { rules: RULES_PER_TABLE, overflow: Overflow::default() }
    }
}

/// A bridge.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) name: String,
    pub(super) limits: TableLimits,
    pub(super) behaviours: Behaviours,
    pub(super) meters: Meters,
    ports: BTreeMap<u32, PortInfo>,
    /// Those that have had a rule.
    tables: BTreeMap<u8, Table>,
    /// Of every table.
    counters: Box<[TableCounters]>,
    fdb: Mutex<Fdb>,
}

impl Bridge {
    pub(super) fn new(name: String, limits: TableLimits) -> Self {
        Self {
            name,
            limits,
            behaviours: Behaviours::default(),
            meters: Meters::default(),
            ports: BTreeMap::new(),
            tables: BTreeMap::new(),
            counters: (0..TABLES).map(|_| TableCounters::default()).collect(),
            fdb: Mutex::new(Fdb::new(FDB_STATIONS)),
        }
    }

    pub(super) fn port(&self, ofport: u32) -> Option<&PortInfo> {
        self.ports.get(&ofport)
    }

    pub(super) fn port_mut(&mut self, ofport: u32) -> Option<&mut PortInfo> {
        self.ports.get_mut(&ofport)
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

    /// A table; `None` if it has never had a rule.
    pub(super) fn table(&self, table: u8) -> Option<&Table> {
        self.tables.get(&table)
    }

    /// As [`table`](Self::table).
    pub(super) fn table_mut(&mut self, table: u8) -> Option<&mut Table> {
        self.tables.get_mut(&table)
    }

    /// A table that is about to have a rule.
    pub(super) fn table_or_new(&mut self, table: u8) -> &mut Table {
        self.tables.entry(table).or_default()
    }

    /// The tables that have had rules, with their numbers.
    pub(super) fn tables(&self) -> impl Iterator<Item = (u8, &Table)> {
        self.tables.iter().map(|(number, table)| (*number, table))
    }

    /// Counters of all tables in order.
    pub(super) fn counters(&self) -> impl Iterator<Item = (u8, &TableCounters)> {
        (0..).zip(&self.counters)
    }

    /// Counts look-ups of packets in a table.
    pub(super) fn count(&self, table: u8, packets: u64, matched: bool) {
        if let Some(counters) = self.counters.get(usize::from(table)) {
            counters.add(packets, matched);
        }
    }

    /// Puts a rule in, in the place of another perhaps, which is retired and returned.
    pub(super) fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        self.meters.rule_added(&rule);
        let replaced = self.table_or_new(rule.table).insert(rule)?;
        self.meters.rule_removed(&replaced);
        Some(replaced)
    }

    /// Takes a rule out and retires it.
    pub(super) fn remove(&mut self, rule: &Rule) -> Option<Arc<Rule>> {
        let removed = self.table_mut(rule.table)?.remove(rule)?;
        self.meters.rule_removed(&removed);
        Some(removed)
    }

    /// Rules in all tables.
    pub(super) fn flow_count(&self) -> usize {
        self.tables.values().map(Table::len).sum()
    }

    /// The forwarding database. Taken after the lock of the tables and before that of the shadow.
    pub(super) fn fdb(&self) -> MutexGuard<'_, Fdb> {
        self.fdb.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
