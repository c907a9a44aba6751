//! `pmd stats`: where the cycles went.

use serde_json::Value;

use super::value::{items, member, members, percent, text};
use crate::output::Align::{Left, Right};
use crate::output::table;

pub(super) fn stats(result: &Value) -> String {
    let mut sections: Vec<String> = items(member(result, "pmds")).iter().map(pmd).collect();
    let slow_path = member(member(result, "slow_path"), "tenants");
    let rows: Vec<Vec<String>> = members(slow_path)
        .map(|(tenant, cycles)| vec![tenant.clone(), super::value::plain(cycles)])
        .collect();
    if !rows.is_empty() {
        let spent = table(&[("TENANT", Left), ("CYCLES", Right)], rows, "");
        sections.push(format!("slow path\n{spent}"));
    }
    if sections.is_empty() { "no PMDs\n".to_owned() } else { sections.join("\n") }
}

fn pmd(pmd: &Value) -> String {
    let get = |name| text(pmd, name);
    let elapsed = member(pmd, "elapsed_cycles");
    let account = |name: &str, cycles: &Value| {
        vec![name.to_owned(), super::value::plain(cycles), percent(cycles, elapsed)]
    };
    let tenants = members(member(pmd, "tenants")).map(|(name, cycles)| account(name, cycles));
    let others =
        [("(system)", "system_cycles"), ("(stolen)", "stolen_cycles"), ("(idle)", "idle_cycles")];
    let others = others.map(|(name, key)| account(name, member(pmd, key)));
    let columns = [("ACCOUNT", Left), ("CYCLES", Right), ("OF-ELAPSED", Right)];
    let accounts = table(&columns, tenants.chain(others).collect(), "");
    format!(
        "pmd {} on core {}: {} packets at {} cycles each; {} port hits, {} exact-match hits, {} megaflow hits, {} misses; {} megaflows in {} subtables\n{accounts}",
        get("pmd"),
        get("core"),
        get("packets"),
        get("cycles_per_packet"),
        get("port_hits"),
        get("exact_hits"),
        get("megaflow_hits"),
        get("misses"),
        get("megaflows"),
        get("subtables")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_account_has_its_share_of_the_elapsed_cycles() {
        let text = stats(&json!({"tsc_hz": 1000, "pmds": [{
            "pmd": 0, "core": 1, "elapsed_cycles": 1000, "idle_cycles": 500, "system_cycles": 50,
            "stolen_cycles": 0, "tenants": {"vm1": 250, "vm2": 200}, "packets": 9
        }], "slow_path": {"tenants": {"vm1": 5}}}));
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("vm1"), ["vm1", "250", "25.00", "%"]);
        assert_eq!(row("(idle)"), ["(idle)", "500", "50.00", "%"]);
        assert!(text.contains("slow path"), "{text}");
    }
}
