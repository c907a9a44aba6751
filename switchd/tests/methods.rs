//! The JSON-RPC methods against a running daemon.

mod support;

use std::fs::{self, File};
use std::process::Command;

use serde_json::{Value, json};
use support::peer::{self, text};
use support::{Daemon, TWO_PORTS, directory};

const INVALID_PARAMS: i64 = -32602;
const REFUSED: i64 = -1;

fn names(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().unwrap();
    list.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn bridges_come_and_go() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), "");
    assert_eq!(daemon.call("bridge_list", json!({})), json!([]));
    daemon.call("bridge_add", json!({"name": "br7"}));
    let bridges = daemon.call("bridge_list", json!({}));
    assert_eq!(names(&bridges, "name"), ["br7"]);
    assert_eq!(bridges[0]["flows"], 0);
    assert_eq!(bridges[0]["datapath_id"].as_str().unwrap().len(), 16);
    assert!(daemon.run_dir().join("br7.mgmt").exists());

    let (code, message) = daemon.refusal("bridge_add", json!({"name": "br7"}));
    assert_eq!(code, REFUSED);
    assert!(message.contains("br7"), "{message}");
    for (params, named) in [
        (json!({}), "`name`"),
        (json!({"name": 7}), "`name`"),
        (json!({"name": "../x"}), "`name`"),
        (json!({"name": "br8", "color": "red"}), "\"color\""),
    ] {
        let (code, message) = daemon.refusal("bridge_add", params);
        assert_eq!(code, INVALID_PARAMS);
        assert!(message.contains(named), "{message}");
    }

    daemon.call("port_add", json!({"bridge": "br7", "name": "p1"}));
    let (code, message) = daemon.refusal("bridge_remove", json!({"name": "br7"}));
    assert_eq!(code, REFUSED);
    assert!(message.contains("p1"), "{message}");
    daemon.call("port_remove", json!({"bridge": "br7", "name": "p1"}));
    daemon.call("bridge_remove", json!({"name": "br7"}));
    assert!(!daemon.run_dir().join("br7.mgmt").exists());
    assert_eq!(daemon.refusal("bridge_remove", json!({"name": "br7"})).0, REFUSED);
    daemon.stop();
}

#[test]
fn bridges_have_controllers() {
    let dir = directory();
    let ours = dir.path().join("controllers");
    let config =
        format!("[[bridges]]\nname = \"br0\"\ncontrollers = [\"punix:{}\"]\n", ours.display());
    let daemon = Daemon::start(dir.path(), &config);
    let listed = daemon.call("controller_get", json!({"bridge": "br0"}));
    assert_eq!(names(&listed, "target"), [format!("punix:{}", ours.display())]);
    assert_eq!(
        (&listed[0]["state"], &listed[0]["connected"]),
        (&json!("listening"), &json!(false))
    );
    assert!(ours.exists());

    let nobody = "tcp:127.0.0.1:1";
    daemon.call("controller_set", json!({"bridge": "br0", "targets": [nobody]}));
    assert!(!ours.exists());
    let listed = daemon.call("controller_get", json!({"bridge": "br0"}));
    assert_eq!(names(&listed, "target"), [nobody]);
    assert_eq!(listed[0]["role"], Value::Null);

    for (params, code, named) in [
        (json!({"bridge": "br0"}), INVALID_PARAMS, "`targets`"),
        (json!({"bridge": "br0", "targets": "tcp:10.0.0.1"}), INVALID_PARAMS, "array"),
        (json!({"bridge": "br0", "targets": ["10.0.0.1"]}), INVALID_PARAMS, "tcp:IP:PORT"),
        (json!({"bridge": "br9", "targets": []}), REFUSED, "br9"),
        (json!({"bridge": "br0", "targets": vec!["tcp:10.0.0.1"; 9]}), REFUSED, "at most 8"),
        (json!({"bridge": "br0", "targets": ["punix:/no/such/dir/x"]}), REFUSED, "/no/such/dir"),
    ] {
        let (found, message) = daemon.refusal("controller_set", params);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(named), "{message}");
    }
    assert_eq!(names(&daemon.call("controller_get", json!({"bridge": "br0"})), "target"), [nobody]);
    daemon.stop();
}

#[test]
fn ports_get_numbers_sockets_and_tenants() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    let path = dir.path().join("elsewhere");
    let added = daemon.call(
        "port_add",
        json!({"bridge": "br0", "name": "p3", "socket": path, "tenant": "acme", "queue_pairs": 2,
               "pmd": 0}),
    );
    assert_eq!(added["ofport"], 3);
    assert!(path.exists());
    let added = daemon
        .call("port_add", json!({"bridge": "br0", "name": "p9", "ofport": 9, "mode": "connect"}));
    assert_eq!(added["ofport"], 9);

    let ports = daemon.call("port_list", json!({"bridge": "br0"}));
    assert_eq!(names(&ports, "name"), ["p3", "p9", "vm1", "vm2"]);
    assert_eq!(names(&ports, "tenant"), ["acme", "p9", "vm1", "vm2"]);
    assert_eq!(names(&ports, "mode"), ["listen", "connect", "listen", "listen"]);
    assert_eq!(ports[0]["socket"], path.to_str().unwrap());
    assert_eq!(ports[0]["state"], "disconnected");
    assert_eq!(ports[0]["rx_packets"], 0);
    assert_eq!(ports[0]["drops"], json!({}));

    daemon.call("port_remove", json!({"bridge": "br0", "name": "vm1"}));
    assert!(!daemon.run_dir().join("vhost/vm1").exists());
    // The lowest free number.
    let added = daemon.call("port_add", json!({"bridge": "br0", "name": "again"}));
    assert_eq!(added["ofport"], 1);
    // Tenants that only ports had named went with them.
    let tenants = daemon.call("tenant_list", json!({}));
    assert_eq!(names(&tenants, "tenant"), ["acme", "again", "p9", "vm2"]);
    daemon.stop();
}

#[test]
fn port_mistakes_name_what_is_wrong() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    daemon.call("bridge_add", json!({"name": "br1"}));
    let before = daemon.call("tenant_list", json!({})).as_array().unwrap().len();
    let port = |more: Value| {
        let mut port = json!({"bridge": "br0", "name": "new"});
        port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        port
    };
    for (params, code, named) in [
        (json!({"bridge": "br0"}), INVALID_PARAMS, "`name`"),
        (port(json!({"name": "7"})), INVALID_PARAMS, "`name`"),
        (port(json!({"ofport": 0})), INVALID_PARAMS, "`ofport`"),
        (port(json!({"ofport": 65280})), INVALID_PARAMS, "1 to 65279"),
        (port(json!({"queue_pairs": 9})), INVALID_PARAMS, "1 to 8"),
        (port(json!({"pmd": 64})), INVALID_PARAMS, "`pmd`"),
        (port(json!({"mode": "server"})), INVALID_PARAMS, "\"listen\" or \"connect\""),
        (port(json!({"socket": "relative"})), INVALID_PARAMS, "`socket`"),
        (port(json!({"tenant": "system"})), INVALID_PARAMS, "`tenant`"),
        (port(json!({"uplink": "eth0"})), INVALID_PARAMS, "`uplink`"),
        (port(json!({"mac": "02:00"})), INVALID_PARAMS, "`mac`"),
        (port(json!({"mac": "01:00:5e:00:00:01"})), INVALID_PARAMS, "one station"),
        (port(json!({"mac": "02:00:00:00:00:01", "uplink": true})), INVALID_PARAMS, "uplink"),
        (port(json!({"bridge": "br9"})), REFUSED, "br9"),
        (port(json!({"name": "vm1"})), REFUSED, "vm1"),
        (port(json!({"name": "br1"})), REFUSED, "br1"),
        (port(json!({"ofport": 2})), REFUSED, "vm2"),
        (port(json!({"socket": "/nonexistent/s"})), REFUSED, "/nonexistent/s"),
        (port(json!({"socket": daemon.rpc_socket()})), REFUSED, "rpc.sock"),
    ] {
        let (found, message) = daemon.refusal("port_add", params.clone());
        assert_eq!(found, code, "{params}: {message}");
        assert!(message.contains(named), "{params}: {message}");
    }
    assert_eq!(daemon.refusal("port_remove", json!({"bridge": "br1", "name": "vm1"})).0, REFUSED);
    assert_eq!(daemon.refusal("port_list", json!({"bridge": "br9"})).0, REFUSED);
    // Nothing was left behind.
    assert_eq!(daemon.call("port_list", json!({})).as_array().unwrap().len(), 2);
    assert_eq!(daemon.call("tenant_list", json!({})).as_array().unwrap().len(), before);
    daemon.stop();
}

#[test]
fn a_weight_is_set_exactly_and_kept() {
    let dir = directory();
    let config = format!("{TWO_PORTS}[tenants.vm2]\nweight = 1.71\n");
    let daemon = Daemon::start(dir.path(), &config);
    assert_eq!(daemon.call("tenant_get", json!({"tenant": "vm1"}))["weight"], 1.0);
    assert_eq!(daemon.call("tenant_get", json!({"tenant": "vm2"}))["weight"], 1.71);
    let set = daemon.call("tenant_set", json!({"tenant": "vm1", "weight": 4}));
    assert_eq!(set["weight"], 4.0);
    assert_eq!(set["ports"], json!(["vm1"]));
    assert_eq!(set["credit_cycles"].as_array().unwrap().len(), 1);
    // What is not named does not change.
    assert_eq!(daemon.call("tenant_set", json!({"tenant": "vm1"}))["weight"], 4.0);
    assert_eq!(set["controller_pps"], 1000);
    let limited = daemon.call("tenant_set", json!({"tenant": "vm1", "controller_pps": 50}));
    assert_eq!((&limited["weight"], &limited["controller_pps"]), (&json!(4.0), &json!(50)));
    let weighed = daemon.call("tenant_set", json!({"tenant": "vm1", "weight": 4}));
    assert_eq!(weighed["controller_pps"], 50);
    let (code, message) =
        daemon.refusal("tenant_set", json!({"tenant": "a", "controller_pps": -1}));
    assert!(code == INVALID_PARAMS && message.contains("`controller_pps`"), "{message}");
    assert_eq!((&set["rx_overrun"], &set["megaflows"]), (&json!("drop"), &json!(16384)));
    assert_eq!((&set["cap_cycles"], &set["mark_depth_cycles"]), (&json!(20000), &json!(20000)));
    assert_eq!(set["exact_entries"], json!(null), "an equal part");
    let all = json!({
        "tenant": "vm1", "cap_cycles": 15000, "floor_cycles": 900_000, "rx_overrun": "mark-then-drop",
        "mark_depth_cycles": 5000, "setups_per_second": 10, "megaflows": 7, "subtables": 3,
        "arena_bytes": 100_000, "exact_entries": 99,
    });
    let knobs = daemon.call("tenant_set", all.clone());
    let wrong = all.as_object().unwrap().iter().find(|(knob, value)| knobs[*knob] != **value);
    assert_eq!(wrong, None);
    for (knob, value, range) in [
        ("cap_cycles", json!(9999), "10000 (two quanta) to"),
        ("floor_cycles", json!(1_000_001), "(horizon_cycles)"),
        ("rx_overrun", json!("lose"), "mark-then-drop"),
        ("mark_depth_cycles", json!(900_001), "0 to 900000 (floor_cycles)"),
        ("arena_bytes", json!(1), "65536 to"),
        ("subtables", json!(0), "1 to"),
    ] {
        let (_, message) = daemon.refusal("tenant_set", json!({"tenant": "vm1", knob: value}));
        assert!(message.contains(knob) && message.contains(range), "{message}");
    }
    assert_eq!(
        daemon.call("tenant_get", json!({"tenant": "vm1"}))["subtables"],
        3,
        "nothing changed"
    );
    // Named ones survive their ports.
    daemon.call("port_remove", json!({"bridge": "br0", "name": "vm1"}));
    assert_eq!(daemon.call("tenant_get", json!({"tenant": "vm1"}))["weight"], 4.0);
    for weight in [json!(0), json!(1000.5), json!(1.0001), json!(-1), json!("4")] {
        let params = json!({"tenant": "vm1", "weight": weight});
        let (code, message) = daemon.refusal("tenant_set", params);
        assert_eq!(code, INVALID_PARAMS);
        assert!(message.contains("`weight`"), "{message}");
    }
    assert_eq!(daemon.refusal("tenant_get", json!({"tenant": "nobody"})).0, REFUSED);
    assert_eq!(daemon.refusal("tenant_remove", json!({"tenant": "vm2"})).0, REFUSED);
    daemon.call("tenant_remove", json!({"tenant": "vm1"}));
    assert_eq!(daemon.refusal("tenant_get", json!({"tenant": "vm1"})).0, REFUSED);
    daemon.stop();
}

#[test]
fn the_books_of_a_pmd_add_up() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    let stats = daemon.call("pmd_stats", json!({}));
    let pmd = &stats["pmds"][0];
    let cycles = |key: &str| pmd[key].as_u64().unwrap();
    let tenants: u64 =
        pmd["tenants"].as_object().unwrap().values().map(|cycles| cycles.as_u64().unwrap()).sum();
    assert_eq!(pmd["tenants"].as_object().unwrap().len(), 2);
    let booked =
        tenants + cycles("system_cycles") + cycles("idle_cycles") + cycles("stolen_cycles");
    let elapsed = cycles("elapsed_cycles");
    assert!(elapsed > 0);
    assert!(booked.abs_diff(elapsed) <= elapsed / 100, "{booked} of {elapsed}");
    assert!(stats["tsc_hz"].as_u64().unwrap() > 100_000_000);
    for (name, cycles) in pmd["tenants"].as_object().unwrap() {
        let details = &pmd["tenant_details"][name];
        assert_eq!(&details["cycles"], cycles);
        assert_eq!((&details["wait"], &details["marks"]), (&json!([]), &json!(0)));
        let drops = json!({"tenant_over_share": 0, "tenant_over_share_early": 0});
        assert_eq!(details["drops"], drops);
    }
    assert_eq!(pmd["histograms"], json!({"task": [], "rx": [], "system": [], "scan": []}));

    let beats = cycles("heartbeat");
    let later = daemon.call("pmd_stats", json!({}));
    assert!(later["pmds"][0]["heartbeat"].as_u64().unwrap() >= beats);
    daemon.stop();
}

#[test]
fn the_stages_of_packets_are_timed_for_as_long_as_is_asked_for() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    for params in [json!({"seconds": 0.1}), json!({"pmd": 0, "seconds": 0.1})] {
        let report = daemon.call("pmd_stages", params);
        assert_eq!(report["seconds"], 0.1);
        assert_eq!(report["pmds"].as_array().unwrap().len(), 1);
        let pmd = &report["pmds"][0];
        assert_eq!((&pmd["pmd"], &pmd["sampled_packets"]), (&json!(0), &json!(0)));
        assert!(pmd["reading_cycles"].as_u64().unwrap() > 0, "it was on");
        let stages = names(&pmd["stages"], "stage");
        let wanted =
            "fetch port parse exact megaflow miss actions deliver account".split_whitespace();
        assert!(stages.iter().eq(wanted), "{stages:?}");
    }
    for (params, named, range) in [
        (json!({"pmd": 1}), "`pmd`", "from 0 to 0, not 1"),
        (json!({"pmd": -1}), "`pmd`", "from 0 to 0, not -1"),
        (json!({"pmd": "all"}), "`pmd`", "a whole number"),
        (json!({"seconds": 0.05}), "`seconds`", "from 0.1 to 30, not 0.05"),
        (json!({"seconds": 31}), "`seconds`", "from 0.1 to 30, not 31"),
        (json!({"seconds": "1"}), "`seconds`", "a number"),
        (json!({"second": 1}), "\"second\"", "pmd, seconds"),
    ] {
        let (code, message) = daemon.refusal("pmd_stages", params);
        assert_eq!(code, INVALID_PARAMS);
        assert!(message.contains(named) && message.contains(range), "{message}");
    }
    daemon.stop();
}

#[test]
fn a_pmds_scheduler_is_recorded_once_at_a_time_and_read_once() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    for (params, named) in [
        (json!({}), "`pmd` is missing: it must be a whole number from 0 to 0"),
        (json!({"pmd": 1}), "`pmd` must be a whole number from 0 to 0, not 1"),
        (json!({"pmd": -1}), "`pmd`"),
        (json!({"pmd": "0"}), "`pmd`"),
        (json!({"pmd": 0, "colour": 1}), "\"colour\""),
    ] {
        for method in ["pmd_trace_start", "pmd_trace_read"] {
            let (code, message) = daemon.refusal(method, params.clone());
            assert!(code == INVALID_PARAMS && message.contains(named), "{method}: {message}");
        }
    }
    for events in [json!(0), json!(131_073), json!(u64::MAX), json!(1.5), json!("many")] {
        let params = json!({"pmd": 0, "events": events});
        let (code, message) = daemon.refusal("pmd_trace_start", params);
        assert!(code == INVALID_PARAMS && message.contains("`events` must be"), "{message}");
        assert!(message.contains("from 1 to 131072"), "{message}");
    }
    let nothing = daemon.refusal("pmd_trace_read", json!({"pmd": 0}));
    assert!(nothing.0 == REFUSED && nothing.1.contains("records nothing"), "{nothing:?}");

    let started = daemon.call("pmd_trace_start", json!({"pmd": 0}));
    assert_eq!(started, json!({"pmd": 0, "events": 65536}));
    let (code, message) = daemon.refusal("pmd_trace_start", json!({"pmd": 0, "events": 5}));
    assert!(code == REFUSED && message.contains("PMD 0 has a recording already"), "{message}");
    // What is set ends it.
    daemon.call("tenant_set", json!({"tenant": "vm2", "weight": 3}));
    let read = daemon.call("pmd_trace_read", json!({"pmd": 0}));
    assert_eq!((&read["pmd"], &read["recording"]["ended"]), (&json!(0), &json!("settings")));
    assert_eq!(read["tenants"], json!({"1": "vm1", "2": "vm2"}));
    let weights = read["recording"]["start"]["tenants"].as_array().unwrap();
    assert!(weights.iter().all(|tenant| tenant["weight_thousandths"] == 1000), "as it began");
    assert!(read["tsc_hz"].as_u64().unwrap() > 100_000_000);
    assert_eq!(daemon.refusal("pmd_trace_read", json!({"pmd": 0})), nothing);
    // One that is never read costs nobody an orderly end.
    daemon.call("pmd_trace_start", json!({"pmd": 0, "events": 131_072}));
    daemon.stop();
}

#[test]
fn the_exact_match_table_is_toggled_on_the_running_switch() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), "[cache]\nexact_match = false\n");
    assert_eq!(daemon.call("cache_get", json!({})), json!({"exact_match": false}));
    let set = daemon.call("cache_set", json!({"exact_match": true}));
    assert_eq!(set, json!({"exact_match": true}));
    assert_eq!(daemon.call("cache_get", json!({})), json!({"exact_match": true}));
    let (code, message) = daemon.refusal("cache_set", json!({"exact_match": "off"}));
    assert!(code == INVALID_PARAMS && message.contains("`exact_match`"), "{message}");
    daemon.stop();
}

#[test]
fn protection_is_toggled_on_the_running_switch() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), "[scheduler]\nprotection = false\n");
    assert_eq!(daemon.call("protection_get", json!({})), json!({"enabled": false}));
    daemon.call("protection_set", json!({"enabled": true}));
    assert_eq!(daemon.call("protection_get", json!({})), json!({"enabled": true}));
    assert_eq!(daemon.refusal("protection_set", json!({"enabled": "on"})).0, INVALID_PARAMS);
    daemon.stop();
}

#[test]
fn the_refill_is_changed_back_and_forth_on_the_running_switch() {
    let dir = directory();
    let daemon =
        Daemon::start(dir.path(), "[scheduler]\nrefill = 'coordinator'\nperiod_us = 500\n");
    let started = json!({
        "refill": "coordinator", "period_us": 500, "boost": 0.85, "quantum_cycles": 5000,
        "cap_cycles": 15_000, "floor_cycles": 1_000_000, "horizon_cycles": 1_000_000
    });
    assert_eq!(daemon.call("scheduler_get", json!({})), started);
    let cap = |daemon: &Daemon, tenant| {
        daemon.call("tenant_get", json!({"tenant": tenant}))["cap_cycles"].clone()
    };
    daemon.call("tenant_set", json!({"tenant": "own", "cap_cycles": 12_000}));
    daemon.call("tenant_set", json!({"tenant": "plain"}));
    assert_eq!((cap(&daemon, "own"), cap(&daemon, "plain")), (json!(12_000), json!(15_000)));
    for _ in 0..3 {
        let local = daemon.call("scheduler_set", json!({"refill": "local"}));
        assert_eq!((&local["refill"], &local["cap_cycles"]), (&json!("local"), &json!(20_000)));
        assert_eq!((cap(&daemon, "own"), cap(&daemon, "plain")), (json!(12_000), json!(20_000)));
        assert_eq!(daemon.call("scheduler_set", json!({"refill": "coordinator"})), started);
    }
    let swept = daemon.call(
        "scheduler_set",
        json!({"period_us": 1, "boost": 1.1, "quantum_cycles": 1000, "cap_cycles": 2000, "refill": "local"}),
    );
    assert_eq!((&swept["boost"], &swept["cap_cycles"]), (&json!(1.1), &json!(2000)));
    daemon.stop();
}

#[test]
fn a_refused_knob_of_the_scheduler_is_named_and_changes_nothing() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), "");
    daemon.call("tenant_set", json!({"tenant": "vm1", "cap_cycles": 12_000}));
    let before = daemon.call("scheduler_get", json!({}));
    for (params, wanted) in [
        (json!({"refill": "remote"}), "`refill`: a refill is \"local\" or \"coordinator\""),
        (json!({"boost": 0}), "`boost`: boost is 0; it must be 0.001 to 2"),
        (json!({"boost": 0.8501}), "at most three decimals"),
        (json!({"period_us": 0}), "period_us is 0; it must be 1 to 100000"),
        (json!({"period_us": 100_001}), "period_us is 100001; it must be 1 to 100000"),
        (json!({"quantum_cycles": 0}), "quantum_cycles is 0; it must be 1 to"),
        (json!({"cap_cycles": 9999}), "cap_cycles is 9999; it must be 10000 (two quanta) to"),
        (json!({"quantum_cycles": 6001}), "tenant \"vm1\": cap_cycles is 12000; it must be 12002"),
        (json!({"horizon_cycles": 5}), "horizon_cycles is 5; it must be at least 1000000"),
        (json!({"refil": "local"}), "unknown parameter \"refil\""),
    ] {
        let (_, message) = daemon.refusal("scheduler_set", params);
        assert!(message.contains(wanted), "{message} lacks {wanted}");
        assert_eq!(daemon.call("scheduler_get", json!({})), before);
    }
    daemon.stop();
}

#[test]
fn every_listed_method_exists_and_others_do_not() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), "");
    let methods = daemon.call("rpc_get_methods", json!({}));
    for method in methods.as_array().unwrap() {
        // A parameter that no method has: the answer says so, unless another one is missing.
        let (code, _) = daemon.refusal(method.as_str().unwrap(), json!({"nonsense": 1}));
        assert_eq!(code, INVALID_PARAMS, "{method}");
    }
    assert_eq!(daemon.refusal("no_such_method", json!({})).0, -32601);
    assert!(daemon.call("version", json!({}))["version"].is_string());
    daemon.stop();
}

#[test]
fn a_thousand_ports_and_tenants_later_nothing_has_leaked() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), "[[bridges]]\nname = 'br0'\n");
    let churn = |rounds| {
        for round in 0..rounds {
            let name = format!("p{round}");
            daemon.call("port_add", json!({"bridge": "br0", "name": name}));
            daemon.call("port_remove", json!({"bridge": "br0", "name": name}));
        }
    };
    churn(50);
    let before = (daemon.descriptors(), daemon.resident_bytes());
    // More than there is room for at once, so that each must have been given back.
    churn(1100);
    for round in 0..1100 {
        let tenant = json!({"tenant": format!("t{round}")});
        daemon.call("tenant_set", tenant.clone());
        daemon.call("tenant_remove", tenant);
    }
    let after = (daemon.descriptors(), daemon.resident_bytes());
    assert!(after.0 <= before.0 + 2, "{before:?} {after:?}");
    assert!(after.1 <= before.1 + (16 << 20), "{before:?} {after:?}");
    daemon.stop();
}

#[test]
fn a_line_through_socat_sets_a_weight() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    let line =
        r#"{"jsonrpc":"2.0","id":1,"method":"tenant_set","params":{"tenant":"vm1","weight":4}}"#;
    let input = dir.path().join("line");
    fs::write(&input, line).unwrap();
    let mut socat = Command::new("socat");
    socat.args(["-t", "30", "-"]);
    socat.arg(format!("UNIX-CONNECT:{}", daemon.rpc_socket().display()));
    let Some(output) = peer::run(socat.stdin(File::open(input).unwrap())) else { return };
    let reply: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(reply["result"]["weight"], 4.0);
    daemon.stop();
}

/// Runs `ovs-ofctl -O OpenFlow13 VERB BRIDGE ARGS`.
fn ovs_ofctl(daemon: &Daemon, verb: &str, rest: &[&str]) -> Option<std::process::Output> {
    let bridge = format!("unix:{}/br0.mgmt", daemon.run_dir().display());
    let mut command = Command::new("ovs-ofctl");
    command.args(["-O", "OpenFlow13", "-t", "30", verb, &bridge]).args(rest);
    peer::run(&mut command)
}

#[test]
fn ovs_ofctl_drives_the_tables() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    let Some(show) = ovs_ofctl(&daemon, "show", &[]) else { return };
    let show = text(&show);
    let datapath_id = &daemon.call("bridge_list", json!({}))[0]["datapath_id"];
    assert!(show.contains(datapath_id.as_str().unwrap()), "{show}");
    assert!(show.contains("1(vm1)") && show.contains("2(vm2)"), "{show}");

    let run = |verb, rest: &[&str]| text(&ovs_ofctl(&daemon, verb, rest).unwrap());
    run("add-flow", &["in_port=vm1,actions=output:vm2"]);
    run("add-flow", &["priority=7,in_port=2,tcp,tp_dst=80,actions=mod_nw_dst:10.0.0.1,1"]);
    run("add-flow", &["table=1,actions=NORMAL"]);
    assert_eq!(daemon.call("bridge_list", json!({}))[0]["flows"], 3);
    let dump = run("dump-flows", &["--no-stats", "--names"]);
    assert!(dump.contains("in_port=vm1 actions=output:vm2"), "{dump}");
    assert!(dump.contains("priority=7,tcp,in_port=vm2,tp_dst=80"), "{dump}");
    assert!(run("dump-aggregate", &[]).contains("flow_count=3"));
    assert!(run("dump-ports", &[]).contains("2 ports"));
    assert!(run("dump-tables", &[]).contains("active=2"));
    assert!(run("dump-desc", &[]).contains("Tollgate"));
    run("del-flows", &["in_port=vm1"]);
    assert_eq!(daemon.call("bridge_list", json!({}))[0]["flows"], 2);
    run("del-flows", &[]);
    assert_eq!(daemon.call("bridge_list", json!({}))[0]["flows"], 0);

    let refused = ovs_ofctl(&daemon, "add-flow", &["actions=group:1"]).unwrap();
    assert!(!refused.status.success());
    daemon.stop();
}

#[test]
fn a_bridge_takes_as_many_flows_as_it_was_given_room_for() {
    let dir = directory();
    let config = r#"
[[bridges]]
name = "br0"
flows_per_table = 2
overflow = "evict"
"#;
    let daemon = Daemon::start(dir.path(), config);
    let add = |flow| ovs_ofctl(&daemon, "add-flow", &[flow]);
    let Some(first) = add("priority=1,idle_timeout=60,actions=drop") else { return };
    assert!(first.status.success());
    assert!(add("priority=2,actions=drop").unwrap().status.success());
    assert!(add("priority=3,actions=drop").unwrap().status.success(), "1 makes room");
    let refused = add("priority=4,actions=drop").unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("TABLE_FULL"), "{message}");
    for (params, named) in [
        (json!({"name": "br1", "flows_per_table": 0}), "`flows_per_table`"),
        (json!({"name": "br1", "overflow": "explode"}), "`overflow`"),
    ] {
        let (code, message) = daemon.refusal("bridge_add", params);
        assert_eq!(code, INVALID_PARAMS);
        assert!(message.contains(named), "{message}");
    }
    daemon.call("bridge_add", json!({"name": "br1", "flows_per_table": 9, "overflow": "refuse"}));
    daemon.stop();
}

#[test]
fn a_packet_is_traced_and_nothing_is_learned_from_it() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    let flow = "priority=7,tcp,nw_dst=10.0.0.0/24,actions=set_field:10.0.1.1->ip_dst,NORMAL";
    if ovs_ofctl(&daemon, "add-flow", &[flow]).is_none() {
        return;
    }
    let trace =
        daemon.call("trace", json!({"bridge": "br0", "flow": "in_port=vm1,tcp,nw_dst=10.0.0.2"}));
    assert_eq!(
        trace["steps"],
        json!([{
            "depth": 0,
            "table": 0,
            "rule": "priority=7,tcp,nw_dst=10.0.0.0/24",
            "cookie": "0x0",
            "actions": ["set_field:10.0.1.1->ip_dst", "NORMAL"],
        }])
    );
    assert_eq!(trace["datapath_actions"], json!(["set_field:10.0.1.1->ip_dst", "output:vm2"]));
    assert_eq!((&trace["tenant"], &trace["verdict"]), (&json!("vm1"), &json!("sent to 1 port")));
    let output = &trace["outputs"][0];
    assert_eq!(output["port"], "vm2");
    let bytes = output["bytes_hex"].as_str().unwrap();
    assert!(bytes.contains("0a000101"), "{bytes}");
    // The same packet by its bytes, which the first trace has shown.
    let again = bytes.replace("0a000101", "0a000002");
    let by_bytes = json!({"bridge": "br0", "packet_hex": again, "in_port": "vm1"});
    assert_eq!(daemon.call("trace", by_bytes)["megaflow"], trace["megaflow"]);
    assert_eq!(daemon.call("fdb_list", json!({"bridge": "br0"})), json!([]));
    assert_eq!(daemon.call("fdb_flush", json!({"bridge": "br0"})), json!({"flushed": 0}));
    let none = json!({"megaflows": [], "more": false});
    assert_eq!(daemon.call("megaflow_list", json!({})), none);
    assert_eq!(daemon.call("megaflow_list", json!({"bridge": "br0", "limit": 5})), none);
    for (method, params, code, named) in [
        ("trace", json!({"bridge": "br0"}), INVALID_PARAMS, "`flow`"),
        (
            "trace",
            json!({"bridge": "br0", "flow": "tcp", "in_port": "vm1"}),
            INVALID_PARAMS,
            "`flow`",
        ),
        (
            "trace",
            json!({"bridge": "br0", "packet_hex": "0x", "in_port": "1"}),
            INVALID_PARAMS,
            "`packet_hex`",
        ),
        ("trace", json!({"bridge": "br9", "flow": "in_port=1"}), REFUSED, "br9"),
        ("trace", json!({"bridge": "br0", "flow": "in_port=9"}), REFUSED, "\"9\""),
        ("trace", json!({"bridge": "br0", "flow": "in_prot=1"}), REFUSED, "in_prot"),
        ("megaflow_list", json!({"bridge": "br9"}), REFUSED, "br9"),
        ("megaflow_list", json!({"limit": 0}), INVALID_PARAMS, "`limit`"),
        ("fdb_list", json!({}), INVALID_PARAMS, "`bridge`"),
        ("fdb_flush", json!({"bridge": "br9"}), REFUSED, "br9"),
    ] {
        let (refused, message) = daemon.refusal(method, params);
        assert_eq!(refused, code, "{message}");
        assert!(message.contains(named), "{message}");
    }
    daemon.stop();
}
