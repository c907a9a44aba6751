//! Tenants: who is charged, and for what share.

use std::time::Instant;

use tollgate_datapath::{ControlError, PmdSnapshot, TenantSettings};
use tollgate_policy::{RxOverrun, TenantIndex, TenantKnobs, Weight};

use super::registry::TenantEntry;
use super::{Refusal, Switch};
use crate::limits::DEPARTED_TENANTS_MAX;

/// What is to change about a tenant; the rest stays. The knobs are those of [`TenantSettings`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantChange {
    /// Its weight.
    pub weight: Option<Weight>,
    /// Copies for controllers that its packets may cause per second.
    pub controller_pps: Option<u32>,
    /// Most credit.
    pub cap_cycles: Option<u64>,
    /// Most debt.
    pub floor_cycles: Option<u64>,
    /// What becomes of received packets over its share.
    pub rx_overrun: Option<RxOverrun>,
    /// In how much debt marking ends.
    pub mark_depth_cycles: Option<u64>,
    /// New flows per second.
    pub setups_per_second: Option<u64>,
    /// Cached megaflows.
    pub megaflows: Option<u64>,
    /// Masks of those.
    pub subtables: Option<u64>,
    /// Bytes waiting for the slow path.
    pub arena_bytes: Option<u64>,
    /// Places in the exact-match table.
    pub exact_entries: Option<u64>,
}

impl TenantChange {
    fn apply(self, to: TenantSettings) -> TenantSettings {
        TenantSettings {
            weight: self.weight.unwrap_or(to.weight),
            punt_pps: self.controller_pps.unwrap_or(to.punt_pps),
            cap_cycles: self.cap_cycles.or(to.cap_cycles),
            floor_cycles: self.floor_cycles.or(to.floor_cycles),
            rx_overrun: self.rx_overrun.unwrap_or(to.rx_overrun),
            mark_depth_cycles: self.mark_depth_cycles.or(to.mark_depth_cycles),
            setups_per_second: self.setups_per_second.unwrap_or(to.setups_per_second),
            megaflows: self.megaflows.or(to.megaflows),
            subtables: self.subtables.unwrap_or(to.subtables),
            arena_bytes: self.arena_bytes.unwrap_or(to.arena_bytes),
            exact_entries: self.exact_entries.or(to.exact_entries),
        }
    }
}

/// A tenant and its books.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSummary {
    /// Its name.
    pub name: String,
    /// Its weight and limits.
    pub settings: TenantSettings,
    /// The same, with what follows from the switch filled in.
    pub knobs: TenantKnobs,
    /// Its ports.
    pub ports: Vec<String>,
    /// Its number in the books.
    pub index: TenantIndex,
}

impl Switch {
    /// Creates a tenant, or changes what is given of one; in force on every PMD when it returns.
    ///
    /// # Errors
    /// When there is no room for another tenant, or a knob is out of range; then nothing is changed.
    pub fn tenant_set(&self, name: &str, change: TenantChange) -> Result<(), Refusal> {
        let _change = self.change()?;
        let known = self.registry().tenants.get(name).cloned();
        let entry = match known {
            Some(mut entry) => {
                entry.settings = change.apply(entry.settings);
                entry.kept = true;
                entry.departed = None;
                self.datapath.tenant_set(entry.index, entry.settings)?;
                self.pipeline.tenant_set(entry.index, &entry.settings);
                entry
            }
            None => self.new_tenant(change.apply(TenantSettings::default()), true)?,
        };
        self.registry_mut().tenants.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Forgets a tenant. What was spent for it moves to the account `system`.
    ///
    /// # Errors
    /// When there is none of that name, or it has ports.
    pub fn tenant_remove(&self, name: &str) -> Result<(), Refusal> {
        let _change = self.change()?;
        let index = self.registry().tenants.get(name).map(|entry| entry.index);
        let index = index.ok_or_else(|| Refusal::unknown("tenant", name))?;
        let ports = self.registry().ports_of_tenant(name);
        if !ports.is_empty() {
            return Err(Refusal::TenantHasPorts {
                tenant: name.to_owned(),
                ports: ports.join(", "),
            });
        }
        self.datapath.tenant_remove(index)?;
        self.pipeline.tenant_remove(index);
        self.registry_mut().tenants.remove(name);
        Ok(())
    }

    /// One tenant.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn tenant(&self, name: &str) -> Result<TenantSummary, Refusal> {
        let registry = self.registry();
        let entry = registry.tenants.get(name).ok_or_else(|| Refusal::unknown("tenant", name))?;
        Ok(self.summary(name, entry, registry.ports_of_tenant(name)))
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> Vec<TenantSummary> {
        let registry = self.registry();
        let summary = |(name, entry): (&String, &TenantEntry)| {
            self.summary(name, entry, registry.ports_of_tenant(name))
        };
        registry.tenants.iter().map(summary).collect()
    }

    fn summary(&self, name: &str, entry: &TenantEntry, ports: Vec<String>) -> TenantSummary {
        let (settings, scheduler) = (entry.settings, self.datapath.scheduler());
        // Settings in force were checked before.
        let knobs = settings.knobs(&scheduler).unwrap_or_else(|_| TenantKnobs::new(&scheduler));
        let megaflows = settings.megaflows;
        let megaflows = megaflows.unwrap_or_else(|| self.pipeline.megaflows_per_tenant() as u64);
        let knobs = TenantKnobs { megaflows, ..knobs };
        TenantSummary { name: name.to_owned(), settings, knobs, ports, index: entry.index }
    }

    /// Every PMD's figures.
    pub fn pmds(&self) -> Vec<PmdSnapshot> {
        self.datapath.pmd_snapshots()
    }

    /// The tenant of a new port, made if there is none of that name. The caller holds the change
    /// lock.
    pub(super) fn tenant_for_port(&self, name: &str) -> Result<TenantIndex, Refusal> {
        if let Some(known) = self.registry_mut().tenants.get_mut(name) {
            known.departed = None;
            return Ok(known.index);
        }
        self.forget_departed(DEPARTED_TENANTS_MAX);
        let entry = self.new_tenant(TenantSettings::default(), false)?;
        let index = entry.index;
        self.registry_mut().tenants.insert(name.to_owned(), entry);
        Ok(index)
    }

    /// Forgets a tenant that only ports have named when none is left and it owes nothing: to be
    /// plugged out and in again forgives no debt. The caller holds the change lock.
    pub(super) fn forget_unused_tenant(&self, name: &str) {
        {
            let mut registry = self.registry_mut();
            let is_unused = registry.ports_of_tenant(name).is_empty();
            let unused = registry.tenants.get_mut(name).filter(|entry| is_unused && !entry.kept);
            let Some(entry) = unused else { return };
            entry.departed = Some(Instant::now());
        }
        self.forget_departed(DEPARTED_TENANTS_MAX);
    }

    /// Forgets the tenants without ports whose debts are gone, and of the others all but `most`, the
    /// first to go before others.
    fn forget_departed(&self, most: usize) {
        let departed = self.registry().departed();
        let owing = departed.iter().filter(|(_, index)| self.datapath.tenant_owes(*index)).count();
        let mut to_forget = owing.saturating_sub(most);
        for (name, index) in departed {
            if self.datapath.tenant_owes(index) {
                if to_forget == 0 {
                    continue;
                }
                to_forget -= 1;
            }
            match self.datapath.tenant_remove(index) {
                Ok(()) => {
                    self.pipeline.tenant_remove(index);
                    self.registry_mut().tenants.remove(&name);
                }
                Err(error) => tracing::warn!(tenant = name, %error, "cannot forget a tenant"),
            }
        }
    }

    fn new_tenant(&self, settings: TenantSettings, kept: bool) -> Result<TenantEntry, Refusal> {
        let added = self.datapath.tenant_add(settings).or_else(|error| match error {
            // Those that are only remembered make room.
            ControlError::TooManyTenants => {
                self.forget_departed(0);
                self.datapath.tenant_add(settings)
            }
            error => Err(error),
        });
        let index = added?;
        self.pipeline.tenant_set(index, &settings);
        Ok(TenantEntry { index, settings, kept, departed: None })
    }
}
