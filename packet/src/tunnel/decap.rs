//! What an outer header says.

use thiserror::Error;

use super::{Kind, TUNNEL, UDP, Vni};
use crate::checksum::{PartialSum, internet_checksum};
use crate::limits::MIN_FRAME_BYTES;
use crate::wire::{ETHERTYPE_IPV4, Geneve, Ipv4, Ipv6, PROTO_UDP, Udp, Vxlan, read};
use crate::{Layout, Parsed};

/// Whether a UDP checksum of zero is taken over IPv6. Over IPv4 it always is (RFC 768).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroChecksum {
    /// The rule (RFC 8200, 8.1).
    #[default]
    Refused,
    /// The exception for tunnels (RFC 6935), by configuration.
    Accepted,
}

/// Why a packet for a tunnel's port is not decapsulated but dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum DecapError {
    /// No UDP header that can be read.
    #[error("not UDP")]
    NotUdp,
    /// A fragment of the outer packet: tunnel ends do not reassemble (RFC 7348, 4.3).
    #[error("outer packet is a fragment")]
    Fragment,
    /// The outer headers do not fit in the frame, in its IP packet, or in what is read of it.
    #[error("outer headers cut short")]
    Truncated,
    /// The IPv4 header checksum is wrong.
    #[error("wrong outer IPv4 header checksum")]
    Ipv4Checksum,
    /// The UDP length contradicts the IP length.
    #[error("outer UDP length contradicts the IP length")]
    UdpLength,
    /// No UDP checksum over IPv6, and [`ZeroChecksum::Refused`].
    #[error("no UDP checksum over IPv6")]
    UdpChecksumMissing,
    /// The UDP checksum is wrong.
    #[error("wrong outer UDP checksum")]
    UdpChecksum,
    /// VXLAN without a network identifier: the I flag is clear (RFC 7348, 5).
    #[error("VXLAN flags without I")]
    VxlanFlags,
    /// A Geneve version other than 0 (RFC 8926, 3.4).
    #[error("unknown Geneve version")]
    GeneveVersion,
    /// A Geneve control message, which must not be forwarded (RFC 8926, 3.4).
    #[error("Geneve control message")]
    GeneveControl,
    /// Geneve options that must be understood: none are (RFC 8926, 3.4).
    #[error("critical Geneve options")]
    GeneveCritical,
    /// Something else than an Ethernet frame inside Geneve.
    #[error("no Ethernet frame inside Geneve")]
    GeneveProtocol,
    /// What is inside is shorter than an Ethernet header.
    #[error("inner frame shorter than an Ethernet header")]
    InnerTooShort,
}

/// The outer header of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The virtual network.
    pub vni: Vni,
    /// Sender's address, as in [`FlowKey`](crate::FlowKey).
    pub src: [u8; 16],
    /// Own address, as in [`FlowKey`](crate::FlowKey).
    pub dst: [u8; 16],
    /// TOS or traffic class; see [`decapsulate_tos`](super::decapsulate_tos).
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Where the frame begins, in bytes from the start of the packet.
    pub inner_offset: u16,
    /// Bytes of the frame. Padding after the IP packet does not belong to it.
    pub inner_len: u32,
    /// Over all that the UDP checksum covers but the frame, if there is one.
    sum: Option<PartialSum>,
}

impl Outer {
    /// Reads the outer header of a packet of `frame_len` bytes, of which `header` is the start and
    /// `parsed` what [`parse`](crate::parse::parse) made of it. The caller knows by the
    /// destination address and port that it is for a tunnel of this `kind`.
    ///
    /// VXLAN's reserved bits are ignored, as RFC 7348, 5, says; Geneve options that need not be
    /// understood are skipped.
    ///
    /// # Errors
    /// [`DecapError`]: drop the packet.
    #[inline]
    pub fn read(
        header: &[u8],
        frame_len: u32,
        parsed: &Parsed,
        kind: Kind,
        zero_checksum: ZeroChecksum,
    ) -> Result<Self, DecapError> {
        let Parsed { key, layout } = parsed;
        if key.ip_frag != 0 {
            return Err(DecapError::Fragment);
        }
        if key.ip_proto != PROTO_UDP {
            return Err(DecapError::NotUdp);
        }
        if layout.l4_offset == 0 {
            return Err(DecapError::Truncated);
        }
        let is_ipv4 = key.eth_type == ETHERTYPE_IPV4;
        let end = if is_ipv4 { ipv4_end(header, *layout)? } else { ipv6_end(header, *layout)? };
        let udp_at = usize::from(layout.l4_offset);
        let udp = read::<Udp>(header, udp_at).ok_or(DecapError::Truncated)?;
        let udp_end = udp_at + usize::from(udp.len.get());
        if udp_end > end || end > frame_len as usize {
            return Err(DecapError::UdpLength);
        }
        let (vni, inner_offset) = read_tunnel(header, udp_at + UDP, udp_end, kind)?;
        let inner_len = udp_end.checked_sub(inner_offset).ok_or(DecapError::Truncated)? as u32;
        if inner_len < MIN_FRAME_BYTES {
            return Err(DecapError::InnerTooShort);
        }
        let sum = match udp.checksum.get() {
            0 if is_ipv4 || zero_checksum == ZeroChecksum::Accepted => None,
            0 => return Err(DecapError::UdpChecksumMissing),
            _ => {
                let covered = header.get(udp_at..inner_offset).ok_or(DecapError::Truncated)?;
                // An IPv4 address fills up with zeros, which add nothing.
                let addresses = PartialSum::of(&key.ip_src).and(&key.ip_dst);
                let pseudo_header = addresses.and(&[0, PROTO_UDP]).and(&udp.len.to_bytes());
                Some(pseudo_header.and(covered))
            }
        };
        Ok(Self {
            vni,
            src: key.ip_src,
            dst: key.ip_dst,
            tos: key.ip_tos,
            ttl: key.ip_ttl,
            inner_offset: inner_offset as u16,
            inner_len,
            sum,
        })
    }

    /// Whether the sender sent a UDP checksum, so that [`verify`](Self::verify) needs the sum of
    /// the frame.
    #[inline]
    pub const fn has_checksum(&self) -> bool {
        self.sum.is_some()
    }

    /// Compares the UDP checksum, if there is one, with the frame's bytes summed up.
    ///
    /// # Errors
    /// [`DecapError::UdpChecksum`]: drop the packet.
    #[inline]
    pub fn verify(&self, inner: PartialSum) -> Result<(), DecapError> {
        match self.sum {
            Some(sum) if sum.join(inner).checksum() != 0 => Err(DecapError::UdpChecksum),
            _ => Ok(()),
        }
    }
}

/// Where the IPv4 packet ends, whose checksum is right.
#[inline]
fn ipv4_end(header: &[u8], layout: Layout) -> Result<usize, DecapError> {
    let at = usize::from(layout.l3_offset);
    let ip = read::<Ipv4>(header, at).ok_or(DecapError::Truncated)?;
    let whole = header.get(at..at + ip.header_len()).ok_or(DecapError::Truncated)?;
    if internet_checksum(whole) != 0 {
        return Err(DecapError::Ipv4Checksum);
    }
    Ok(at + usize::from(ip.total_len.get()))
}

/// Where the IPv6 packet ends.
#[inline]
fn ipv6_end(header: &[u8], layout: Layout) -> Result<usize, DecapError> {
    let at = usize::from(layout.l3_offset);
    let ip = read::<Ipv6>(header, at).ok_or(DecapError::Truncated)?;
    Ok(at + size_of::<Ipv6>() + usize::from(ip.payload_len.get()))
}

/// The identifier, and where the frame begins that ends at `end`.
#[inline]
fn read_tunnel(
    header: &[u8],
    at: usize,
    end: usize,
    kind: Kind,
) -> Result<(Vni, usize), DecapError> {
    if at + TUNNEL > end {
        return Err(DecapError::Truncated);
    }
    match kind {
        Kind::Vxlan => {
            let vxlan = read::<Vxlan>(header, at).ok_or(DecapError::Truncated)?;
            if vxlan.flags & Vxlan::FLAG_VNI == 0 {
                return Err(DecapError::VxlanFlags);
            }
            Ok((Vni::from_wire(vxlan.vni_reserved.get()), at + TUNNEL))
        }
        Kind::Geneve => read_geneve(read(header, at).ok_or(DecapError::Truncated)?, at),
    }
}

#[inline]
fn read_geneve(geneve: &Geneve, at: usize) -> Result<(Vni, usize), DecapError> {
    if geneve.version_options >> 6 != 0 {
        return Err(DecapError::GeneveVersion);
    }
    if geneve.flags & Geneve::FLAG_CONTROL != 0 {
        return Err(DecapError::GeneveControl);
    }
    if geneve.flags & Geneve::FLAG_CRITICAL != 0 {
        return Err(DecapError::GeneveCritical);
    }
    if geneve.protocol.get() != Geneve::PROTOCOL_ETHERNET {
        return Err(DecapError::GeneveProtocol);
    }
    Ok((Vni::from_wire(geneve.vni_reserved.get()), at + TUNNEL + geneve.options_len()))
}
