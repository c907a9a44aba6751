//! The match fields: their numbers on the wire, names in flow text, widths and prerequisites
//! (OF 1.3.5 §7.2.3.7; the fields that only Open vSwitch has are from its `meta-flow.h`).

use crate::oxm::Match;

/// How a field's value is written in flow text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// A decimal number; a masked one prints in hexadecimal.
    Decimal,
    /// A hexadecimal number.
    Hexadecimal,
    /// An OpenFlow port number or name.
    Port,
    /// `aa:bb:cc:dd:ee:ff`, mask alike.
    Ethernet,
    /// Dotted quad, mask as a prefix length where possible.
    Ipv4,
    /// RFC 5952, mask as a prefix length where possible.
    Ipv6,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Fragment,
    /// `syn|ack` or `+syn-ack`.
    TcpFlags,
}

/// What must be matched exactly before a field may be matched or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// Nothing.
    None,
    /// A VLAN tag is present.
    Vlan,
    /// IPv4 or IPv6.
    Ip,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP.
    Arp,
    /// TCP over either IP.
    Tcp,
    /// UDP over either IP.
    Udp,
    /// SCTP over either IP.
    Sctp,
    /// ICMP over IPv4.
    Icmpv4,
    /// ICMPv6 over IPv6.
    Icmpv6,
    /// A neighbour solicitation or advertisement.
    NeighbourDiscovery,
    /// A neighbour solicitation.
    NeighbourSolicitation,
    /// A neighbour advertisement.
    NeighbourAdvertisement,
}

/// `eth_type` of IPv4.
pub const ETH_TYPE_IPV4: u16 = 0x0800;
/// `eth_type` of ARP.
pub const ETH_TYPE_ARP: u16 = 0x0806;
/// `eth_type` of RARP.
pub const ETH_TYPE_RARP: u16 = 0x8035;
/// `eth_type` of IPv6.
pub const ETH_TYPE_IPV6: u16 = 0x86dd;
/// `ip_proto` of ICMP.
pub const IP_PROTO_ICMP: u8 = 1;
/// `ip_proto` of TCP.
pub const IP_PROTO_TCP: u8 = 6;
/// `ip_proto` of UDP.
pub const IP_PROTO_UDP: u8 = 17;
/// `ip_proto` of ICMPv6.
pub const IP_PROTO_ICMPV6: u8 = 58;
/// `ip_proto` of SCTP.
pub const IP_PROTO_SCTP: u8 = 132;
/// The bit of `vlan_vid` that says that there is a tag (`OFPVID_PRESENT`).
pub const OFPVID_PRESENT: u16 = 0x1000;

/// Whether the match is of fragments but the first, which have no header of what IP carries.
pub(crate) fn is_later_fragment(matched: &Match) -> bool {
    matched.get(Field::NwFrag).is_some_and(|frag| frag.value() & 2 != 0)
}

impl Prerequisite {
    /// Whether `matched` guarantees the prerequisite.
    pub fn satisfied_by(self, matched: &Match) -> bool {
        let exact = |field| matched.get(field).filter(|f| f.is_exact()).map(|f| f.value());
        let eth_type = |value: u16| exact(Field::EthType) == Some(u128::from(value));
        let ip = || eth_type(ETH_TYPE_IPV4) || eth_type(ETH_TYPE_IPV6);
        let proto = |value: u8| {
            exact(Field::IpProto) == Some(u128::from(value)) && !is_later_fragment(matched)
        };
        let icmpv6 = || eth_type(ETH_TYPE_IPV6) && proto(IP_PROTO_ICMPV6);
        // With another code the message is of no neighbour discovery that is known (RFC 4861 §4.3).
        let code_0 = || matched.get(Field::Icmpv6Code).is_none_or(|f| f.value() == 0);
        let nd = |kind: u128| icmpv6() && exact(Field::Icmpv6Type) == Some(kind) && code_0();
        match self {
            Prerequisite::None => true,
            Prerequisite::Vlan => matched
                .get(Field::VlanVid)
                .is_some_and(|f| f.value() & u128::from(OFPVID_PRESENT) != 0),
            Prerequisite::Ip => ip(),
            Prerequisite::Ipv4 => eth_type(ETH_TYPE_IPV4),
            Prerequisite::Ipv6 => eth_type(ETH_TYPE_IPV6),
            // RARP has the same header; Open vSwitch takes it too.
            Prerequisite::Arp => eth_type(ETH_TYPE_ARP) || eth_type(ETH_TYPE_RARP),
            Prerequisite::Tcp => ip() && proto(IP_PROTO_TCP),
            Prerequisite::Udp => ip() && proto(IP_PROTO_UDP),
            Prerequisite::Sctp => ip() && proto(IP_PROTO_SCTP),
            Prerequisite::Icmpv4 => eth_type(ETH_TYPE_IPV4) && proto(IP_PROTO_ICMP),
            Prerequisite::Icmpv6 => icmpv6(),
            Prerequisite::NeighbourDiscovery => nd(135) || nd(136),
            Prerequisite::NeighbourSolicitation => nd(135),
            Prerequisite::NeighbourAdvertisement => nd(136),
        }
    }

    /// What to add to a match, in flow text.
    pub fn remedy(self) -> &'static str {
        match self {
            Prerequisite::None => "nothing",
            Prerequisite::Vlan => "a VLAN tag (dl_vlan=N or vlan_tci=0x1000/0x1000)",
            Prerequisite::Ip => "ip or ipv6",
            Prerequisite::Ipv4 => "ip",
            Prerequisite::Ipv6 => "ipv6",
            Prerequisite::Arp => "arp or rarp",
            Prerequisite::Tcp => "tcp or tcp6",
            Prerequisite::Udp => "udp or udp6",
            Prerequisite::Sctp => "sctp or sctp6",
            Prerequisite::Icmpv4 => "icmp",
            Prerequisite::Icmpv6 => "icmp6",
            Prerequisite::NeighbourDiscovery => {
                "icmp6,icmp_type=135,icmp_code=0 or icmp6,icmp_type=136,icmp_code=0"
            }
            Prerequisite::NeighbourSolicitation => "icmp6,icmp_type=135,icmp_code=0",
            Prerequisite::NeighbourAdvertisement => "icmp6,icmp_type=136,icmp_code=0",
        }
    }
}

/// OXM class of the fields that the specification defines.
pub const OXM_CLASS_BASIC: u16 = 0x8000;
/// OXM class of Nicira's first set of fields, those of OpenFlow 1.0.
pub const OXM_CLASS_NXM0: u16 = 0x0000;
/// OXM class of Nicira's second set of fields.
pub const OXM_CLASS_NXM1: u16 = 0x0001;
/// OXM class of experimenter fields, whose header is followed by an experimenter id.
pub const OXM_CLASS_EXPERIMENTER: u16 = 0xffff;
/// Experimenter id of the Open Networking Foundation.
pub const ONF_EXPERIMENTER: u32 = 0x4f4e_4600;

/// The fixed facts about a field.
#[derive(Debug)]
pub struct FieldInfo {
    /// OXM class; `OXM_CLASS_EXPERIMENTER` means the ONF's experimenter id.
    pub class: u16,
    /// OXM field number, 7 bits.
    pub number: u8,
    /// Bytes of the value on the wire.
    pub bytes: u8,
    /// Low bits of the value that exist.
    pub bits: u8,
    /// Whether a match may carry a mask.
    pub maskable: bool,
    /// Whether an action may set it.
    pub settable: bool,
    /// What must be matched with it.
    pub prerequisite: Prerequisite,
    /// How it is written.
    pub format: ValueFormat,
    /// Its name in `set_field`.
    pub name: &'static str,
    /// Its other names in flow text. Names that depend on the protocol (`nw_src`, `tp_dst`) are
    /// the parser's.
    pub aliases: &'static [&'static str],
}

/// Declares the fields in the order in which Open vSwitch sends them, which satisfies the rule
/// that a field follows its prerequisites. Columns: class, number, bytes, bits, maskable,
/// settable, prerequisite, format, name, aliases.
macro_rules! fields {
    ($($(#[doc = $doc:literal])+ $field:ident = ($class:ident, $number:literal, $bytes:literal,
       $bits:literal, $maskable:literal, $settable:literal, $prerequisite:ident, $format:ident,
       $name:literal, [$($alias:literal),*]);)+) => {
        /// A field of a packet, or of its way through the tables, that a flow can match.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $($(#[doc = $doc])+ $field,)+
        }

        impl Field {
            /// Every field, in wire order.
            pub const ALL: &'static [Field] = &[$(Field::$field),+];

            /// The fixed facts about it.
            pub const fn info(self) -> &'static FieldInfo {
                match self {
                    $(Field::$field => &FieldInfo {
                        class: $class,
                        number: $number,
                        bytes: $bytes,
                        bits: $bits,
                        maskable: $maskable,
                        settable: $settable,
                        prerequisite: Prerequisite::$prerequisite,
                        format: ValueFormat::$format,
                        name: $name,
                        aliases: &[$($alias),*],
                    },)+
                }
            }
        }
    };
}

use self::{OXM_CLASS_BASIC as BASIC, OXM_CLASS_EXPERIMENTER as ONF, OXM_CLASS_NXM1 as NXM1};

#[rustfmt::skip]
fields! {
    /// Ingress port.
    InPort = (BASIC, 0, 4, 32, false, true, None, Port, "in_port", []);
    /// Ethernet source.
    EthSrc = (BASIC, 4, 6, 48, true, true, None, Ethernet, "eth_src", ["dl_src"]);
    /// Ethernet destination.
    EthDst = (BASIC, 3, 6, 48, true, true, None, Ethernet, "eth_dst", ["dl_dst"]);
    /// Ethernet type, after VLAN tags.
    EthType = (BASIC, 5, 2, 16, false, false, None, Hexadecimal, "eth_type", ["dl_type"]);
    /// VLAN id of the outer tag with [`OFPVID_PRESENT`]; zero means untagged.
    VlanVid = (BASIC, 6, 2, 13, true, true, None, Decimal, "vlan_vid", []);
    /// Priority of the outer VLAN tag.
    VlanPcp = (BASIC, 7, 1, 3, false, true, Vlan, Decimal, "vlan_pcp", ["dl_vlan_pcp"]);
    /// IPv4 source.
    Ipv4Src = (BASIC, 11, 4, 32, true, true, Ipv4, Ipv4, "ip_src", []);
    /// IPv4 destination.
    Ipv4Dst = (BASIC, 12, 4, 32, true, true, Ipv4, Ipv4, "ip_dst", []);
    /// IPv6 source.
    Ipv6Src = (BASIC, 26, 16, 128, true, true, Ipv6, Ipv6, "ipv6_src", []);
    /// IPv6 destination.
    Ipv6Dst = (BASIC, 27, 16, 128, true, true, Ipv6, Ipv6, "ipv6_dst", []);
    /// IPv6 flow label.
    Ipv6Flabel = (BASIC, 28, 4, 20, true, true, Ipv6, Hexadecimal, "ipv6_label", []);
    /// Fragment bits: 1 = a fragment, 2 = not the first (`NXM_NX_IP_FRAG`).
    NwFrag = (NXM1, 26, 1, 2, true, false, Ip, Fragment, "ip_frag", ["nw_frag"]);
    /// DSCP, the upper 6 bits of the TOS byte.
    IpDscp = (BASIC, 8, 1, 6, false, true, Ip, Decimal, "ip_dscp", []);
    /// ECN, the lower 2 bits of the TOS byte.
    IpEcn = (BASIC, 9, 1, 2, false, true, Ip, Decimal, "nw_ecn", ["ip_ecn"]);
    /// IPv4 TTL or IPv6 hop limit (`NXM_NX_IP_TTL`).
    NwTtl = (NXM1, 29, 1, 8, false, true, Ip, Decimal, "nw_ttl", []);
    /// IP protocol, or the last IPv6 next header.
    IpProto = (BASIC, 10, 1, 8, false, false, Ip, Decimal, "ip_proto", []);
    /// TCP source port.
    TcpSrc = (BASIC, 13, 2, 16, true, true, Tcp, Decimal, "tcp_src", []);
    /// TCP destination port.
    TcpDst = (BASIC, 14, 2, 16, true, true, Tcp, Decimal, "tcp_dst", []);
    /// TCP flags (ONF experimenter field, EXT-109).
    TcpFlags = (ONF, 42, 2, 12, true, false, Tcp, TcpFlags, "tcp_flags", []);
    /// UDP source port.
    UdpSrc = (BASIC, 15, 2, 16, true, true, Udp, Decimal, "udp_src", []);
    /// UDP destination port.
    UdpDst = (BASIC, 16, 2, 16, true, true, Udp, Decimal, "udp_dst", []);
    /// SCTP source port.
    SctpSrc = (BASIC, 17, 2, 16, true, true, Sctp, Decimal, "sctp_src", []);
    /// SCTP destination port.
    SctpDst = (BASIC, 18, 2, 16, true, true, Sctp, Decimal, "sctp_dst", []);
    /// ICMP type.
    Icmpv4Type = (BASIC, 19, 1, 8, false, true, Icmpv4, Decimal, "icmp_type", []);
    /// ICMP code.
    Icmpv4Code = (BASIC, 20, 1, 8, false, true, Icmpv4, Decimal, "icmp_code", []);
    /// ICMPv6 type.
    Icmpv6Type = (BASIC, 29, 1, 8, false, true, Icmpv6, Decimal, "icmpv6_type", []);
    /// ICMPv6 code.
    Icmpv6Code = (BASIC, 30, 1, 8, false, true, Icmpv6, Decimal, "icmpv6_code", []);
    /// Target of a neighbour solicitation or advertisement.
    NdTarget = (BASIC, 31, 16, 128, true, true, NeighbourDiscovery, Ipv6, "nd_target", []);
    /// Source link-layer address of a neighbour solicitation.
    NdSll = (BASIC, 32, 6, 48, true, true, NeighbourSolicitation, Ethernet, "nd_sll", []);
    /// Target link-layer address of a neighbour advertisement.
    NdTll = (BASIC, 33, 6, 48, true, true, NeighbourAdvertisement, Ethernet, "nd_tll", []);
    /// ARP opcode; those beyond 255, of which there are none, are not matched (as in Open vSwitch).
    ArpOp = (BASIC, 21, 2, 8, false, true, Arp, Decimal, "arp_op", []);
    /// ARP sender IPv4 address.
    ArpSpa = (BASIC, 22, 4, 32, true, true, Arp, Ipv4, "arp_spa", []);
    /// ARP target IPv4 address.
    ArpTpa = (BASIC, 23, 4, 32, true, true, Arp, Ipv4, "arp_tpa", []);
    /// ARP sender Ethernet address.
    ArpSha = (BASIC, 24, 6, 48, true, true, Arp, Ethernet, "arp_sha", []);
    /// ARP target Ethernet address.
    ArpTha = (BASIC, 25, 6, 48, true, true, Arp, Ethernet, "arp_tha", []);
    /// Register 0 between tables and actions (`NXM_NX_REG0`).
    Reg0 = (NXM1, 0, 4, 32, true, true, None, Hexadecimal, "reg0", []);
    /// Register 1 between tables and actions (`NXM_NX_REG1`).
    Reg1 = (NXM1, 1, 4, 32, true, true, None, Hexadecimal, "reg1", []);
    /// Register 2 between tables and actions (`NXM_NX_REG2`).
    Reg2 = (NXM1, 2, 4, 32, true, true, None, Hexadecimal, "reg2", []);
    /// Register 3 between tables and actions (`NXM_NX_REG3`).
    Reg3 = (NXM1, 3, 4, 32, true, true, None, Hexadecimal, "reg3", []);
    /// Register 4 between tables and actions (`NXM_NX_REG4`).
    Reg4 = (NXM1, 4, 4, 32, true, true, None, Hexadecimal, "reg4", []);
    /// Register 5 between tables and actions (`NXM_NX_REG5`).
    Reg5 = (NXM1, 5, 4, 32, true, true, None, Hexadecimal, "reg5", []);
    /// Register 6 between tables and actions (`NXM_NX_REG6`).
    Reg6 = (NXM1, 6, 4, 32, true, true, None, Hexadecimal, "reg6", []);
    /// Register 7 between tables and actions (`NXM_NX_REG7`).
    Reg7 = (NXM1, 7, 4, 32, true, true, None, Hexadecimal, "reg7", []);
    /// Register 8 between tables and actions (`NXM_NX_REG8`).
    Reg8 = (NXM1, 8, 4, 32, true, true, None, Hexadecimal, "reg8", []);
    /// Register 9 between tables and actions (`NXM_NX_REG9`).
    Reg9 = (NXM1, 9, 4, 32, true, true, None, Hexadecimal, "reg9", []);
    /// Register 10 between tables and actions (`NXM_NX_REG10`).
    Reg10 = (NXM1, 10, 4, 32, true, true, None, Hexadecimal, "reg10", []);
    /// Register 11 between tables and actions (`NXM_NX_REG11`).
    Reg11 = (NXM1, 11, 4, 32, true, true, None, Hexadecimal, "reg11", []);
    /// Register 12 between tables and actions (`NXM_NX_REG12`).
    Reg12 = (NXM1, 12, 4, 32, true, true, None, Hexadecimal, "reg12", []);
    /// Register 13 between tables and actions (`NXM_NX_REG13`).
    Reg13 = (NXM1, 13, 4, 32, true, true, None, Hexadecimal, "reg13", []);
    /// Register 14 between tables and actions (`NXM_NX_REG14`).
    Reg14 = (NXM1, 14, 4, 32, true, true, None, Hexadecimal, "reg14", []);
    /// Register 15 between tables and actions (`NXM_NX_REG15`).
    Reg15 = (NXM1, 15, 4, 32, true, true, None, Hexadecimal, "reg15", []);
    /// The metadata register between tables.
    Metadata = (BASIC, 2, 8, 64, true, true, None, Hexadecimal, "metadata", []);
}

impl Field {
    /// All bits of the field set: the mask of an exact match.
    pub const fn full_mask(self) -> u128 {
        u128::MAX >> (128 - self.info().bits as u32)
    }

    /// Bytes of the value on the wire.
    pub const fn byte_len(self) -> usize {
        self.info().bytes as usize
    }

    /// The registers, in the order of their numbers.
    pub const REGISTERS: [Field; 16] = [
        Field::Reg0,
        Field::Reg1,
        Field::Reg2,
        Field::Reg3,
        Field::Reg4,
        Field::Reg5,
        Field::Reg6,
        Field::Reg7,
        Field::Reg8,
        Field::Reg9,
        Field::Reg10,
        Field::Reg11,
        Field::Reg12,
        Field::Reg13,
        Field::Reg14,
        Field::Reg15,
    ];

    /// Which register it is, 0 to 15, if it is one.
    pub fn register(self) -> Option<usize> {
        Field::REGISTERS.iter().position(|register| *register == self)
    }

    /// The field with this OXM class and number.
    pub fn from_oxm(class: u16, number: u8) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| {
            let info = field.info();
            info.class == class && info.number == number
        })
    }

    /// The field with this name or alias in flow text.
    pub fn from_name(name: &str) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| {
            let info = field.info();
            info.name == name || info.aliases.contains(&name)
        })
    }
}
