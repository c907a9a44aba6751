//! Network cards, as DPDK's virtual devices: a ring that gives back what it is sent, files, and a network
//! interface whose other end is in a namespace of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use proving_ground::Switch;
use proving_ground::lab::{LIMIT, Lab, balance, count, drops, udp};
use proving_ground::process::{Supervised, eventually, run};
use proving_ground::require;
use proving_ground::skip::{Missing, libdpdk, program};
use proving_ground::switch::Options;
use rustix::process::geteuid;
use serde_json::{Value, json};

/// A switch whose DPDK needs neither hugepages nor root, and guests.
fn lab(guests: &[&str]) -> anyhow::Result<Lab> {
    let mut options = Options::default();
    options.config.push_str("[dpdk]\neal_args = [\"--no-huge\", \"-m\", \"256\", \"--no-pci\"]\n");
    let switch = Switch::start(options)?;
    switch.add_bridge("br0")?;
    let mut lab = Lab { switch, ports: Default::default() };
    for guest in guests {
        lab.attach(guest, |config| config)?;
    }
    Ok(lab)
}

fn add(lab: &Lab, name: &str, devargs: &str) -> anyhow::Result<()> {
    let card = json!({"bridge": "br0", "name": name, "type": "dpdk", "devargs": devargs});
    lab.switch.call("port_add", card).map(drop)
}

fn get(lab: &Lab, name: &str) -> anyhow::Result<Value> {
    lab.switch.call("port_get", json!({"bridge": "br0", "name": name}))
}

fn remove(lab: &Lab, name: &str) -> anyhow::Result<()> {
    lab.switch.call("port_remove", json!({"bridge": "br0", "name": name})).map(drop)
}

/// Waits for so many frames at a guest.
fn arrive(lab: &mut Lab, guest: &str, frames: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut got = Vec::new();
    eventually("frames", LIMIT, || {
        got.extend(lab.collect()?.remove(guest).unwrap_or_default());
        Ok((got.len() >= frames).then_some(()))
    })
    .with_context(|| format!("{} of {frames} frames came to {guest}", got.len()))?;
    Ok(got)
}

#[test]
fn frames_pass_from_guest_to_card_and_back_and_the_card_says_what_it_is() -> anyhow::Result<()> {
    require!(libdpdk());
    let mut lab = lab(&["vm1", "vm2"])?;
    add(&lab, "nic0", "net_ring0")?;
    lab.switch
        .add_flows(&["in_port=vm1,actions=output:nic0", "in_port=nic0,actions=output:vm2"])?;
    let at_rest = count(&get(&lab, "nic0")?, "mbufs_in_use");
    for round in 0..100_u8 {
        let frame = udp(1, 2, 7, 20 + usize::from(round) * 10);
        ensure!(lab.port("vm1")?.send(&frame, 1), "no room");
        ensure!(arrive(&mut lab, "vm2", 1)? == [frame], "round {round}");
    }
    let card = get(&lab, "nic0")?;
    ensure!(card["type"] == "dpdk" && card["driver"] == "net_ring", "{card}");
    ensure!(card["state"] == "up" && card["mtu"] == 1500 && card["uplink"] == true, "{card}");
    ensure!(count(&card, "rx_packets") == 100 && count(&card, "tx_packets") == 100, "{card}");
    ensure!(count(&card["xstats"], "rx_good_packets") == 100, "{card}");
    ensure!(balance(&card) == 0 && count(&card, "mbufs_in_use") == at_rest, "{card}");
    let shown = lab.switch.ofctl(&["port", "get", "br0", "nic0"])?;
    ensure!(shown.contains("net_ring") && shown.contains("rx_good_packets"), "{shown}");
    let shown = lab.switch.ofctl(&["port", "list"])?;
    ensure!(shown.lines().any(|line| line.contains("nic0") && line.contains("dpdk")), "{shown}");
    let ports = lab.switch.ofctl(&["dump-ports-desc", "br0"])?;
    ensure!(ports.contains("nic0"), "{ports}");
    lab.switch.stop()
}

#[test]
fn a_card_is_removed_and_added_again_while_frames_are_sent_to_it() -> anyhow::Result<()> {
    require!(libdpdk());
    let mut lab = lab(&["vm1", "vm2"])?;
    let frame = udp(1, 2, 7, 400);
    for _ in 0..3 {
        add(&lab, "nic0", "net_ring0")?;
        lab.switch
            .add_flows(&["in_port=vm1,actions=output:nic0", "in_port=nic0,actions=output:vm2"])?;
        ensure!(lab.port("vm1")?.send(&frame, 1), "no room");
        arrive(&mut lab, "vm2", 1)?;
        // They are on their way while the port goes.
        for _ in 0..100 {
            ensure!(lab.port("vm1")?.send(&frame, 1), "no room");
        }
        remove(&lab, "nic0")?;
        lab.settle()?;
        lab.collect()?;
        ensure!(get(&lab, "nic0").is_err(), "it is still there");
        let guest = lab.counters("vm1")?;
        ensure!(balance(&guest) == 0, "{guest}");
    }
    lab.switch.stop()
}

#[test]
fn what_is_wrong_with_a_card_is_said_by_the_name_of_the_key() -> anyhow::Result<()> {
    require!(libdpdk());
    let lab = lab(&["vm1"])?;
    let refused = |further: Value| -> anyhow::Result<String> {
        let mut params = json!({"bridge": "br0", "name": "nic0", "type": "dpdk"});
        if let (Some(params), Some(further)) = (params.as_object_mut(), further.as_object()) {
            params.extend(further.clone());
        }
        let outcome = lab.switch.call("port_add", params);
        Ok(outcome.err().context("it was not refused")?.to_string())
    };
    for (further, expected) in [
        (json!({}), "devargs"),
        (json!({"devargs": "net_nonsense0"}), "there is no device net_nonsense0"),
        (json!({"devargs": "net_null0", "socket": "/tmp/x"}), "socket"),
        (json!({"devargs": "net_null0", "queues": 9}), "queues"),
        (json!({"devargs": "net_null0", "mtu": 20}), "mtu"),
        (json!({"devargs": "net_null0", "uplink": false}), "uplink"),
        (json!({"devargs": "net_pcap0,rx_pcap=/nowhere"}), "net_pcap0"),
    ] {
        let message = refused(further)?;
        ensure!(message.contains(expected), "{message}");
    }
    let guest = json!({"bridge": "br0", "name": "vm9", "devargs": "net_null0"});
    let message = lab.switch.call("port_add", guest).err().context("not refused")?.to_string();
    ensure!(message.contains("devargs"), "{message}");
    // Nothing is left of them.
    add(&lab, "nic0", "net_null0")?;
    let message = add(&lab, "nic1", "net_null0").err().context("not refused")?.to_string();
    ensure!(message.contains("in use by another port"), "{message}");
    lab.switch.stop()
}

/// A card that receives without end what nobody wants does not keep guests from each other.
#[test]
fn guests_go_on_beside_a_card_that_is_flooded() -> anyhow::Result<()> {
    require!(libdpdk());
    let mut lab = lab(&["vm1", "vm2"])?;
    add(&lab, "nic0", "net_null0,size=64")?;
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm2", "in_port=nic0,actions=drop"])?;
    eventually("flood", LIMIT, || {
        Ok((count(&get(&lab, "nic0")?, "rx_packets") > 10_000).then_some(()))
    })?;
    let frame = udp(1, 2, 7, 100);
    for _ in 0..50 {
        ensure!(lab.port("vm1")?.send(&frame, 1), "no room");
        ensure!(arrive(&mut lab, "vm2", 1)? == [frame.clone()], "another frame");
    }
    remove(&lab, "nic0")?;
    lab.switch.stop()
}

/// A capture file of these frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = frame.len() as u32;
        for word in [0, 0, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

#[test]
fn a_file_is_received_from_and_another_is_sent_to() -> anyhow::Result<()> {
    require!(libdpdk());
    let mut lab = lab(&["vm1", "vm2"])?;
    let (from, to) = (lab.switch.run_dir().join("in.pcap"), lab.switch.run_dir().join("out.pcap"));
    let frames: Vec<_> = (0..40).map(|at| udp(1, 2, 7, 20 + at * 30)).collect();
    fs::write(&from, capture(&frames))?;
    // Before the card: what is in the file comes at once.
    lab.switch.add_flows(&[
        "in_port=9,actions=output:vm2",
        "in_port=vm1,actions=mod_dl_dst:02:00:00:00:00:07,output:9",
    ])?;
    let devargs = format!("net_pcap0,rx_pcap={},tx_pcap={}", from.display(), to.display());
    let card =
        json!({"bridge": "br0", "name": "nic0", "type": "dpdk", "devargs": devargs, "ofport": 9});
    lab.switch.call("port_add", card)?;
    // Some may come while the first is still being decided on, whom they must not overtake.
    let mut arrived = Vec::new();
    eventually("all that is in the file", LIMIT, || {
        arrived.extend(lab.collect()?.remove("vm2").unwrap_or_default());
        let dropped = drops(&get(&lab, "nic0")?);
        Ok((arrived.len() as u64 + dropped >= frames.len() as u64).then_some(()))
    })?;
    let mut in_order = frames.iter();
    ensure!(arrived.first() == frames.first(), "the first one is lost");
    ensure!(arrived.iter().all(|frame| in_order.any(|sent| sent == frame)), "other frames");
    let sent = udp(1, 2, 9, 1000);
    ensure!(lab.port("vm1")?.send(&sent, 2), "no room");
    eventually("transmission", LIMIT, || {
        Ok((count(&get(&lab, "nic0")?, "tx_packets") == 1).then_some(()))
    })?;
    // The file is written out when it is closed.
    remove(&lab, "nic0")?;
    let written = fs::read(&to)?;
    let expected = [&[2, 0, 0, 0, 0, 7], &sent[6..]].concat();
    ensure!(written.ends_with(&expected), "{} bytes", written.len());
    lab.switch.stop()
}

/// A pair of network interfaces, one here and one in a namespace; gone when dropped.
struct Namespace {
    name: String,
    here: String,
}

impl Namespace {
    fn new() -> Result<Self, Missing> {
        if !geteuid().is_root() {
            return Err(Missing("network interfaces are made by root only".to_owned()));
        }
        let ip = program("ip", "iproute2")?;
        let made = Self {
            name: format!("tollgate-{}", std::process::id()),
            here: format!("tg{}", std::process::id()),
        };
        let steps = [
            format!("netns add {}", made.name),
            format!("link add {} type veth peer name eth0 netns {}", made.here, made.name),
            format!("link set {} up", made.here),
            format!("-n {} link set eth0 up", made.name),
        ];
        for step in steps {
            run(Command::new(&ip).args(step.split(' ')))
                .map_err(|error| Missing(format!("ip {step}: {error:#}")))?;
        }
        Ok(made)
    }

    /// A station in there that answers each frame with itself, the addresses swapped.
    fn echo(&self, directory: &Path) -> anyhow::Result<Supervised> {
        const SCRIPT: &str = "import socket\n\
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))\n\
            s.bind(('eth0', 0x0800))\n\
            print('ready', flush=True)\n\
            while True:\n\
            \x20   f, a = s.recvfrom(4096)\n\
            \x20   if a[2] != 4: s.send(f[6:12] + f[0:6] + f[12:])\n";
        let mut python = Command::new("ip");
        python.args(["netns", "exec", &self.name, "python3", "-c", SCRIPT]);
        let mut echo = Supervised::spawn("echo", &mut python, &directory.join("echo.log"))?;
        echo.wait_until("socket", LIMIT, |said| said.contains("ready").then_some(()))?;
        Ok(echo)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The interfaces go with it.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        let _ = Command::new("ip")
            .args(["link", "del", &self.here])
            .stderr(std::process::Stdio::null())
            .status();
    }
}

#[test]
fn a_guest_talks_to_a_station_behind_a_network_interface() -> anyhow::Result<()> {
    require!(libdpdk());
    require!(program("python3", "python3"));
    let namespace = require!(Namespace::new());
    let mut lab = lab(&["vm1"])?;
    let echo = namespace.echo(lab.switch.run_dir())?;
    add(&lab, "nic0", &format!("net_af_packet0,iface={},qdisc_bypass=1", namespace.here))?;
    lab.switch.add_flows(&[
        "in_port=vm1,actions=output:nic0",
        "in_port=nic0,ip,udp,tp_dst=7,actions=output:vm1",
    ])?;
    for round in 0..20_usize {
        let frame = udp(1, 2, 7, 50 + round * 70);
        ensure!(lab.port("vm1")?.send(&frame, 1), "no room");
        let answer = [&frame[6..12], &frame[..6], &frame[12..]].concat();
        ensure!(arrive(&mut lab, "vm1", 1)? == [answer], "round {round}");
    }
    let card = get(&lab, "nic0")?;
    ensure!(card["driver"] == "net_af_packet" && card["state"] == "up", "{card}");
    // The cable is pulled.
    run(Command::new("ip").args(["-n", &namespace.name, "link", "set", "eth0", "down"]))?;
    remove(&lab, "nic0")?;
    drop(echo);
    lab.switch.stop()
}

/// Without the section there is no DPDK, and a port says what is missing.
#[test]
fn a_card_without_dpdk_is_refused_with_what_is_missing() -> anyhow::Result<()> {
    let lab = Lab::new(&[])?;
    let message = add(&lab, "nic0", "net_null0").err().context("not refused")?.to_string();
    let wanted = if libdpdk().is_ok() { "[dpdk]" } else { "--features dpdk" };
    ensure!(message.contains(wanted), "{message}");
    lab.switch.stop()
}
