//! Our flow language side by side with Debian's `ovs-ofctl` 3.1 on generated flows: what it prints,
//! we print; what it makes of a text, we make of it. Without it: SKIP, or with `REQUIRE_PEERS=1` a
//! failure.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tempfile::tempdir;
use tollgate_openflow::message::{HEADER_BYTES, Hello};
use tollgate_openflow::multipart::{FlowStats, MultipartReply};
use tollgate_openflow::text::{FlowFormat, NoNames, format_flow, parse_flow};
use tollgate_openflow::{FlowCommand, FlowMod, Header, Message};

/// Flows in one run. `ovs-ofctl` takes them in one file, so that they cost little.
const FLOWS: usize = 1000;

/// False, with a line that says so, where `ovs-ofctl` is not installed.
fn installed() -> bool {
    let runs = Command::new("ovs-ofctl").arg("--version").output();
    if runs.is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("REQUIRE_PEERS").is_none_or(|value| value != "1"),
        "REQUIRE_PEERS=1, but ovs-ofctl is missing"
    );
    println!("SKIP ovs-ofctl is not installed");
    false
}

fn ovs_ofctl(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("ovs-ofctl")
        .args(["-O", "OpenFlow13"])
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ovs-ofctl {arguments:?}: {complaints}");
    assert_eq!(complaints, "", "ovs-ofctl {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Values of a strategy: the same in every run, or with `PROPTEST_SEED=N` others.
fn sample<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let seed: u64 = std::env::var("PROPTEST_SEED").map_or(0, |text| text.parse().unwrap());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn generated_flows_print_as_ovs_ofctl_prints_them() {
    if !installed() {
        return;
    }
    let dir = tempdir().unwrap();
    let flows: Vec<FlowStats> = sample(common::flow_stats(), FLOWS);
    let reply = MultipartReply::Flow(flows.clone());
    let bytes = Message::MultipartReply { reply, more: false }.encode(2);
    std::fs::write(dir.path().join("replies"), bytes).unwrap();
    let printed = ovs_ofctl(dir.path(), &["ofp-parse", "replies"]);
    let theirs: Vec<&str> = printed.lines().filter(|line| !line.starts_with("OFPST")).collect();
    assert_eq!(theirs.len(), flows.len());
    for (flow, theirs) in flows.iter().zip(theirs) {
        let ours = format_flow(flow, &NoNames, FlowFormat { stats: true });
        assert_eq!(format!(" {ours}"), theirs, "{flow:?}");
    }
}

/// Takes the flow-mods of one client until it goes.
fn flow_mods_of(mut client: UnixStream) -> Vec<FlowMod> {
    client.write_all(&Message::Hello(Hello::OURS).encode(1)).unwrap();
    let mut flow_mods = Vec::new();
    loop {
        let mut bytes = vec![0; HEADER_BYTES];
        if client.read_exact(&mut bytes).is_err() {
            return flow_mods;
        }
        let header = Header::decode(*bytes.first_chunk().unwrap()).unwrap();
        bytes.resize(header.length.into(), 0);
        client.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
        match Message::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}")).1 {
            Message::FlowMod(flow_mod) => flow_mods.push(*flow_mod),
            Message::BarrierRequest => {
                client.write_all(&Message::BarrierReply.encode(header.xid)).unwrap();
            }
            _ => {}
        }
    }
}

/// What `ovs-ofctl add-flows` sends for these lines.
fn sent_by_ovs_ofctl(lines: &[String]) -> Vec<FlowMod> {
    let dir = tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("switch")).unwrap();
    std::fs::write(dir.path().join("flows"), lines.join("\n") + "\n").unwrap();
    let switch = std::thread::spawn(move || flow_mods_of(listener.accept().unwrap().0));
    let target = format!("unix:{}", dir.path().join("switch").display());
    ovs_ofctl(dir.path(), &["--no-names", "add-flows", &target, "flows"]);
    switch.join().unwrap()
}

fn assert_read_alike(lines: &[String]) {
    let lines: Vec<String> = lines.iter().filter(|line| readable(line)).cloned().collect();
    let theirs = sent_by_ovs_ofctl(&lines);
    assert_eq!(theirs.len(), lines.len());
    for (line, theirs) in lines.iter().zip(theirs) {
        let ours = parse_flow(line, FlowCommand::Add, &NoNames)
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(ours, theirs, "{line}");
    }
}

/// `ovs-ofctl` does not read all that it prints: of an IPv6 mask that begins with a decimal digit it
/// takes a prefix length, and stumbles over the rest.
fn readable(text: &str) -> bool {
    let mut masks = text.split('/').skip(1);
    !masks.any(|mask| {
        let word: &str = mask.split([',', '-', ' ', ')']).next().unwrap_or_default();
        let is_ipv6 = word.contains("::") || word.matches(':').count() == 7;
        is_ipv6 && word.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn printed_flows_are_read_as_ovs_ofctl_reads_them() {
    if !installed() {
        return;
    }
    let flows = sample(common::flow_stats(), FLOWS);
    let text = |flow: &FlowStats| format_flow(flow, &NoNames, FlowFormat { stats: false });
    assert_read_alike(&flows.iter().map(text).collect::<Vec<_>>());
}

#[test]
fn flows_in_every_spelling_are_read_as_ovs_ofctl_reads_them() {
    if installed() {
        assert_read_alike(&sample(common::spelling::flow(), FLOWS));
    }
}
