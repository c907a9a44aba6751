//! `pmd_stats`

use serde_json::{Map, Value, json};
use tollgate_datapath::PmdSnapshot;
use tollgate_policy::TenantIndex;

use super::Outcome;
use crate::control::{Switch, TenantSummary};
use crate::rpc::Params;

pub(super) fn pmd_stats(switch: &Switch, params: Params) -> Outcome {
    params.finish()?;
    let tenants = switch.tenants();
    let pmds: Value = switch.pmds().iter().map(|pmd| describe(pmd, &tenants)).collect();
    let slow_path: Map<String, Value> = tenants
        .iter()
        .map(|tenant| {
            (tenant.name.clone(), switch.pipeline().slow_path_cycles(tenant.index).into())
        })
        .collect();
    Ok(json!({
        "tsc_hz": switch.datapath().tsc_hz(),
        "pmds": pmds,
        "slow_path": {
            "system_cycles": switch.pipeline().slow_path_cycles(TenantIndex::SYSTEM),
            "tenants": slow_path,
        },
    }))
}

/// The cycles of `tenants`, system, idle and stolen add up to those elapsed.
fn describe(pmd: &PmdSnapshot, tenants: &[TenantSummary]) -> Value {
    let books: Map<String, Value> = tenants
        .iter()
        .map(|tenant| (tenant.name.clone(), pmd.tenant(tenant.index).cycles.into()))
        .collect();
    json!({
        "pmd": pmd.pmd,
        "core": pmd.core,
        "elapsed_cycles": pmd.elapsed_cycles,
        "idle_cycles": pmd.idle_cycles,
        "system_cycles": pmd.system_cycles(),
        "stolen_cycles": pmd.stolen_cycles,
        "tenants": books,
        "packets": pmd.packets,
        "cycles_per_packet": pmd.cycles_per_packet(),
        "exact_hits": pmd.exact_hits,
        "megaflow_hits": pmd.megaflow_hits,
        "subtable_probes": pmd.subtable_probes,
        "misses": pmd.misses,
        "megaflows": pmd.megaflows,
        "subtables": pmd.subtables,
        "forgotten": pmd.forgotten,
        "forgotten_per_turn_max": pmd.forgotten_per_turn_max,
        "tasks": pmd.tasks,
        "cut_tasks": pmd.cut_tasks,
        "notifications": pmd.notifications,
        "heartbeat": pmd.heartbeat,
    })
}
