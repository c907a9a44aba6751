//! `ofctl` side by side with Debian's `ovs-ofctl`, against a real Open vSwitch: flows, ports and
//! counters. Without it: SKIP, or with `REQUIRE_PEERS=1` a failure.

mod support;

use support::open_vswitch::{OpenVswitch, without_times};

const FLOWS: [&str; 12] = [
    "priority=1,actions=NORMAL",
    "table=0,priority=2,in_port=p1,actions=output:p2,output:\"vm-3\"",
    "priority=3,tcp,nw_src=10.0.0.0/8,tp_dst=0x50/0xfff0,actions=drop",
    "priority=4,ipv6,ipv6_src=2001:db8::/32,ipv6_label=0x12345,actions=dec_ttl,IN_PORT",
    "priority=5,arp,arp_op=1,arp_spa=10.0.0.1,arp_sha=00:11:22:33:44:55,actions=FLOOD",
    "priority=6,dl_vlan=10,dl_vlan_pcp=3,actions=strip_vlan,mod_vlan_vid:7,LOCAL",
    "priority=7,vlan_tci=0x1000/0x1000,actions=ALL",
    "priority=8,icmp6,icmp_type=135,nd_target=fe80::1,actions=CONTROLLER:64",
    "priority=9,cookie=0x1234,idle_timeout=60,hard_timeout=90,send_flow_rem,udp6,tp_src=5,actions=2",
    "table=3,priority=10,ip,nw_frag=later,nw_tos=32,nw_ecn=2,nw_ttl=9,actions=mod_nw_dst:1.2.3.4,goto_table:4",
    "priority=11,tcp,tcp_flags=+syn-ack,actions=clear_actions,write_actions(output:1),write_metadata:0x5/0xf,goto_table:9",
    "priority=12,metadata=0x12/0xff,dl_src=01:00:00:00:00:00/01:00:00:00:00:00,actions=set_field:00:11:22:33:44:55->eth_dst,3",
];

#[test]
fn flows_added_by_either_dump_alike_in_both() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let dumps = |ovs: &OpenVswitch| {
        [&["dump-flows", "br0"][..], &["--names", "--no-stats", "dump-flows", "br0"]].map(|dump| {
            let theirs = without_times(&ovs.ovs_ofctl(dump).success());
            let ours = without_times(&ovs.ofctl(dump).success());
            assert_eq!(ours, theirs);
            ours
        })
    };
    for flow in FLOWS {
        ovs.ovs_ofctl(&["add-flow", "br0", flow]).success();
    }
    let by_theirs = dumps(&ovs);
    ovs.ofctl(&["del-flows", "br0"]).success();
    assert_eq!(ovs.ovs_ofctl(&["--no-stats", "dump-flows", "br0"]).success(), "");
    for flow in FLOWS {
        ovs.ofctl(&["add-flow", "br0", flow]).success();
    }
    assert_eq!(dumps(&ovs), by_theirs);
}

#[test]
fn what_is_deleted_and_selected_is_the_same() {
    let Some(ovs) = OpenVswitch::start() else { return };
    for flow in FLOWS {
        ovs.ofctl(&["add-flow", "br0", flow]).success();
    }
    for selection in ["tcp", "table=3", "cookie=0x1234/-1", "out_port=2", "in_port=p1", "arp"] {
        let dump = ["dump-flows", "br0", selection];
        let theirs = without_times(&ovs.ovs_ofctl(&dump).success());
        assert_eq!(without_times(&ovs.ofctl(&dump).success()), theirs, "{selection}");
    }
    let strict = "priority=3,tcp,nw_src=10.0.0.0/8,tp_dst=0x50/0xfff0";
    ovs.ofctl(&["--strict", "del-flows", "br0", strict]).success();
    ovs.ofctl(&["del-flows", "br0", "cookie=0x1234/-1"]).success();
    ovs.ofctl(&["mod-flows", "br0", "arp,actions=drop"]).success();
    let left = ovs.ovs_ofctl(&["--no-stats", "dump-flows", "br0"]).success();
    assert_eq!(left.lines().count(), FLOWS.len() - 2, "{left}");
    assert!(left.contains("arp_sha=00:11:22:33:44:55 actions=drop"), "{left}");
}

#[test]
fn show_and_counters_print_alike() {
    let Some(ovs) = OpenVswitch::start() else { return };
    for command in ["show", "dump-ports-desc", "dump-desc", "dump-tables", "dump-aggregate"] {
        let theirs = without_times(&ovs.ovs_ofctl(&[command, "br0"]).success());
        assert_eq!(without_times(&ovs.ofctl(&[command, "br0"]).success()), theirs, "{command}");
    }
    for command in [&["dump-ports", "br0"][..], &["dump-ports", "br0", "p2"]] {
        let durations = |text: String| {
            let lines = text.lines().filter(|line| !line.contains("duration="));
            without_times(&lines.collect::<Vec<_>>().join("\n"))
        };
        let theirs = durations(ovs.ovs_ofctl(command).success());
        assert_eq!(durations(ovs.ofctl(command).success()), theirs, "{command:?}");
    }
}

#[test]
fn a_refusal_of_the_switch_is_reported() {
    let Some(ovs) = OpenVswitch::start() else { return };
    let failure = ovs.ofctl(&["add-flow", "br0", "actions=meter:4,1"]).failure();
    assert!(failure.contains("OFPMMFC_INVALID_METER"), "{failure}");
}
