//! `bridge_*`

use serde_json::{Value, json};

use super::{Outcome, done};
use crate::control::{BridgeSummary, Switch};
use crate::names::check_name;
use crate::pipeline::limits::RULES_PER_TABLE;
use crate::pipeline::{Overflow, TableLimits};
use crate::rpc::{Params, refused_value};

pub(super) fn add(switch: &Switch, mut params: Params) -> Outcome {
    let name = params.text("name")?;
    let flows_per_table = params.optional_integer("flows_per_table", 1..=RULES_PER_TABLE)?;
    let overflow = match params.optional_text("overflow")?.as_deref() {
        None | Some("refuse") => Overflow::Refuse,
        Some("evict") => Overflow::Evict,
        Some(_) => return Err(refused_value("overflow", "must be \"refuse\" or \"evict\"")),
    };
    params.finish()?;
    check_name(&name).map_err(|reason| refused_value("name", reason))?;
    let rules = flows_per_table.unwrap_or(RULES_PER_TABLE);
    switch.bridge_add(&name, TableLimits { rules, overflow })?;
    done()
}

pub(super) fn remove(switch: &Switch, mut params: Params) -> Outcome {
    let name = params.text("name")?;
    params.finish()?;
    switch.bridge_remove(&name)?;
    done()
}

pub(super) fn list(switch: &Switch, params: Params) -> Outcome {
    params.finish()?;
    Ok(switch.bridges().iter().map(describe).collect())
}

fn describe(bridge: &BridgeSummary) -> Value {
    json!({
        "name": bridge.name,
        "datapath_id": format!("{:016x}", bridge.datapath_id),
        "ports": bridge.ports,
        "flows": bridge.flows,
    })
}
