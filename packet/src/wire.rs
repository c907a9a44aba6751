//! The headers as they lie on the wire, and the protocol numbers that say which comes next.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::MacAddr;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_RARP: u16 = 0x8035;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(crate) const TPID_CUSTOMER: u16 = 0x8100;
pub(crate) const TPID_SERVICE: u16 = 0x88a8;
/// Below this the field after the addresses is an 802.3 length (IEEE 802.3-2018, 3.2.6).
pub(crate) const ETHERTYPE_MIN: u16 = 0x0600;

pub(crate) const PROTO_ICMP: u8 = 1;
pub(crate) const PROTO_TCP: u8 = 6;
pub(crate) const PROTO_UDP: u8 = 17;
pub(crate) const PROTO_ICMPV6: u8 = 58;
pub(crate) const PROTO_SCTP: u8 = 132;

/// Whether a TPID announces a VLAN tag (IEEE 802.1Q-2018, 9.6).
#[inline]
pub const fn is_vlan_tpid(ethertype: u16) -> bool {
    matches!(ethertype, TPID_CUSTOMER | TPID_SERVICE)
}

/// IEEE 802.3-2018, 3.1.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ethernet {
    pub(crate) dst: MacAddr,
    pub(crate) src: MacAddr,
    pub(crate) ethertype: U16,
}

/// What follows a TPID: the tag's control information and the next EtherType.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct VlanTag {
    pub(crate) tci: U16,
    pub(crate) ethertype: U16,
}

/// What follows an 802.3 length that carries an EtherType (RFC 1042).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LlcSnap {
    pub(crate) llc_and_oui: [u8; 6],
    pub(crate) ethertype: U16,
}

impl LlcSnap {
    /// DSAP and SSAP of SNAP, unnumbered information, OUI zero.
    pub(crate) const ETHERNET: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
}

/// RFC 826 with Ethernet and IPv4 addresses.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Arp {
    /// Hardware type, protocol type and both address lengths.
    pub(crate) kind: [u8; 6],
    pub(crate) operation: U16,
    pub(crate) sha: MacAddr,
    pub(crate) spa: [u8; 4],
    pub(crate) tha: MacAddr,
    pub(crate) tpa: [u8; 4],
}

impl Arp {
    pub(crate) const ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

    /// The operation as keys hold it: in 8 bits, and zero when it has more.
    pub(crate) fn known_operation(&self) -> u8 {
        u8::try_from(self.operation.get()).unwrap_or(0)
    }
}

/// RFC 791, 3.1, without options.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ipv4 {
    pub(crate) version_ihl: u8,
    pub(crate) tos: u8,
    pub(crate) total_len: U16,
    pub(crate) id: U16,
    pub(crate) fragment: U16,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) checksum: U16,
    pub(crate) src: [u8; 4],
    pub(crate) dst: [u8; 4],
}

impl Ipv4 {
    pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
    pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
    pub(crate) const FRAGMENT_OFFSET: u16 = 0x1fff;

    /// Bytes of header with options, as the header itself says.
    #[inline]
    pub(crate) fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0x0f) * 4
    }
}

/// RFC 8200, 3.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Ipv6 {
    /// Version (4 bits), traffic class (8), flow label (20).
    pub(crate) version_class_label: U32,
    pub(crate) payload_len: U16,
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    pub(crate) src: [u8; 16],
    pub(crate) dst: [u8; 16],
}

impl Ipv6 {
    pub(crate) const LABEL: u32 = 0x000f_ffff;

    #[inline]
    pub(crate) fn traffic_class(&self) -> u8 {
        (self.version_class_label.get() >> 20) as u8
    }

    pub(crate) fn set_traffic_class(&mut self, class: u8) {
        let rest = self.version_class_label.get() & !(0xff << 20);
        self.version_class_label.set(rest | (u32::from(class) << 20));
    }
}

/// RFC 9293, 3.1, without options.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Tcp {
    pub(crate) src: U16,
    pub(crate) dst: U16,
    pub(crate) sequence: U32,
    pub(crate) acknowledgment: U32,
    /// Header length in words (4 bits) and flags (12).
    pub(crate) offset_flags: U16,
    pub(crate) window: U16,
    pub(crate) checksum: U16,
    pub(crate) urgent: U16,
}

impl Tcp {
    pub(crate) const FLAGS: u16 = 0x0fff;

    /// Bytes of header with options, as the header itself says.
    #[inline]
    pub(crate) fn header_len(&self) -> usize {
        usize::from(self.offset_flags.get() >> 12) * 4
    }
}

/// RFC 768.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Udp {
    pub(crate) src: U16,
    pub(crate) dst: U16,
    pub(crate) len: U16,
    pub(crate) checksum: U16,
}

/// RFC 7348, 5.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Vxlan {
    pub(crate) flags: u8,
    pub(crate) reserved: [u8; 3],
    /// The network identifier (24 bits) and a reserved byte.
    pub(crate) vni_reserved: U32,
}

impl Vxlan {
    /// The identifier is valid.
    pub(crate) const FLAG_VNI: u8 = 0x08;
}

/// RFC 8926, 3.4, without options.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Geneve {
    /// Version (2 bits), length of the options in words (6).
    pub(crate) version_options: u8,
    pub(crate) flags: u8,
    /// EtherType of what is inside.
    pub(crate) protocol: U16,
    /// The network identifier (24 bits) and a reserved byte.
    pub(crate) vni_reserved: U32,
}

impl Geneve {
    /// A message for the endpoint itself.
    pub(crate) const FLAG_CONTROL: u8 = 0x80;
    /// There are options that the endpoint must understand.
    pub(crate) const FLAG_CRITICAL: u8 = 0x40;
    /// Transparent Ethernet bridging: a frame is inside.
    pub(crate) const PROTOCOL_ETHERNET: u16 = 0x6558;

    /// Bytes of options, as the header itself says.
    #[inline]
    pub(crate) fn options_len(&self) -> usize {
        usize::from(self.version_options & 0x3f) * 4
    }
}

/// RFC 9260, 3.1.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Sctp {
    /// Source and destination.
    pub(crate) ports: [u8; 4],
    pub(crate) verification_tag: U32,
    /// CRC32c with the least significant byte first (RFC 9260, appendix A).
    pub(crate) checksum: [u8; 4],
}

/// RFC 792 and RFC 4443, 2.1: the part that all messages have, and the word that follows it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Icmp {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) checksum: U16,
    pub(crate) rest: U32,
}

/// The header of type `T` at `offset`, if all of it is there.
#[inline]
pub(crate) fn read<T: FromBytes + Immutable + KnownLayout + Unaligned>(
    bytes: &[u8],
    offset: usize,
) -> Option<&T> {
    let (header, _) = T::ref_from_prefix(bytes.get(offset..)?).ok()?;
    Some(header)
}

/// The same, to be changed in place.
#[inline]
pub(crate) fn read_mut<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned>(
    bytes: &mut [u8],
    offset: usize,
) -> Option<&mut T> {
    let (header, _) = T::mut_from_prefix(bytes.get_mut(offset..)?).ok()?;
    Some(header)
}
