//! The outer header in front of a frame.

use thiserror::Error;
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

use super::{
    ETHERNET, Family, IPV4, IPV6, Kind, OUTER_MAX_BYTES, TUNNEL, UDP, Vni, encapsulate_tos,
    source_port,
};
use crate::MacAddr;
use crate::checksum::PartialSum;
use crate::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Geneve, Ipv4, Ipv6, PROTO_UDP, Udp, Vxlan, read_mut,
};

/// The ends of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Over IPv4.
    Ipv4 {
        /// This end.
        src: [u8; 4],
        /// The other end.
        dst: [u8; 4],
    },
    /// Over IPv6.
    Ipv6 {
        /// This end.
        src: [u8; 16],
        /// The other end.
        dst: [u8; 16],
    },
}

impl Addresses {
    /// Which IP they are of.
    pub const fn family(&self) -> Family {
        match self {
            Self::Ipv4 { .. } => Family::Ipv4,
            Self::Ipv6 { .. } => Family::Ipv6,
        }
    }
}

/// What all packets of a tunnel have in common.
#[derive(Clone, Copy, Debug)]
pub struct EncapConfig {
    /// The header after UDP.
    pub kind: Kind,
    /// The next hop's Ethernet address.
    pub eth_dst: MacAddr,
    /// The Ethernet address of the port through which the packets leave.
    pub eth_src: MacAddr,
    /// The tunnel's ends.
    pub addresses: Addresses,
    /// The other end's UDP port.
    pub dst_port: u16,
    /// TTL or hop limit.
    pub ttl: u8,
    /// The outer DSCP, or `None` to copy the inner one.
    pub dscp: Option<u8>,
    /// The DF bit over IPv4: on, as in Open vSwitch, unless somebody means to have fragments.
    pub dont_fragment: bool,
    /// Whether to send a UDP checksum.
    ///
    /// Over IPv4 it should be off (RFC 7348, 5; RFC 8926, 4.3, permits it): the inner packet has
    /// checksums of its own and the outer IP header too. Over IPv6 it should be on: nothing else
    /// protects the outer addresses and the network identifier, RFC 8926, 4.3, demands it by
    /// default, and receivers must drop a zero unless configured to take it (RFC 6936, 4), as the
    /// Linux kernel does. Off is for underlays for which RFC 6936's conditions were checked.
    pub checksum: bool,
}

/// What differs from packet to packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The virtual network.
    pub vni: Vni,
    /// Bytes of the frame.
    pub inner_len: u32,
    /// The frame's TOS or traffic class, if it is IP.
    pub inner_tos: Option<u8>,
    /// A hash over the frame's addresses and ports.
    pub flow_hash: u32,
    /// The IPv4 identification, which must not repeat within a packet's lifetime when DF is off
    /// (RFC 6864, 4.3). With DF on zero does.
    pub ipv4_id: u16,
    /// The frame's bytes summed up; read only when the tunnel sends UDP checksums.
    pub inner_sum: PartialSum,
}

/// Why there is no outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncapError {
    /// The buffer is smaller than [`Encap::header_bytes`].
    #[error("no room for an outer header of {needed} bytes")]
    NoRoom {
        /// Bytes of the header.
        needed: usize,
    },
    /// IP's length field has 16 bits.
    #[error("a frame of {inner_len} bytes is too long for one IP packet")]
    TooLong {
        /// Bytes of the frame.
        inner_len: u32,
    },
}

/// A tunnel's outer header, whose fixed parts are filled in.
#[derive(Clone, Debug)]
pub struct Encap {
    template: [u8; OUTER_MAX_BYTES],
    family: Family,
    kind: Kind,
    dscp: Option<u8>,
    checksum: bool,
    /// Over the fixed words of the IPv4 header.
    ip_sum: PartialSum,
    /// Over the fixed words of the UDP pseudo-header and of what follows it.
    udp_sum: PartialSum,
}

impl Encap {
    /// The header of this tunnel.
    pub fn new(config: &EncapConfig) -> Self {
        let mut template = [0; OUTER_MAX_BYTES];
        let ethernet = Ethernet {
            dst: config.eth_dst,
            src: config.eth_src,
            ethertype: U16::new(match config.addresses {
                Addresses::Ipv4 { .. } => ETHERTYPE_IPV4,
                Addresses::Ipv6 { .. } => ETHERTYPE_IPV6,
            }),
        };
        put(&mut template, 0, ethernet.as_bytes());
        let (ip_sum, addresses_sum) = match config.addresses {
            Addresses::Ipv4 { src, dst } => {
                let ip = ipv4(config, src, dst);
                put(&mut template, ETHERNET, ip.as_bytes());
                (PartialSum::of(ip.as_bytes()), PartialSum::of(&src).and(&dst))
            }
            Addresses::Ipv6 { src, dst } => {
                put(&mut template, ETHERNET, ipv6(config, src, dst).as_bytes());
                (PartialSum::default(), PartialSum::of(&src).and(&dst))
            }
        };
        let family = config.addresses.family();
        let udp_at = ETHERNET + family.ip_bytes();
        let udp = Udp {
            src: U16::ZERO,
            dst: U16::new(config.dst_port),
            len: U16::ZERO,
            checksum: U16::ZERO,
        };
        put(&mut template, udp_at, udp.as_bytes());
        let tunnel = tunnel_header(config.kind);
        put(&mut template, udp_at + UDP, &tunnel);
        let udp_sum =
            addresses_sum.and(&[0, PROTO_UDP]).and(&config.dst_port.to_be_bytes()).and(&tunnel);
        Self {
            template,
            family,
            kind: config.kind,
            dscp: config.dscp,
            checksum: config.checksum,
            ip_sum,
            udp_sum,
        }
    }

    /// What it puts between UDP and the frame.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of the outer header.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        self.family.outer_bytes()
    }

    /// Whether [`Packet::inner_sum`] is needed.
    #[inline]
    pub const fn needs_sum(&self) -> bool {
        self.checksum
    }

    /// Writes the outer header of `packet` to the start of `out`, which the frame follows after
    /// [`header_bytes`](Self::header_bytes).
    ///
    /// # Errors
    /// [`EncapError`], and `out` is as it was.
    #[inline]
    pub fn write(&self, packet: &Packet, out: &mut [u8]) -> Result<(), EncapError> {
        let too_long = EncapError::TooLong { inner_len: packet.inner_len };
        let lengths = Lengths::of(self.family, packet.inner_len).ok_or(too_long)?;
        let needed = self.header_bytes();
        let header = self.template.get(..needed).zip(out.get_mut(..needed));
        let (template, out) = header.ok_or(EncapError::NoRoom { needed })?;
        out.copy_from_slice(template);
        let tos = encapsulate_tos(packet.inner_tos, self.dscp);
        match self.family {
            Family::Ipv4 => self.finish_ipv4(packet, lengths.ip, tos, out),
            Family::Ipv6 => finish_ipv6(lengths.udp, tos, out),
        }
        self.finish_udp(packet, lengths.udp, out);
        Ok(())
    }

    #[inline]
    fn finish_ipv4(&self, packet: &Packet, total_len: u16, tos: u8, out: &mut [u8]) {
        let Some(ip) = read_mut::<Ipv4>(out, ETHERNET) else { return };
        ip.tos = tos;
        ip.total_len = U16::new(total_len);
        ip.id = U16::new(packet.ipv4_id);
        let patched = PartialSum::of(&[0, tos])
            .and(&total_len.to_be_bytes())
            .and(&packet.ipv4_id.to_be_bytes());
        ip.checksum = U16::new(self.ip_sum.join(patched).checksum());
    }

    #[inline]
    fn finish_udp(&self, packet: &Packet, len: u16, out: &mut [u8]) {
        let at = ETHERNET + self.family.ip_bytes();
        let src = source_port(packet.flow_hash);
        let vni = packet.vni.to_wire().to_be_bytes();
        if let Some(field) = out.get_mut(at + UDP + TUNNEL - 4..at + UDP + TUNNEL) {
            field.copy_from_slice(&vni);
        }
        let Some(udp) = read_mut::<Udp>(out, at) else { return };
        udp.src = U16::new(src);
        udp.len = U16::new(len);
        if self.checksum {
            let len = len.to_be_bytes();
            let patched = PartialSum::of(&src.to_be_bytes()).and(&len).and(&len).and(&vni);
            let checksum = self.udp_sum.join(patched).join(packet.inner_sum).checksum();
            // Zero would say that there is none (RFC 768).
            udp.checksum = U16::new(if checksum == 0 { 0xffff } else { checksum });
        }
    }
}

/// The outer length fields.
struct Lengths {
    /// Of the IPv4 packet.
    ip: u16,
    /// Of the UDP datagram, which is the IPv6 payload.
    udp: u16,
}

impl Lengths {
    #[inline]
    fn of(family: Family, inner_len: u32) -> Option<Self> {
        let udp = inner_len.checked_add((UDP + TUNNEL) as u32)?;
        let ip = match family {
            Family::Ipv4 => udp.checked_add(IPV4 as u32)?,
            Family::Ipv6 => udp,
        };
        Some(Self { ip: u16::try_from(ip).ok()?, udp: u16::try_from(udp).ok()? })
    }
}

#[inline]
fn finish_ipv6(payload_len: u16, tos: u8, out: &mut [u8]) {
    let Some(ip) = read_mut::<Ipv6>(out, ETHERNET) else { return };
    ip.set_traffic_class(tos);
    ip.payload_len = U16::new(payload_len);
}

fn ipv4(config: &EncapConfig, src: [u8; 4], dst: [u8; 4]) -> Ipv4 {
    Ipv4 {
        version_ihl: 0x40 | (IPV4 / 4) as u8,
        tos: 0,
        total_len: U16::ZERO,
        id: U16::ZERO,
        fragment: U16::new(if config.dont_fragment { Ipv4::DONT_FRAGMENT } else { 0 }),
        ttl: config.ttl,
        protocol: PROTO_UDP,
        checksum: U16::ZERO,
        src,
        dst,
    }
}

/// The flow label stays zero, as in Open vSwitch and Linux: the source port spreads the flows.
fn ipv6(config: &EncapConfig, src: [u8; 16], dst: [u8; 16]) -> Ipv6 {
    Ipv6 {
        version_class_label: U32::new(6 << 28),
        payload_len: U16::ZERO,
        next_header: PROTO_UDP,
        hop_limit: config.ttl,
        src,
        dst,
    }
}

fn tunnel_header(kind: Kind) -> [u8; TUNNEL] {
    let mut bytes = [0; TUNNEL];
    match kind {
        Kind::Vxlan => {
            let header =
                Vxlan { flags: Vxlan::FLAG_VNI, reserved: [0; 3], vni_reserved: U32::ZERO };
            put(&mut bytes, 0, header.as_bytes());
        }
        Kind::Geneve => {
            let protocol = U16::new(Geneve::PROTOCOL_ETHERNET);
            let header = Geneve { version_options: 0, flags: 0, protocol, vni_reserved: U32::ZERO };
            put(&mut bytes, 0, header.as_bytes());
        }
    }
    bytes
}

/// Everything has its place in a buffer of [`OUTER_MAX_BYTES`]; what has none stays out.
fn put(bytes: &mut [u8], at: usize, header: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + header.len()) {
        place.copy_from_slice(header);
    }
}

const _: () = assert!(ETHERNET + IPV6 + UDP + TUNNEL == OUTER_MAX_BYTES);
const _: () = assert!(size_of::<Vxlan>() == TUNNEL && size_of::<Geneve>() == TUNNEL);
const _: () = assert!(size_of::<Ipv4>() == IPV4 && size_of::<Ipv6>() == IPV6);
const _: () = assert!(OUTER_MAX_BYTES <= crate::limits::HEADROOM_BYTES);
