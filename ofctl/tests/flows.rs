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
fn flows_to_change_and_delete_come_from_standard_input_too() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    let run = |arguments: &[&str], text: &str| ofctl_with_input(dir.path(), arguments, text);
    run(&["add-flow", "br0", "-"], "in_port=1,actions=2\ndelete in_port=3\n").success();
    run(&["mod-flows", "br0", "-"], "# all\nin_port=vm1,actions=drop\n").success();
    run(&["--strict", "del-flows", "br0", "-"], "priority=3,in_port=1\npriority=4\n").success();
    let commands: Vec<FlowCommand> = sent.lock().unwrap().iter().map(|f| f.command).collect();
    use FlowCommand as C;
    let expected = [C::Add, C::Delete, C::Modify, C::DeleteStrict, C::DeleteStrict];
    assert_eq!(commands, expected);
    let failure = run(&["del-flows", "br0", "-"], "add in_port=3\n").failure();
    assert!(failure.starts_with("ofctl: standard input:1: "), "{failure}");
}

#[test]
fn a_file_that_is_no_text_or_has_endless_lines_is_refused_and_nothing_is_sent() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    let path = dir.path().join("flows");
    let add = || ofctl(dir.path(), &["add-flows", "br0", path.to_str().unwrap()]);
    fs::write(&path, format!("actions=drop\n{}", "x".repeat(100_000))).unwrap();
    let failure = add().failure();
    assert!(failure.ends_with("flows:2: a line is longer than 65536 bytes"), "{failure}");
    fs::write(&path, b"actions=drop\n\xff\xfe\n").unwrap();
    assert!(add().failure().contains("flows:2: "));
    fs::remove_file(&path).unwrap();
    assert!(add().failure().contains("cannot read"));
    assert!(sent.lock().unwrap().is_empty());
}

#[test]
fn a_pipe_is_read_once_and_sent_whole() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    let path = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let writer = path.clone();
    let text = "in_port=vm1,actions=2\n".repeat(5000);
    let writing = std::thread::spawn(move || fs::write(writer, text).unwrap());
    ofctl(dir.path(), &["add-flows", "br0", path.to_str().unwrap()]).success();
    writing.join().unwrap();
    assert_eq!(sent.lock().unwrap().len(), 5000);
}

#[test]
fn a_bundle_that_is_refused_while_it_is_filled_or_committed_changes_nothing() {
    for refuses_while_adding in [false, true] {
        let dir = tempdir().unwrap();
        let behaviour =
            Behaviour { refused_priority: Some(13), refuses_while_adding, ..Behaviour::default() };
        let sent = serve(dir.path(), behaviour);
        let text = "priority=1,actions=drop\n\npriority=13,actions=drop\npriority=2,actions=1\n";
        let arguments = ["--bundle", "add-flows", "br0", "-"];
        let failure = ofctl_with_input(dir.path(), &arguments, text).failure();
        assert_eq!(
            failure,
            "ofctl: standard input:3: the switch refused the flow: OFPFMFC_TABLE_FULL (the table \
             is full); of the bundle nothing was carried out"
        );
        assert!(sent.lock().unwrap().is_empty());
        let good = text.replace("13", "12");
        ofctl_with_input(dir.path(), &arguments, &good).success();
        assert_eq!(sent.lock().unwrap().len(), 3);
    }
}

#[test]
fn what_is_there_already_is_replaced_only_with_readd() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    let path = dir.path().join("flows");
    fs::write(&path, "in_port=vm1,actions=2\n").unwrap();
    let path = path.to_str().unwrap();
    ofctl(dir.path(), &["add-flows", "br0", path]).success();
    ofctl(dir.path(), &["replace-flows", "br0", path]).success();
    assert_eq!(sent.lock().unwrap().len(), 1);
    ofctl(dir.path(), &["--readd", "replace-flows", "br0", path]).success();
    assert_eq!(sent.lock().unwrap().len(), 2);
}

#[test]
fn a_bridge_may_be_reached_over_tcp() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", listener.local_addr().unwrap());
    let socket = dir.path().join("br0.mgmt");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let switch = std::os::unix::net::UnixStream::connect(&socket).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), switch.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut from, mut to) = (switch, client);
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    });
    ofctl(dir.path(), &["add-flow", &target, "in_port=vm1,actions=drop"]).success();
    let text = ofctl(dir.path(), &["--no-stats", "dump-flows", &target]).success();
    assert_eq!(text, " in_port=1 actions=drop\n");
    let failure = ofctl(dir.path(), &["show", "tcp:127.0.0.1:1"]).failure();
    assert!(failure.contains("cannot connect to tcp:127.0.0.1:1"), "{failure}");
}

#[test]
fn meters_and_changes_of_ports_that_make_no_sense_are_refused_with_what_would() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour::default());
    for (meter, reason) in [
        ("meter=3", "a meter needs a unit: either kbps or pktps"),
        ("meter=3,kbps", "a meter needs bands: bands=type=drop,rate=N"),
        ("kbps,bands=type=drop,rate=5", "a meter needs a number: meter=ID"),
        ("meter=0,kbps,bands=type=drop,rate=5", "meter=0: expected a number from 1 to 4294901760"),
        ("meter=3,kbps,bands=type=drop", "a band needs a rate of at least 1: rate=N"),
        ("meter=3,kbps,bands=rate=5", "a band begins with its type: bands=type=drop,rate=N"),
        ("meter=3,kbps,bands=type=pass,rate=1", "type=pass: expected drop or dscp_remark"),
        (
            "meter=3,kbps,burst,bands=type=drop,rate=3",
            "with burst each band needs a burst_size of at least 1",
        ),
        (
            "meter=3,kbps,bands=type=drop,rate=3,burst_size=7",
            "burst_size needs the word burst before the bands",
        ),
        ("meter=3,kbsp,bands=type=drop,rate=3", "unknown keyword kbsp; did you mean kbps?"),
        ("meter=3,kbps,pktps,bands=type=drop,rate=3", "a meter needs a unit: either kbps or pktps"),
        ("meter=3,kbps,bands=type=drop,rat=3", "unknown keyword rat; did you mean rate?"),
        (
            "meter=3,kbps,bands=type=dscp_remark,rate=3",
            "a band of type=dscp_remark needs a prec_level",
        ),
    ] {
        let failure = ofctl(dir.path(), &["add-meter", "br0", meter]).failure();
        assert_eq!(failure, format!("ofctl: {reason}"), "{meter}");
    }
    let failure = ofctl(dir.path(), &["mod-port", "br0", "vm1", "no-flood"]).failure();
    assert!(failure.contains("OpenFlow 1.3 has no such configuration"), "{failure}");
    let failure = ofctl(dir.path(), &["mod-port", "br0", "vm1", "upp"]).failure();
    assert!(failure.contains("unknown change upp: expected up, down, receive"), "{failure}");
    let failure = ofctl(dir.path(), &["mod-port", "br0", "vm9", "up"]).failure();
    assert!(failure.contains("the bridge has no port vm9"), "{failure}");
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
fn a_wrong_line_at_the_end_of_many_keeps_all_of_them_back() {
    let dir = tempdir().unwrap();
    let sent = serve(dir.path(), Behaviour::default());
    // More than is sent at once.
    let text = "in_port=vm1,actions=2\n".repeat(20_000) + "in_port=vm9,actions=2\n";
    for arguments in [&["add-flows", "br0", "-"][..], &["--bundle", "add-flows", "br0", "-"]] {
        let failure = ofctl_with_input(dir.path(), arguments, &text).failure();
        assert!(failure.starts_with("ofctl: standard input:20001: in_port=vm9"), "{failure}");
        assert!(sent.lock().unwrap().is_empty());
    }
}

#[test]
fn an_error_about_nothing_that_was_sent_is_a_failure_of_the_whole() {
    let dir = tempdir().unwrap();
    serve(dir.path(), Behaviour { errs_by_itself: true, ..Behaviour::default() });
    let text = "in_port=vm1,actions=2\n";
    let failure = ofctl_with_input(dir.path(), &["add-flows", "br0", "-"], text).failure();
    assert_eq!(failure, "ofctl: the switch refused: OFPBRC_EPERM");
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
fn verbs_of_ovs_ofctl_that_are_not_supported_are_refused_as_such() {
    let dir = tempdir().unwrap();
    for (verb, reason) in [
        ("add-group", "groups are not supported"),
        ("ct-flush-zone", "connection tracking is not supported"),
        ("snoop", "use monitor for what the switch reports"),
    ] {
        let failure = ofctl(dir.path(), &[verb, "br0", "x"]).failure();
        assert_eq!(failure, format!("ofctl: {verb}: {reason}"));
    }
    serve(dir.path(), Behaviour::default());
    for (option, reason) in [
        ("watch:", "watch:: watching the flow tables is not supported"),
        ("invalid_ttl", "invalid_ttl: OpenFlow 1.3 has no such configuration"),
        ("many", "many: expected a number of bytes from 0 to 65535"),
    ] {
        let failure = ofctl(dir.path(), &["monitor", "br0", option]).failure();
        assert_eq!(failure, format!("ofctl: {reason}"));
    }
    let outcome = ofctl(dir.path(), &["dump-flowz", "br0"]);
    assert!(outcome.err.contains("dump-flows"), "{}", outcome.err);
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
