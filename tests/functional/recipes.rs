//! The recipes of README's flow section do what they say: their very lines are run.

use anyhow::{Context as _, ensure};
use etherparse::PacketBuilder;
use proving_ground::lab::{LIMIT, Lab, mac, udp};
use proving_ground::process::eventually;

const PORTS: [&str; 4] = ["vm1", "vm2", "vm3", "up"];

/// The words of the commands of a recipe: what stands in the block after its bold title.
fn recipe(title: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let readme = include_str!("../../README.md");
    let (_, after) =
        readme.split_once(&format!("**{title}.**")).with_context(|| format!("no {title}"))?;
    let block = after.split("```").nth(1).context("no block after the title")?;
    let lines = block.lines().map(str::trim).filter(|line| !line.is_empty());
    let commands: Vec<_> = lines.map(words).collect();
    ensure!(!commands.is_empty(), "{title} has no command");
    Ok(commands)
}

/// A command line's words, as a shell splits one with single quotes.
fn words(line: &str) -> Vec<String> {
    let mut quoted = line.split('\'').enumerate();
    quoted.by_ref().fold(Vec::new(), |mut words, (at, part)| {
        match at % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
        words
    })
}

/// A switch with the recipe's flows, and guests on all ports.
fn cook(title: &str) -> anyhow::Result<Lab> {
    let lab = Lab::new(&PORTS)?;
    for command in recipe(title)? {
        let [program, arguments @ ..] = &command[..] else { continue };
        ensure!(program == "ofctl", "{command:?}");
        lab.switch.ofctl(arguments)?;
    }
    Ok(lab)
}

/// Sends a frame twice, by the slow path and by the caches; each time exactly `expected` arrives.
fn demand(
    lab: &mut Lab,
    from: &str,
    frame: &[u8],
    expected: &[(&str, &[u8])],
) -> anyhow::Result<()> {
    for path in ["slow path", "cached path"] {
        let got = lab.deliver(from, frame)?;
        let got: Vec<_> =
            got.iter().flat_map(|(port, f)| f.iter().map(move |f| (&port[..], &f[..]))).collect();
        let mut wanted = expected.to_vec();
        wanted.sort_unstable();
        ensure!(
            got == wanted,
            "{path}: {from} sent {frame:02x?}\ngot {got:02x?}\nnot {wanted:02x?}"
        );
    }
    Ok(())
}

/// A TCP frame with `flags` set by the builder's caller.
fn tcp(from: u8, to: u8, port: u16, syn: bool, ack: bool) -> Vec<u8> {
    let mut builder = PacketBuilder::ethernet2(mac(from), mac(to))
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .tcp(1000, port, 1, 1000);
    if syn {
        builder = builder.syn();
    }
    if ack {
        builder = builder.ack(1);
    }
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 20]).unwrap_or_default();
    frame
}

/// The frame of `udp` with a tag.
fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let tag = [0x81, 0, (vlan >> 8) as u8, vlan as u8];
    [&frame[..12], &tag, &frame[12..]].concat()
}

fn udp_between(from: [u8; 4], to: [u8; 4], port: u16, ttl: u8) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2(mac(from[3]), mac(to[3])).ipv4(from, to, ttl).udp(1000, port);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[7; 30]).unwrap_or_default();
    frame
}

#[test]
fn learning_switch() -> anyhow::Result<()> {
    let mut lab = cook("Learning switch")?;
    lab.deliver("vm1", &udp(1, 2, 7, 40))?;
    let back = udp(2, 1, 7, 40);
    demand(&mut lab, "vm2", &back, &[("vm1", &back)])?;
    let there = udp(1, 2, 7, 40);
    demand(&mut lab, "vm1", &there, &[("vm2", &there)])?;
    let known = lab.switch.ofctl(&["fdb", "show", "br0"])?;
    ensure!(known.contains("02:00:00:00:00:01"), "{known}");
    lab.switch.stop()
}

#[test]
fn vlan_access_ports() -> anyhow::Result<()> {
    let mut lab = cook("VLAN access ports")?;
    let plain = udp(1, 9, 7, 40);
    demand(&mut lab, "vm1", &plain, &[("up", &tagged(&plain, 10))])?;
    demand(&mut lab, "vm2", &plain, &[("up", &tagged(&plain, 20))])?;
    demand(&mut lab, "up", &tagged(&plain, 10), &[("vm1", &plain)])?;
    demand(&mut lab, "up", &tagged(&plain, 20), &[("vm2", &plain)])?;
    demand(&mut lab, "up", &tagged(&plain, 30), &[])?;
    demand(&mut lab, "vm1", &tagged(&plain, 20), &[])?;
    lab.switch.stop()
}

#[test]
fn vlan_trunk() -> anyhow::Result<()> {
    let mut lab = cook("VLAN trunk")?;
    let frame = udp(3, 9, 7, 40);
    for vlan in [10, 20] {
        let got = lab.deliver("vm3", &tagged(&frame, vlan))?;
        ensure!(got.contains_key("up"), "VLAN {vlan}: {got:02x?}");
    }
    demand(&mut lab, "vm3", &tagged(&frame, 30), &[])?;
    demand(&mut lab, "vm3", &frame, &[])?;
    lab.switch.stop()
}

#[test]
fn access_list() -> anyhow::Result<()> {
    let mut lab = cook("Access list")?;
    // Everybody is known, so that nothing is flooded.
    for (port, last) in [("vm1", 1), ("vm2", 2), ("up", 9)] {
        lab.deliver(port, &udp(last, 77, 7, 40))?;
    }
    demand(&mut lab, "vm1", &tcp(1, 2, 23, true, false), &[])?;
    let web = tcp(1, 2, 80, true, false);
    demand(&mut lab, "vm1", &web, &[("vm2", &web)])?;
    let mut spoofed = udp_between([10, 9, 0, 1], [10, 0, 0, 2], 7, 64);
    spoofed[6..12].copy_from_slice(&mac(1));
    demand(&mut lab, "vm1", &spoofed, &[])?;
    demand(&mut lab, "up", &tcp(9, 1, 80, true, false), &[])?;
    let answer = tcp(9, 1, 80, true, true);
    demand(&mut lab, "up", &answer, &[("vm1", &answer)])?;
    lab.switch.stop()
}

#[test]
fn anti_spoofing() -> anyhow::Result<()> {
    let mut lab = cook("Anti-spoofing")?;
    lab.deliver("vm2", &udp(2, 77, 7, 40))?;
    let honest = udp(1, 2, 7, 40);
    demand(&mut lab, "vm1", &honest, &[("vm2", &honest)])?;
    demand(&mut lab, "vm1", &udp(5, 2, 7, 40), &[])?;
    let mut address = udp_between([10, 0, 0, 5], [10, 0, 0, 2], 7, 64);
    address[6..12].copy_from_slice(&mac(1));
    demand(&mut lab, "vm1", &address, &[])?;
    demand(&mut lab, "vm1", &arp([10, 0, 0, 5]), &[])?;
    let asked = lab.deliver("vm1", &arp([10, 0, 0, 1]))?;
    ensure!(asked.len() == 3, "an honest ARP request goes everywhere: {asked:02x?}");
    lab.switch.stop()
}

/// An ARP request of guest 1 that claims an address.
fn arp(claimed: [u8; 4]) -> Vec<u8> {
    let head = [&[0xff; 6][..], &mac(1), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    [&head[..], &mac(1), &claimed, &[0; 6], &[10, 0, 0, 2], &[0; 18]].concat()
}

#[test]
fn rate_limit() -> anyhow::Result<()> {
    let mut lab = cook("Rate limit")?;
    lab.deliver("vm2", &udp(2, 77, 7, 40))?;
    let frame = udp(1, 2, 7, 40);
    // A ringful at once is far faster than the meter allows, unless the machine stands still.
    let (mut sent, mut arrived) = (0, 0);
    let dropped = eventually("drop", LIMIT, || {
        let port = lab.port("vm1")?;
        sent += (0..200).take_while(|_| port.send(&frame, 1)).count() as u64;
        lab.settle()?;
        arrived += lab.collect()?.get("vm2").map_or(0, Vec::len) as u64;
        let dropped = lab.counters("vm1")?["drops"]["meter"].as_u64().unwrap_or_default();
        Ok((dropped > 0).then_some(dropped))
    })?;
    ensure!(arrived >= 50, "the burst passes: {arrived} of {sent}");
    ensure!(arrived + dropped == sent, "{arrived} + {dropped} of {sent}");
    let stats = lab.switch.ofctl(&["meter-stats", "br0"])?;
    ensure!(stats.contains(&format!("packet_in_count:{sent}")), "{stats}");
    lab.switch.stop()
}

#[test]
fn mirror() -> anyhow::Result<()> {
    let mut lab = cook("Mirror")?;
    let (there, back) = (udp(1, 2, 7, 40), udp(2, 1, 7, 40));
    demand(&mut lab, "vm1", &there, &[("vm2", &there), ("vm3", &there)])?;
    demand(&mut lab, "vm2", &back, &[("vm1", &back), ("vm3", &back)])?;
    lab.switch.stop()
}

#[test]
fn several_tables_and_a_register() -> anyhow::Result<()> {
    let mut lab = cook("Several tables, and a register")?;
    let there = udp(1, 2, 7, 40);
    demand(&mut lab, "vm1", &there, &[("vm2", &there)])?;
    demand(&mut lab, "vm1", &udp(1, 2, 53, 40), &[])?;
    let outside = udp(3, 1, 7, 40);
    demand(&mut lab, "vm3", &outside, &[("up", &outside)])?;
    lab.switch.stop()
}

#[test]
fn router_hop() -> anyhow::Result<()> {
    let mut lab = cook("Router hop")?;
    let frame = |ttl| udp_between([10, 0, 0, 1], [10, 2, 3, 4], 7, ttl);
    let mut routed = frame(63);
    routed[..6].copy_from_slice(&mac(0xff));
    routed[6..12].copy_from_slice(&mac(0xfe));
    demand(&mut lab, "vm1", &frame(64), &[("up", &routed)])?;
    demand(&mut lab, "vm1", &frame(1), &[])?;
    let expired = &lab.counters("vm1")?["drops"]["ttl_expired"];
    ensure!(expired == 2, "expired packets are dropped with that reason: {expired}");
    lab.switch.stop()
}

#[test]
fn quarantine_for_a_while() -> anyhow::Result<()> {
    let mut lab = cook("Quarantine for a while")?;
    lab.deliver("up", &udp(53, 77, 7, 40))?;
    demand(&mut lab, "vm2", &udp(2, 1, 7, 40), &[])?;
    let question = udp_between([10, 0, 0, 2], [10, 0, 0, 53], 53, 64);
    demand(&mut lab, "vm2", &question, &[("up", &question)])?;
    let flows = lab.switch.ofctl(&["dump-flows", "br0", "in_port=vm2"])?;
    ensure!(flows.matches("hard_timeout=600").count() == 2, "{flows}");
    lab.switch.stop()
}
