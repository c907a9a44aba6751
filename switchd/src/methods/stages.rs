//! `pmd_stages`: where the cycles of a packet go, stage by stage.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_datapath::{PmdSnapshot, Stage};

use super::Outcome;
use crate::control::Switch;
use crate::limits::{STAGES_SECONDS, STAGES_SECONDS_DEFAULT};
use crate::rpc::{Params, refused_value};

/// Has PMDs (`pmd`, or all) time the stages of some of their tasks for `seconds`, and waits for it.
pub(super) fn pmd_stages(switch: &Switch, mut params: Params) -> Outcome {
    let last_pmd = switch.datapath().pmd_count().saturating_sub(1);
    let pmd = params.optional_integer("pmd", 0..=last_pmd)?;
    let seconds = params.optional_number("seconds")?.unwrap_or(STAGES_SECONDS_DEFAULT);
    params.finish()?;
    if !STAGES_SECONDS.contains(&seconds) {
        let (least, most) = STAGES_SECONDS.into_inner();
        let reason = format!("must be a number from {least} to {most}, not {seconds}");
        return Err(refused_value("seconds", reason));
    }
    let spans = switch.sample_stages(pmd, Duration::from_secs_f64(seconds))?;
    let pmds: Value = spans.iter().map(|(before, after)| describe(before, after)).collect();
    Ok(json!({ "seconds": seconds, "pmds": pmds }))
}

/// Stages are of the sampled tasks; `system` and `busy` are the books of all that the PMD did in the
/// same time. All are in cycles per packet, `null` where there was none.
fn describe(before: &PmdSnapshot, after: &PmdSnapshot) -> Value {
    let sampled = after.stages.since(&before.stages);
    let all = PmdSnapshot {
        elapsed_cycles: after.elapsed_cycles.saturating_sub(before.elapsed_cycles),
        idle_cycles: after.idle_cycles.saturating_sub(before.idle_cycles),
        stolen_cycles: after.stolen_cycles.saturating_sub(before.stolen_cycles),
        packets: after.packets.saturating_sub(before.packets),
        ..PmdSnapshot::default()
    };
    let busy = all.cycles_per_packet();
    let system_cycles = after.system_cycles().saturating_sub(before.system_cycles());
    let system = ratio(system_cycles, all.packets);
    let percent_of_busy =
        |part: Option<f64>| Some(100.0 * part? / busy.filter(|busy| *busy > 0.0)?);
    let stage = |stage: Stage| {
        let overall = ratio(sampled.net_cycles(stage), sampled.packets());
        json!({
            "stage": stage.as_str(),
            "packets": sampled.of(stage).packets,
            "cycles": sampled.net_cycles(stage),
            "cycles_per_packet": ratio(sampled.net_cycles(stage), sampled.of(stage).packets),
            "cycles_per_packet_overall": overall,
            "percent_of_busy": percent_of_busy(overall),
        })
    };
    let sum_cycles = Stage::ALL.into_iter().map(|stage| sampled.net_cycles(stage)).sum();
    let sum = ratio(sum_cycles, sampled.packets());
    let explained = sum.zip(system).map(|(sum, system)| sum + system);
    json!({
        "pmd": after.pmd,
        "core": after.core,
        "sampled_tasks": sampled.tasks,
        "spoiled_tasks": sampled.spoiled_tasks,
        "sampled_packets": sampled.packets(),
        "reading_cycles": sampled.reading_cycles,
        "stages": Stage::ALL.into_iter().map(stage).collect::<Vec<_>>(),
        "sum": { "cycles_per_packet": sum, "percent_of_busy": percent_of_busy(sum) },
        "system": { "cycles_per_packet": system, "percent_of_busy": percent_of_busy(system) },
        "busy": { "cycles_per_packet": busy, "packets": all.packets },
        "explained_percent": percent_of_busy(explained),
    })
}

fn ratio(cycles: u64, packets: u64) -> Option<f64> {
    (packets > 0).then(|| cycles as f64 / packets as f64)
}

#[cfg(test)]
mod tests {
    use tollgate_datapath::{StageCount, StageSnapshot, TenantSnapshot};

    use super::*;

    #[test]
    fn stages_stand_beside_what_the_books_say_of_the_same_time() {
        let before = PmdSnapshot { idle_cycles: 500, packets: 7, ..PmdSnapshot::default() };
        let mut after = PmdSnapshot {
            elapsed_cycles: 10_500,
            idle_cycles: 1000,
            packets: 107,
            tenants: vec![TenantSnapshot { cycles: 1000, ..TenantSnapshot::default() }],
            ..PmdSnapshot::default()
        };
        let of = |cycles, packets| StageCount { cycles, packets, readings: 1 };
        let stages = &mut after.stages;
        (stages.tasks, stages.reading_cycles) = (2, 30);
        stages.stages[Stage::Fetch as usize] = of(530, 10);
        stages.stages[Stage::Megaflow as usize] = of(330, 2);
        stages.stages[Stage::Account as usize] = of(130, 10);
        let report = describe(&before, &after);
        assert_eq!(report["busy"], json!({"cycles_per_packet": 100.0, "packets": 100}));
        let megaflow = &report["stages"][Stage::Megaflow as usize];
        let wanted = json!({
            "stage": "megaflow", "packets": 2, "cycles": 300, "cycles_per_packet": 150.0,
            "cycles_per_packet_overall": 30.0, "percent_of_busy": 30.0,
        });
        assert_eq!(*megaflow, wanted);
        assert_eq!(report["sum"], json!({"cycles_per_packet": 90.0, "percent_of_busy": 90.0}));
        assert_eq!(report["system"]["cycles_per_packet"], 10.0);
        assert_eq!(report["explained_percent"], 100.0);
        let parse = &report["stages"][Stage::Parse as usize];
        assert_eq!((&parse["cycles_per_packet"], &parse["packets"]), (&Value::Null, &json!(0)));
    }

    #[test]
    fn without_packets_there_are_no_cycles_per_packet() {
        let idle = StageSnapshot::default();
        let report = describe(
            &PmdSnapshot::default(),
            &PmdSnapshot { elapsed_cycles: 9, idle_cycles: 9, stages: idle, ..Default::default() },
        );
        for name in ["sum", "system", "busy"] {
            assert_eq!(report[name]["cycles_per_packet"], Value::Null, "{name}");
        }
        assert_eq!(report["explained_percent"], Value::Null);
    }
}
