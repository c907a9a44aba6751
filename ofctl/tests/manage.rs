//! The management commands against a server with canned answers: which method and parameters go
//! out, and what is printed.

mod support;

use std::io::Write;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};
use support::rpc::serve;
use support::{command, ofctl};
use tempfile::tempdir;

/// Method and parameters that a command sends.
fn sent(arguments: &[&str]) -> (String, Value) {
    let dir = tempdir().unwrap();
    let requests = serve(dir.path(), json!({"result": {}}));
    ofctl(dir.path(), arguments).success();
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 1, "{arguments:?}");
    (requests[0]["method"].as_str().unwrap().to_owned(), requests[0]["params"].clone())
}

#[test]
fn every_command_calls_its_method_with_the_parameters_given_and_no_others() {
    for (arguments, method, params) in [
        (&["bridge", "add", "br0"][..], "bridge_add", json!({"name": "br0"})),
        (&["bridge", "remove", "br0"], "bridge_remove", json!({"name": "br0"})),
        (&["bridge", "list"], "bridge_list", json!({})),
        (&["port", "add", "br0", "vm1"], "port_add", json!({"bridge": "br0", "name": "vm1"})),
        (
            &[
                "port",
                "add",
                "br0",
                "vm1",
                "--tenant",
                "t",
                "--mode",
                "connect",
                "--socket",
                "/x/y",
                "--ofport",
                "9",
                "--queue-pairs",
                "2",
                "--pmd",
                "0",
            ],
            "port_add",
            json!({
                "bridge": "br0", "name": "vm1", "tenant": "t", "mode": "connect",
                "socket": "/x/y", "ofport": 9, "queue_pairs": 2, "pmd": 0
            }),
        ),
        (&["port", "remove", "br0", "vm1"], "port_remove", json!({"bridge": "br0", "name": "vm1"})),
        (&["port", "list"], "port_list", json!({})),
        (&["port", "list", "br0"], "port_list", json!({"bridge": "br0"})),
        (
            &["tenant", "set", "t", "--weight", "1.71", "--controller-pps", "0"],
            "tenant_set",
            json!({"tenant": "t", "weight": 1.71, "controller_pps": 0}),
        ),
        (&["tenant", "set", "t"], "tenant_set", json!({"tenant": "t"})),
        (
            &[
                "tenant",
                "set",
                "t",
                "--cap-cycles=20000",
                "--floor-cycles=1000000",
                "--rx-overrun=mark-then-drop",
                "--mark-depth-cycles=5000",
                "--setups-per-second=10",
                "--megaflows=7",
                "--subtables=3",
                "--arena-bytes=100000",
                "--exact-entries=99",
            ],
            "tenant_set",
            json!({
                "tenant": "t", "cap_cycles": 20000, "floor_cycles": 1_000_000,
                "rx_overrun": "mark-then-drop", "mark_depth_cycles": 5000, "setups_per_second": 10,
                "megaflows": 7, "subtables": 3, "arena_bytes": 100_000, "exact_entries": 99
            }),
        ),
        (&["tenant", "get", "t"], "tenant_get", json!({"tenant": "t"})),
        (&["tenant", "remove", "t"], "tenant_remove", json!({"tenant": "t"})),
        (&["tenant", "list"], "tenant_list", json!({})),
        (&["protection", "on"], "protection_set", json!({"enabled": true})),
        (&["protection", "off"], "protection_set", json!({"enabled": false})),
        (&["protection", "get"], "protection_get", json!({})),
        (&["scheduler", "get"], "scheduler_get", json!({})),
        (
            &["scheduler", "set", "--refill=coordinator", "--period-us=1", "--boost=0.85"],
            "scheduler_set",
            json!({"refill": "coordinator", "period_us": 1, "boost": 0.85}),
        ),
        (
            &[
                "scheduler",
                "set",
                "--quantum-cycles=1000",
                "--cap-cycles=2000",
                "--floor-cycles=5000",
                "--horizon-cycles=6000",
            ],
            "scheduler_set",
            json!({
                "quantum_cycles": 1000, "cap_cycles": 2000, "floor_cycles": 5000,
                "horizon_cycles": 6000
            }),
        ),
        (&["pmd", "stats"], "pmd_stats", json!({})),
        (&["pmd", "stages"], "pmd_stages", json!({"seconds": 1.0})),
        (
            &["pmd", "stages", "1", "--seconds", "0.5"],
            "pmd_stages",
            json!({"pmd": 1, "seconds": 0.5}),
        ),
        (&["pmd", "trace", "start", "1"], "pmd_trace_start", json!({"pmd": 1})),
        (
            &["pmd", "trace", "start", "0", "--events=70"],
            "pmd_trace_start",
            json!({"pmd": 0, "events": 70}),
        ),
        (&["--json", "pmd", "trace", "read", "0"], "pmd_trace_read", json!({"pmd": 0})),
        (
            &["trace", "br0", "in_port=vm1,tcp,nw_dst=10.0.0.2"],
            "trace",
            json!({"bridge": "br0", "flow": "in_port=vm1,tcp,nw_dst=10.0.0.2"}),
        ),
        (
            &["trace", "br0", "--in-port", "vm1", "ff:ff:ff:ff:ff:ff 00:00:00:00:00:01 0806"],
            "trace",
            json!({"bridge": "br0", "in_port": "vm1", "packet_hex": "ffffffffffff0000000000010806"}),
        ),
        (&["dump-megaflows"], "megaflow_list", json!({})),
        (&["dump-megaflows", "br0"], "megaflow_list", json!({"bridge": "br0"})),
        (&["fdb", "show", "br0"], "fdb_list", json!({"bridge": "br0"})),
        (&["fdb", "flush", "br0"], "fdb_flush", json!({"bridge": "br0"})),
        (
            &["controller", "set", "br0", "tcp:127.0.0.1:6653", "punix:/x"],
            "controller_set",
            json!({"bridge": "br0", "targets": ["tcp:127.0.0.1:6653", "punix:/x"]}),
        ),
        (&["controller", "del", "br0"], "controller_set", json!({"bridge": "br0", "targets": []})),
        (&["controller", "get", "br0"], "controller_get", json!({"bridge": "br0"})),
        (&["version"], "version", json!({})),
    ] {
        assert_eq!(sent(arguments), (method.to_owned(), params), "{arguments:?}");
    }
}

#[test]
fn changes_are_silent_and_queries_print_tables() {
    let dir = tempdir().unwrap();
    serve(
        dir.path(),
        json!({"result": [
            {"name": "br0", "datapath_id": "0000000000000abc", "ports": 2, "flows": 10},
            {"name": "longer", "datapath_id": "0000000000000abd", "ports": 0, "flows": 0},
        ]}),
    );
    assert_eq!(ofctl(dir.path(), &["bridge", "add", "br0"]).success(), "");
    assert_eq!(
        ofctl(dir.path(), &["bridge", "list"]).success(),
        "BRIDGE  DATAPATH-ID       PORTS  FLOWS\n\
         br0     0000000000000abc      2     10\n\
         longer  0000000000000abd      0      0\n"
    );
}

#[test]
fn top_reads_the_counters_once_more_than_it_prints() {
    let dir = tempdir().unwrap();
    let requests = serve(dir.path(), json!({"result": {"pmds": [{"pmd": 0}]}}));
    let arguments = ["top", "--interval", "0.1", "--count", "2"];
    let text = ofctl(dir.path(), &arguments).success();
    assert_eq!(text.matches("pmd 0 on core").count(), 2, "{text}");
    assert!(text.contains("\n\npmd 0"), "an empty line between two tables: {text}");
    let requests = requests.lock().unwrap();
    let methods: Vec<&str> =
        requests.iter().filter_map(|request| request["method"].as_str()).collect();
    assert_eq!(methods, ["pmd_stats", "port_list"].repeat(3));
}

#[test]
fn an_interval_or_count_that_makes_no_sense_is_refused() {
    let dir = tempdir().unwrap();
    for (option, value, wanted) in [
        ("--interval", "0", "seconds from 0.1 to 3600"),
        ("--interval", "-1", "seconds from 0.1 to 3600"),
        ("--interval", "nan", "seconds from 0.1 to 3600"),
        ("--interval", "soon", "seconds from 0.1 to 3600"),
        ("--count", "0", "1.."),
    ] {
        let outcome = ofctl(dir.path(), &["top", option, value]);
        assert!(!outcome.ok && outcome.err.contains(wanted), "{option} {value}: {}", outcome.err);
    }
}

#[test]
fn json_is_the_result_as_it_came() {
    let dir = tempdir().unwrap();
    let result = json!([{"tenant": "t", "weight": 1.71, "unheard_of": [1, 2]}]);
    serve(dir.path(), json!({ "result": result }));
    let text = ofctl(dir.path(), &["--json", "tenant", "list"]).success();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), result);
}

#[test]
fn a_refusal_is_its_message_in_one_line() {
    let dir = tempdir().unwrap();
    let message = "tenant: no room for another";
    serve(dir.path(), json!({"error": {"code": -32602, "message": message}}));
    let failure = ofctl(dir.path(), &["tenant", "set", "t", "--weight", "2"]).failure();
    assert_eq!(failure, format!("ofctl: {message}"));
}

#[test]
fn without_a_daemon_the_socket_is_named() {
    let dir = tempdir().unwrap();
    let failure = ofctl(dir.path(), &["port", "list"]).failure();
    let socket = dir.path().join("rpc.sock");
    assert!(failure.contains(socket.to_str().unwrap()), "{failure}");
    assert!(failure.contains("is switchd running"), "{failure}");
}

#[test]
fn a_switch_that_closes_at_once_is_a_failure_and_not_a_broken_pipe_on_stdout() {
    let dir = tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("rpc.sock")).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    // Whether the write or the read meets the closed socket is a race: both must fail.
    for _ in 0..50 {
        let failure = ofctl(dir.path(), &["port", "list"]).failure();
        assert!(failure.contains("the switch broke off during port_list"), "{failure}");
    }
}

#[test]
fn the_reason_of_a_switch_that_closes_at_once_is_shown() {
    let dir = tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("rpc.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let reply =
                json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "too many"}});
            stream.unwrap().write_all(format!("{reply}\n").as_bytes()).unwrap();
        }
    });
    for _ in 0..50 {
        assert_eq!(ofctl(dir.path(), &["port", "list"]).failure(), "ofctl: too many");
    }
}

#[test]
fn a_reader_of_the_output_that_goes_away_is_no_failure() {
    let dir = tempdir().unwrap();
    serve(dir.path(), json!({"result": []}));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(dir.path(), &["port", "list"]).stdout(writer).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_weight_that_is_no_number_or_out_of_range_is_refused_before_it_is_sent() {
    let dir = tempdir().unwrap();
    let requests = serve(dir.path(), json!({"result": {}}));
    for weight in ["nan", "inf", "-inf", "-1", "0", "1001", "1e400", "much"] {
        for arguments in
            [vec!["--weight".to_owned(), weight.to_owned()], vec![format!("--weight={weight}")]]
        {
            let mut all = vec!["tenant", "set", "vm1"];
            all.extend(arguments.iter().map(String::as_str));
            let outcome = ofctl(dir.path(), &all);
            assert!(!outcome.ok, "{all:?}");
            assert!(outcome.err.contains("--weight"), "{all:?}: {}", outcome.err);
            assert!(outcome.err.contains("from 0.001 to 1000"), "{all:?}: {}", outcome.err);
        }
    }
    assert!(requests.lock().unwrap().is_empty());
    for weight in ["0.001", "1000"] {
        ofctl(dir.path(), &["tenant", "set", "vm1", "--weight", weight]).success();
    }
}

#[test]
fn a_pmd_or_a_time_out_of_range_is_refused_with_the_range() {
    let dir = tempdir().unwrap();
    let requests = serve(dir.path(), json!({"result": {}}));
    for seconds in ["0", "0.09", "-1", "30.1", "nan", "inf", "long"] {
        let outcome = ofctl(dir.path(), &["pmd", "stages", "--seconds", seconds]);
        assert_eq!(outcome.code, Some(1), "{seconds}");
        let message = &outcome.err;
        assert!(message.contains("--seconds") && message.contains("from 0.1 to 30"), "{message}");
    }
    for pmd in ["-1", "65536", "all"] {
        let outcome = ofctl(dir.path(), &["pmd", "stages", pmd]);
        assert_eq!(outcome.code, Some(1), "{pmd}");
        assert!(outcome.err.contains("[PMD]"), "{}", outcome.err);
    }
    assert!(requests.lock().unwrap().is_empty());
    let dir = tempdir().unwrap();
    let refusal = "parameter `pmd` must be a whole number from 0 to 0, not 7";
    serve(dir.path(), json!({"error": {"code": -32602, "message": refusal}}));
    let outcome = ofctl(dir.path(), &["pmd", "stages", "7"]);
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.failure(), format!("ofctl: {refusal}"));
}

#[test]
fn tenant_set_says_what_is_in_force_and_whether_the_tenant_has_ports() {
    let dir = tempdir().unwrap();
    serve(dir.path(), json!({"result": {"tenant": "vm1", "weight": 1.0, "ports": []}}));
    let said = ofctl(dir.path(), &["tenant", "set", "vm1"]).success();
    assert_eq!(said, "tenant vm1: weight 1, no ports\n");
    let dir = tempdir().unwrap();
    serve(dir.path(), json!({"result": {"tenant": "vm1", "weight": 1.71, "ports": ["a", "b"]}}));
    let said = ofctl(dir.path(), &["tenant", "set", "vm1", "--weight", "1.71"]).success();
    assert_eq!(said, "tenant vm1: weight 1.71, ports a,b\n");
}

#[test]
fn usage_does_not_show_the_run_directory_as_required_where_the_variable_is_set() {
    let dir = tempdir().unwrap();
    let outcome = ofctl(dir.path(), &["tenant", "get"]);
    assert!(!outcome.ok);
    assert!(outcome.err.contains("Usage: ofctl tenant get"), "{}", outcome.err);
    assert!(!outcome.err.contains("--run-dir"), "{}", outcome.err);
}

/// A capture file with this magic number and these packets, in the order of bytes that the number
/// is given in.
fn capture(magic: [u8; 4], link_type: u8, packets: &[(&[u8], u32)]) -> Vec<u8> {
    let number = |value: u32| match magic[0] {
        0xa1 => value.to_be_bytes(),
        _ => value.to_le_bytes(),
    };
    let mut file = magic.to_vec();
    file.extend([0; 16]);
    file.extend(number(link_type.into()));
    for (packet, length) in packets {
        file.extend([0; 8]);
        file.extend(number(packet.len().try_into().unwrap()));
        file.extend(number(*length));
        file.extend(*packet);
    }
    file
}

#[test]
fn every_packet_of_a_capture_is_traced() {
    for magic in [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0x4d, 0x3c, 0xb2, 0xa1]] {
        let dir = tempdir().unwrap();
        let requests = serve(dir.path(), json!({"result": {"verdict": "dropped: no_rule"}}));
        let path = dir.path().join("capture");
        std::fs::write(&path, capture(magic, 1, &[(&[1; 20], 20), (&[2; 30], 30)])).unwrap();
        let arguments = ["trace", "br0", "--in-port", "vm1", "--pcap", path.to_str().unwrap()];
        let text = ofctl(dir.path(), &arguments).success();
        assert!(text.contains("packet 1, 20 bytes\n"), "{text}");
        assert!(text.contains("packet 2, 30 bytes\n"), "{text}");
        let sent: Vec<String> = requests
            .lock()
            .unwrap()
            .iter()
            .map(|request| request["params"]["packet_hex"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(sent, ["01".repeat(20), "02".repeat(30)]);
    }
}

#[test]
fn a_damaged_capture_is_refused_with_the_packet_that_is() {
    let dir = tempdir().unwrap();
    serve(dir.path(), json!({"result": {}}));
    let path = dir.path().join("capture");
    let magic = [0xd4, 0xc3, 0xb2, 0xa1];
    let good = capture(magic, 1, &[(&[1; 20], 20)]);
    let huge = [&good[..], &[0; 8], &[0xff; 8]].concat();
    for (file, reason) in [
        (b"short".to_vec(), "no capture file: shorter than its header"),
        (vec![7; 30], "no pcap file"),
        ([&[0x0a, 0x0d, 0x0d, 0x0a], &[0; 30][..]].concat(), "a pcapng file; only pcap is read"),
        (capture(magic, 113, &[]), "captured on something that is not Ethernet (link type 113)"),
        (good[..good.len() - 1].to_vec(), "packet 1: the file ends within a packet"),
        ([&good[..], &[0; 5]].concat(), "packet 2: the file ends within a packet"),
        (huge, "packet 2: 4294967295 bytes are too many for a packet"),
        (capture(magic, 1, &[(&[1; 20], 60)]), "packet 1: only 20 of 60 bytes were captured"),
    ] {
        std::fs::write(&path, file).unwrap();
        let arguments = ["trace", "br0", "--in-port", "1", "--pcap", path.to_str().unwrap()];
        let outcome = ofctl(dir.path(), &arguments);
        assert!(!outcome.ok && outcome.err.contains(reason), "{reason}: {}", outcome.err);
    }
}

#[test]
fn a_trace_says_what_it_lacks() {
    let dir = tempdir().unwrap();
    serve(dir.path(), json!({"result": {}}));
    let frame = "ffffffffffff0000000000010806";
    for (arguments, reason) in [
        (&["trace", "br0", frame][..], "a frame does not say where it comes in: --in-port PORT"),
        (&["trace", "br0", "--pcap", "x"], "a capture file does not say where its packets come in"),
        (
            &["trace", "br0", "tcp", "--in-port", "vm1"],
            "a flow names its port itself: in_port=vm1,tcp",
        ),
        (&["trace", "br0"], "required"),
        (&["trace", "br0", "tcp", "--pcap", "x"], "cannot be used with"),
    ] {
        let outcome = ofctl(dir.path(), arguments);
        assert!(!outcome.ok && outcome.err.contains(reason), "{arguments:?}: {}", outcome.err);
    }
}
