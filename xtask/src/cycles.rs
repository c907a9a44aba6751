//! The accounts of a PMD, read over JSON-RPC.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

/// Cycles by account.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cycles {
    pub(crate) elapsed: u64,
    pub(crate) idle: u64,
    pub(crate) system: u64,
    pub(crate) stolen: u64,
    pub(crate) tenants: BTreeMap<String, u64>,
}

impl Cycles {
    /// The first PMD's, out of a `pmd_stats` result.
    pub(crate) fn read(stats: &Value) -> anyhow::Result<Self> {
        let pmd = stats["pmds"].get(0).with_context(|| format!("no PMD in {stats}"))?;
        let number = |key: &str| pmd[key].as_u64().with_context(|| format!("no {key} in {pmd}"));
        let tenants = pmd["tenants"].as_object().with_context(|| format!("no tenants in {pmd}"))?;
        Ok(Self {
            elapsed: number("elapsed_cycles")?,
            idle: number("idle_cycles")?,
            system: number("system_cycles")?,
            stolen: number("stolen_cycles")?,
            tenants: tenants
                .iter()
                .map(|(name, cycles)| (name.clone(), cycles.as_u64().unwrap_or_default()))
                .collect(),
        })
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            elapsed: self.elapsed - before.elapsed,
            idle: self.idle - before.idle,
            system: self.system - before.system,
            stolen: self.stolen - before.stolen,
            tenants: self
                .tenants
                .iter()
                .map(|(name, cycles)| {
                    let earlier = before.tenants.get(name).copied().unwrap_or_default();
                    (name.clone(), cycles - earlier)
                })
                .collect(),
        }
    }

    /// A part of the elapsed cycles, in percent.
    pub(crate) fn percent(&self, cycles: u64) -> f64 {
        100.0 * cycles as f64 / self.elapsed.max(1) as f64
    }

    /// What a tenant was charged.
    pub(crate) fn tenant(&self, name: &str) -> u64 {
        self.tenants.get(name).copied().unwrap_or_default()
    }
}
