//! What the pipeline knows, by the names of bridges and tenants.

use std::time::Duration;

use tollgate_datapath::PmdSnapshot;

use super::{Refusal, Switch};
use crate::pipeline::{BridgeId, MegaflowInfo, StationInfo, Trace, TraceError, TraceRequest};

/// A cached decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MegaflowSummary {
    /// Whose packets it decides.
    pub bridge: String,
    /// Who pays for them; `None` if that tenant has just gone.
    pub tenant: Option<String>,
    /// The decision.
    pub megaflow: MegaflowInfo,
}

impl Switch {
    /// Has PMDs (one, or all) time the stages of some of their tasks for so long, and gives their
    /// figures before and after. Others may ask at the same time.
    ///
    /// # Errors
    /// When there is no such PMD, or the datapath has stopped.
    pub fn sample_stages(
        &self,
        pmd: Option<usize>,
        span: Duration,
    ) -> Result<Vec<(PmdSnapshot, PmdSnapshot)>, Refusal> {
        let sampling = self.datapath.sample_stages(pmd)?;
        let before = self.datapath.pmd_snapshots();
        std::thread::sleep(span);
        let after = self.datapath.pmd_snapshots();
        drop(sampling);
        let spans = before.into_iter().zip(after);
        Ok(spans.filter(|(before, _)| pmd.is_none_or(|pmd| pmd == before.pmd)).collect())
    }

    fn bridge_id(&self, name: &str) -> Result<BridgeId, Refusal> {
        let registry = self.registry();
        let bridge = registry.bridges.get(name).map(|bridge| bridge.id);
        bridge.ok_or_else(|| Refusal::unknown("bridge", name))
    }

    /// What would become of a packet, and which tenant would pay for it.
    ///
    /// # Errors
    /// When there is no such bridge or no such packet.
    pub fn trace(
        &self,
        bridge: &str,
        request: &TraceRequest,
    ) -> Result<(Trace, Option<String>), Refusal> {
        let trace = self.pipeline.trace(self.bridge_id(bridge)?, request);
        let trace = trace.map_err(|error| match error {
            TraceError::NoBridge => Refusal::unknown("bridge", bridge),
            error => Refusal::Trace(error),
        })?;
        let tenant = self.registry().tenant_name(trace.owner).map(str::to_owned);
        Ok((trace, tenant))
    }

    /// The cached decisions of one bridge or of all, at most `count`; and whether there are more.
    ///
    /// # Errors
    /// When there is no such bridge.
    pub fn megaflows(
        &self,
        bridge: Option<&str>,
        count: usize,
    ) -> Result<(Vec<MegaflowSummary>, bool), Refusal> {
        let only = bridge.map(|name| self.bridge_id(name)).transpose()?;
        let (megaflows, more) = self.pipeline.megaflows(only, count);
        let registry = self.registry();
        let name_of = |id: BridgeId| {
            let mut bridges = registry.bridges.iter();
            bridges.find(|(_, bridge)| bridge.id == id).map(|(name, _)| name.clone())
        };
        let summary = |megaflow: MegaflowInfo| {
            let tenant = registry.tenant_name(megaflow.owner).map(str::to_owned);
            Some(MegaflowSummary { bridge: name_of(megaflow.bridge)?, tenant, megaflow })
        };
        Ok((megaflows.into_iter().filter_map(summary).collect(), more))
    }

    /// The stations that a bridge has learned.
    ///
    /// # Errors
    /// When there is no such bridge.
    pub fn fdb(&self, bridge: &str) -> Result<Vec<StationInfo>, Refusal> {
        let stations = self.pipeline.fdb(self.bridge_id(bridge)?);
        stations.ok_or_else(|| Refusal::unknown("bridge", bridge))
    }

    /// Has a bridge forget the stations that it has learned, and says how many.
    ///
    /// # Errors
    /// When there is no such bridge.
    pub fn fdb_flush(&self, bridge: &str) -> Result<usize, Refusal> {
        let flushed = self.pipeline.fdb_flush(self.bridge_id(bridge)?);
        flushed.ok_or_else(|| Refusal::unknown("bridge", bridge))
    }
}
