//! `scheduler_*`

use serde_json::json;
use tollgate_policy::Boost;

use super::Outcome;
use crate::config::RefillKind;
use crate::control::{SchedulerChange, Switch};
use crate::rpc::{Params, refused_value};

/// The knobs in force. `period_us` and `boost` act under a coordinator only.
pub(super) fn get(switch: &Switch, params: Params) -> Outcome {
    params.finish()?;
    let (section, config) = switch.scheduler();
    Ok(json!({
        "refill": section.refill.as_str(),
        "period_us": section.period_us,
        "boost": section.boost.as_f64(),
        "quantum_cycles": config.quantum_cycles,
        "cap_cycles": config.cap_cycles,
        "floor_cycles": config.floor_cycles,
        "horizon_cycles": config.horizon_cycles,
    }))
}

pub(super) fn set(switch: &Switch, mut params: Params) -> Outcome {
    let refill = params.optional_text("refill")?;
    let boost = params.optional_number("boost")?;
    // What is allowed depends on other knobs: it is checked with them.
    let mut knob = |name| params.optional_integer(name, 0..=u64::MAX);
    let change = SchedulerChange {
        quantum_cycles: knob("quantum_cycles")?,
        cap_cycles: knob("cap_cycles")?,
        floor_cycles: knob("floor_cycles")?,
        horizon_cycles: knob("horizon_cycles")?,
        period_us: knob("period_us")?,
        refill: None,
        boost: None,
    };
    params.finish()?;
    let refill = refill.map(|text| text.parse::<RefillKind>()).transpose();
    let refill = refill.map_err(|reason| refused_value("refill", reason))?;
    let boost = boost.map(Boost::try_from).transpose();
    let boost = boost.map_err(|reason| refused_value("boost", reason))?;
    switch.scheduler_set(SchedulerChange { refill, boost, ..change })?;
    get(switch, Params::new(None)?)
}
