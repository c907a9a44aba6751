//! Well-formed frames of every kind, each with the key that it must parse to.
#![allow(dead_code)]

pub(crate) mod edits;
pub(crate) mod sums;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tollgate_packet::key::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};
use tollgate_packet::{FlowKey, MacAddr, PortIndex};

pub(crate) const PORT: PortIndex = PortIndex(7);
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;
pub(crate) const ICMP: u8 = 1;

/// A frame and what is known of it from how it was made.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) key: FlowKey,
    pub(crate) l3_offset: usize,
    /// Zero when there is no layer 4 header that counts.
    pub(crate) l4_offset: usize,
    /// Where padding starts.
    pub(crate) end: usize,
    /// The destination address in the pseudo-header, when it is not the one in the IP header.
    pub(crate) final_destination: Option<[u8; 16]>,
}

#[derive(Clone, Debug)]
struct Layer4 {
    protocol: u8,
    bytes: Vec<u8>,
    src: u16,
    dst: u16,
    tcp_flags: u16,
    nd: Option<Neighbour>,
}

/// The fields of neighbour discovery.
#[derive(Clone, Copy, Debug, Default)]
struct Neighbour {
    target: [u8; 16],
    sll: MacAddr,
    tll: MacAddr,
}

#[derive(Clone, Debug)]
enum Layer3 {
    Ipv4 { options: usize, fragment: u16 },
    Ipv6 { extensions: Vec<Extension>, label: u32 },
    Arp { rarp: bool, operation: u16 },
    Other(u16),
}

#[derive(Clone, Debug)]
enum Extension {
    HopByHop(usize),
    DestinationOptions(usize),
    Routing { segments_left: u8 },
    Authentication,
    Fragment { offset: u16, more: bool },
}

pub(crate) fn frame() -> impl Strategy<Value = Frame> {
    let link = (
        any::<[u8; 12]>(),
        vec((select(&[0x8100u16, 0x88a8][..]), any::<u16>()), 0..=2),
        prop::bool::weighted(0.1),
    );
    let ip = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u8>(), any::<u8>());
    (link, layer3(), ip, layer4(), vec(any::<u8>(), 0..20)).prop_map(
        |(link, layer3, addresses, layer4, padding)| {
            let mut frame = Frame {
                bytes: Vec::new(),
                key: FlowKey { in_port: u32::from(PORT.0), ..FlowKey::default() },
                l3_offset: 0,
                l4_offset: 0,
                end: 0,
                final_destination: None,
            };
            frame.push_link(&link, &layer3);
            match &layer3 {
                Layer3::Ipv4 { options, fragment } => {
                    frame.push_ipv4(addresses, *options, *fragment, &layer4);
                }
                Layer3::Ipv6 { extensions, label } => {
                    frame.push_ipv6(addresses, extensions, *label, &layer4);
                }
                Layer3::Arp { operation, .. } => frame.push_arp(addresses, *operation),
                Layer3::Other(_) => frame.bytes.extend(&layer4.bytes),
            }
            frame.end = frame.bytes.len();
            sums::fill_in(&mut frame);
            frame.bytes.extend(padding);
            frame
        },
    )
}

/// The bytes of a frame, with at times some that are damaged: flipped, cut off, or a length that
/// lies.
pub(crate) fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let flip = (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Byte(at, value));
    let near = (any::<Index>(), -9..=9i8).prop_map(|(at, by)| Damage::Nudge(at, by));
    let length = (0..4usize, -60..=60i16).prop_map(|(which, by)| Damage::Length(which, by));
    let cut = any::<Index>().prop_map(Damage::Cut);
    let damage = prop_oneof![4 => flip, 3 => near, 2 => length, 1 => cut];
    let damages = prop_oneof![1 => Just(Vec::new()), 2 => vec(damage, 1..5)];
    (frame(), damages).prop_map(|(frame, damages)| {
        let mut bytes = frame.bytes.clone();
        for damage in damages {
            damage.inflict(&mut bytes, &frame);
        }
        bytes
    })
}

/// Random bytes behind a plausible EtherType.
pub(crate) fn noise() -> impl Strategy<Value = Vec<u8>> {
    let ethertype = select(&[0x0800u16, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x0010][..]);
    (ethertype, vec(any::<u8>(), 14..300)).prop_map(|(ethertype, mut bytes)| {
        bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        bytes
    })
}

#[derive(Clone, Debug)]
enum Damage {
    /// A byte of the headers has this value.
    Byte(Index, u8),
    /// A byte of the headers is a little larger or smaller.
    Nudge(Index, i8),
    /// One of the frame's length fields is.
    Length(usize, i16),
    /// The frame ends early.
    Cut(Index),
}

impl Damage {
    fn inflict(self, bytes: &mut Vec<u8>, frame: &Frame) {
        if bytes.is_empty() {
            return;
        }
        // Behind the addresses, where most of the meaning is.
        let place = |at: Index, bytes: &[u8]| match bytes.len().min(frame.end.min(120)) {
            headers @ 13.. => 12 + at.index(headers - 12),
            headers => at.index(headers),
        };
        match self {
            Self::Byte(at, value) => {
                let at = place(at, bytes);
                bytes[at] = value;
            }
            Self::Nudge(at, by) => {
                let at = place(at, bytes);
                bytes[at] = bytes[at].wrapping_add_signed(by);
            }
            Self::Length(which, by) => {
                // Of IPv4, of IPv6, of a first extension header, of TCP.
                let at = match which {
                    0 => frame.l3_offset + 2,
                    1 => frame.l3_offset + 4,
                    2 => frame.l3_offset + 40,
                    _ => frame.l4_offset + 12,
                };
                if let Some(length) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
                    let lie = u16::from_be_bytes(*length).wrapping_add_signed(by);
                    *length = lie.to_be_bytes();
                }
            }
            Self::Cut(at) => bytes.truncate(1 + at.index(bytes.len())),
        }
    }
}

fn layer3() -> impl Strategy<Value = Layer3> {
    let fragment = select(&[0u16, 0, 0, 0x4000, 0x2000, 0x2001, 0x0105][..]);
    let extension = prop_oneof![
        (0..3usize).prop_map(Extension::HopByHop),
        (0..3usize).prop_map(Extension::DestinationOptions),
        (0..3u8).prop_map(|segments_left| Extension::Routing { segments_left }),
        Just(Extension::Authentication),
        (0..2u16, any::<bool>()).prop_map(|(offset, more)| Extension::Fragment { offset, more }),
    ];
    let extensions = prop_oneof![2 => Just(Vec::new()), 1 => vec(extension, 1..4)];
    prop_oneof![
        4 => (select(&[0usize, 0, 1, 10][..]), fragment)
            .prop_map(|(options, fragment)| Layer3::Ipv4 { options, fragment }),
        4 => (extensions, 0..0x10_0000u32)
            .prop_map(|(extensions, label)| Layer3::Ipv6 { extensions, label }),
        1 => (any::<bool>(), select(&[1u16, 2, 255, 256][..]))
            .prop_map(|(rarp, operation)| Layer3::Arp { rarp, operation }),
        1 => select(&[0x0600u16, 0x88cc, 0x9000, 0xffff][..]).prop_map(Layer3::Other),
    ]
}

fn layer4() -> impl Strategy<Value = Layer4> {
    prop_oneof![6 => transport(), 1 => neighbour_discovery()]
}

/// A solicitation or advertisement with options: addresses, others, longer ones, addresses twice,
/// and lengths that lie.
fn neighbour_discovery() -> impl Strategy<Value = Layer4> {
    let lie = prop_oneof![9 => Just(None), 1 => select(&[0u8, 40, 255][..]).prop_map(Some)];
    let option = (select(&[1u8, 1, 2, 2, 3, 14][..]), address(), 0..5usize, lie);
    let message = (135..=136u8, any::<[u8; 4]>(), target());
    (message, vec(option, 0..4)).prop_map(|((kind, flags, target), options)| {
        let mut bytes = [&[kind, 0, 0, 0], &flags[..], &target].concat();
        let mut nd = Neighbour { target, ..Neighbour::default() };
        let (mut readable, mut twice) = (true, false);
        for (kind, mac, tail, lie) in options {
            let tail = tail.saturating_sub(2);
            bytes.extend([kind, lie.unwrap_or(1 + tail as u8)]);
            bytes.extend(mac);
            bytes.extend(vec![0; 8 * tail]);
            readable &= lie.is_none();
            let place = match kind {
                1 if readable && tail == 0 => &mut nd.sll,
                2 if readable && tail == 0 => &mut nd.tll,
                _ => continue,
            };
            twice |= *place != MacAddr::default();
            *place = MacAddr(mac);
        }
        let nd = if twice { Neighbour::default() } else { nd };
        Layer4 { protocol: ICMPV6, bytes, src: kind.into(), dst: 0, tcp_flags: 0, nd: Some(nd) }
    })
}

fn target() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![9 => any::<[u8; 16]>(), 1 => Just([0; 16])]
}

fn address() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![4 => any::<[u8; 6]>(), 1 => Just([0; 6])]
}

fn transport() -> impl Strategy<Value = Layer4> {
    let protocol = select(&[TCP, TCP, UDP, UDP, SCTP, ICMP, ICMPV6, 47, 50, 255][..]);
    let header = (any::<u16>(), any::<u16>(), any::<[u8; 20]>(), 0..=10usize);
    (protocol, header, vec(any::<u8>(), 0..200)).prop_map(|(protocol, header, payload)| {
        let (src, dst, noise, options) = header;
        let mut bytes = [src.to_be_bytes(), dst.to_be_bytes()].concat();
        bytes.extend(&noise[4..]);
        let mut tcp_flags = 0;
        match protocol {
            TCP => {
                bytes[12] = (5 + options as u8) << 4 | bytes[12] & 0x0f;
                tcp_flags = u16::from_be_bytes([bytes[12] & 0x0f, bytes[13]]);
                bytes.extend([1; 40].iter().take(options * 4));
            }
            // At times without a checksum.
            UDP => {
                bytes.truncate(8);
                let len = 8 + payload.len() as u16;
                bytes[4..6].copy_from_slice(&len.to_be_bytes());
                if options < 3 {
                    bytes[6..8].fill(0);
                } else {
                    bytes[6] |= 1;
                }
            }
            SCTP => bytes.truncate(12),
            _ => bytes.truncate(8),
        }
        // Neighbour discovery is made elsewhere.
        if protocol == ICMPV6 && matches!(bytes[0], 135 | 136) {
            bytes[1] |= 1;
        }
        let [kind, code] = [bytes[0], bytes[1]];
        let (src, dst) = match protocol {
            TCP | UDP | SCTP => (src, dst),
            ICMP | ICMPV6 => (u16::from(kind), u16::from(code)),
            _ => (0, 0),
        };
        bytes.extend(payload);
        Layer4 { protocol, bytes, src, dst, tcp_flags, nd: None }
    })
}

type Addresses = ([u8; 16], [u8; 16], u8, u8);

impl Frame {
    fn push_link(&mut self, link: &([u8; 12], Vec<(u16, u16)>, bool), layer3: &Layer3) {
        let (macs, tags, snap) = link;
        self.bytes.extend(macs);
        self.key.eth_dst = MacAddr(*macs.first_chunk().unwrap());
        self.key.eth_src = MacAddr(*macs.last_chunk().unwrap());
        for (number, (tpid, tci)) in tags.iter().enumerate() {
            self.bytes.extend(tpid.to_be_bytes());
            self.bytes.extend(tci.to_be_bytes());
            let tag = (*tpid, tci & !VLAN_PRESENT | VLAN_PRESENT);
            match number {
                0 => (self.key.vlan_tpid, self.key.vlan_tci) = tag,
                _ => (self.key.inner_vlan_tpid, self.key.inner_vlan_tci) = tag,
            }
        }
        self.key.eth_type = match layer3 {
            Layer3::Ipv4 { .. } => 0x0800,
            Layer3::Ipv6 { .. } => 0x86dd,
            Layer3::Arp { rarp, .. } => {
                if *rarp {
                    0x8035
                } else {
                    0x0806
                }
            }
            Layer3::Other(ethertype) => *ethertype,
        };
        if *snap {
            self.bytes.extend([0x01, 0x00, 0xaa, 0xaa, 0x03, 0, 0, 0]);
        }
        self.bytes.extend(self.key.eth_type.to_be_bytes());
        self.l3_offset = self.bytes.len();
    }

    fn push_ipv4(&mut self, ip: Addresses, options: usize, fragment: u16, layer4: &Layer4) {
        let (src, dst, tos, ttl) = ip;
        let header_len = 20 + 4 * options;
        let total_len = (header_len + layer4.bytes.len()) as u16;
        self.bytes.extend([0x40 | (header_len / 4) as u8, tos]);
        self.bytes.extend(total_len.to_be_bytes());
        self.bytes.extend([0x12, 0x34]);
        self.bytes.extend(fragment.to_be_bytes());
        self.bytes.extend([ttl, layer4.protocol, 0, 0]);
        self.bytes.extend(&src[..4]);
        self.bytes.extend(&dst[..4]);
        self.bytes.extend([1; 40].iter().take(4 * options));
        let (is_later, more) = (fragment & 0x1fff != 0, fragment & 0x2000 != 0);
        self.key.ip_frag = match (is_later, more) {
            (true, _) => FRAG_ANY | FRAG_LATER,
            (false, true) => FRAG_ANY,
            (false, false) => 0,
        };
        self.key.ip_proto = layer4.protocol;
        (self.key.ip_tos, self.key.ip_ttl) = (tos, ttl);
        self.key.ip_src[..4].copy_from_slice(&src[..4]);
        self.key.ip_dst[..4].copy_from_slice(&dst[..4]);
        self.push_layer4(layer4, layer4.protocol != ICMPV6 && !is_later);
    }

    fn push_ipv6(&mut self, ip: Addresses, extensions: &[Extension], label: u32, layer4: &Layer4) {
        let (src, dst, class, hop_limit) = ip;
        let mut chain = Vec::new();
        let numbers = extensions.iter().map(Extension::number).chain([layer4.protocol]);
        for (extension, next) in extensions.iter().zip(numbers.clone().skip(1)) {
            extension.push(&mut chain, next);
        }
        self.bytes.extend((6 << 28 | u32::from(class) << 20 | label).to_be_bytes());
        self.bytes.extend(((chain.len() + layer4.bytes.len()) as u16).to_be_bytes());
        self.bytes.extend([numbers.clone().next().unwrap(), hop_limit]);
        self.bytes.extend(src);
        self.bytes.extend(dst);
        self.bytes.extend(chain);
        (self.key.ip_tos, self.key.ip_ttl, self.key.ipv6_label) = (class, hop_limit, label);
        (self.key.ip_src, self.key.ip_dst) = (src, dst);
        self.key.ip_proto = layer4.protocol;
        for extension in extensions {
            match extension {
                Extension::Fragment { offset, more } => {
                    if *offset != 0 {
                        (self.key.ip_frag, self.key.ip_proto) = (FRAG_ANY | FRAG_LATER, 44);
                        break;
                    }
                    self.key.ip_frag |= u8::from(*more) * FRAG_ANY;
                }
                Extension::Routing { segments_left: 1.. } => {
                    self.final_destination = Some([0x20; 16]);
                }
                _ => {}
            }
        }
        let is_later = self.key.ip_frag & FRAG_LATER != 0;
        self.push_layer4(layer4, layer4.protocol != ICMP && !is_later);
    }

    fn push_layer4(&mut self, layer4: &Layer4, counts: bool) {
        if counts && matches!(layer4.protocol, TCP | UDP | SCTP | ICMP | ICMPV6) {
            self.l4_offset = self.bytes.len();
            (self.key.l4_src, self.key.l4_dst) = (layer4.src, layer4.dst);
            self.key.tcp_flags = layer4.tcp_flags;
            if let Some(nd) = layer4.nd {
                self.key.nd_target = nd.target;
                (self.key.arp_sha, self.key.arp_tha) = (nd.sll, nd.tll);
            }
        }
        self.bytes.extend(&layer4.bytes);
    }

    fn push_arp(&mut self, (spa, tpa, a, b): Addresses, operation: u16) {
        let (sha, tha) = (MacAddr([a; 6]), MacAddr([b; 6]));
        self.bytes.extend([0, 1, 8, 0, 6, 4]);
        self.bytes.extend(operation.to_be_bytes());
        self.bytes.extend(sha.0);
        self.bytes.extend(&spa[..4]);
        self.bytes.extend(tha.0);
        self.bytes.extend(&tpa[..4]);
        self.key.ip_proto = u8::try_from(operation).unwrap_or(0);
        (self.key.arp_sha, self.key.arp_tha) = (sha, tha);
        self.key.ip_src[..4].copy_from_slice(&spa[..4]);
        self.key.ip_dst[..4].copy_from_slice(&tpa[..4]);
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.key.eth_type == 0x0800
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.key.eth_type == 0x86dd
    }

    /// Whether it is a neighbour solicitation or advertisement.
    pub(crate) fn is_nd(&self) -> bool {
        let is_icmpv6 = self.l4_offset != 0 && self.is_ipv6() && self.key.ip_proto == ICMPV6;
        is_icmpv6 && matches!(self.key.l4_src, 135 | 136) && self.key.l4_dst == 0
    }
}

impl Extension {
    fn number(&self) -> u8 {
        match self {
            Self::HopByHop(_) => 0,
            Self::DestinationOptions(_) => 60,
            Self::Routing { .. } => 43,
            Self::Authentication => 51,
            Self::Fragment { .. } => 44,
        }
    }

    fn push(&self, chain: &mut Vec<u8>, next: u8) {
        match self {
            Self::HopByHop(words) | Self::DestinationOptions(words) => {
                chain.extend([next, *words as u8]);
                chain.extend(vec![0; 6 + 8 * words]);
            }
            Self::Routing { segments_left } => {
                chain.extend([next, 2, 2, *segments_left, 0, 0, 0, 0]);
                chain.extend([0x20; 16]);
            }
            Self::Authentication => {
                chain.extend([next, 4, 0, 0]);
                chain.extend([9; 20]);
            }
            Self::Fragment { offset, more } => {
                chain.extend([next, 0]);
                chain.extend((offset << 3 | u16::from(*more)).to_be_bytes());
                chain.extend([1, 2, 3, 4]);
            }
        }
    }
}
