//! The flow commands against a little switch of our own codec.

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;

use support::switch::{Behaviour, serve};
use support::{ofctl, ofctl_with_input};
use tempfile::tempdir;
use tollgate_openflow::FlowCommand;

#[test]
fn flows_are_added_by_name_and_number_and_dumped_as_ovs_ofctl_does() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    let run = |arguments: &[&str]| ofctl(dir.path(), arguments).success();
    assert_eq!(run(&["add-flow", "br0", "in_port=vm1,actions=output:\"vm-2\""]), "");
    assert_eq!(run(&["add-flow", "br0", "table=1,priority=7,tcp,tp_dst=80,actions=1"]), "");
    assert_eq!(
        run(&["dump-flows", "br0"]),
        "OFPST_FLOW reply (OF1.3) (xid=0x2):\n \
         cookie=0x0, duration=1.500s, table=0, n_packets=10, n_bytes=640, in_port=1 actions=output:2\n \
         cookie=0x0, duration=1.500s, table=1, n_packets=10, n_bytes=640, priority=7,tcp,tp_dst=80 actions=output:1\n"
    );
    assert_eq!(
        run(&["--names", "--no-stats", "dump-flows", "br0"]),
        " in_port=vm1 actions=output:\"vm-2\"\n table=1, priority=7,tcp,tp_dst=80 actions=output:vm1\n"
    );
    assert_eq!(
        run(&["dump-flows", "br0", "table=1", "--no-stats"]),
        " table=1, priority=7,tcp,tp_dst=80 actions=output:1\n"
    );
    assert_eq!(
        run(&["dump-aggregate", "br0"]),
        "OFPST_AGGREGATE reply (OF1.3) (xid=0x2): packet_count=3 byte_count=4 flow_count=2\n"
    );
}

#[test]
fn dumps_are_sorted_by_priority_or_field_with_missing_fields_last() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    let run = |arguments: &[&str]| ofctl(dir.path(), arguments).success();
    for flow in ["priority=2,ip,nw_src=1.1.1.1", "priority=3", "priority=1,ip,nw_src=9.9.9.9"] {
        run(&["add-flow", "br0", &format!("{flow},actions=drop")]);
    }
    let priorities = |option: &str| -> Vec<char> {
        let text = run(&["--no-stats", option, "dump-flows", "br0"]);
        text.lines().map(|line| line.trim().chars().nth("priority=".len()).unwrap()).collect()
    };
    assert_eq!(priorities("--sort"), ['1', '2', '3']);
    assert_eq!(priorities("--rsort"), ['3', '2', '1']);
    assert_eq!(priorities("--sort=nw_src"), ['2', '1', '3']);
    assert_eq!(priorities("--rsort=nw_src"), ['1', '2', '3']);
    let failure = ofctl(dir.path(), &["--sort=colour", "dump-flows", "br0"]).failure();
    assert_eq!(failure, "ofctl: --sort=colour: unknown field colour");
}

#[test]
fn show_and_dump_ports_print_as_ovs_ofctl_does() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    let run = |arguments: &[&str]| ofctl(dir.path(), arguments).success();
    let text = run(&["show", "br0"]);
    assert!(text.starts_with(
        "OFPT_FEATURES_REPLY (OF1.3) (xid=0x2): dpid:0000000000000abc\n\
         n_tables:2, n_buffers:0\n\
         capabilities: FLOW_STATS TABLE_STATS PORT_STATS\n\
         OFPST_PORT_DESC reply (OF1.3) (xid=0x3):\n \
         1(vm1): addr:02:00:00:00:00:01\n     config:     0\n     state:      LIVE\n     speed: 0 Mbps now, 0 Mbps max\n \
         2(vm-2): "
    ), "{text}");
    assert!(text.contains("\n LOCAL(br0): "), "{text}");
    assert!(text.ends_with("frags=normal miss_send_len=0\n"), "{text}");
    let one = "  port  1: rx pkts=1, bytes=60, drop=0, errs=0, frame=0, over=0, crc=?\n           \
               tx pkts=0, bytes=0, drop=0, errs=0, coll=0\n           duration=9s\n";
    assert_eq!(
        run(&["dump-ports", "br0", "vm1"]),
        format!("OFPST_PORT reply (OF1.3) (xid=0x3): 1 ports\n{one}")
    );
    assert_eq!(
        run(&["dump-ports", "br0", "1"]),
        format!("OFPST_PORT reply (OF1.3) (xid=0x2): 1 ports\n{one}")
    );
    for port in ["vm9", "9"] {
        let failure = ofctl(dir.path(), &["dump-ports", "br0", port]).failure();
        assert!(failure.contains(&format!("the bridge has no port {port}")), "{failure}");
    }
}

#[test]
fn deletions_and_modifications_send_the_command_that_was_meant() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    let run = |arguments: &[&str]| ofctl(dir.path(), arguments).success();
    run(&["del-flows", "br0"]);
    run(&["del-flows", "br0", "in_port=vm1"]);
    run(&["--strict", "del-flows", "br0", "priority=3,in_port=vm1"]);
    run(&["mod-flows", "br0", "in_port=vm1,actions=drop"]);
    run(&["mod-flows", "--strict", "br0", "priority=3,in_port=vm1,actions=drop"]);
    let commands: Vec<FlowCommand> = sent.lock().unwrap().iter().map(|f| f.command).collect();
    assert_eq!(
        commands,
        [
            FlowCommand::Delete,
            FlowCommand::Delete,
            FlowCommand::DeleteStrict,
            FlowCommand::Modify,
            FlowCommand::ModifyStrict,
        ]
    );
}

#[test]
fn a_file_of_flows_goes_from_disk_or_standard_input() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    let path = dir.path().join("flows.txt");
    let text = "# two flows\nin_port=vm1,actions=2\n\nip,actions=drop # why\ndelete in_port=2\n";
    fs::write(&path, text).unwrap();
    ofctl(dir.path(), &["add-flows", "br0", path.to_str().unwrap()]).success();
    assert_eq!(sent.lock().unwrap().len(), 3);
    ofctl_with_input(dir.path(), &["add-flows", "br0", "-"], text).success();
    assert_eq!(sent.lock().unwrap().len(), 6);
}

#[test]
fn a_line_that_cannot_be_understood_is_named_and_nothing_is_sent() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    let text = "in_port=vm1,actions=2\nip,tp_dst=80,actions=drop\n";
    let failure = ofctl_with_input(dir.path(), &["add-flows", "br0", "-"], text).failure();
    assert_eq!(failure, "ofctl: standard input:2: tp_dst=80 needs tcp, udp or sctp in the match");
    assert!(sent.lock().unwrap().is_empty());
}

#[test]
fn refusals_are_reported_with_line_and_reason_and_the_rest_is_carried_out() {
    let dir = tempdir().unwrap();
    let behaviour = Behaviour { refused_priority: Some(13), ..Behaviour::default() };
    let sent = serve(dir.path(), behaviour);
    let failure = ofctl(dir.path(), &["add-flow", "br0", "priority=13,actions=drop"]).failure();
    assert_eq!(
        failure,
        "ofctl: the switch refused the flow: OFPFMFC_TABLE_FULL (the table is full)"
    );
    let text = "priority=1,actions=drop\n\npriority=13,actions=drop\npriority=13,actions=drop\npriority=2,actions=drop\n";
    let failure = ofctl_with_input(dir.path(), &["add-flows", "br0", "-"], text).failure();
    assert_eq!(
        failure,
        "ofctl: standard input:3: the switch refused the flow: OFPFMFC_TABLE_FULL (the table is full) (and 1 more of 4 flows)"
    );
    assert_eq!(sent.lock().unwrap().len(), 2);
}

#[test]
fn many_refusals_do_not_deadlock_both_sides() {
    let dir = tempdir().unwrap();
    let behaviour = Behaviour { refused_priority: Some(13), ..Behaviour::default() };
    serve(dir.path(), behaviour);
    // Far more than the socket buffers hold, in both directions.
    let text = "priority=13,ipv6,ipv6_src=2001:db8::1,actions=output:1\n".repeat(20_000);
    let failure = ofctl_with_input(dir.path(), &["add-flows", "br0", "-"], &text).failure();
    assert!(failure.contains("and 19999 more of 20000 flows"), "{failure}");
}

#[test]
fn a_switch_that_probes_meanwhile_is_answered_and_does_not_disturb() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour { probes: true, ..Behaviour::default() });
    ofctl(dir.path(), &["add-flow", "br0", "in_port=vm1,actions=drop"]).success();
    let text = ofctl(dir.path(), &["--no-stats", "dump-flows", "br0"]).success();
    assert_eq!(text, " in_port=1 actions=drop\n");
    ofctl(dir.path(), &["probe", "br0"]).success();
}

#[test]
fn no_names_neither_asks_for_nor_accepts_port_names() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    ofctl(dir.path(), &["--no-names", "add-flow", "br0", "in_port=1,actions=2"]).success();
    let failure =
        ofctl(dir.path(), &["--no-names", "add-flow", "br0", "in_port=vm1,actions=2"]).failure();
    assert!(failure.starts_with("ofctl: in_port=vm1: expected a port number"), "{failure}");
}

#[test]
fn failures_to_connect_say_which_socket_and_what_to_look_at() {
    let dir = tempdir().unwrap();
    let socket = dir.path().join("br0.mgmt");
    let failure = ofctl(dir.path(), &["show", "br0"]).failure();
    assert!(failure.contains(socket.to_str().unwrap()), "{failure}");
    assert!(failure.contains("is switchd running"), "{failure}");
    // A socket that nobody listens on any more.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let failure = ofctl(dir.path(), &["show", "br0"]).failure();
    assert!(failure.contains("Connection refused"), "{failure}");
    assert!(failure.contains("is switchd running"), "{failure}");
    // The daemon is there, but not the bridge.
    let _daemon = std::os::unix::net::UnixListener::bind(dir.path().join("rpc.sock")).unwrap();
    let failure = ofctl(dir.path(), &["show", "br7"]).failure();
    assert!(failure.contains("no such bridge?"), "{failure}");
}

#[test]
fn a_switch_that_does_not_fit_or_goes_away_is_an_error_and_no_hang() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour { speaks_1_0: true, ..Behaviour::default() });
    let failure = ofctl(dir.path(), &["show", "br0"]).failure();
    assert!(failure.contains("does not speak OpenFlow 1.3"), "{failure}");
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour { dies_at_barrier: true, ..Behaviour::default() });
    let failure = ofctl(dir.path(), &["add-flow", "br0", "actions=drop"]).failure();
    assert!(failure.contains("the switch closed the connection"), "{failure}");
    let dir = tempdir().unwrap();
    let _silent = std::os::unix::net::UnixListener::bind(dir.path().join("br0.mgmt")).unwrap();
    let failure = ofctl(dir.path(), &["-t", "1", "show", "br0"]).failure();
    assert_eq!(failure, "ofctl: no answer within 1 s (--timeout)");
}

#[test]
fn options_are_accepted_before_and_after_the_verb_and_wrong_ones_refused() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    ofctl(dir.path(), &["-O", "OpenFlow13", "-t", "9", "dump-flows", "br0"]).success();
    ofctl(dir.path(), &["dump-flows", "-O", "OpenFlow10,OpenFlow13", "br0"]).success();
    let target = format!("unix:{}", dir.path().join("br0.mgmt").display());
    ofctl(dir.path(), &["dump-flows", &target]).success();
    assert!(!ofctl(dir.path(), &["-O", "OpenFlow10", "dump-flows", "br0"]).ok);
    assert!(!ofctl(dir.path(), &["dump-flowz", "br0"]).ok);
    assert!(ofctl(dir.path(), &["--help"]).ok);
    assert!(ofctl(dir.path(), &["--version"]).ok);
}

#[test]
fn a_port_number_that_no_port_can_have_is_refused_as_ovs_ofctl_does() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    for port in ["99999", "65280", "65536", "4294967039", "4294967040", "4294967287", "4294967296"]
    {
        let flow = format!("in_port={port},actions=drop");
        let failure = ofctl(dir.path(), &["add-flow", "br0", &flow]).failure();
        assert_eq!(
            failure,
            format!(
                "ofctl: in_port={port}: expected a port number up to 65279, the name of a port of \
                 this bridge, or LOCAL"
            )
        );
        let flow = format!("actions=output:{port}");
        let failure = ofctl(dir.path(), &["add-flow", "br0", &flow]).failure();
        assert!(failure.contains("up to 65279"), "{failure}");
    }
    assert!(sent.lock().unwrap().is_empty());
    for port in ["1", "65279", "LOCAL", "4294967294"] {
        let flow = format!("in_port={port},actions=drop");
        ofctl(dir.path(), &["add-flow", "br0", &flow]).success();
    }
}

#[test]
fn a_socket_that_is_silent_or_speaks_json_does_not_speak_openflow() {
    let dir = tempdir().unwrap();
    let socket = dir.path().join("rpc.sock");
    let _silent = UnixListener::bind(&socket).unwrap();
    let target = format!("unix:{}", socket.display());
    let failure = ofctl(dir.path(), &["dump-flows", &target]).failure();
    let path = socket.display();
    assert_eq!(failure, format!("ofctl: {path}: does not speak OpenFlow: no HELLO within 5 s"));

    let socket = dir.path().join("other.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            stream.unwrap().write_all(b"{\"jsonrpc\": \"2.0\"}\n").unwrap();
        }
    });
    let target = format!("unix:{}", socket.display());
    let failure = ofctl(dir.path(), &["dump-flows", &target]).failure();
    assert!(failure.contains("does not speak OpenFlow"), "{failure}");
}

#[test]
fn a_switch_that_closes_at_once_fails_flow_commands() {
    let dir = tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("br0.mgmt")).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    for _ in 0..50 {
        let failure = ofctl(dir.path(), &["dump-flows", "br0"]).failure();
        assert!(failure.contains("the switch closed the connection"), "{failure}");
    }
}

#[test]
fn json_of_a_flow_command_is_refused_and_not_ignored() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    let failure = ofctl(dir.path(), &["--json", "dump-flows", "br0"]).failure();
    assert_eq!(failure, "ofctl: --json is for the commands that are not ovs-ofctl's");
}
