//! `dump-megaflows` and `fdb`: what bridges have decided and learned.

use serde_json::Value;

use super::value::{items, member, text};

/// A line for each cached decision, in the manner of `ovs-appctl dpctl/dump-flows`.
pub(super) fn megaflows(result: &Value) -> String {
    let mut lines: String = items(member(result, "megaflows")).iter().map(megaflow).collect();
    if member(result, "more").as_bool() == Some(true) {
        lines += "...and more, which are not listed\n";
    }
    lines
}

fn megaflow(megaflow: &Value) -> String {
    let get = |name| text(megaflow, name);
    let used = match member(megaflow, "idle_ms").as_u64() {
        Some(ms) => format!("{}.{:03}s", ms / 1000, ms % 1000),
        None => "never".to_owned(),
    };
    // Why a packet is dropped says more than that nothing is done to it.
    let actions = match member(megaflow, "drop_reason").as_str() {
        Some(reason) => format!("drop({reason})"),
        None => match member(megaflow, "actions") {
            Value::Array(actions) => {
                actions.iter().map(super::value::plain).collect::<Vec<_>>().join(",")
            }
            actions => super::value::plain(actions),
        },
    };
    format!(
        "bridge={}, tenant={}, {}, packets:{}, bytes:{}, used:{used}, actions:{actions}\n",
        get("bridge"),
        get("tenant"),
        get("match"),
        get("packets"),
        get("bytes")
    )
}

/// As `ovs-appctl fdb/show`, with the ports' names.
pub(super) fn fdb(result: &Value) -> String {
    let lines = items(result).iter().map(|station| {
        let get = |name| text(station, name);
        format!("{:>5}  {:>4}  {}  {:>3}\n", get("port"), get("vlan"), get("mac"), get("age_s"))
    });
    let heading = " port  VLAN  MAC                Age\n".to_owned();
    std::iter::once(heading).chain(lines).collect()
}

/// As `ovs-appctl fdb/flush`.
pub(super) fn flushed(result: &Value) -> String {
    match member(result, "flushed").as_u64() {
        Some(count) => format!("table successfully flushed ({count} addresses)\n"),
        None => "table successfully flushed\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_megaflow_is_a_line_and_a_drop_says_why() {
        let text = megaflows(&json!({"more": true, "megaflows": [
            {"bridge": "br0", "tenant": "t1", "match": "ip,in_port=vm1", "packets": 3, "bytes": 180,
             "idle_ms": 1050, "actions": ["output:vm2", "output:vm3"], "drop_reason": null},
            {"bridge": "br0", "tenant": null, "match": "arp,in_port=vm1", "packets": 0, "bytes": 0,
             "idle_ms": null, "actions": [], "drop_reason": "no_rule"}
        ]}));
        assert_eq!(
            text,
            "bridge=br0, tenant=t1, ip,in_port=vm1, packets:3, bytes:180, used:1.050s, \
             actions:output:vm2,output:vm3\n\
             bridge=br0, tenant=-, arp,in_port=vm1, packets:0, bytes:0, used:never, \
             actions:drop(no_rule)\n...and more, which are not listed\n"
        );
        assert_eq!(megaflows(&json!({"megaflows": [], "more": false})), "");
    }

    #[test]
    fn the_addresses_stand_in_columns() {
        let text = fdb(&json!([
            {"port": "vm1", "vlan": 0, "mac": "50:54:00:00:00:09", "age_s": 3},
            {"port": "vm-two", "vlan": 100, "mac": "50:54:00:00:00:0a", "age_s": 299}
        ]));
        assert_eq!(
            text,
            " port  VLAN  MAC                Age\n  vm1     0  50:54:00:00:00:09    3\nvm-two   100  \
             50:54:00:00:00:0a  299\n"
        );
    }
}
