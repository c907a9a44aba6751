//! The figures as tables and as JSON.

use serde_json::{Map, Value, json};

use super::figures::{Figures, PmdFigures, TenantFigures, Use};
use crate::output::Align::{Left, Right};
use crate::output::{self, Align};

const COLUMNS: [(&str, Align); 15] = [
    ("TENANT", Left),
    ("WEIGHT", Right),
    ("ENTITLED-%", Right),
    ("USED-%", Right),
    ("CORE-%", Right),
    ("MHZ", Right),
    ("CREDIT", Right),
    ("FUNDED/S", Right),
    ("SLACK/S", Right),
    ("GATED/S", Right),
    ("PACKETS/S", Right),
    ("WAIT50-US", Right),
    ("WAIT99-US", Right),
    ("MARKS/S", Right),
    ("DROPS/S", Left),
];

/// One table for each polling core, and a line about the slow path when it had work.
pub(super) fn table(figures: &Figures) -> String {
    let mut sections: Vec<String> =
        figures.pmds.iter().map(|pmd| pmd_table(pmd, figures.protection)).collect();
    if sections.is_empty() {
        return "no PMDs\n".to_owned();
    }
    if !figures.slow_path_mhz.is_empty() {
        let spent = figures.slow_path_mhz.iter().map(|(name, mhz)| format!("{name} {mhz:.1}"));
        let spent: Vec<String> = spent.collect();
        sections.push(format!("slow path, MHz: {}\n", spent.join(", ")));
    }
    sections.join("\n")
}

fn pmd_table(pmd: &PmdFigures, protection: Option<bool>) -> String {
    let protection = match protection {
        Some(true) => ", protection on",
        Some(false) => ", protection off",
        None => "",
    };
    let account = |name: &str, of_core: Use| {
        let mut row = vec!["-".to_owned(); COLUMNS.len()];
        let cells =
            [(0, name.to_owned()), (4, two_decimals(of_core.core_percent)), (5, mhz(of_core))];
        for (column, text) in cells {
            if let Some(cell) = row.get_mut(column) {
                *cell = text;
            }
        }
        row
    };
    let others = [
        account("(system)", pmd.system),
        account("(idle)", pmd.idle),
        account("(stolen)", pmd.stolen),
    ];
    let rows = pmd.tenants.iter().map(tenant_row).chain(others).collect();
    format!(
        "pmd {} on core {}, {:.2} s of {:.0} MHz{protection}\n\
         p99, us: task {}, rx {}, system {}, scan {}\n{}",
        pmd.pmd,
        pmd.core,
        pmd.interval_s,
        pmd.mhz,
        us(pmd.task_p99_us),
        us(pmd.rx_p99_us),
        us(pmd.system_p99_us),
        us(pmd.scan_p99_us),
        output::table(&COLUMNS, rows, "")
    )
}

fn tenant_row(tenant: &TenantFigures) -> Vec<String> {
    let drops = tenant.drops_per_s.iter().map(|(reason, rate)| format!("{reason}={rate:.0}"));
    let drops = drops.collect::<Vec<_>>().join(" ");
    vec![
        tenant.name.clone(),
        or_dash(tenant.weight, |weight| weight.to_string()),
        or_dash(tenant.entitled_percent, two_decimals),
        or_dash(tenant.used_percent, two_decimals),
        two_decimals(tenant.of_core.core_percent),
        mhz(tenant.of_core),
        or_dash(tenant.credit_cycles, |cycles| cycles.to_string()),
        whole(tenant.funded_per_s),
        whole(tenant.slack_per_s),
        whole(tenant.gated_per_s),
        whole(tenant.packets_per_s),
        us(tenant.wait_p50_us),
        us(tenant.wait_p99_us),
        whole(tenant.marks_per_s),
        if drops.is_empty() { "0".to_owned() } else { drops },
    ]
}

fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn mhz(of_core: Use) -> String {
    format!("{:.1}", of_core.mhz)
}

fn us(value: Option<f64>) -> String {
    or_dash(value, two_decimals)
}

/// The numbers of one interval.
pub(super) fn json(figures: &Figures) -> Value {
    let slow_path = figures.slow_path_mhz.iter().map(|(name, mhz)| (name.clone(), json!(mhz)));
    json!({
        "protection": figures.protection,
        "pmds": figures.pmds.iter().map(pmd_json).collect::<Vec<_>>(),
        "slow_path_mhz": slow_path.collect::<Map<_, _>>(),
    })
}

fn pmd_json(pmd: &PmdFigures) -> Value {
    let account =
        |of_core: Use| json!({ "core_percent": of_core.core_percent, "mhz": of_core.mhz });
    json!({
        "pmd": pmd.pmd,
        "core": pmd.core,
        "interval_s": pmd.interval_s,
        "mhz": pmd.mhz,
        "tenants": pmd.tenants.iter().map(tenant_json).collect::<Vec<_>>(),
        "system": account(pmd.system),
        "idle": account(pmd.idle),
        "stolen": account(pmd.stolen),
        "p99_us": {
            "task": pmd.task_p99_us,
            "rx": pmd.rx_p99_us,
            "system": pmd.system_p99_us,
            "scan": pmd.scan_p99_us,
        },
    })
}

fn tenant_json(tenant: &TenantFigures) -> Value {
    let drops = tenant.drops_per_s.iter().map(|(reason, rate)| (reason.clone(), json!(rate)));
    json!({
        "tenant": tenant.name,
        "weight": tenant.weight,
        "entitled_percent": tenant.entitled_percent,
        "used_percent": tenant.used_percent,
        "core_percent": tenant.of_core.core_percent,
        "mhz": tenant.of_core.mhz,
        "credit_cycles": tenant.credit_cycles,
        "funded_turns_per_s": tenant.funded_per_s,
        "slack_turns_per_s": tenant.slack_per_s,
        "gated_turns_per_s": tenant.gated_per_s,
        "packets_per_s": tenant.packets_per_s,
        "wait_p50_us": tenant.wait_p50_us,
        "wait_p99_us": tenant.wait_p99_us,
        "marks_per_s": tenant.marks_per_s,
        "drops_per_s": drops.collect::<Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::recorded;
    use super::*;

    fn row<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).split_whitespace().collect()
    }

    #[test]
    fn the_table_has_a_row_for_each_account_and_who_used_most_comes_first() {
        let (before, after) = recorded();
        let text = table(&Figures::between(&before, &after));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "pmd 0 on core 1, 4.13 s of 2596 MHz, protection on");
        assert!(lines[1].starts_with("p99, us: task "), "{text}");
        let first_words: Vec<&str> =
            lines[2..].iter().filter_map(|line| line.split_whitespace().next()).collect();
        let accounts = ["batch", "web", "idle", "(system)", "(idle)", "(stolen)"];
        assert_eq!(first_words, [&["TENANT"][..], &accounts].concat());
        assert_eq!(
            row(&text, "web"),
            "web 3 75.00 9.24 0.18 4.6 20000 354 6 0 360 1.58 100.98 0 0"
                .split_whitespace()
                .collect::<Vec<_>>()
        );
        assert_eq!(row(&text, "batch")[14..], ["tx_no_queue=589", "tx_ring_full=471"]);
        assert_eq!(row(&text, "(stolen)")[4], "97.57");
    }

    #[test]
    fn the_same_numbers_are_in_the_json() {
        let (before, after) = recorded();
        let json = json(&Figures::between(&before, &after));
        let pmd = &json["pmds"][0];
        assert_eq!(json["protection"], true);
        assert_eq!((&pmd["pmd"], &pmd["core"]), (&json!(0), &json!(1)));
        assert_eq!(pmd["tenants"][1]["tenant"], "web");
        assert_eq!(pmd["tenants"][1]["entitled_percent"], 75.0);
        assert_eq!(pmd["tenants"][2]["entitled_percent"], json!(null));
        assert!(pmd["stolen"]["core_percent"].as_f64().is_some_and(|percent| percent > 97.0));
    }

    #[test]
    fn what_a_switch_leaves_out_is_a_dash() {
        let (_, mut after) = recorded();
        after.pmd_stats["pmds"] = json!([{"tenant_details": {"vm1": {}}}]);
        let text = table(&Figures::between(&after, &after));
        assert_eq!(row(&text, "vm1")[..4], ["vm1", "-", "-", "-"]);
        after.pmd_stats = json!(null);
        assert_eq!(table(&Figures::between(&after, &after)), "no PMDs\n");
    }
}
