//! The accounts of a PMD, read over JSON-RPC.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

use crate::durations::Durations;

/// Cycles by account.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cycles {
    pub(crate) elapsed: u64,
    pub(crate) idle: u64,
    pub(crate) system: u64,
    pub(crate) stolen: u64,
    pub(crate) tenants: BTreeMap<String, u64>,
    /// Packets taken from each tenant's ports.
    packets: BTreeMap<String, u64>,
    /// Of one task, of service before the owner was known, of the system's work in one turn, and of
    /// the choice of a turn: what others may wait for.
    parts: [Durations; 4],
    tsc_hz: u64,
}

/// In the order of the promise: D_task, D_rx, D_system, D_scan.
const PARTS: [&str; 4] = ["task", "rx", "system", "scan"];

impl Cycles {
    /// The first PMD's, out of a `pmd_stats` result.
    pub(crate) fn read(stats: &Value) -> anyhow::Result<Self> {
        let pmd = stats["pmds"].get(0).with_context(|| format!("no PMD in {stats}"))?;
        let number = |key: &str| pmd[key].as_u64().with_context(|| format!("no {key} in {pmd}"));
        let tsc_hz = stats["tsc_hz"].as_u64().with_context(|| format!("no tsc_hz in {stats}"))?;
        let mut parts: [Durations; 4] = Default::default();
        for (part, name) in parts.iter_mut().zip(PARTS) {
            *part = Durations::read(&pmd["histograms"][name])?;
        }
        let details = pmd["tenant_details"].as_object().context("no tenant_details")?.iter();
        let packets = details
            .map(|(name, tenant)| (name.clone(), tenant["packets"].as_u64().unwrap_or_default()));
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
            packets: packets.collect(),
            parts,
            tsc_hz,
        })
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            elapsed: self.elapsed - before.elapsed,
            idle: self.idle - before.idle,
            system: self.system - before.system,
            stolen: self.stolen - before.stolen,
            tenants: grown(&self.tenants, &before.tenants),
            packets: grown(&self.packets, &before.packets),
            parts: std::array::from_fn(|part| self.parts[part].since(&before.parts[part])),
            tsc_hz: self.tsc_hz,
        }
    }

    /// Part of the cycles that were not idle.
    pub(crate) fn percent_of_busy(&self, cycles: u64) -> f64 {
        100.0 * cycles as f64 / self.elapsed.saturating_sub(self.idle) as f64
    }

    /// What a packet of a tenant cost it; NaN when it had none.
    pub(crate) fn per_packet(&self, tenant: &str) -> f64 {
        let packets = self.packets.get(tenant).copied().unwrap_or_default();
        self.tenant(tenant) as f64 / packets as f64
    }

    /// What a packet cost, whosever it was: everything but idle turns and what others took of the core.
    pub(crate) fn per_any_packet(&self) -> f64 {
        let packets: u64 = self.packets.values().sum();
        self.elapsed.saturating_sub(self.idle + self.stolen) as f64 / packets as f64
    }

    /// What a funded tenant is promised not to wait beyond, in microseconds, with so many cycles of
    /// others ahead of it in its list: the task that runs, and what of a turn is nobody's. Of each
    /// part what 90 % of those that come while it goes on meet at most: the machine itself keeps a
    /// core from running for some percent of the time, which would be all that a higher quantile says.
    pub(crate) fn wait_bound_us(&self, ahead_cycles: u64) -> f64 {
        let parts = self.parts.iter().map(|part| part.met_cycles(0.9)).sum::<u64>();
        (parts + ahead_cycles) as f64 * 1e6 / self.tsc_hz as f64
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

/// What each has grown by; one that was not there before began at zero.
fn grown(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    now.iter()
        .map(|(name, count)| {
            let earlier = before.get(name).copied().unwrap_or_default();
            (name.clone(), count.saturating_sub(earlier))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Cycles;

    #[test]
    fn a_promise_is_the_sum_of_its_parts() -> anyhow::Result<()> {
        let stats = json!({"tsc_hz": 1_000_000, "pmds": [{
            "elapsed_cycles": 10, "idle_cycles": 1, "system_cycles": 2, "stolen_cycles": 0,
            "tenants": {"t": 6}, "tenant_details": {"t": {"packets": 3}},
            "histograms": {"task": [[4096, 9]], "rx": [], "system": [[64, 1]], "scan": [[8, 5]]},
        }]});
        let cycles = Cycles::read(&stats)?.since(&Cycles::default());
        assert_eq!(cycles.wait_bound_us(5000), f64::from(8191 + 127 + 15 + 5000));
        assert_eq!(cycles.per_packet("t"), 2.0);
        assert_eq!(cycles.per_any_packet(), 3.0);
        assert!(cycles.per_packet("nobody").is_nan());
        Ok(())
    }
}
