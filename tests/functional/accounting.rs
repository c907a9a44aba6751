//! Every frame is accounted for, and rules count what the caches forward.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tollgate_guest::port::PortConfig;

use proving_ground::lab::{Lab, balance, count, drops, udp};

#[test]
fn every_frame_is_accounted_for_whatever_became_of_it() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2", "vm3"])?;
    // A guest that never takes anything: its ring fills up.
    lab.attach("full", |config| PortConfig { drain: false, ring_size: 64, ..config })?;
    lab.switch.add_port("absent", "absent")?;
    lab.switch.add_flows(&[
        "udp,in_port=vm1,udp_dst=1,actions=output:vm2",
        "udp,in_port=vm1,udp_dst=2,actions=output:vm2,output:vm3",
        "udp,in_port=vm1,udp_dst=3,actions=output:full",
        "udp,in_port=vm1,udp_dst=4,actions=output:absent",
        "udp,in_port=vm1,udp_dst=5,actions=drop",
        "udp,in_port=vm1,udp_dst=6,actions=flood",
        "udp,in_port=vm1,udp_dst=7,actions=output:vm1",
        "udp,in_port=vm2,actions=output:vm1",
    ])?;
    let rounds = 200;
    for _ in 0..rounds {
        for port in 1..=8 {
            let frame = udp(1, 2, port, 60);
            ensure!(lab.port("vm1")?.send(&frame, 1), "vm1's ring is full");
        }
        ensure!(lab.port("vm2")?.send(&udp(2, 1, 9, 60), 1), "vm2's ring is full");
        lab.settle()?;
        // "full" is left alone: collect() would empty it.
        for name in ["vm1", "vm2", "vm3"] {
            lab.port(name)?.receive(|_| ())?;
        }
    }

    let names = ["vm1", "vm2", "vm3", "full", "absent"];
    let ports: Vec<Value> =
        names.map(|name| lab.counters(name)).into_iter().collect::<Result<_, _>>()?;
    for port in &ports {
        ensure!(balance(port) == 0, "frames appeared or vanished: {port}");
    }
    let total = |key| ports.iter().map(|port| count(port, key)).sum::<u64>();
    ensure!(
        total("tx_packets") == total("forwarded"),
        "{} frames given to guests, {} taken from guests for it",
        total("tx_packets"),
        total("forwarded")
    );
    let vm1 = &ports[0];
    ensure!(count(vm1, "rx_packets") == 8 * rounds, "{vm1}");
    // One copy for two outputs; three for a flood to vm2, vm3, full and absent.
    ensure!(count(vm1, "clones") == (1 + 3) * rounds, "{vm1}");
    for (reason, least) in
        [("rule_drop", rounds), ("no_rule", rounds), ("tx_no_queue", rounds), ("tx_ring_full", 1)]
    {
        ensure!(vm1["drops"][reason].as_u64() >= Some(least), "{reason}: {vm1}");
    }
    ensure!(drops(&ports[1]) == 0, "vm2 lost nothing: {}", ports[1]);
    lab.switch.stop()
}

#[test]
fn rules_count_what_the_caches_forward() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    lab.switch
        .add_flows(&["udp,in_port=vm1,udp_dst=1,actions=output:vm2", "priority=0,actions=drop"])?;
    let frames = 100;
    for sent in 0..frames {
        lab.deliver("vm1", &udp(1, 2, 1, 60))?;
        if sent % 4 == 0 {
            lab.deliver("vm1", &udp(1, 2, 2, 60))?;
        }
    }
    let listed = lab.switch.ofctl(&["dump-flows", "br0"])?;
    for (rule, packets) in [("udp", frames), ("priority=0", frames / 4)] {
        let line = listed.lines().find(|line| line.contains(rule)).context(rule)?;
        let bytes = packets * udp(1, 2, 1, 60).len();
        ensure!(line.contains(&format!("n_packets={packets},")), "{packets} packets: {line}");
        ensure!(line.contains(&format!("n_bytes={bytes},")), "{bytes} bytes: {line}");
    }
    lab.switch.stop()
}
