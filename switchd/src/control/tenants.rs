//! Tenants: who is charged, and for what share.

use tollgate_datapath::{PmdSnapshot, TenantSettings};
use tollgate_policy::{TenantIndex, Weight};

use super::registry::TenantEntry;
use super::{Refusal, Switch};

/// A tenant and its books.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSummary {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: Weight,
    /// Its ports.
    pub ports: Vec<String>,
    /// Its number in the books.
    pub index: TenantIndex,
}

impl Switch {
    /// Creates a tenant, or changes what is given of one; in force on every PMD when it returns.
    ///
    /// # Errors
    /// When there is no room for another tenant.
    pub fn tenant_set(&self, name: &str, weight: Option<Weight>) -> Result<(), Refusal> {
        let _change = self.change()?;
        let known = self.registry().tenants.get(name).cloned();
        let entry = match known {
            Some(mut entry) => {
                entry.weight = weight.unwrap_or(entry.weight);
                entry.kept = true;
                let settings = TenantSettings { weight: entry.weight, ..TenantSettings::default() };
                self.datapath.tenant_set(entry.index, settings)?;
                self.pipeline.tenant_set(entry.index, entry.weight);
                entry
            }
            None => self.new_tenant(weight.unwrap_or_default(), true)?,
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
        Ok(TenantSummary {
            name: name.to_owned(),
            weight: entry.weight,
            ports: registry.ports_of_tenant(name),
            index: entry.index,
        })
    }

    /// All tenants, by name.
    pub fn tenants(&self) -> Vec<TenantSummary> {
        let registry = self.registry();
        let summary = |(name, entry): (&String, &TenantEntry)| TenantSummary {
            name: name.clone(),
            weight: entry.weight,
            ports: registry.ports_of_tenant(name),
            index: entry.index,
        };
        registry.tenants.iter().map(summary).collect()
    }

    /// Every PMD's figures.
    pub fn pmds(&self) -> Vec<PmdSnapshot> {
        self.datapath.pmd_snapshots()
    }

    /// The tenant of a new port, made if there is none of that name. The caller holds the change
    /// lock.
    pub(super) fn tenant_for_port(&self, name: &str) -> Result<TenantIndex, Refusal> {
        let known = self.registry().tenants.get(name).map(|entry| entry.index);
        if let Some(index) = known {
            return Ok(index);
        }
        let entry = self.new_tenant(Weight::default(), false)?;
        let index = entry.index;
        self.registry_mut().tenants.insert(name.to_owned(), entry);
        Ok(index)
    }

    /// Forgets a tenant that only ports have named when none is left. The caller holds the change
    /// lock.
    pub(super) fn forget_unused_tenant(&self, name: &str) {
        let registry = self.registry();
        let unused = registry.tenants.get(name).filter(|entry| !entry.kept);
        let index = unused.filter(|_| registry.ports_of_tenant(name).is_empty()).map(|e| e.index);
        drop(registry);
        let Some(index) = index else { return };
        match self.datapath.tenant_remove(index) {
            Ok(()) => {
                self.pipeline.tenant_remove(index);
                self.registry_mut().tenants.remove(name);
            }
            Err(error) => tracing::warn!(tenant = name, %error, "cannot forget a tenant"),
        }
    }

    fn new_tenant(&self, weight: Weight, kept: bool) -> Result<TenantEntry, Refusal> {
        let index =
            self.datapath.tenant_add(TenantSettings { weight, ..TenantSettings::default() })?;
        self.pipeline.tenant_set(index, weight);
        Ok(TenantEntry { index, weight, kept })
    }
}
