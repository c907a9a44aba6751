//! `pmd_trace_*`: what a PMD's scheduler is told and says, for a replay.

use serde_json::{Map, Value, json};
use tollgate_policy::limits::{RECORDED_EVENTS, RECORDED_EVENTS_MAX};

use super::Outcome;
use crate::control::Switch;
use crate::rpc::{Params, RpcError};

pub(super) fn start(switch: &Switch, mut params: Params) -> Outcome {
    let pmd = pmd(switch, &mut params)?;
    let events = params.optional_integer("events", 1..=RECORDED_EVENTS_MAX)?;
    params.finish()?;
    let events = events.unwrap_or(RECORDED_EVENTS);
    switch.recording_start(pmd, events)?;
    Ok(json!({ "pmd": pmd, "events": events }))
}

/// The result is what `ofctl pmd trace check` reads: the recording, and `tenants`, the names of the
/// indices in it.
pub(super) fn read(switch: &Switch, mut params: Params) -> Outcome {
    let pmd = pmd(switch, &mut params)?;
    params.finish()?;
    let recording = switch.recording_read(pmd)?;
    let name = |(index, name): (u16, String)| (index.to_string(), Value::from(name));
    let tenants: Map<String, Value> = switch.tenant_indices().into_iter().map(name).collect();
    let recording = serde_json::to_value(&recording);
    Ok(json!({
        "pmd": pmd,
        "tsc_hz": switch.datapath().tsc_hz(),
        "tenants": tenants,
        "recording": recording.map_err(|error| RpcError::internal(error.to_string()))?,
    }))
}

fn pmd(switch: &Switch, params: &mut Params) -> Result<usize, RpcError> {
    let last = switch.datapath().pmd_count().saturating_sub(1) as u64;
    Ok(params.integer("pmd", 0..=last)? as usize)
}
