//! `ofctl` side by side with Debian's `ovs-ofctl`, against a real Open vSwitch: meters, ports,
//! packets, events, bundles and whole sets of flows. Without it: SKIP, or with `REQUIRE_PEERS=1` a
//! failure.

mod support;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::command;
use support::open_vswitch::{OpenVswitch, without_times};

impl OpenVswitch {
    /// Both clients print the same, but for times.
    #[track_caller]
    fn assert_alike(&self, arguments: &[&str]) -> String {
        let theirs = without_durations(&self.ovs_ofctl(arguments).success());
        assert_eq!(without_durations(&self.ofctl(arguments).success()), theirs, "{arguments:?}");
        theirs
    }

    fn flows(&self) -> String {
        without_times(&self.ovs_ofctl(&["--no-stats", "dump-flows", "br0"]).success())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A frame that comes in at a dummy port.
    fn receive(&self, port: &str, frame: &str) {
        let target = self.path("switch.ctl");
        let target = target.to_str().unwrap();
        self.run("ovs-appctl", &["-t", target, "netdev-dummy/receive", port, frame]).success();
    }
}

fn without_durations(text: &str) -> String {
    let word = |word: &&str| !word.starts_with("duration:");
    let lines = without_times(text);
    lines
        .lines()
        .map(|line| line.split(' ').filter(word).collect::<Vec<_>>().join(" ") + "\n")
        .collect()
}

#[test]
fn meters_are_made_and_told_of_as_by_ovs_ofctl() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let meters = [
        "meter=1,kbps,bands=type=drop,rate=1000",
        "meter=2,pktps,burst,stats,band=type=drop,rate=100,burst_size=10",
        "meter=3,kbps,burst,bands=type=drop,rate=5,burst_size=6,type=drop,rate=7,burst_size=8",
    ];
    for meter in meters {
        ovs.ovs_ofctl(&["add-meter", "br0", meter]).success();
    }
    let made_by_theirs = ovs.assert_alike(&["dump-meters", "br0"]);
    ovs.ofctl(&["del-meters", "br0"]).success();
    assert_ne!(ovs.assert_alike(&["dump-meters", "br0"]), made_by_theirs);
    for meter in meters {
        ovs.ofctl(&["add-meter", "br0", meter]).success();
    }
    assert_eq!(ovs.assert_alike(&["dump-meters", "br0"]), made_by_theirs);
    ovs.assert_alike(&["dump-meter", "br0", "meter=2"]);
    ovs.assert_alike(&["meter-stats", "br0"]);
    ovs.assert_alike(&["meter-stats", "br0", "meter=3"]);
    ovs.assert_alike(&["meter-features", "br0"]);
    ovs.ofctl(&["mod-meter", "br0", "meter=1,kbps,bands=type=drop,rate=2000"]).success();
    assert!(ovs.assert_alike(&["dump-meter", "br0", "meter=1"]).contains("rate=2000"));
    ovs.ofctl(&["del-meter", "br0", "meter=1"]).success();
    ovs.ofctl(&["add-flow", "br0", "actions=meter:2,output:1"]).success();
    ovs.assert_alike(&["meter-stats", "br0", "meter=2"]);
    for (arguments, reason) in [
        (["add-meter", "br0", meters[1]], "OFPMMFC_METER_EXISTS"),
        (["mod-meter", "br0", meters[0]], "OFPMMFC_UNKNOWN_METER"),
        (["dump-meter", "br0", "meter=9"], "OFPMMFC_UNKNOWN_METER"),
    ] {
        let failure = ovs.ofctl(&arguments).failure();
        assert!(failure.contains(reason), "{failure}");
    }
}

#[test]
fn ports_change_and_queues_and_groups_print_as_by_ovs_ofctl() {
    let Some(ovs) = OpenVswitch::start() else { return };
    for arguments in [
        &["queue-stats", "br0"][..],
        &["queue-stats", "br0", "p2"],
        &["queue-stats", "br0", "2", "0"],
        &["queue-stats", "br0", "ANY", "ALL"],
        &["dump-groups", "br0"],
        &["--names", "queue-stats", "br0"],
    ] {
        ovs.assert_alike(arguments);
    }
    let failure = ovs.ofctl(&["queue-stats", "br0", "1", "7"]).failure();
    assert!(failure.contains("OFPQOFC_BAD_QUEUE"), "{failure}");
    let config = |ovs: &OpenVswitch| {
        ovs.assert_alike(&["dump-ports-desc", "br0"]);
        // (In OpenFlow 1.3 ovs-ofctl prints all ports even if one is named.)
        let text = ovs.ofctl(&["dump-ports-desc", "br0", "p2"]).success();
        let line = text.lines().find(|line| line.contains("config:")).unwrap().to_owned();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for (change, after) in [
        ("down", &["PORT_DOWN"][..]),
        ("no-receive", &["PORT_DOWN", "NO_RECV"]),
        ("no-forward", &["PORT_DOWN", "NO_RECV", "NO_FWD"]),
        ("up", &["NO_RECV", "NO_FWD"]),
        ("receive", &["NO_FWD"]),
        ("no-packet-in", &["NO_FWD", "NO_PACKET_IN"]),
        ("forward", &["NO_PACKET_IN"]),
        ("packet-in", &["0"]),
    ] {
        ovs.ofctl(&["mod-port", "br0", "p2", change]).success();
        assert_eq!(config(&ovs), after, "{change}");
    }
    ovs.ofctl(&["add-flow", "br0", "actions=ALL"]).success();
    ovs.ovs_ofctl(&["add-group", "br0", "group_id=1,type=all,bucket=output:1"]).success();
    let failure = ovs.ofctl(&["dump-groups", "br0"]).failure();
    assert!(failure.contains("the switch has groups, which are not supported"), "{failure}");
}

const BEFORE: &str = "priority=1,actions=NORMAL
table=0,priority=5,cookie=0x7,idle_timeout=9,send_flow_rem,tcp,tp_dst=80,actions=output:2
table=3,actions=drop
priority=6,reg3=5/0xf,actions=load:1->NXM_NX_REG0[0..3],resubmit(,3)
";
const AFTER: &str = "priority=1,actions=NORMAL
priority=5,cookie=0x8,tcp,tp_dst=80,actions=output:2
# gone: table 3
priority=6,reg3=5/0xf,actions=load:1->NXM_NX_REG0[0..3],resubmit(,3)
priority=9,hard_timeout=5,check_overlap,send_flow_rem,udp,tp_dst=80,actions=output:2,output:3
";

/// The lines of a diff in the same order whoever printed it.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn differences_and_replacements_are_those_of_ovs_ofctl() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let before = ovs.write("before", BEFORE);
    let after = ovs.write("after", AFTER);
    ovs.ofctl(&["add-flows", "br0", &before]).success();
    for pair in
        [["br0", &after], [&*after, "br0"], ["br0", &before], ["br0", "br0"], [&*before, &*after]]
    {
        let arguments = ["diff-flows", pair[0], pair[1]];
        let (ours, theirs) = (ovs.ofctl(&arguments), ovs.ovs_ofctl(&arguments));
        assert_eq!((ours.code, sorted(&ours.out)), (theirs.code, sorted(&theirs.out)), "{pair:?}");
        assert_eq!(ours.err, "", "{pair:?}");
    }
    assert_eq!(ovs.ofctl(&["diff-flows", "br0", &after]).code, Some(2));
    assert_eq!(ovs.ofctl(&["diff-flows", "br0", "nosuch"]).code, Some(1));
    let names = ["--names", "diff-flows", "br0", &after];
    assert_eq!(sorted(&ovs.ofctl(&names).out), sorted(&ovs.ovs_ofctl(&names).out));

    ovs.ovs_ofctl(&["replace-flows", "br0", &after]).success();
    let by_theirs = ovs.flows();
    for options in [&[][..], &["--bundle"]] {
        ovs.ovs_ofctl(&["replace-flows", "br0", &before]).success();
        let arguments = [options, &["replace-flows", "br0", &after]].concat();
        ovs.ofctl(&arguments).success();
        assert_eq!(sorted(&ovs.flows()), sorted(&by_theirs), "{options:?}");
        assert_eq!(ovs.ofctl(&["diff-flows", "br0", &after]).code, Some(0));
    }
}

#[test]
fn of_a_bundle_everything_takes_effect_or_nothing() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let good = ovs.write("good", BEFORE);
    let bad = ovs.write("bad", "priority=2,actions=1\n\npriority=3,actions=group:7\nactions=3\n");
    ovs.ofctl(&["--bundle", "add-flows", "br0", &good]).success();
    let flows = ovs.flows();
    assert_eq!(flows.lines().count(), 4, "{flows}");
    let failure = ovs.ofctl(&["--bundle", "add-flows", "br0", &bad]).failure();
    assert_eq!(
        failure,
        format!(
            "ofctl: {bad}:3: the switch refused the flow: OFPBAC_BAD_OUT_GROUP (the switch has no \
             such group); of the bundle nothing was carried out"
        )
    );
    assert_eq!(ovs.flows(), flows);
    ovs.ofctl(&["--bundle", "add-flow", "br0", "priority=7,actions=drop"]).success();
    ovs.ofctl(&["--bundle", "mod-flows", "br0", "reg3=5/0xf,actions=2"]).success();
    ovs.ofctl(&["--bundle", "--strict", "del-flows", "br0", "priority=1"]).success();
    let flows = ovs.flows();
    assert!(flows.contains("priority=7 actions=drop"), "{flows}");
    assert!(flows.contains("reg3=0x5/0xf actions=output:2"), "{flows}");
    assert!(!flows.contains("NORMAL"), "{flows}");
    ovs.ofctl(&["--bundle", "del-flows", "br0"]).success();
    assert_eq!(ovs.flows(), "");
}

#[test]
fn flows_are_sorted_and_named_as_by_ovs_ofctl() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let flows = "priority=3,tcp,nw_src=10.0.0.9,tp_dst=80,actions=1
priority=9,ip,nw_src=10.0.0.1,actions=output:3
priority=5,in_port=vm-3,reg2=7,actions=2
priority=5,in_port=p1,actions=LOCAL
table=2,priority=1,udp,tp_dst=53,actions=CONTROLLER:9,note:11.22
table=1,priority=4,actions=controller(id=3),resubmit(p1,3),move:eth_src[0..15]->reg1[0..15]
";
    let file = ovs.write("flows", flows);
    ovs.ofctl(&["add-flows", "br0", &file]).success();
    for options in [
        &["--no-stats"][..],
        &["--no-stats", "--names"],
        &["--no-stats", "--no-names"],
        &["--no-names"],
        &["--names"],
        &["--no-stats", "--sort=priority"],
        &["--no-stats", "--rsort=priority"],
        &["--no-stats", "--sort=nw_src"],
        &["--no-stats", "--rsort=nw_src"],
        &["--no-stats", "--sort=tcp_dst"],
        &["--no-stats", "--sort=in_port"],
        &["--sort=reg2"],
    ] {
        ovs.assert_alike(&[options, &["dump-flows", "br0"]].concat());
    }
    for selection in ["table=2", "tcp", "in_port=p1", "out_port=3", "reg2=7", "table=1,ip"] {
        ovs.assert_alike(&["dump-flows", "br0", selection]);
        ovs.assert_alike(&["dump-aggregate", "br0", selection]);
    }
    ovs.assert_alike(&["dump-tables", "br0"]);
}

/// A monitor in the background, and the file that it prints to.
struct Monitor {
    process: Child,
    output: PathBuf,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ethernet type of the frames that only show whether a monitor is connected.
const MARK: &str = "88b5";

impl Monitor {
    fn ours(ovs: &OpenVswitch) -> Monitor {
        let output = ovs.path("ours");
        let mut command = command(ovs.dir.path(), &["monitor", "br0", "128"]);
        let process = command.stdout(File::create(&output).unwrap()).spawn().unwrap();
        Monitor { process, output }
    }

    fn theirs(ovs: &OpenVswitch) -> Monitor {
        let output = ovs.path("theirs");
        let arguments = ["-O", "OpenFlow13", "-P", "standard", "monitor", "br0", "128"];
        let mut command = ovs.command("ovs-ofctl", &arguments);
        let process =
            command.stdout(Stdio::null()).stderr(File::create(&output).unwrap()).spawn().unwrap();
        Monitor { process, output }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    /// What came, without marks and times.
    fn events(&self) -> Vec<String> {
        let mark = format!("dl_type=0x{MARK}");
        let text = self.text();
        let mut lines: Vec<&str> = Vec::new();
        for line in text.lines() {
            if line.contains(&mark) {
                lines.pop();
            } else {
                lines.push(line);
            }
        }
        let word = |word: &&str| !word.starts_with("duration");
        let line = |line: &str| line.split(' ').filter(word).collect::<Vec<_>>().join(" ");
        lines.into_iter().map(line).collect()
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(50));
    }
}

const FRAMES: [&str; 13] = [
    "eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:09,tha=00:00:00:00:00:00)",
    "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=1,frag=no),udp(src=8,dst=80)",
    "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0x21,ttl=9,frag=no),tcp(src=8,dst=80),tcp_flags(0x12)",
    "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=1,frag=no),icmp(type=8,code=0)",
    "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=1,frag=later)",
    "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=132,tos=0,ttl=1,frag=no),sctp(src=1,dst=2)",
    "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=47,tos=0,ttl=1,frag=no)",
    "eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0x5,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=135,code=0),nd(target=fe80::3,sll=00:11:22:33:44:55)",
    "eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0x5,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=128,code=0)",
    "eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0x5,proto=6,tclass=0,hlimit=255,frag=no),tcp(src=1,dst=2)",
    "eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0,proto=59,tclass=0x70,hlimit=255,frag=no)",
    "eth_type(0x88cc)",
    "eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=1,frag=no),udp(src=8,dst=80))",
];

#[test]
fn packets_removals_and_port_changes_are_monitored_as_by_ovs_ofctl() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let file = ovs.write(
        "flows",
        "in_port=1,actions=CONTROLLER
in_port=2,cookie=0x1234,actions=load:5->reg3[],set_field:0x77->metadata,resubmit(,4)
table=4,cookie=0x99,actions=controller(reason=no_match)
table=9,cookie=9,send_flow_rem,idle_timeout=60,hard_timeout=90,ip,nw_dst=10.0.0.0/8,actions=drop
table=9,priority=0,send_flow_rem,actions=drop
",
    );
    ovs.ofctl(&["add-flows", "br0", &file]).success();
    let monitors = [Monitor::ours(&ovs), Monitor::theirs(&ovs)];
    let mark =
        format!("in_port=CONTROLLER,packet=ffffffffffff000000000001{MARK},actions=CONTROLLER");
    wait_until("the monitors do not come up", || {
        ovs.ofctl(&["packet-out", "br0", &mark]).success();
        monitors.iter().all(|monitor| monitor.text().contains(MARK))
    });
    let addresses = "eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a)";
    for frame in FRAMES {
        ovs.receive("p1", &format!("in_port(1),{addresses},{frame}"));
    }
    ovs.receive("p2", &format!("in_port(2),{addresses},{}", FRAMES[2]));
    ovs.ofctl(&["del-flows", "br0", "table=9"]).success();
    ovs.ofctl(&["mod-port", "br0", "p2", "no-forward"]).success();
    let last = |monitor: &Monitor| monitor.text().contains("NO_FWD");
    wait_until("the monitors do not report all", || monitors.iter().all(last));
    let [ours, theirs] = monitors.each_ref().map(|monitor| {
        // (The status of the port comes in several lines, of which the last may be under way.)
        let mut lines = monitor.events();
        let end = lines.iter().position(|line| line.contains("NO_FWD")).unwrap();
        lines.truncate(end + 1);
        lines
    });
    assert_eq!(ours, theirs);
    let removed = ours.iter().filter(|line| line.starts_with("OFPT_FLOW_REMOVED")).count();
    let packets = ours.iter().filter(|line| line.starts_with("OFPT_PACKET_IN")).count();
    assert_eq!((removed, packets), (2, FRAMES.len() + 1));
}

#[test]
fn packets_go_out_as_by_ovs_ofctl() {
    let Some(ovs) = OpenVswitch::start() else { return };
    ovs.ofctl(&["add-flow", "br0", "table=3,ip,actions=output:2"]).success();
    let sent = |port: &str| {
        let text = ovs.ofctl(&["dump-ports", "br0", port]).success();
        let line = text.lines().find(|line| line.contains("tx pkts")).unwrap();
        line.trim_start().strip_prefix("tx pkts=").unwrap().split(',').next().unwrap().to_owned()
    };
    let ip = "ffffffffffff00000000000108004500001c000000004001000000000000000000000800000000000000";
    ovs.ofctl(&["packet-out", "br0", &format!("in_port=1,packet={ip},actions=p2")]).success();
    assert_eq!(sent("p2"), "1");
    let out = format!("packet={ip},actions=dec_ttl,set_field:1.2.3.4->ip_src,resubmit(,3)");
    ovs.ofctl(&["packet-out", "br0", &out]).success();
    assert_eq!(sent("p2"), "2");
    ovs.ofctl(&["packet-out", "br0", "p1", "output:2,3", ip, ip]).success();
    assert_eq!((sent("p2"), sent("vm-3")), ("4".to_owned(), "2".to_owned()));
    ovs.ofctl(&["packet-out", "br0", "none", "drop", ip]).success();
    assert_eq!(sent("p2"), "4");
    for (packet, reason) in [
        ("in_port=1,packet=00,actions=2", "too few for an Ethernet frame"),
        ("in_port=1,actions=2", "needs a packet before the actions"),
        ("in_port=vm9,packet=00", "in_port=vm9: expected a port number"),
        (
            "packet=ffffffffffff0000000000010806,actions=dec_ttl,2",
            "dec_ttl needs ip or ipv6 in the packet",
        ),
        (
            "packet=ffffffffffff0000000000010806,actions=goto_table:1",
            "goto_table is for flows only",
        ),
        ("packet=ffffffffffff0000000000010806,action=1,acton=2", "unknown action acton"),
        ("packet=ffffffffffff0000000000010806,tcp,actions=2", "field tcp has no value"),
        ("packet=ffffffffffff000000000001080,actions=2", "in hexadecimal"),
    ] {
        let failure = ovs.ofctl(&["packet-out", "br0", packet]).failure();
        assert!(failure.contains(reason), "{packet}: {failure}");
    }
}

#[test]
fn ping_and_probe_answer_as_by_ovs_ofctl() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let without_time = |text: String| {
        let line = |line: &str| line.split(" time=").next().unwrap().to_owned();
        text.lines().map(line).collect::<Vec<_>>()
    };
    let ours = without_time(ovs.ofctl(&["ping", "br0", "10"]).success());
    assert_eq!(ours, without_time(ovs.ovs_ofctl(&["ping", "br0", "10"]).success()));
    assert_eq!(ovs.ofctl(&["probe", "br0"]).success(), "");
}

#[test]
fn ten_thousand_flows_of_a_file_arrive() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let line = |n: u32| {
        format!(
            "table={},priority=7,ip,nw_dst=10.1.{}.{},actions=output:{}\n",
            n % 3,
            n >> 8,
            n & 255,
            1 + n % 3
        )
    };
    let file = ovs.write("flows", &(0..10_000).map(line).collect::<String>());
    for options in [&[][..], &["--bundle"]] {
        ovs.ofctl(&["del-flows", "br0"]).success();
        ovs.ofctl(&[options, &["add-flows", "br0", &file]].concat()).success();
        let sum = ovs.ovs_ofctl(&["dump-aggregate", "br0"]).success();
        assert!(sum.contains("flow_count=10000"), "{sum}");
        assert_eq!(ovs.ofctl(&["diff-flows", "br0", &file]).code, Some(0));
    }
}
