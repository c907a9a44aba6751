//! Results of the switch as tables.

use serde_json::Value;

use super::value::{items, member, members, plain, text};
use crate::output::Align::{Left, Right};
use crate::output::table;

/// Commands that change something are silent when it worked.
pub(super) fn nothing(_: &Value) -> String {
    String::new()
}

pub(super) fn bridges(result: &Value) -> String {
    let rows = items(result).iter().map(|bridge| {
        // (The switch may count the ports or list them.)
        let ports = match member(bridge, "ports") {
            Value::Array(ports) => ports.len().to_string(),
            count => plain(count),
        };
        vec![text(bridge, "name"), text(bridge, "datapath_id"), ports, text(bridge, "flows")]
    });
    let columns = [("BRIDGE", Left), ("DATAPATH-ID", Left), ("PORTS", Right), ("FLOWS", Right)];
    table(&columns, rows.collect(), "no bridges (ofctl bridge add NAME)")
}

pub(super) fn ports(result: &Value) -> String {
    let columns = [
        ("BRIDGE", Left),
        ("PORT", Left),
        ("OFPORT", Right),
        ("TENANT", Left),
        ("PMD", Right),
        ("MODE", Left),
        ("STATE", Left),
        ("RINGS", Right),
        ("RX-PACKETS", Right),
        ("TX-PACKETS", Right),
        ("DROPS", Left),
        ("ERROR", Left),
        ("FEATURES", Left),
    ];
    let rows = items(result).iter().map(|port| {
        vec![
            text(port, "bridge"),
            text(port, "name"),
            text(port, "ofport"),
            text(port, "tenant"),
            text(port, "pmd"),
            // A network card has none; what it is says as much.
            text(port, if member(port, "mode").is_null() { "type" } else { "mode" }),
            state(port),
            items(member(port, "rings")).len().to_string(),
            text(port, "rx_packets"),
            text(port, "tx_packets"),
            drops(member(port, "drops")),
            text(port, "error"),
            text(port, "features"),
        ]
    });
    table(&columns, rows.collect(), "no ports (ofctl port add BRIDGE NAME)")
}

/// Everything, name by name.
pub(super) fn port(result: &Value) -> String {
    let mut rows = Vec::new();
    for (name, value) in members(result) {
        match name.as_str() {
            "drops" => rows.push(vec![name.clone(), drops(value)]),
            "rings" => rows.push(vec![name.clone(), items(value).len().to_string()]),
            "xstats" => {}
            _ => rows.push(vec![name.clone(), plain(value)]),
        }
    }
    let shown = table(&[("OF THE PORT", Left), ("VALUE", Left)], rows, "");
    // A card has many counters, of which few have counted anything.
    let counted = |(_, value): &(&String, &Value)| value.as_u64().is_some_and(|count| count > 0);
    let xstats = members(member(result, "xstats")).filter(counted);
    let xstats: Vec<_> = xstats.map(|(name, value)| vec![name.clone(), plain(value)]).collect();
    if xstats.is_empty() {
        return shown;
    }
    format!("{shown}\n{}", table(&[("OF THE CARD", Left), ("COUNT", Right)], xstats, ""))
}

fn state(port: &Value) -> String {
    match (member(port, "state"), member(port, "connected")) {
        (Value::Null, Value::Bool(true)) => "connected".to_owned(),
        (Value::Null, Value::Bool(false)) => "not connected".to_owned(),
        (state, _) => plain(state),
    }
}

/// Reasons for which anything was dropped, most frequent first.
fn drops(drops: &Value) -> String {
    let mut reasons: Vec<(u64, &String)> = members(drops)
        .filter_map(|(reason, count)| Some((count.as_u64().filter(|c| *c > 0)?, reason)))
        .collect();
    reasons.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    if reasons.is_empty() {
        return "0".to_owned();
    }
    let reasons: Vec<String> =
        reasons.iter().map(|(count, reason)| format!("{reason}={count}")).collect();
    reasons.join(" ")
}

pub(super) fn tenants(result: &Value) -> String {
    tenant_table(items(result))
}

/// Its books, and every knob as it is in force.
pub(super) fn tenant(result: &Value) -> String {
    let books = tenant_table(std::slice::from_ref(result));
    let knobs = KNOBS.iter().filter_map(|(knob, unset)| {
        let shown = match result.get(*knob)? {
            Value::Null => (*unset).to_owned(),
            Value::Number(number) => number.to_string(),
            other => plain(other),
        };
        Some(vec![(*knob).to_owned(), shown])
    });
    let knobs = knobs.collect::<Vec<_>>();
    if knobs.is_empty() {
        return books;
    }
    format!("{books}\n{}", table(&[("KNOB", Left), ("VALUE", Left)], knobs, ""))
}

/// What can be set for a tenant, and what it means where it is not.
const KNOBS: [(&str, &str); 11] = [
    ("weight", "-"),
    ("cap_cycles", "-"),
    ("floor_cycles", "-"),
    ("rx_overrun", "-"),
    ("mark_depth_cycles", "-"),
    ("setups_per_second", "-"),
    ("megaflows", "-"),
    ("subtables", "-"),
    ("exact_entries", "an equal part"),
    ("arena_bytes", "-"),
    ("controller_pps", "-"),
];

/// What is in force now: the switch makes a tenant of any name, so a mistyped one shows by having
/// no ports.
pub(super) fn tenant_set(result: &Value) -> String {
    let Some(weight) = member(result, "weight").as_f64() else { return String::new() };
    let ports: Vec<String> = items(member(result, "ports")).iter().map(plain).collect();
    let ports =
        if ports.is_empty() { "no ports".to_owned() } else { format!("ports {}", ports.join(",")) };
    format!("tenant {}: weight {weight}, {ports}\n", text(result, "tenant"))
}

fn tenant_table(tenants: &[Value]) -> String {
    let columns = [
        ("TENANT", Left),
        ("WEIGHT", Right),
        ("PORTS", Left),
        ("PACKETS", Right),
        ("CYCLES", Right),
        ("SHARE-%", Right),
        ("CREDIT-CYCLES", Right),
        ("FUNDED-TURNS", Right),
        ("SLACK-TURNS", Right),
        ("GATED-TURNS", Right),
    ];
    let rows = tenants.iter().map(|tenant| {
        let weight = member(tenant, "weight");
        vec![
            text(tenant, "tenant"),
            weight.as_f64().map_or_else(|| plain(weight), |weight| weight.to_string()),
            text(tenant, "ports"),
            text(tenant, "packets"),
            text(tenant, "cycles"),
            text(tenant, "share_percent"),
            text(tenant, "credit_cycles"),
            text(tenant, "funded_turns"),
            text(tenant, "slack_turns"),
            text(tenant, "gated_turns"),
        ]
    });
    table(&columns, rows.collect(), "no tenants (a port makes one: ofctl port add BRIDGE NAME)")
}

pub(super) fn controllers(result: &Value) -> String {
    let columns = [
        ("TARGET", Left),
        ("CONNECTED", Left),
        ("ROLE", Left),
        ("STATE", Left),
        ("LOST-PACKETS", Right),
        ("LAST-ERROR", Left),
    ];
    let rows = items(result).iter().map(|controller| {
        let names = ["target", "connected", "role", "state", "packet_ins_lost", "last_error"];
        names.map(|name| text(controller, name)).to_vec()
    });
    table(&columns, rows.collect(), "no controllers (ofctl controller set BRIDGE TARGET...)")
}

pub(super) fn protection(result: &Value) -> String {
    let enabled = result.as_bool().or_else(|| member(result, "enabled").as_bool());
    match enabled {
        Some(true) => "on\n".to_owned(),
        Some(false) => "off\n".to_owned(),
        None => format!("{}\n", plain(result)),
    }
}

pub(super) fn scheduler(result: &Value) -> String {
    let knobs = members(result).map(|(knob, value)| {
        let value = match value {
            Value::Number(number) => number.to_string(),
            other => plain(other),
        };
        vec![knob.clone(), value]
    });
    table(&[("KNOB", Left), ("VALUE", Left)], knobs.collect(), "")
}

pub(super) fn version(result: &Value) -> String {
    let switch = match result {
        Value::Object(_) => text(result, "version"),
        other => plain(other),
    };
    format!("ofctl {}\nswitchd {switch}\n", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_port_shows_its_drops_by_frequency() {
        let text = ports(&json!([{
            "bridge": "br0", "name": "vm1", "ofport": 1, "tenant": "t1", "pmd": 0,
            "mode": "listen", "state": "running", "error": null,
            "features": ["VERSION_1", "IN_ORDER"], "rings": [{"index": 0}, {"index": 1}],
            "rx_packets": 10, "tx_packets": 20,
            "drops": {"no_rule": 2, "tx_ring_full": 7, "rx_too_long": 0}
        }]));
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = "br0 vm1 1 t1 0 listen running 2 10 20 tx_ring_full=7 no_rule=2 - \
                        VERSION_1,IN_ORDER";
        assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn nothing_to_list_says_what_to_do() {
        assert!(ports(&json!([])).contains("port add"));
        assert!(bridges(&json!([])).contains("bridge add"));
    }

    #[test]
    fn weights_keep_their_decimals() {
        let text =
            tenants(&json!([{"tenant": "a", "weight": 1.715}, {"tenant": "b", "weight": 4}]));
        assert!(text.contains("1.715"), "{text}");
        assert!(text.lines().any(|line| line.starts_with('b') && line.contains(" 4 ")), "{text}");
    }

    #[test]
    fn one_tenant_shows_its_knobs_and_a_list_does_not() {
        let vm1 =
            json!({"tenant": "vm1", "weight": 1.71, "cap_cycles": 20000, "exact_entries": null});
        let text = tenant(&vm1);
        let row = |knob: &str| text.lines().find(|line| line.starts_with(knob)).unwrap();
        assert!(row("weight").ends_with(" 1.71"), "{text}");
        assert!(row("cap_cycles").ends_with(" 20000"), "{text}");
        assert!(row("exact_entries").ends_with(" an equal part"), "{text}");
        assert!(!text.contains("arena_bytes"), "an older switch has none: {text}");
        assert!(!tenants(&json!([vm1])).contains("cap_cycles"));
    }

    #[test]
    fn what_a_switch_leaves_out_does_not_matter() {
        for view in [bridges, ports, tenants, tenant, controllers, protection, version] {
            for value in [json!(null), json!([null]), json!([{}]), json!({}), json!(7)] {
                let _ = view(&value);
            }
        }
    }
}
