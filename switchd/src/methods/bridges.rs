//! `bridge_*`

use serde_json::{Value, json};

use super::{Outcome, done};
use crate::control::{BridgeSummary, Switch};
use crate::names::check_name;
use crate::rpc::{Params, refused_value};

pub(super) fn add(switch: &Switch, mut params: Params) -> Outcome {
    let name = params.text("name")?;
    params.finish()?;
    check_name(&name).map_err(|reason| refused_value("name", reason))?;
    switch.bridge_add(&name)?;
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
