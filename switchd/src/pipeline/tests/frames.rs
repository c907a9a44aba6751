//! Frames of a small world, so that random rules and random frames often meet.

use proptest::prelude::*;

/// A frame as chosen; [`build`](Frame::build) gives its bytes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) src: [u8; 6],
    pub(super) dst: [u8; 6],
    /// Outermost first: TPID and TCI.
    pub(super) tags: Vec<(u16, u16)>,
    pub(super) layer3: Layer3,
}

#[derive(Clone, Debug)]
pub(super) enum Layer3 {
    Ipv4 { src: [u8; 4], dst: [u8; 4], tos: u8, ttl: u8, fragment: u16, layer4: Layer4 },
    Ipv6 { src: [u8; 16], dst: [u8; 16], class: u8, hops: u8, layer4: Layer4 },
    Arp { op: u16, spa: [u8; 4], tpa: [u8; 4] },
    Other(u16),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Layer4 {
    Tcp(u16, u16),
    Udp(u16, u16),
    Icmp(u8, u8),
    Other,
}

/// Unicast address `n` of the pool.
pub(super) fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

pub(super) fn ipv4(n: u8) -> [u8; 4] {
    [10, 0, n >> 1, n & 1]
}

pub(super) fn ipv6(n: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[7], address[15]) = (0xfd, n >> 1, n & 1);
    address
}

impl Frame {
    /// A UDP frame between two stations of the pool, untagged.
    pub(super) fn udp(src: u8, dst: u8) -> Self {
        Self {
            src: mac(src),
            dst: mac(dst),
            tags: Vec::new(),
            layer3: Layer3::Ipv4 {
                src: ipv4(src),
                dst: ipv4(dst),
                tos: 0,
                ttl: 64,
                fragment: 0,
                layer4: Layer4::Udp(1000, 80),
            },
        }
    }

    pub(super) fn tagged(mut self, vid: u16) -> Self {
        self.tags.insert(0, (0x8100, vid));
        self
    }

    pub(super) fn build(&self) -> Vec<u8> {
        let mut bytes = [self.dst, self.src].concat();
        for (tpid, tci) in &self.tags {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend(tci.to_be_bytes());
        }
        let (ethertype, body) = self.layer3.build();
        bytes.extend(ethertype.to_be_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().max(64), 0);
        bytes
    }
}

impl Layer3 {
    fn build(&self) -> (u16, Vec<u8>) {
        match self {
            Self::Ipv4 { src, dst, tos, ttl, fragment, layer4 } => {
                let (proto, body) = layer4.build(1);
                let mut header = vec![0x45, *tos];
                header.extend((20 + body.len() as u16).to_be_bytes());
                header.extend([0, 7]);
                header.extend(fragment.to_be_bytes());
                header.extend([*ttl, proto, 0, 0]);
                (0x0800, [header, src.to_vec(), dst.to_vec(), body].concat())
            }
            Self::Ipv6 { src, dst, class, hops, layer4 } => {
                let (next, body) = layer4.build(58);
                let mut header = (0x6000_0000 | u32::from(*class) << 20).to_be_bytes().to_vec();
                header.extend((body.len() as u16).to_be_bytes());
                header.extend([next, *hops]);
                (0x86dd, [header, src.to_vec(), dst.to_vec(), body].concat())
            }
            Self::Arp { op, spa, tpa } => {
                let mut body = vec![0, 1, 8, 0, 6, 4];
                body.extend(op.to_be_bytes());
                body.extend(mac(1));
                body.extend(spa);
                body.extend(mac(2));
                body.extend(tpa);
                (0x0806, body)
            }
            Self::Other(ethertype) => (*ethertype, vec![0; 46]),
        }
    }
}

impl Layer4 {
    fn build(self, icmp: u8) -> (u8, Vec<u8>) {
        let ports = |src: u16, dst: u16| [src.to_be_bytes(), dst.to_be_bytes()].concat();
        match self {
            Self::Tcp(src, dst) => {
                let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 16, 0, 0, 0, 0, 0, 1, 2, 3];
                (6, [ports(src, dst), rest.to_vec()].concat())
            }
            Self::Udp(src, dst) => (17, [ports(src, dst), vec![0, 12, 0, 0, 1, 2, 3, 4]].concat()),
            Self::Icmp(kind, code) => (icmp, vec![kind, code, 0, 0, 0, 1, 0, 1]),
            Self::Other => (99, vec![1, 2, 3, 4, 5, 6, 7, 8]),
        }
    }
}

pub(super) fn any_port() -> impl Strategy<Value = u16> {
    prop_oneof![Just(80), Just(81), Just(443), Just(0x1234)]
}

pub(super) fn any_mac() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![
        8 => (0..4_u8).prop_map(mac),
        1 => Just([0xff; 6]),
        1 => Just([0x01, 0, 0x5e, 0, 0, 1]),
    ]
}

fn any_layer4() -> impl Strategy<Value = Layer4> {
    prop_oneof![
        3 => (any_port(), any_port()).prop_map(|(src, dst)| Layer4::Tcp(src, dst)),
        3 => (any_port(), any_port()).prop_map(|(src, dst)| Layer4::Udp(src, dst)),
        1 => (prop_oneof![Just(0), Just(8)], 0..2_u8).prop_map(|(k, c)| Layer4::Icmp(k, c)),
        1 => Just(Layer4::Other),
    ]
}

fn any_layer3() -> impl Strategy<Value = Layer3> {
    let tos = || prop_oneof![Just(0_u8), Just(0x28), Just(0x2b)];
    let ttl = || prop_oneof![4 => Just(64_u8), 1 => Just(1), 1 => Just(2)];
    let fragment =
        prop_oneof![6 => Just(0_u16), 1 => Just(0x2000), 1 => Just(0x2010), 1 => Just(5)];
    prop_oneof![
        6 => (0..4_u8, 0..4_u8, tos(), ttl(), fragment, any_layer4()).prop_map(
            |(src, dst, tos, ttl, fragment, layer4)| Layer3::Ipv4 {
                src: ipv4(src), dst: ipv4(dst), tos, ttl, fragment, layer4,
            }
        ),
        3 => (0..4_u8, 0..4_u8, tos(), ttl(), any_layer4()).prop_map(
            |(src, dst, class, hops, layer4)| Layer3::Ipv6 {
                src: ipv6(src), dst: ipv6(dst), class, hops, layer4,
            }
        ),
        1 => (1..3_u16, 0..4_u8, 0..4_u8).prop_map(|(op, spa, tpa)| Layer3::Arp {
            op, spa: ipv4(spa), tpa: ipv4(tpa),
        }),
        1 => prop_oneof![Just(0x88cc), Just(0x0007)].prop_map(Layer3::Other),
    ]
}

/// Any frame of the small world.
pub(super) fn any_frame() -> impl Strategy<Value = Frame> {
    let tpid = prop_oneof![3 => Just(0x8100_u16), 1 => Just(0x88a8)];
    let tci = (0..3_u16, 0..2_u16).prop_map(|(vid, pcp)| pcp << 13 | vid);
    let tags = prop_oneof![
        3 => Just(0..1_usize),
        3 => Just(1..2_usize),
        1 => Just(2..3_usize),
        1 => Just(3..4_usize),
    ]
    .prop_flat_map(move |count| prop::collection::vec((tpid.clone(), tci.clone()), count));
    (any_mac(), any_mac(), tags, any_layer3()).prop_map(|(src, dst, tags, layer3)| Frame {
        src,
        dst,
        tags,
        layer3,
    })
}
