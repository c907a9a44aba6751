//! `tenant_*` and `protection_*`

use serde_json::{Value, json};
use tollgate_datapath::PmdSnapshot;
use tollgate_policy::{RxOverrun, Weight};

use super::{Outcome, done};
use crate::control::{Switch, TenantChange, TenantSummary};
use crate::names::check_tenant_name;
use crate::rpc::{Params, refused_value};

pub(super) fn set(switch: &Switch, mut params: Params) -> Outcome {
    let name = params.text("tenant")?;
    let weight = params.optional_number("weight")?;
    let controller_pps = params.optional_integer("controller_pps", 0..=u32::MAX)?;
    let rx_overrun = params.optional_text("rx_overrun")?;
    // What is allowed depends on the scheduler and on other knobs: it is checked with them.
    let mut knob = |name| params.optional_integer(name, 0..=u64::MAX);
    let change = TenantChange {
        weight: None,
        controller_pps,
        cap_cycles: knob("cap_cycles")?,
        floor_cycles: knob("floor_cycles")?,
        rx_overrun: None,
        mark_depth_cycles: knob("mark_depth_cycles")?,
        setups_per_second: knob("setups_per_second")?,
        megaflows: knob("megaflows")?,
        subtables: knob("subtables")?,
        arena_bytes: knob("arena_bytes")?,
        exact_entries: knob("exact_entries")?,
    };
    params.finish()?;
    check_tenant_name(&name).map_err(|reason| refused_value("tenant", reason))?;
    let weight = weight.map(Weight::try_from).transpose();
    let weight = weight.map_err(|reason| refused_value("weight", reason))?;
    let rx_overrun = rx_overrun.map(|text| text.parse::<RxOverrun>()).transpose();
    let rx_overrun = rx_overrun.map_err(|reason| refused_value("rx_overrun", reason))?;
    switch.tenant_set(&name, TenantChange { weight, rx_overrun, ..change })?;
    get_by_name(switch, &name)
}

pub(super) fn remove(switch: &Switch, mut params: Params) -> Outcome {
    let name = params.text("tenant")?;
    params.finish()?;
    switch.tenant_remove(&name)?;
    done()
}

pub(super) fn get(switch: &Switch, mut params: Params) -> Outcome {
    let name = params.text("tenant")?;
    params.finish()?;
    get_by_name(switch, &name)
}

pub(super) fn list(switch: &Switch, params: Params) -> Outcome {
    params.finish()?;
    let pmds = switch.pmds();
    Ok(switch.tenants().iter().map(|tenant| describe(tenant, &pmds)).collect())
}

pub(super) fn protection_get(switch: &Switch, params: Params) -> Outcome {
    params.finish()?;
    Ok(json!({ "enabled": switch.datapath().protection() }))
}

pub(super) fn protection_set(switch: &Switch, mut params: Params) -> Outcome {
    let enabled = params.boolean("enabled")?;
    params.finish()?;
    switch.set_protection(enabled)?;
    Ok(json!({ "enabled": enabled }))
}

fn get_by_name(switch: &Switch, name: &str) -> Outcome {
    Ok(describe(&switch.tenant(name)?, &switch.pmds()))
}

/// A tenant with its knobs in force and its books. Without a number of its own, `exact_entries` is null:
/// an equal part with whoever is active. `share_percent` is its part of the cycles of all tenants
/// since start.
fn describe(tenant: &TenantSummary, pmds: &[PmdSnapshot]) -> Value {
    let accounts: Vec<_> = pmds.iter().map(|pmd| pmd.tenant(tenant.index)).collect();
    let cycles: u64 = accounts.iter().map(|account| account.cycles).sum();
    let of_all = pmds.iter().map(tenant_cycles).sum();
    json!({
        "tenant": tenant.name,
        "weight": tenant.settings.weight.as_f64(),
        "controller_pps": tenant.settings.punt_pps,
        "cap_cycles": tenant.knobs.cap_cycles,
        "floor_cycles": tenant.knobs.floor_cycles,
        "rx_overrun": tenant.knobs.rx_overrun.name(),
        "mark_depth_cycles": tenant.knobs.mark_depth_cycles,
        "setups_per_second": tenant.knobs.setups_per_second,
        "megaflows": tenant.knobs.megaflows,
        "subtables": tenant.knobs.subtables,
        "arena_bytes": tenant.knobs.arena_bytes,
        "exact_entries": tenant.settings.exact_entries,
        "ports": tenant.ports,
        "cycles": cycles,
        "share_percent": percent(cycles, of_all),
        "credit_cycles": accounts.iter().map(|account| account.credit_cycles).collect::<Vec<_>>(),
        "funded_turns": accounts.iter().map(|account| account.funded_turns).sum::<u64>(),
        "gated_turns": accounts.iter().map(|account| account.gated_turns).sum::<u64>(),
        "slack_turns": accounts.iter().map(|account| account.slack_turns).sum::<u64>(),
        "packets": accounts.iter().map(|account| account.packets).sum::<u64>(),
    })
}

/// The cycles of every account but `system`, which is the first.
fn tenant_cycles(pmd: &PmdSnapshot) -> u64 {
    pmd.tenants.iter().skip(1).map(|account| account.cycles).sum()
}

/// To a hundredth of a percent; nothing of nothing is nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 10_000.0).round() / 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_and_defined_when_nothing_was_spent() {
        assert_eq!(percent(0, 0), 0.0);
        assert_eq!(percent(1, 3), 33.33);
        assert_eq!(percent(5, 5), 100.0);
    }
}
