//! Open vSwitch's own command line against us, and ours beside it.

use std::path::Path;
use std::process::Command;

use anyhow::{bail, ensure};
use proving_ground::skip::program;
use proving_ground::{Switch, process, require};

use crate::switch;

/// Flows as a user writes them, and as ovs-ofctl 3.1 lists them after `--no-stats --names`.
const FLOWS: [(&str, &str); 10] = [
    ("in_port=vm1,actions=output:vm2", "in_port=vm1 actions=output:vm2"),
    ("in_port=2,actions=1", "in_port=vm2 actions=output:vm1"),
    (
        "priority=5,ip,in_port=vm1,nw_dst=10.0.0.0/8,actions=drop",
        "priority=5,ip,in_port=vm1,nw_dst=10.0.0.0/8 actions=drop",
    ),
    (
        "priority=7,tcp,tp_dst=80,actions=set_field:02:00:00:00:00:09->eth_dst,output:vm2",
        "priority=7,tcp,tp_dst=80 actions=set_field:02:00:00:00:00:09->eth_dst,output:vm2",
    ),
    (
        "priority=9,udp,udp_dst=53,actions=set_field:10.0.0.9->ip_dst,push_vlan:0x8100,\
         set_field:4103->vlan_vid,output:2",
        "priority=9,udp,tp_dst=53 actions=set_field:10.0.0.9->ip_dst,push_vlan:0x8100,\
         set_field:4103->vlan_vid,output:vm2",
    ),
    (
        "priority=1,ipv6,ipv6_dst=fe80::/10,actions=goto_table:1",
        "priority=1,ipv6,ipv6_dst=fe80::/10 actions=goto_table:1",
    ),
    ("priority=0,actions=NORMAL", "priority=0 actions=NORMAL"),
    ("cookie=0x7,priority=3,icmp,actions=in_port", "cookie=0x7, priority=3,icmp actions=IN_PORT"),
    ("table=1,priority=1,arp,actions=flood", "table=1, priority=1,arp actions=FLOOD"),
    (
        "table=1,dl_vlan=7,actions=pop_vlan,output:vm1",
        "table=1, dl_vlan=7 actions=pop_vlan,output:vm1",
    ),
];

/// A switch with two ports that nobody is attached to, and both command lines for it.
struct Bench {
    switch: Switch,
    ovs_ofctl: std::path::PathBuf,
}

impl Bench {
    fn new(ovs_ofctl: &Path) -> anyhow::Result<Self> {
        let switch = switch()?;
        switch.add_port("vm1", "vm1")?;
        switch.add_port("vm2", "vm2")?;
        Ok(Self { switch, ovs_ofctl: ovs_ofctl.to_owned() })
    }

    /// `ovs-ofctl -O OpenFlow13 VERB unix:RUNDIR/br0.mgmt REST...`
    fn theirs(&self, verb: &str, rest: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.ovs_ofctl);
        command.args(["-O", "OpenFlow13", verb, &self.switch.bridge_address("br0")]).args(rest);
        process::run(&mut command)
    }

    /// `ofctl VERB br0 REST...`
    fn ours(&self, verb: &str, rest: &[&str]) -> anyhow::Result<String> {
        self.switch.ofctl(&[&[verb, "br0"], rest].concat())
    }

    /// The same from both, which must be alike; line by line in an order of our own, since a
    /// switch may list flows in any.
    fn both(&self, verb: &str, rest: &[&str]) -> anyhow::Result<Vec<String>> {
        let theirs = lines(&self.theirs(verb, rest)?);
        let ours = lines(&self.ours(verb, rest)?);
        ensure!(ours == theirs, "{verb} {rest:?}:\nours {ours:#?}\novs-ofctl {theirs:#?}");
        Ok(theirs)
    }
}

/// Trimmed, sorted, and without what differs between two moments: transaction ids and durations.
fn lines(text: &str) -> Vec<String> {
    let stable = |line: &str| {
        let words = line.split_whitespace();
        words
            .filter(|word| !word.starts_with("(xid=") && !word.starts_with("duration="))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut lines: Vec<_> = text.lines().map(stable).filter(|line| !line.is_empty()).collect();
    lines.sort();
    lines
}

#[test]
fn flows_added_by_either_are_listed_alike_by_both() -> anyhow::Result<()> {
    let bench = Bench::new(&require!(program("ovs-ofctl", "openvswitch-common")))?;
    for (number, (flow, _)) in FLOWS.iter().enumerate() {
        if number % 2 == 0 {
            bench.theirs("add-flow", &[flow])?;
        } else {
            bench.ours("add-flow", &[flow])?;
        }
    }
    let mut expected: Vec<_> = FLOWS.iter().map(|(_, listed)| (*listed).to_owned()).collect();
    expected.sort();
    let listed = bench.both("dump-flows", &["--no-stats", "--names"])?;
    ensure!(listed == expected, "listed {listed:#?}\nexpected {expected:#?}");
    // With statistics, by number, and filtered: the same from both.
    bench.both("dump-flows", &["--no-names"])?;
    let filtered = bench.both("dump-flows", &["--no-stats", "--names", "table=1"])?;
    ensure!(filtered.iter().filter(|line| line.contains("actions=")).count() == 2, "{filtered:#?}");
    bench.switch.stop()
}

#[test]
fn del_flows_removes_what_matches_and_nothing_else() -> anyhow::Result<()> {
    let bench = Bench::new(&require!(program("ovs-ofctl", "openvswitch-common")))?;
    for (flow, _) in FLOWS {
        bench.theirs("add-flow", &[flow])?;
    }
    let count = |bench: &Bench| -> anyhow::Result<usize> {
        Ok(bench.both("dump-flows", &["--no-stats"])?.len())
    };
    // Strictly: this very match and priority. The other priority is another flow.
    bench.theirs("del-flows", &["--strict", "priority=4,icmp"])?;
    ensure!(count(&bench)? == 10, "a strict deletion of another priority removed a flow");
    bench.theirs("del-flows", &["--strict", "priority=3,icmp"])?;
    ensure!(count(&bench)? == 9, "a strict deletion did not remove its flow alone");
    // Loosely: everything that is IPv4, whatever else it says.
    bench.ours("del-flows", &["ip"])?;
    ensure!(count(&bench)? == 6, "three flows are IPv4");
    bench.theirs("del-flows", &["table=1"])?;
    ensure!(count(&bench)? == 4, "two flows are in table 1");
    bench.theirs("del-flows", &[])?;
    ensure!(count(&bench)? == 0, "all flows were deleted");
    bench.switch.stop()
}

#[test]
fn show_and_dump_ports_name_every_port() -> anyhow::Result<()> {
    let bench = Bench::new(&require!(program("ovs-ofctl", "openvswitch-common")))?;
    let shown = bench.both("show", &[])?;
    for port in ["1(vm1): addr:", "2(vm2): addr:"] {
        ensure!(shown.iter().any(|line| line.starts_with(port)), "no {port} in {shown:#?}");
    }
    let features = shown.iter().find_map(|line| line.split_once("dpid:"));
    let Some((_, dpid)) = features else { bail!("no dpid in {shown:#?}") };
    ensure!(dpid.len() == 16 && dpid.bytes().all(|b| b.is_ascii_hexdigit()), "dpid {dpid}");

    let counters = bench.both("dump-ports", &[])?;
    for port in ["port 1: rx pkts=0, bytes=0,", "port 2: rx pkts=0, bytes=0,"] {
        ensure!(counters.iter().any(|line| line.starts_with(port)), "no {port} in {counters:#?}");
    }
    let one = bench.both("dump-ports", &["vm2"])?;
    ensure!(
        !one.iter().any(|line| line.starts_with("port 1:")),
        "only vm2 was asked for: {one:#?}"
    );
    bench.switch.stop()
}

#[test]
fn flows_that_cannot_work_are_refused() -> anyhow::Result<()> {
    let bench = Bench::new(&require!(program("ovs-ofctl", "openvswitch-common")))?;
    let refused = [
        ("in_port=vm9,actions=drop", "vm9"),
        ("tcp,actions=output:nosuch", "nosuch"),
        ("table=3,actions=goto_table:2", "table"),
    ];
    for (flow, part) in refused {
        for outcome in [bench.theirs("add-flow", &[flow]), bench.ours("add-flow", &[flow])] {
            let Err(error) = outcome else { bail!("{flow} was accepted") };
            ensure!(
                format!("{error:#}").contains(part),
                "{flow}: the message helps nobody: {error:#}"
            );
        }
    }
    ensure!(bench.both("dump-flows", &["--no-stats"])?.is_empty(), "a refused flow was installed");
    bench.switch.stop()
}
