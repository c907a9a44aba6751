//! `pmd_stats`

use serde_json::{Map, Value, json};
use tollgate_datapath::{Histogram, PmdSnapshot, TenantSnapshot};
use tollgate_frame::DropReason;
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
        "protection": switch.datapath().protection(),
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
    let details: Map<String, Value> = tenants
        .iter()
        .map(|tenant| {
            let weight = tenant.settings.weight.as_f64();
            (tenant.name.clone(), describe_tenant(weight, &pmd.tenant(tenant.index)))
        })
        .collect();
    json!({
        "pmd": pmd.pmd,
        "core": pmd.core,
        "elapsed_cycles": pmd.elapsed_cycles,
        "idle_cycles": pmd.idle_cycles,
        "system_cycles": pmd.system_cycles(),
        "stolen_cycles": pmd.stolen_cycles,
        "tenants": books,
        "tenant_details": details,
        "histograms": {
            "task": buckets(&pmd.task_cycles),
            "rx": buckets(&pmd.rx_cycles),
            "system": buckets(&pmd.system_cycles_per_turn),
            "scan": buckets(&pmd.scan_cycles),
        },
        "packets": pmd.packets,
        "cycles_per_packet": pmd.cycles_per_packet(),
        "ring_looks": pmd.ring_looks,
        "port_hits": pmd.port_hits,
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

fn describe_tenant(weight: f64, tenant: &TenantSnapshot) -> Value {
    let drops = [
        (DropReason::TenantOverShare, tenant.over_share_drops),
        (DropReason::TenantOverShareEarly, tenant.early_drops),
    ];
    let drops: Map<String, Value> = drops
        .into_iter()
        .map(|(reason, count)| (reason.as_str().to_owned(), count.into()))
        .collect();
    json!({
        "weight": weight,
        "cycles": tenant.cycles,
        "packets": tenant.packets,
        "credit_cycles": tenant.credit_cycles,
        "funded_turns": tenant.funded_turns,
        "slack_turns": tenant.slack_turns,
        "gated_turns": tenant.gated_turns,
        "wait": buckets(&tenant.wait_cycles),
        "drops": drops,
        "marks": tenant.marks,
    })
}

/// Pairs of a bucket's least cycles and its count; the next bucket begins at twice as many.
fn buckets(histogram: &Histogram) -> Value {
    histogram.non_zero().map(|(least_cycles, count)| json!([least_cycles, count])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_for_a_drop_is_explained_to_operators() {
        let manual = include_str!("../../../docs/time-protection.md");
        let missing = DropReason::ALL
            .iter()
            .find(|reason| !manual.contains(&format!("`{}`", reason.as_str())));
        assert_eq!(missing, None);
    }

    #[test]
    fn a_histogram_is_shown_by_its_buckets_that_are_not_empty() {
        let mut histogram = Histogram::default();
        (histogram.0[0], histogram.0[11]) = (2, 5);
        assert_eq!(buckets(&histogram), json!([[0, 2], [2048, 5]]));
    }
}
