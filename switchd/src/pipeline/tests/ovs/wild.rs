//! Random frames: of every kind that flows tell apart, well-formed or not.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::rules::PORTS;
use super::fields::{L4_PORTS, TTLS, ipv4, ipv6, mac};

const ETHERNET_BYTES: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// A frame and where it enters.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) ofport: u32,
    dst: u16,
    src: u16,
    /// TPID and TCI, the outermost first.
    tags: Vec<(u16, u16)>,
    is_snap: bool,
    network: Network,
    /// Checksums are right.
    has_sums: bool,
    /// Bytes after the layer 4 header, besides a few.
    payload: usize,
    /// Bytes after the packet.
    padding: usize,
    flaw: Option<Flaw>,
}

#[derive(Clone, Debug)]
enum Network {
    Ipv4 {
        src: u16,
        dst: u16,
        tos: u8,
        ttl: u8,
        fragment: u16,
        options: usize,
        upper: Upper,
    },
    Ipv6 {
        src: u16,
        dst: u16,
        class: u8,
        label: u32,
        hops: u8,
        chain: Vec<Extension>,
        upper: Upper,
    },
    Arp {
        ethertype: u16,
        op: u16,
        spa: u16,
        tpa: u16,
        sha: u16,
        tha: u16,
    },
    Other(u16),
}

#[derive(Clone, Copy, Debug)]
enum Extension {
    HopByHop,
    Destination,
    Routing { segments_left: u8 },
    Authentication,
    Fragment { offset: u16, more: bool },
}

#[derive(Clone, Debug)]
enum Upper {
    Tcp { src: u16, dst: u16, flags: u16 },
    Udp { src: u16, dst: u16, has_sum: bool },
    Sctp { src: u16, dst: u16 },
    Icmp { kind: u8, code: u8 },
    Nd { solicit: bool, code: u8, target: u16, options: Vec<(u8, u16)> },
    Other(u8),
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// It ends early, though never within the Ethernet header.
    Cut(usize),
    /// A byte after the Ethernet header is another one.
    Byte { at: usize, value: u8 },
}

fn any_upper() -> impl Strategy<Value = Upper> {
    let ports = || (select(&L4_PORTS[..]), select(&L4_PORTS[..]));
    let flags = select(&[0x10_u16, 0x02, 0x12, 0x11, 0xfff][..]);
    let options = prop::collection::vec((1..4_u8, 0..9_u16), 0..3);
    prop_oneof![
        6 => (ports(), flags).prop_map(|((src, dst), flags)| Upper::Tcp { src, dst, flags }),
        6 => (ports(), prop::bool::weighted(0.8))
            .prop_map(|((src, dst), has_sum)| Upper::Udp { src, dst, has_sum }),
        2 => ports().prop_map(|(src, dst)| Upper::Sctp { src, dst }),
        2 => (select(&[8_u8, 0, 3, 128, 135][..]), 0..3_u8)
            .prop_map(|(kind, code)| Upper::Icmp { kind, code }),
        2 => (any::<bool>(), prop_oneof![5 => Just(0), 1 => Just(1)], 0..8_u16, options).prop_map(
            |(solicit, code, target, options)| Upper::Nd { solicit, code, target, options }
        ),
        1 => select(&[99_u8, 59, 47, 99, 0][..]).prop_map(Upper::Other),
    ]
}

fn any_network() -> impl Strategy<Value = Network> {
    let tos = || select(&[0_u8, 0x28, 0x2b, 0xff][..]);
    let ttl = || prop_oneof![4 => Just(64_u8), 3 => select(&TTLS[..])];
    let fragment = select(&[0_u16, 0, 0, 0, 0, 0x4000, 0x2000, 0x2010, 5][..]);
    let options = prop_oneof![5 => Just(0_usize), 1 => 1..11_usize];
    let extension = prop_oneof![
        Just(Extension::HopByHop),
        Just(Extension::Destination),
        (0..2_u8).prop_map(|segments_left| Extension::Routing { segments_left }),
        Just(Extension::Authentication),
        (0..2_u16, any::<bool>()).prop_map(|(offset, more)| Extension::Fragment { offset, more }),
    ];
    let chain = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(extension, 1..4)];
    let label = select(&[0_u32, 1, 2, 0xf_ffff][..]);
    prop_oneof![
        7 => (0..8_u16, 0..8_u16, tos(), ttl(), fragment, options, any_upper()).prop_map(
            |(src, dst, tos, ttl, fragment, options, upper)| Network::Ipv4 {
                src, dst, tos, ttl, fragment, options, upper,
            }
        ),
        6 => (0..8_u16, 0..8_u16, tos(), label, ttl(), chain, any_upper()).prop_map(
            |(src, dst, class, label, hops, chain, upper)| Network::Ipv6 {
                src, dst, class, label, hops, chain, upper,
            }
        ),
        2 => (select(&[0x0806_u16, 0x0806, 0x8035][..]), select(&[1_u16, 2, 3, 255, 256][..]),
              0..8_u16, 0..8_u16, 0..9_u16, 0..9_u16).prop_map(
            |(ethertype, op, spa, tpa, sha, tha)| Network::Arp { ethertype, op, spa, tpa, sha, tha }
        ),
        1 => select(&[0x88cc_u16, 0x0007, 0x05ff, 0x0600][..]).prop_map(Network::Other),
    ]
}

pub(super) fn any_packet() -> impl Strategy<Value = Packet> {
    let tpid = prop_oneof![3 => Just(0x8100_u16), 1 => Just(0x88a8)];
    let tag = |lowest: u16| {
        let tci = (lowest..4, 0..2_u16, prop::bool::weighted(0.1))
            .prop_map(|(vid, pcp, dei)| pcp << 13 | u16::from(dei) << 12 | vid);
        (tpid.clone(), tci)
    };
    let tags = prop_oneof![
        4 => Just(vec![]),
        3 => tag(0).prop_map(|tag| vec![tag]),
        // Of several tags none is null: see the excuses.
        3 => prop::collection::vec(tag(1), 2..=3),
    ];
    let flaw = prop_oneof![
        (ETHERNET_BYTES..100).prop_map(Flaw::Cut),
        (0..70_usize, any::<u8>()).prop_map(|(at, value)| Flaw::Byte { at, value }),
    ];
    (
        (1..=PORTS, 0..11_u16, 0..11_u16, tags, prop::bool::weighted(0.05)),
        (any_network(), prop::bool::weighted(0.8), select(&[0_usize, 0, 1, 300][..]), 0..12_usize),
        proptest::option::weighted(0.15, flaw),
    )
        .prop_map(
            |((ofport, dst, src, tags, is_snap), (network, has_sums, payload, padding), flaw)| {
                Packet {
                    ofport,
                    dst,
                    src,
                    tags,
                    is_snap,
                    network,
                    has_sums,
                    payload,
                    padding,
                    flaw,
                }
            },
        )
}

impl Packet {
    pub(super) fn build(&self) -> Vec<u8> {
        let mut bytes = [mac(self.dst), mac(self.src)].concat();
        for (tpid, tci) in &self.tags {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend(tci.to_be_bytes());
        }
        let (ethertype, body) = self.network.build(self.has_sums, &vec![0xa5; self.payload]);
        if self.is_snap {
            bytes.extend((body.len() as u16 + 8).to_be_bytes());
            bytes.extend([0xaa, 0xaa, 0x03, 0, 0, 0]);
        }
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(body);
        bytes.extend(vec![0x5a; self.padding]);
        match self.flaw {
            Some(Flaw::Cut(len)) => bytes.truncate(len),
            Some(Flaw::Byte { at, value }) => {
                if let Some(byte) = bytes.get_mut(ETHERNET_BYTES + at) {
                    *byte = value;
                }
            }
            None => {}
        }
        bytes
    }
}

impl Network {
    fn build(&self, has_sums: bool, payload: &[u8]) -> (u16, Vec<u8>) {
        match self {
            Self::Ipv4 { src, dst, tos, ttl, fragment, options, upper } => {
                let pseudo = [ipv4(*src).octets(), ipv4(*dst).octets()].concat();
                let (protocol, body) = upper.build(ICMP, &pseudo, has_sums, payload);
                let words = 5 + options;
                let mut header = vec![0x40 | words as u8, *tos];
                header.extend(((4 * words + body.len()) as u16).to_be_bytes());
                header.extend([0x12, 0x34]);
                header.extend(fragment.to_be_bytes());
                header.extend([*ttl, protocol, 0, 0]);
                header.extend(pseudo);
                header.extend(vec![1; 4 * options]);
                if has_sums {
                    let sum = checksum(&header);
                    header[10..12].copy_from_slice(&sum);
                }
                (0x0800, [header, body].concat())
            }
            Self::Ipv6 { src, dst, class, label, hops, chain, upper } => {
                let pseudo = [ipv6(*src).octets(), ipv6(*dst).octets()].concat();
                let (protocol, body) = upper.build(ICMPV6, &pseudo, has_sums, payload);
                let mut numbers: Vec<u8> = chain.iter().map(Extension::number).collect();
                numbers.push(protocol);
                let following = chain.iter().zip(&numbers[1..]);
                let chain: Vec<u8> = following.flat_map(|(e, next)| e.build(*next)).collect();
                let first = 6 << 28 | u32::from(*class) << 20 | label;
                let mut header = first.to_be_bytes().to_vec();
                header.extend(((chain.len() + body.len()) as u16).to_be_bytes());
                header.extend([numbers[0], *hops]);
                (0x86dd, [header, pseudo, chain, body].concat())
            }
            Self::Arp { ethertype, op, spa, tpa, sha, tha } => {
                let mut body = vec![0, 1, 8, 0, 6, 4];
                body.extend(op.to_be_bytes());
                body.extend(mac(*sha));
                body.extend(ipv4(*spa).octets());
                body.extend(mac(*tha));
                body.extend(ipv4(*tpa).octets());
                (*ethertype, body)
            }
            Self::Other(ethertype) => (*ethertype, vec![0; 46]),
        }
    }
}

impl Extension {
    fn number(&self) -> u8 {
        match self {
            Self::HopByHop => 0,
            Self::Destination => 60,
            Self::Routing { .. } => 43,
            Self::Authentication => 51,
            Self::Fragment { .. } => 44,
        }
    }

    fn build(&self, next: u8) -> Vec<u8> {
        match self {
            Self::HopByHop | Self::Destination => vec![next, 0, 1, 4, 0, 0, 0, 0],
            Self::Routing { segments_left } => {
                let mut header = vec![next, 2, 2, *segments_left, 0, 0, 0, 0];
                header.extend([0x20; 16]);
                header
            }
            Self::Authentication => [vec![next, 4, 0, 0], vec![9; 20]].concat(),
            Self::Fragment { offset, more } => {
                let [high, low] = (offset << 3 | u16::from(*more)).to_be_bytes();
                vec![next, 0, high, low, 1, 2, 3, 4]
            }
        }
    }
}

impl Upper {
    /// Protocol number and bytes over addresses `pseudo`.
    fn build(&self, icmp: u8, pseudo: &[u8], has_sums: bool, payload: &[u8]) -> (u8, Vec<u8>) {
        let ports = |src: &u16, dst: &u16| [src.to_be_bytes(), dst.to_be_bytes()].concat();
        let (protocol, mut bytes, sum_at) = match self {
            Self::Tcp { src, dst, flags } => {
                let [high, low] = (0x5000 | flags).to_be_bytes();
                let rest = [0, 0, 0, 1, 0, 0, 0, 0, high, low, 16, 0, 0, 0, 0, 0, 1, 2, 3];
                (TCP, [ports(src, dst), rest.to_vec()].concat(), Some(16))
            }
            Self::Udp { src, dst, has_sum } => {
                let [high, low] = (13 + payload.len() as u16).to_be_bytes();
                let rest = vec![high, low, 0, 0, 1, 2, 3, 4, 5];
                (UDP, [ports(src, dst), rest].concat(), has_sum.then_some(6))
            }
            Self::Sctp { src, dst } => {
                let rest = vec![0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0, 5, 9];
                (SCTP, [ports(src, dst), rest].concat(), None)
            }
            Self::Icmp { kind, code } => (icmp, vec![*kind, *code, 0, 0, 0, 1, 0, 1], Some(2)),
            Self::Nd { solicit, code, target, options } => {
                let mut body = vec![if *solicit { 135 } else { 136 }, *code, 0, 0, 0, 0, 0, 0];
                body.extend(ipv6(*target).octets());
                for (kind, address) in options {
                    body.extend([*kind, 1]);
                    body.extend(mac(*address));
                }
                (ICMPV6, body, Some(2))
            }
            Self::Other(protocol) => (*protocol, vec![1, 2, 3, 4, 5, 6, 7, 8], None),
        };
        // After neighbour discovery come its options only.
        if !matches!(self, Self::Nd { .. }) {
            bytes.extend(payload);
        }
        if let Some(at) = sum_at.filter(|_| has_sums) {
            let len = (bytes.len() as u32).to_be_bytes();
            let over = if protocol == ICMP { &[][..] } else { pseudo };
            let next = if protocol == ICMP { 0 } else { protocol };
            let len = if protocol == ICMP { [0; 4] } else { len };
            let sum = checksum(&[over, &len, &[0, next], &bytes].concat());
            bytes[at..at + 2].copy_from_slice(&sum);
        }
        (protocol, bytes)
    }
}

/// The Internet checksum.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!(sum as u16)).to_be_bytes()
}
