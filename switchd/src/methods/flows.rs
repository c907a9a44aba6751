//! `megaflow_list`, `cache_*` and `fdb_*`: what bridges have decided and learned.

use serde_json::{Value, json};

use super::Outcome;
use crate::control::{MegaflowSummary, Switch};
use crate::limits::MAX_LISTED_MEGAFLOWS;
use crate::pipeline::StationInfo;
use crate::rpc::Params;

/// The cached decisions of `bridge`, or of all bridges, at most `limit` of them; `more` says whether
/// there are others.
pub(super) fn megaflows(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.optional_text("bridge")?;
    let limit = params.optional_integer("limit", 1..=MAX_LISTED_MEGAFLOWS)?;
    params.finish()?;
    let limit = limit.unwrap_or(MAX_LISTED_MEGAFLOWS);
    let (megaflows, more) = switch.megaflows(bridge.as_deref(), limit)?;
    Ok(json!({
        "megaflows": megaflows.iter().map(megaflow).collect::<Vec<_>>(),
        "more": more,
    }))
}

fn megaflow(summary: &MegaflowSummary) -> Value {
    let megaflow = &summary.megaflow;
    json!({
        "bridge": summary.bridge,
        "in_port": megaflow.port,
        "tenant": summary.tenant,
        "match": megaflow.matched,
        "actions": megaflow.actions,
        "drop_reason": megaflow.drop_reason.map(|reason| reason.as_str()),
        "packets": megaflow.packets,
        "bytes": megaflow.bytes,
        "idle_ms": megaflow.idle_ms,
    })
}

pub(super) fn cache_get(switch: &Switch, params: Params) -> Outcome {
    params.finish()?;
    Ok(cache(switch))
}

pub(super) fn cache_set(switch: &Switch, mut params: Params) -> Outcome {
    let on = params.boolean("exact_match")?;
    params.finish()?;
    switch.set_exact_match(on)?;
    Ok(cache(switch))
}

fn cache(switch: &Switch) -> Value {
    json!({ "exact_match": switch.datapath().exact_match() })
}

pub(super) fn fdb_list(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    params.finish()?;
    Ok(switch.fdb(&bridge)?.iter().map(station).collect())
}

fn station(station: &StationInfo) -> Value {
    let octets: Vec<String> = station.mac.0.iter().map(|octet| format!("{octet:02x}")).collect();
    json!({
        "port": station.port,
        "vlan": station.vlan,
        "mac": octets.join(":"),
        "age_s": station.age_ms / 1000,
    })
}

pub(super) fn fdb_flush(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    params.finish()?;
    Ok(json!({ "flushed": switch.fdb_flush(&bridge)? }))
}
