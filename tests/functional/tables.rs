//! Tables that grow by very many rules while packets pass.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, ensure};

use proving_ground::lab::{LIMIT, Lab, count, drops, udp};
use proving_ground::process::eventually;

/// A debug build takes a minute for as many as a release build loads in a second.
const RULES: u32 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
/// Destination ports of the flows that were there before.
const FLOWS: std::ops::Range<u16> = 5000..5016;

/// Rules that none of the packets matches, but that must be told from those that they do: each next
/// address has more bits in common with theirs.
fn rules(priority: u16) -> String {
    let mut rules = String::new();
    for n in 0..RULES {
        let [a, b, c, d] = (0x0a00_0001 ^ (n + 1).reverse_bits()).to_be_bytes();
        let port = 5000 + n % 16;
        // Writing to a string cannot fail.
        let _ = writeln!(
            rules,
            "priority={priority},udp,nw_src={a}.{b}.{c}.{d},tp_dst={port},actions=drop"
        );
    }
    rules
}

/// Sends a frame of each flow again and again until `done`, and demands that each arrives.
fn keep_flowing(lab: &mut Lab, mut done: impl FnMut() -> bool) -> anyhow::Result<u64> {
    let frames: Vec<Vec<u8>> = FLOWS.map(|port| udp(1, 2, port, 100)).collect();
    let mut rounds = 0;
    while !done() {
        for frame in &frames {
            ensure!(lab.port("vm1")?.send(frame, 1), "vm1's ring is full");
        }
        let mut arrived = Vec::new();
        eventually("a frame of every flow", LIMIT, || {
            lab.port("vm2")?.receive(|frame| arrived.push(frame.to_vec()))?;
            Ok((arrived.len() >= frames.len()).then_some(()))
        })
        .with_context(|| format!("{} arrived in round {rounds}", arrived.len()))?;
        arrived.sort();
        ensure!(arrived == frames, "other frames arrived in round {rounds}");
        rounds += 1;
    }
    Ok(rounds)
}

#[test]
fn flows_lose_nothing_while_very_many_rules_are_added() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    lab.switch.add_flows(&["priority=10,udp,in_port=vm1,nw_dst=10.0.0.0/24,actions=output:vm2"])?;
    let mut first = true;
    keep_flowing(&mut lab, || !std::mem::take(&mut first))?;
    for (priority, options) in [(100, &[][..]), (200, &["--bundle"][..])] {
        let file = lab.switch.run_dir().join(format!("rules-{priority}"));
        fs::write(&file, rules(priority))?;
        let mut rounds = 0;
        // The same once more if it was over before it was looked at.
        for _ in 0..5 {
            let mut ofctl = lab.switch.ofctl_command()?;
            ofctl.args(options).args(["add-flows", "br0"]).arg(&file);
            let mut loading = ofctl.spawn()?;
            let mut status = None;
            rounds = keep_flowing(&mut lab, || {
                status = loading.try_wait().transpose();
                status.is_some()
            })?;
            let status = status.context("it has ended")??;
            ensure!(status.success(), "add-flows {options:?}: {status}");
            if rounds > 1 {
                break;
            }
        }
        ensure!(rounds > 1, "the rules were there before the packets");
    }
    lab.settle()?;
    let dump = lab.switch.ofctl(&["dump-aggregate", "br0"])?;
    ensure!(dump.contains(&format!("flow_count={}", 2 * RULES + 1)), "{dump}");
    let vm1 = lab.counters("vm1")?;
    ensure!(drops(&vm1) == 0, "{vm1}");
    ensure!(count(&vm1, "forwarded") == count(&vm1, "rx_packets"), "{vm1}");
    // And rules that the flows meet take effect.
    lab.switch.add_flows(&["priority=300,udp,nw_src=10.0.0.1,tp_dst=5000,actions=drop"])?;
    let arrived = lab.deliver("vm1", &udp(1, 2, 5000, 100))?;
    ensure!(arrived.is_empty(), "{arrived:02x?}");
    ensure!(!lab.deliver("vm1", &udp(1, 2, 5001, 100))?.is_empty(), "another flow is dropped");
    lab.switch.stop()
}
