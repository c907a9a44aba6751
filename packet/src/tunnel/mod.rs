//! Frames inside UDP: VXLAN (RFC 7348) and Geneve (RFC 8926) over IPv4 and IPv6.
//!
//! [`Encap`] is the outer header of one tunnel, made once and patched for every packet;
//! [`Outer`] is what an outer header of a received packet says, and where the frame behind it
//! begins. Geneve options are neither sent nor understood, and the outer header carries no VLAN
//! tag: that is the business of the bridge through which it leaves.

mod decap;
mod ecn;
mod encap;

pub use decap::{DecapError, Outer, ZeroChecksum};
pub use ecn::{CongestionError, decapsulate_tos, encapsulate_tos};
pub use encap::{Addresses, Encap, EncapConfig, EncapError, Packet};

/// UDP port of VXLAN (RFC 7348, 5).
pub const VXLAN_PORT: u16 = 4789;
/// UDP port of Geneve (RFC 8926, 3.3).
pub const GENEVE_PORT: u16 = 6081;
/// Bytes of the longest outer header that is built: Ethernet, IPv6, UDP, and VXLAN or Geneve.
pub const OUTER_MAX_BYTES: usize = ETHERNET + IPV6 + UDP + TUNNEL;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// VXLAN and Geneve without options alike.
const TUNNEL: usize = 8;

/// Which header stands between UDP and the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
}

impl Kind {
    /// The UDP port that IANA assigned.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Vxlan => VXLAN_PORT,
            Self::Geneve => GENEVE_PORT,
        }
    }
}

/// Which IP carries a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// RFC 791.
    Ipv4,
    /// RFC 8200.
    Ipv6,
}

impl Family {
    /// Bytes that encapsulation adds to a frame, of either [`Kind`].
    pub const fn outer_bytes(self) -> usize {
        ETHERNET + self.ip_bytes() + UDP + TUNNEL
    }

    const fn ip_bytes(self) -> usize {
        match self {
            Self::Ipv4 => IPV4,
            Self::Ipv6 => IPV6,
        }
    }

    /// Longest frame, in bytes with its Ethernet header and tags, that a tunnel carries over links
    /// of `underlay_mtu` without fragments; `None` when not even an Ethernet header fits.
    pub const fn max_inner_frame(self, underlay_mtu: u32) -> Option<u32> {
        match underlay_mtu.checked_sub((self.ip_bytes() + UDP + TUNNEL) as u32) {
            Some(room) if room >= ETHERNET as u32 => Some(room),
            _ => None,
        }
    }

    /// The IP MTU for what is inside (untagged; a tag takes 4 more): of an Ethernet underlay's
    /// 1500 bytes, 1450 are left over IPv4 and 1430 over IPv6.
    pub const fn inner_mtu(self, underlay_mtu: u32) -> Option<u32> {
        match self.max_inner_frame(underlay_mtu) {
            Some(frame) => Some(frame - ETHERNET as u32),
            None => None,
        }
    }
}

/// A virtual network's identifier, of 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vni(u32);

impl Vni {
    /// The largest.
    pub const MAX: Self = Self(0x00ff_ffff);

    /// `None` when it has more than 24 bits.
    pub const fn new(vni: u32) -> Option<Self> {
        if vni <= Self::MAX.0 { Some(Self(vni)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// As both headers hold it: above a reserved byte of zero.
    const fn to_wire(self) -> u32 {
        self.0 << 8
    }

    const fn from_wire(word: u32) -> Self {
        Self(word >> 8)
    }
}

/// The outer UDP source port of a flow: the dynamic range, 49152 to 65535, by the upper bits of
/// the inner headers' hash, so that the underlay spreads flows over its paths and no flow over two
/// of them (RFC 7348, 5; RFC 8926, 3.3).
#[inline]
pub const fn source_port(flow_hash: u32) -> u16 {
    const FIRST: u16 = 49152;
    FIRST | (flow_hash >> 18) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_fill_the_dynamic_range_evenly() {
        let mut hits = vec![0_u8; 1 << 16];
        for hash in 0..1_u32 << 16 {
            hits[usize::from(source_port(hash << 16))] += 1;
        }
        assert!(hits[..49152].iter().all(|hits| *hits == 0));
        assert!(hits[49152..].iter().all(|hits| *hits == 4));
    }

    #[test]
    fn what_is_left_of_an_underlay_mtu() {
        assert_eq!(Family::Ipv4.outer_bytes(), 50);
        assert_eq!(Family::Ipv6.outer_bytes(), OUTER_MAX_BYTES);
        assert_eq!(Family::Ipv4.inner_mtu(1500), Some(1450));
        assert_eq!(Family::Ipv6.inner_mtu(1500), Some(1430));
        assert_eq!(Family::Ipv4.max_inner_frame(1500), Some(1464));
        assert_eq!(Family::Ipv4.inner_mtu(50), Some(0));
        assert_eq!(Family::Ipv4.inner_mtu(49), None);
        assert_eq!(Family::Ipv6.max_inner_frame(0), None);
    }

    #[test]
    fn a_network_identifier_has_24_bits() {
        assert_eq!(Vni::new(0xff_ffff), Some(Vni::MAX));
        assert_eq!(Vni::new(0x100_0000), None);
        assert_eq!(Vni::from_wire(Vni::MAX.to_wire() | 0xab), Vni::MAX);
    }
}
