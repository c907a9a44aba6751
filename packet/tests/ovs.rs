//! The parser against Open vSwitch's own: `ovs-ofctl parse-pcap` prints the fields that it finds in
//! each frame of a capture.
//!
//! Differences that are meant, and kept out of the comparison:
//! - an IPv6 packet whose extension headers cannot be walked to the end keeps its traffic class,
//!   hop limit and flow label, so that they can be edited;
//! - after [`MAX_IPV6_EXTENSIONS`] extension headers we give up, OVS goes on;
//! - OVS reads the type of IGMP and of ICMP in the other IP version, which no flow matches on, and
//!   what MPLS and NSH carry, which no flow of ours does.
//!
//! OVS is given, and we parse, whole frames: a switch sees only the copy of the header.

mod common;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use common::{ICMP, ICMPV6, PORT, SCTP, TCP, UDP, damaged, noise};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use proving_ground::skip::program;
use proving_ground::{process, require};
use tollgate_packet::key::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::limits::MAX_IPV6_EXTENSIONS;
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, HeaderField};

/// Frames of one run, unless PROPTEST_CASES asks for more.
const FRAMES: u32 = 6000;
/// Attempts to make a frame that differs simpler.
const SHRINKING_STEPS: usize = 400;

#[test]
fn every_frame_has_the_fields_that_open_vswitch_finds_in_it() -> anyhow::Result<()> {
    let ovs = Ovs::new(require!(program("ovs-ofctl", "openvswitch-common")))?;
    let mut runner = TestRunner::default();
    let frame = prop_oneof![8 => damaged(), 1 => noise()];
    let mut trees = Vec::new();
    for _ in 0..runner.config().cases.max(FRAMES) {
        trees.push(frame.new_tree(&mut runner).map_err(|reason| anyhow::anyhow!("{reason}"))?);
    }
    let frames: Vec<_> = trees.iter().map(ValueTree::current).collect();
    let flows = ovs.parse(&frames)?;
    for ((frame, flow), tree) in frames.iter().zip(flows).zip(&mut trees) {
        if difference(frame, &flow)?.is_some() {
            return Err(simplest(&ovs, tree)?);
        }
    }
    Ok(())
}

/// The difference in the simplest frame that has one.
fn simplest(
    ovs: &Ovs,
    tree: &mut impl ValueTree<Value = Vec<u8>>,
) -> anyhow::Result<anyhow::Error> {
    let mut found = None;
    for _ in 0..SHRINKING_STEPS {
        let frame = tree.current();
        let flow = ovs.parse(std::slice::from_ref(&frame))?.remove(0);
        let difference = difference(&frame, &flow)?;
        let differs = difference.is_some();
        found = difference.or(found);
        let goes_on = if differs { tree.simplify() } else { tree.complicate() };
        if !goes_on {
            break;
        }
    }
    Ok(anyhow::anyhow!("{}", found.unwrap_or_default()))
}

/// How our fields of a frame differ from OVS's, which it printed as `flow`.
fn difference(frame: &[u8], flow: &str) -> anyhow::Result<Option<String>> {
    let mut ours = parse(frame, frame.len() as u32, PORT).key;
    let mut theirs = key_of(flow).with_context(|| flow.to_owned())?;
    // Not printed.
    theirs.in_port = ours.in_port;
    (theirs.vlan_tpid, theirs.inner_vlan_tpid) = (ours.vlan_tpid, ours.inner_vlan_tpid);
    if matches!((theirs.eth_type, theirs.ip_proto), (IPV4, ICMPV6 | IGMP) | (IPV6, ICMP | IGMP)) {
        (theirs.l4_src, theirs.l4_dst) = (0, 0);
        (theirs.arp_sha, theirs.arp_tha) = Default::default();
        theirs.nd_target = [0; 16];
    }
    if theirs.eth_type == IPV6 && ours.ip_proto == 0 {
        if extension_headers(frame) > MAX_IPV6_EXTENSIONS {
            return Ok(None);
        }
        (ours.ip_tos, ours.ip_ttl) = (theirs.ip_tos, theirs.ip_ttl);
        ours.ipv6_label = theirs.ipv6_label;
    }
    let bytes: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((ours != theirs).then(|| format!("{bytes}\nours {ours:x?}\nOVS's {theirs:x?}\n{flow}")))
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const IGMP: u8 = 2;

/// How many extension headers there seem to be in an IPv6 packet.
fn extension_headers(frame: &[u8]) -> usize {
    let ipv6 = [0x86, 0xdd];
    let Some(at) = frame.windows(2).step_by(2).skip(6).position(|pair| pair == ipv6) else {
        return 0;
    };
    let start = 14 + 2 * at;
    let byte = |at: usize| frame.get(at).copied().unwrap_or(59);
    let (mut kind, mut at, mut count) = (byte(start + 6), start + 40, 0);
    while matches!(kind, 0 | 43 | 44 | 51 | 60) {
        let bytes = match kind {
            44 => 8,
            51 => (usize::from(byte(at + 1)) + 2) * 4,
            _ => (usize::from(byte(at + 1)) + 1) * 8,
        };
        (kind, at, count) = (byte(at), at + bytes, count + 1);
    }
    count
}

/// The peer, and a place for captures.
struct Ovs {
    ovs_ofctl: PathBuf,
    directory: tempfile::TempDir,
}

impl Ovs {
    fn new(ovs_ofctl: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { ovs_ofctl, directory: tempfile::tempdir()? })
    }

    /// What OVS prints for each frame.
    fn parse(&self, frames: &[Vec<u8>]) -> anyhow::Result<Vec<String>> {
        let capture = self.directory.path().join("frames.pcap");
        write_pcap(&capture, frames)?;
        let text = process::run(Command::new(&self.ovs_ofctl).arg("parse-pcap").arg(&capture))?;
        let flows: Vec<_> = text.lines().map(str::to_owned).collect();
        ensure!(flows.len() == frames.len(), "{} lines for {} frames", flows.len(), frames.len());
        Ok(flows)
    }
}

/// A capture of Ethernet frames, in the classic format of libpcap.
fn write_pcap(path: &Path, frames: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(frame)?;
    }
    Ok(file.flush()?)
}

/// The key of a flow as OVS prints it: all of its fields, be they zero or not.
fn key_of(flow: &str) -> anyhow::Result<FlowKey> {
    let mut key = FlowKey::default();
    for token in flow.split(',') {
        let (name, value) = token.split_once('=').unwrap_or((token, ""));
        read_field(&mut key, name, value).with_context(|| token.to_owned())?;
    }
    Ok(key)
}

/// What a flow begins with, and the EtherType and protocol that it stands for.
const KINDS: [(&str, u16, u8); 14] = [
    ("ip", IPV4, 0),
    ("icmp", IPV4, ICMP),
    ("tcp", IPV4, TCP),
    ("udp", IPV4, UDP),
    ("sctp", IPV4, SCTP),
    ("ipv6", IPV6, 0),
    ("icmp6", IPV6, ICMPV6),
    ("tcp6", IPV6, TCP),
    ("udp6", IPV6, UDP),
    ("sctp6", IPV6, SCTP),
    ("arp", 0x0806, 0),
    ("rarp", 0x8035, 0),
    ("mpls", 0x8847, 0),
    ("mplsm", 0x8848, 0),
];

fn read_field(key: &mut FlowKey, name: &str, value: &str) -> anyhow::Result<()> {
    if let Some((_, eth_type, ip_proto)) = KINDS.iter().find(|(kind, ..)| *kind == name) {
        (key.eth_type, key.ip_proto) = (*eth_type, *ip_proto);
        return Ok(());
    }
    if let Some(field) = header_field(name) {
        let bits = field.place(number(value)?);
        key.words_mut().iter_mut().zip(bits.words()).for_each(|(word, bits)| *word |= bits);
        return Ok(());
    }
    match name {
        "dl_type" => key.eth_type = number(value)? as u16,
        "nw_proto" | "arp_op" => key.ip_proto = number(value)? as u8,
        "dl_vlan" => key.vlan_tci |= VLAN_PRESENT | number(value)? as u16,
        "dl_vlan1" => key.inner_vlan_tci |= VLAN_PRESENT | number(value)? as u16,
        "dl_vlan_pcp1" => key.inner_vlan_tci |= (number(value)? as u16) << 13,
        // The DSCP, but in its place.
        "nw_tos" => key.ip_tos |= number(value)? as u8,
        "tcp_flags" => key.tcp_flags = tcp_flags(value)?,
        "nw_frag" => {
            key.ip_frag = match value {
                "no" => 0,
                "first" => FRAG_ANY,
                "later" => FRAG_ANY | FRAG_LATER,
                _ => bail!("unknown fragment"),
            }
        }
        "in_port" | "vlan_tci" | "vlan_tci1" => {}
        name if name.starts_with("mpls_") || name.starts_with("nsh_") => {}
        _ => bail!("unknown field"),
    }
    Ok(())
}

/// The fields that are numbers or addresses.
fn header_field(name: &str) -> Option<HeaderField> {
    Some(match name {
        "dl_src" => HeaderField::EthSrc,
        "dl_dst" => HeaderField::EthDst,
        "dl_vlan_pcp" => HeaderField::VlanPcp,
        "nw_src" => HeaderField::Ipv4Src,
        "nw_dst" => HeaderField::Ipv4Dst,
        "ipv6_src" => HeaderField::Ipv6Src,
        "ipv6_dst" => HeaderField::Ipv6Dst,
        "ipv6_label" => HeaderField::Ipv6Label,
        "nw_ecn" => HeaderField::IpEcn,
        "nw_ttl" => HeaderField::IpTtl,
        "tp_src" => HeaderField::L4Src,
        "tp_dst" => HeaderField::L4Dst,
        "icmp_type" => HeaderField::IcmpType,
        "icmp_code" => HeaderField::IcmpCode,
        "arp_spa" => HeaderField::ArpSpa,
        "arp_tpa" => HeaderField::ArpTpa,
        "arp_sha" => HeaderField::ArpSha,
        "arp_tha" => HeaderField::ArpTha,
        "nd_target" => HeaderField::NdTarget,
        "nd_sll" => HeaderField::NdSll,
        "nd_tll" => HeaderField::NdTll,
        _ => return None,
    })
}

/// A number in decimal or hexadecimal, or an address.
fn number(text: &str) -> anyhow::Result<u128> {
    if let Some(digits) = text.strip_prefix("0x") {
        return Ok(u128::from_str_radix(digits, 16)?);
    }
    if let Ok(mac) = text.parse::<tollgate_packet::MacAddr>() {
        return Ok(mac.to_bits().into());
    }
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(match address {
            std::net::IpAddr::V4(address) => address.to_bits().into(),
            std::net::IpAddr::V6(address) => address.to_bits(),
        });
    }
    Ok(text.parse()?)
}

fn tcp_flags(text: &str) -> anyhow::Result<u16> {
    const NAMES: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];
    let mut flags = 0;
    if let Ok(number) = text.parse::<u16>() {
        return Ok(number);
    }
    for name in text.split('|') {
        flags |= match NAMES.iter().position(|known| *known == name) {
            Some(bit) => 1 << bit,
            // Without a name: in hexadecimal and brackets.
            None => u16::from_str_radix(name.trim_matches(['[', ']']), 16)?,
        };
    }
    Ok(flags)
}
