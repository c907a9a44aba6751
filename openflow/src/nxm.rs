//! The headers and names that fields go by in Nicira's actions (Open vSwitch's `meta-flow.h`): those
//! of Nicira's own fields where there are any, otherwise the specification's.

use crate::field::{Field, OXM_CLASS_NXM0 as NXM0, OXM_CLASS_NXM1 as NXM1};

/// How a field is named on the wire and in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NxmField {
    pub(crate) class: u16,
    pub(crate) number: u8,
    pub(crate) bytes: u8,
    /// The name that is printed.
    pub(crate) name: &'static str,
    /// The specification's name, if that is another one.
    pub(crate) other_name: Option<&'static str>,
}

impl NxmField {
    /// The header: of a value without a mask.
    pub(crate) fn header(self) -> u32 {
        u32::from(self.class) << 16 | u32::from(self.number) << 9 | u32::from(self.bytes)
    }
}

/// Header and names of a field.
#[rustfmt::skip]
pub(crate) fn nxm(field: Field) -> NxmField {
    let info = field.info();
    let own = |name| NxmField {
        class: info.class, number: info.number, bytes: info.bytes, name, other_name: None,
    };
    let named = |class, number, name, other_name| NxmField {
        class, number, bytes: info.bytes, name, other_name,
    };
    match field {
        Field::InPort => own("OXM_OF_IN_PORT"),
        Field::EthSrc => named(NXM0, 2, "NXM_OF_ETH_SRC", Some("OXM_OF_ETH_SRC")),
        Field::EthDst => named(NXM0, 1, "NXM_OF_ETH_DST", Some("OXM_OF_ETH_DST")),
        Field::EthType => named(NXM0, 3, "NXM_OF_ETH_TYPE", Some("OXM_OF_ETH_TYPE")),
        Field::VlanVid => own("OXM_OF_VLAN_VID"),
        Field::VlanPcp => own("OXM_OF_VLAN_PCP"),
        Field::Ipv4Src => named(NXM0, 7, "NXM_OF_IP_SRC", Some("OXM_OF_IPV4_SRC")),
        Field::Ipv4Dst => named(NXM0, 8, "NXM_OF_IP_DST", Some("OXM_OF_IPV4_DST")),
        Field::Ipv6Src => named(NXM1, 19, "NXM_NX_IPV6_SRC", Some("OXM_OF_IPV6_SRC")),
        Field::Ipv6Dst => named(NXM1, 20, "NXM_NX_IPV6_DST", Some("OXM_OF_IPV6_DST")),
        Field::Ipv6Flabel => named(NXM1, 27, "NXM_NX_IPV6_LABEL", Some("OXM_OF_IPV6_FLABEL")),
        Field::NwFrag => own("NXM_NX_IP_FRAG"),
        Field::IpDscp => own("OXM_OF_IP_DSCP"),
        Field::IpEcn => named(NXM1, 28, "NXM_NX_IP_ECN", Some("OXM_OF_IP_ECN")),
        Field::NwTtl => own("NXM_NX_IP_TTL"),
        Field::IpProto => named(NXM0, 6, "NXM_OF_IP_PROTO", Some("OXM_OF_IP_PROTO")),
        Field::TcpSrc => named(NXM0, 9, "NXM_OF_TCP_SRC", Some("OXM_OF_TCP_SRC")),
        Field::TcpDst => named(NXM0, 10, "NXM_OF_TCP_DST", Some("OXM_OF_TCP_DST")),
        Field::TcpFlags => named(NXM1, 34, "NXM_NX_TCP_FLAGS", Some("OXM_OF_TCP_FLAGS")),
        Field::UdpSrc => named(NXM0, 11, "NXM_OF_UDP_SRC", Some("OXM_OF_UDP_SRC")),
        Field::UdpDst => named(NXM0, 12, "NXM_OF_UDP_DST", Some("OXM_OF_UDP_DST")),
        Field::SctpSrc => own("OXM_OF_SCTP_SRC"),
        Field::SctpDst => own("OXM_OF_SCTP_DST"),
        Field::Icmpv4Type => named(NXM0, 13, "NXM_OF_ICMP_TYPE", Some("OXM_OF_ICMPV4_TYPE")),
        Field::Icmpv4Code => named(NXM0, 14, "NXM_OF_ICMP_CODE", Some("OXM_OF_ICMPV4_CODE")),
        Field::Icmpv6Type => named(NXM1, 21, "NXM_NX_ICMPV6_TYPE", Some("OXM_OF_ICMPV6_TYPE")),
        Field::Icmpv6Code => named(NXM1, 22, "NXM_NX_ICMPV6_CODE", Some("OXM_OF_ICMPV6_CODE")),
        Field::NdTarget => named(NXM1, 23, "NXM_NX_ND_TARGET", Some("OXM_OF_IPV6_ND_TARGET")),
        Field::NdSll => named(NXM1, 24, "NXM_NX_ND_SLL", Some("OXM_OF_IPV6_ND_SLL")),
        Field::NdTll => named(NXM1, 25, "NXM_NX_ND_TLL", Some("OXM_OF_IPV6_ND_TLL")),
        Field::ArpOp => named(NXM0, 15, "NXM_OF_ARP_OP", Some("OXM_OF_ARP_OP")),
        Field::ArpSpa => named(NXM0, 16, "NXM_OF_ARP_SPA", Some("OXM_OF_ARP_SPA")),
        Field::ArpTpa => named(NXM0, 17, "NXM_OF_ARP_TPA", Some("OXM_OF_ARP_TPA")),
        Field::ArpSha => named(NXM1, 17, "NXM_NX_ARP_SHA", Some("OXM_OF_ARP_SHA")),
        Field::ArpTha => named(NXM1, 18, "NXM_NX_ARP_THA", Some("OXM_OF_ARP_THA")),
        Field::Metadata => own("OXM_OF_METADATA"),
        Field::Reg0 => own("NXM_NX_REG0"),
        Field::Reg1 => own("NXM_NX_REG1"),
        Field::Reg2 => own("NXM_NX_REG2"),
        Field::Reg3 => own("NXM_NX_REG3"),
        Field::Reg4 => own("NXM_NX_REG4"),
        Field::Reg5 => own("NXM_NX_REG5"),
        Field::Reg6 => own("NXM_NX_REG6"),
        Field::Reg7 => own("NXM_NX_REG7"),
        Field::Reg8 => own("NXM_NX_REG8"),
        Field::Reg9 => own("NXM_NX_REG9"),
        Field::Reg10 => own("NXM_NX_REG10"),
        Field::Reg11 => own("NXM_NX_REG11"),
        Field::Reg12 => own("NXM_NX_REG12"),
        Field::Reg13 => own("NXM_NX_REG13"),
        Field::Reg14 => own("NXM_NX_REG14"),
        Field::Reg15 => own("NXM_NX_REG15"),
    }
}
