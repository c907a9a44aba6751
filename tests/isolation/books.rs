//! What `pmd_stats` says of the one PMD, and what it grew by.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

/// The accounts and histograms of a PMD, in cycles.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    pub(crate) elapsed: u64,
    pub(crate) idle: u64,
    pub(crate) system: u64,
    pub(crate) stolen: u64,
    pub(crate) heartbeat: u64,
    pub(crate) misses: u64,
    pub(crate) ring_looks: u64,
    pub(crate) tenants: BTreeMap<String, Tenant>,
    pub(crate) task: Durations,
    pub(crate) rx: Durations,
    pub(crate) system_turns: Durations,
    pub(crate) scan: Durations,
}

/// One tenant's account.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tenant {
    pub(crate) cycles: u64,
    pub(crate) packets: u64,
    pub(crate) credit: i64,
    pub(crate) waits: Durations,
}

impl Tenant {
    pub(crate) fn cycles_per_packet(&self) -> f64 {
        self.cycles as f64 / self.packets as f64
    }
}

impl Books {
    pub(crate) fn read(stats: &Value) -> anyhow::Result<Self> {
        let pmd = &stats["pmds"][0];
        let number = |key: &str| pmd[key].as_u64().with_context(|| format!("no {key} in {pmd}"));
        let details = pmd["tenant_details"].as_object().context("no tenant_details")?;
        let tenant = |(name, of): (&String, &Value)| {
            let tenant = Tenant {
                cycles: of["cycles"].as_u64().context("no cycles")?,
                packets: of["packets"].as_u64().context("no packets")?,
                credit: of["credit_cycles"].as_i64().context("no credit_cycles")?,
                waits: Durations::read(&of["wait"])?,
            };
            anyhow::Ok((name.clone(), tenant))
        };
        let durations = |name: &str| Durations::read(&pmd["histograms"][name]);
        Ok(Self {
            elapsed: number("elapsed_cycles")?,
            idle: number("idle_cycles")?,
            system: number("system_cycles")?,
            stolen: number("stolen_cycles")?,
            heartbeat: number("heartbeat")?,
            misses: number("misses")?,
            ring_looks: number("ring_looks")?,
            tenants: details.iter().map(tenant).collect::<Result<_, _>>()?,
            task: durations("task")?,
            rx: durations("rx")?,
            system_turns: durations("system")?,
            scan: durations("scan")?,
        })
    }

    /// Credit is what it is now.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let tenant = |(name, now): (&String, &Tenant)| {
            let then = before.tenants.get(name).cloned().unwrap_or_default();
            let grown = Tenant {
                cycles: now.cycles.saturating_sub(then.cycles),
                packets: now.packets.saturating_sub(then.packets),
                credit: now.credit,
                waits: now.waits.since(&then.waits),
            };
            (name.clone(), grown)
        };
        Self {
            elapsed: self.elapsed - before.elapsed,
            idle: self.idle - before.idle,
            system: self.system - before.system,
            stolen: self.stolen - before.stolen,
            heartbeat: self.heartbeat - before.heartbeat,
            misses: self.misses - before.misses,
            ring_looks: self.ring_looks - before.ring_looks,
            tenants: self.tenants.iter().map(tenant).collect(),
            task: self.task.since(&before.task),
            rx: self.rx.since(&before.rx),
            system_turns: self.system_turns.since(&before.system_turns),
            scan: self.scan.since(&before.scan),
        }
    }

    pub(crate) fn of(&self, tenant: &str) -> Tenant {
        self.tenants.get(tenant).cloned().unwrap_or_default()
    }

    /// A tenant's part of what all tenants were charged.
    pub(crate) fn share(&self, tenant: &str) -> f64 {
        self.of(tenant).cycles as f64 / self.busy() as f64
    }

    /// What all tenants were charged.
    pub(crate) fn busy(&self) -> u64 {
        self.tenants.values().map(|tenant| tenant.cycles).sum()
    }

    /// What the only funded tenant is promised not to wait beyond: the task that runs, and what of a
    /// turn is nobody's. Of each part what 99 % of them do not exceed: the rest is the machine's.
    pub(crate) fn wait_bound(&self) -> u64 {
        let parts = [&self.task, &self.rx, &self.system_turns, &self.scan];
        parts.map(|part| part.quantile(0.99)).iter().sum()
    }
}

/// Counts by powers of two.
#[derive(Debug, Clone, Default)]
pub(crate) struct Durations(BTreeMap<u64, u64>);

impl Durations {
    fn read(pairs: &Value) -> anyhow::Result<Self> {
        let pairs = pairs.as_array().with_context(|| format!("no histogram: {pairs}"))?;
        let pair = |pair: &Value| Some((pair[0].as_u64()?, pair[1].as_u64()?));
        let pairs: Option<_> = pairs.iter().map(pair).collect();
        Ok(Self(pairs.context("a histogram of other things than pairs")?))
    }

    fn since(&self, before: &Self) -> Self {
        let then = |least| before.0.get(least).copied().unwrap_or_default();
        let grown = self.0.iter().map(|(least, count)| (*least, count.saturating_sub(then(least))));
        Self(grown.filter(|(_, count)| *count > 0).collect())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The upper end of the bucket that a share of the durations does not go beyond; 0 if there are
    /// none.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        bucket.map_or(0, |(least, _)| (least * 2).max(2) - 1)
    }

    /// The share of durations that are certainly longer than `cycles`.
    pub(crate) fn share_above(&self, cycles: u64) -> f64 {
        let above: u64 = self.0.range(cycles + 1..).map(|(_, count)| count).sum();
        above as f64 / self.count().max(1) as f64
    }
}
