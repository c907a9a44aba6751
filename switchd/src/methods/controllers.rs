//! `controller_*`

use serde_json::{Value, json};

use super::{Outcome, done};
use crate::control::Switch;
use crate::openflow::{ControllerSummary, Target};
use crate::rpc::{Params, refused_value};

pub(super) fn set(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    let targets = params.texts("targets")?;
    params.finish()?;
    let targets: Result<Vec<_>, _> = targets.iter().map(|text| Target::parse(text)).collect();
    let targets = targets.map_err(|reason| refused_value("targets", reason))?;
    switch.controller_set(&bridge, &targets)?;
    done()
}

pub(super) fn get(switch: &Switch, mut params: Params) -> Outcome {
    let bridge = params.text("bridge")?;
    params.finish()?;
    Ok(switch.controllers(&bridge)?.iter().map(describe).collect())
}

fn describe(controller: &ControllerSummary) -> Value {
    json!({
        "target": controller.target.to_string(),
        "connected": controller.connections > 0,
        "connections": controller.connections,
        "role": controller.role.map(|role| role.as_str()),
        "state": controller.state.as_str(),
        "last_error": controller.last_error,
        "packet_ins_lost": controller.packet_ins_lost,
        "notices_lost": controller.notices_lost,
    })
}
