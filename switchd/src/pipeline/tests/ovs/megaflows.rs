//! The same tables and traffic given to a real Open vSwitch: decisions are cached as widely as
//! there, or nearly.

use std::collections::HashSet;

use tollgate_accel::hash::HashSecret;
use tollgate_classifier::MegaflowCache;
use tollgate_openflow::FlowCommand;

use super::super::frames::{Frame, Layer3, Layer4};
use super::super::rules::PORTS;
use super::super::sim::{Sim, key_of, parsed};
use super::peer::{Caching, Ovs};
use crate::pipeline::limits::MEGAFLOW_IDLE_MS;

/// Packets per table.
const PACKETS: usize = 6000;

/// Numbers that look random and are the same every time (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % u64::from(limit)) as u32
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.below(chances) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    fn address(&mut self) -> [u8; 4] {
        self.below(u32::MAX).to_be_bytes()
    }

    /// An address of a network.
    fn host(&mut self, network: [u8; 4], bits: u32) -> [u8; 4] {
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let host = u32::from_be_bytes(self.address()) & !mask;
        (u32::from_be_bytes(network) & mask | host).to_be_bytes()
    }

    fn layer4(&mut self) -> Layer4 {
        let (src, dst) = (self.below(65536) as u16, self.below(65536) as u16);
        let dst = if self.one_in(2) { self.pick(&[22, 53, 80, 443, 8080]) } else { dst };
        match self.below(10) {
            0 => Layer4::Icmp(8, 0),
            1..4 => Layer4::Udp(src, dst),
            _ => Layer4::Tcp(src, dst),
        }
    }

    fn ipv4(&mut self, src: [u8; 4], dst: [u8; 4]) -> Frame {
        let layer4 = self.layer4();
        let (tos, ttl) = (self.pick(&[0, 0, 0xb8]), self.pick(&[64, 64, 128, 255]));
        let layer3 = Layer3::Ipv4 { src, dst, tos, ttl, fragment: 0, layer4 };
        self.frame(layer3)
    }

    /// Some IPv6, ARP and other frames belong to all traffic.
    fn other(&mut self) -> Frame {
        let layer3 = match self.below(3) {
            0 => Layer3::Arp { op: 1, spa: self.address(), tpa: self.address() },
            1 => Layer3::Ipv6 {
                src: self.ipv6_host(0, 0),
                dst: self.ipv6_host(0, 0),
                class: 0,
                hops: 64,
                layer4: self.layer4(),
            },
            _ => Layer3::Other(0x88cc),
        };
        self.frame(layer3)
    }

    fn ipv6_host(&mut self, network: u128, bits: u32) -> [u8; 16] {
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let host = (0..4).fold(0, |host, _| host << 32 | u128::from(self.below(u32::MAX)));
        (network & mask | host & !mask).to_be_bytes()
    }

    fn frame(&mut self, layer3: Layer3) -> Frame {
        let mut mac = || [2, 0, self.below(256) as u8, self.below(256) as u8, 0, 1];
        let (src, dst) = (mac(), mac());
        Frame { src, dst, tags: Vec::new(), layer3 }
    }
}

fn dotted([a, b, c, d]: [u8; 4]) -> String {
    format!("{a}.{b}.{c}.{d}")
}

/// A switch's tables and what it gets to forward.
struct Case {
    name: &'static str,
    flows: Vec<String>,
    traffic: Vec<(u32, Frame)>,
}

impl Case {
    fn new(name: &'static str) -> Self {
        Self { name, flows: Vec::new(), traffic: Vec::new() }
    }

    fn flow(&mut self, flow: String) {
        self.flows.push(flow);
    }

    fn packets(&mut self, dice: &mut Dice, mut frame: impl FnMut(&mut Dice) -> Frame) {
        for _ in 0..PACKETS {
            let frame = if dice.one_in(20) { dice.other() } else { frame(dice) };
            self.traffic.push((1 + dice.below(PORTS), frame));
        }
    }

    /// How many decisions our caches would hold, with how many masks of ingress ports.
    fn ours(&self) -> (usize, usize) {
        let sim = Sim::new(PORTS);
        for flow in &self.flows {
            sim.add(flow);
        }
        // Once to learn where stations are, which makes decisions obsolete.
        self.cached(&sim);
        sim.advance_ms(MEGAFLOW_IDLE_MS);
        sim.sweep();
        self.cached(&sim)
    }

    fn cached(&self, sim: &Sim) -> (usize, usize) {
        let mut cache = MegaflowCache::new(1 << 14, 4096, HashSecret::from_words(1, 2));
        let mut masks = HashSet::new();
        for (ofport, frame) in &self.traffic {
            let key = key_of(*ofport, &frame.build());
            if cache.lookup(&key).is_some() {
                continue;
            }
            let answer = sim.answer(*ofport, &key);
            let matcher = answer.verdict.megaflow.matcher;
            masks.insert((*ofport, *matcher.mask()));
            cache.insert(matcher, ()).unwrap();
        }
        (cache.len(), masks.len())
    }

    fn theirs(&self, ovs: &mut Ovs) -> usize {
        ovs.clear();
        let flow_mods: Vec<_> =
            self.flows.iter().map(|flow| parsed(FlowCommand::Add, flow)).collect();
        assert!(ovs.flow_mods(&flow_mods).iter().all(Result::is_ok));
        for _ in 0..2 {
            ovs.ask("revalidator/wait", &[]);
            ovs.ask("revalidator/purge", &[]);
            for (ofport, frame) in &self.traffic {
                ovs.receive_frame(*ofport, &frame.build());
            }
        }
        ovs.ask("dpctl/dump-flows", &[]).lines().count()
    }
}

fn access_list(dice: &mut Dice) -> Case {
    let mut case = Case::new("access list");
    let mut networks = Vec::new();
    for n in 0..200 {
        let (src, dst) = (dice.address(), [10, dice.below(4) as u8, dice.below(256) as u8, 0]);
        let (src_bits, dst_bits) = (dice.pick(&[0, 0, 8, 16, 24]), dice.pick(&[16, 24, 24, 32]));
        networks.push(((src, src_bits), (dst, dst_bits)));
        let proto = dice.pick(&["tcp", "tcp", "udp", "ip"]);
        let mut flow = format!("priority={},{proto}", 1000 - n);
        if src_bits > 0 {
            flow += &format!(",nw_src={}/{src_bits}", dotted(src));
        }
        flow += &format!(",nw_dst={}/{dst_bits}", dotted(dst));
        if proto != "ip" {
            flow += &format!(",tp_dst={}", dice.pick(&[22, 53, 80, 443, 8080]));
        }
        case.flow(format!("{flow},actions={}", dice.pick(&["drop", "output:1", "output:2"])));
    }
    case.flow("priority=0,actions=output:3".into());
    case.packets(dice, |dice| {
        let ((src, src_bits), (dst, dst_bits)) = dice.pick(&networks);
        let src = dice.host(src, src_bits);
        let dst = if dice.one_in(3) { dice.address() } else { dice.host(dst, dst_bits) };
        dice.ipv4(src, dst)
    });
    case
}

fn stations(dice: &mut Dice) -> Case {
    let mut case = Case::new("exact MAC addresses");
    let mac = |n: u32| [2, 0, 0, 0, (n >> 8) as u8, n as u8];
    for n in 0..500 {
        let address = mac(n).map(|byte| format!("{byte:02x}")).join(":");
        case.flow(format!("priority=10,dl_dst={address},actions=output:{}", 1 + n % PORTS));
    }
    case.flow("priority=0,actions=drop".into());
    case.packets(dice, |dice| {
        let (src, dst) = (dice.address(), dice.address());
        Frame { dst: mac(dice.below(700)), ..dice.ipv4(src, dst) }
    });
    case
}

fn routes(dice: &mut Dice) -> Case {
    let mut case = Case::new("routes /8 to /32");
    let mut networks = Vec::new();
    for _ in 0..500 {
        let bits = dice.pick(&[8, 12, 16, 16, 20, 22, 24, 24, 24, 28, 32]);
        let network = dice.address();
        networks.push((network, bits));
        let target = 1 + dice.below(PORTS);
        let (priority, network) = (bits, dotted(network));
        case.flow(format!(
            "priority={priority},ip,nw_dst={network}/{bits},actions=output:{target}"
        ));
    }
    case.flow("priority=0,actions=drop".into());
    case.packets(dice, |dice| {
        let (network, bits) = dice.pick(&networks);
        let dst = if dice.one_in(3) { dice.address() } else { dice.host(network, bits) };
        let src = dice.address();
        dice.ipv4(src, dst)
    });
    case
}

fn routes_ipv6(dice: &mut Dice) -> Case {
    let mut case = Case::new("IPv6 routes and services");
    let mut networks = Vec::new();
    for n in 0..50 {
        let bits = dice.pick(&[32, 48, 48, 56, 64, 64, 128]);
        let network = dice.ipv6_host(0x2001_0db8 << 96, 32);
        networks.push((u128::from_be_bytes(network), bits));
        let address = std::net::Ipv6Addr::from(network);
        let target = 1 + dice.below(PORTS);
        let (kind, ports) =
            dice.pick(&[("ipv6", ""), ("tcp6", ",tp_dst=443"), ("udp6", ",tp_dst=53")]);
        let priority = 200 + 200 * u32::from(ports.len() as u32 > 0) - n % 100;
        case.flow(format!(
            "priority={priority},{kind},ipv6_dst={address}/{bits}{ports},actions=output:{target}"
        ));
    }
    case.flow("priority=0,actions=drop".into());
    case.packets(dice, |dice| {
        let (network, bits) = dice.pick(&networks);
        let bits = if dice.one_in(3) { 32 } else { bits };
        let dst = dice.ipv6_host(network, bits);
        let src = dice.ipv6_host(0, 0);
        let layer4 = dice.layer4();
        dice.frame(Layer3::Ipv6 { src, dst, class: 0, hops: 64, layer4 })
    });
    case
}

/// Who may send, what may be reached, where it is: each in a table.
fn guarded_network(dice: &mut Dice) -> Case {
    let mut case = Case::new("anti-spoofing, services, stations");
    let machine = |n: u32| ([2, 0, 0, 0, 1, n as u8], [10, 0, (n / 64) as u8, n as u8]);
    for n in 0..64 {
        let (mac, ip) = machine(n);
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let (port, ip) = (1 + n % PORTS, dotted(ip));
        let from = format!("priority=10,in_port={port},dl_src={mac}");
        case.flow(format!("{from},ip,nw_src={ip},actions=goto_table:1"));
        case.flow(format!("{from},arp,arp_spa={ip},actions=goto_table:2"));
        let to = format!("table=1,priority=10,tcp,nw_dst={ip}");
        case.flow(format!("{to},tp_dst={},actions=goto_table:2", [80, 443, 22][n as usize % 3]));
        case.flow(format!("table=2,priority=10,dl_dst={mac},actions=output:{port}"));
    }
    case.flow("table=1,priority=20,icmp,actions=goto_table:2".into());
    case.flow("table=1,priority=5,udp,tp_dst=53,actions=goto_table:2".into());
    case.flow("table=2,priority=5,dl_dst=ff:ff:ff:ff:ff:ff,actions=flood".into());
    case.packets(dice, |dice| {
        let (from, to) = (dice.below(64), dice.below(80));
        let (mac, mut src) = machine(if dice.one_in(5) { dice.below(256) } else { from });
        if dice.one_in(10) {
            src = dice.address();
        }
        let (to_mac, dst) = machine(to);
        Frame { src: mac, dst: to_mac, ..dice.ipv4(src, dst) }
    });
    // The machines are where they belong, for the most part.
    for (ofport, frame) in &mut case.traffic {
        if frame.src[4] == 1 && !dice.one_in(10) {
            *ofport = 1 + u32::from(frame.src[5]) % PORTS;
        }
    }
    case
}

/// A table edits what the next one looks at.
fn router(dice: &mut Dice) -> Case {
    let mut case = Case::new("router with rewritten addresses");
    for n in 0..100 {
        case.flow(format!(
            "priority=10,tcp,nw_dst=192.0.2.{n},tp_dst=80,\
             actions=set_field:10.1.{n}.1->ip_dst,set_field:{}->tcp_dst,goto_table:1",
            8000 + n
        ));
    }
    case.flow("priority=5,ip,actions=goto_table:1".into());
    for n in 0..100 {
        case.flow(format!(
            "table=1,priority=24,ip,nw_dst=10.1.{n}.0/24,actions=dec_ttl,\
             set_field:02:00:00:00:02:{n:02x}->eth_dst,output:{}",
            1 + n % PORTS
        ));
    }
    case.flow("table=1,priority=8,ip,nw_dst=10.0.0.0/8,actions=output:1".into());
    case.packets(dice, |dice| {
        let dst = match dice.below(3) {
            0 => [192, 0, 2, dice.below(128) as u8],
            1 => dice.host([10, 1, 0, 0], 16),
            _ => dice.address(),
        };
        let src = dice.address();
        dice.ipv4(src, dst)
    });
    case
}

fn port_ranges(dice: &mut Dice) -> Case {
    let mut case = Case::new("ranges of ports");
    let ranges =
        [(0x0000, 0xfc00), (0x0400, 0xfe00), (0x1f90, 0xfff8), (0x8000, 0x8000), (80, 0xffff)];
    for n in 0..40 {
        let (value, mask) = dice.pick(&ranges);
        let field = dice.pick(&["tp_dst", "tp_dst", "tp_src"]);
        let network = format!("10.0.{n}.0/24");
        let proto = dice.pick(&["tcp", "udp"]);
        case.flow(format!(
            "priority={},{proto},nw_dst={network},{field}={value:#x}/{mask:#x},actions=output:{}",
            100 - n,
            1 + n % PORTS
        ));
    }
    case.flow("priority=50,tcp,tp_dst=0x4000/0xc000,actions=output:1".into());
    case.flow("priority=0,actions=drop".into());
    case.packets(dice, |dice| {
        let (src, dst) = (dice.address(), dice.host([10, 0, 0, 0], 18));
        dice.ipv4(src, dst)
    });
    case
}

/// Stations behind ports, in three VLANs; some ports are access ports.
fn learning_bridge(dice: &mut Dice) -> Case {
    let mut case = Case::new("learning bridge with VLANs");
    case.flow("priority=20,in_port=1,vlan_tci=0,actions=push_vlan:0x8100,set_field:4097->vlan_vid,goto_table:1".into());
    case.flow("priority=20,in_port=2,vlan_tci=0,actions=push_vlan:0x8100,set_field:4098->vlan_vid,goto_table:1".into());
    case.flow("priority=10,vlan_tci=0x1000/0x1000,actions=goto_table:1".into());
    case.flow("table=1,priority=10,udp,tp_dst=53,actions=drop".into());
    case.flow("table=1,priority=0,actions=NORMAL".into());
    case.packets(dice, |dice| {
        let (src, dst) = (dice.address(), dice.address());
        let mut frame = dice.ipv4(src, dst);
        frame.src[2..4].copy_from_slice(&[0, dice.below(24) as u8]);
        frame.dst[2..4].copy_from_slice(&[0, dice.below(30) as u8]);
        frame
    });
    for (ofport, frame) in &mut case.traffic {
        *ofport = 1 + u32::from(frame.src[3]) % PORTS;
        if *ofport > 2 {
            let vid = 1 + u16::from(frame.src[3] / 4) % 3;
            frame.tags.push((0x8100, vid));
        }
    }
    case
}

/// What kind of packet it is goes into registers, and what is done about it comes out of them.
fn registers(dice: &mut Dice) -> Case {
    let mut case = Case::new("policies by register");
    for n in 0..20 {
        let (group, bits) = (n % 8, dice.pick(&[16, 24, 24]));
        case.flow(format!(
            "priority={bits},ip,nw_src=10.{}.{n}.0/{bits},actions=load:{group}->reg0[0..15],goto_table:1",
            n % 4
        ));
        case.flow(format!(
            "table=1,priority={bits},ip,nw_dst=10.{}.{n}.0/{bits},\
             actions=load:{group}->reg0[16..31],resubmit(,2),resubmit(,3)",
            n % 4
        ));
    }
    for from in 0..8 {
        for to in 0..8 {
            let kind = dice.pick(&["ip", "tcp", "tcp,tp_dst=80", "tcp,tp_dst=443", "udp"]);
            let verdict = 1 + dice.below(PORTS);
            case.flow(format!(
                "table=2,priority=10,{kind},reg0={:#x},actions=load:{verdict}->reg1[]",
                to << 16 | from
            ));
        }
    }
    for port in 1..=PORTS {
        case.flow(format!("table=3,priority=10,reg1={port},actions=output:{port}"));
    }
    case.packets(dice, |dice| {
        let (src, dst) = (dice.host([10, 0, 0, 0], 14), dice.host([10, 0, 0, 0], 14));
        dice.ipv4(src, dst)
    });
    for (_, frame) in &mut case.traffic {
        if let Layer3::Ipv4 { src, dst, .. } = &mut frame.layer3 {
            (src[2], dst[2]) = (src[2] % 24, dst[2] % 24);
        }
    }
    case
}

#[test]
fn decisions_are_cached_as_widely_as_in_ovs() {
    let Some(mut ovs) = Ovs::start(Caching::On) else { return };
    let dice = &mut Dice(0x5eed);
    let cases = [
        access_list(dice),
        stations(dice),
        routes(dice),
        routes_ipv6(dice),
        guarded_network(dice),
        router(dice),
        port_ranges(dice),
        learning_bridge(dice),
        registers(dice),
    ];
    let mut wider = Vec::new();
    for case in cases {
        let (ours, masks) = case.ours();
        let theirs = case.theirs(&mut ovs);
        let line = format!("{}: {ours} megaflows ({masks} masks), OVS {theirs}", case.name);
        #[allow(clippy::print_stdout, reason = "the measured numbers")]
        {
            println!("{line}");
        }
        // Or a cache of whole packets would not be found out.
        assert!(PACKETS * 10 > theirs * 13, "{line}");
        if ours * 10 > theirs * 12 {
            wider.push(line);
        }
    }
    assert!(wider.is_empty(), "more than 1.2 times as many as OVS: {wider:#?}");
}
