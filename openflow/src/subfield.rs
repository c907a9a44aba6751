//! Runs of bits in a field, which `load` and `move` work on, and the headers that they go by in
//! Nicira's actions (Open vSwitch's `meta-flow.h`).

use crate::error::{DecodeError, ErrorCode};
use crate::field::{Field, OXM_CLASS_NXM1};

/// OXM class of Nicira's first set of fields, those of OpenFlow 1.0.
pub const OXM_CLASS_NXM0: u16 = 0x0000;

/// A run of bits in a field. The VLAN id has 12 bits here: the present bit is only matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubField {
    field: Field,
    offset: u8,
    bits: u8,
    /// The field by whose header and name it goes, if that is not its own.
    through: Option<Composite>,
}

/// A field of Nicira's that is a part of ours, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Composite {
    /// `NXM_OF_IN_PORT`: the port's number in 16 bits, which are the low bits of ours.
    InPort,
    /// `NXM_OF_VLAN_TCI`: priority, present bit and VLAN id.
    VlanTci,
    /// `NXM_OF_IP_TOS`: DSCP, and two bits that are always zero.
    IpTos,
}

impl Composite {
    const ALL: [Composite; 3] = [Composite::InPort, Composite::VlanTci, Composite::IpTos];

    pub(crate) fn header(self) -> NxmHeader {
        let (number, bytes, name) = match self {
            Composite::InPort => (0, 2, "NXM_OF_IN_PORT"),
            Composite::VlanTci => (4, 2, "NXM_OF_VLAN_TCI"),
            Composite::IpTos => (5, 1, "NXM_OF_IP_TOS"),
        };
        NxmHeader { class: OXM_CLASS_NXM0, number, bytes, name }
    }

    /// Width in bits.
    pub(crate) fn width(self) -> u8 {
        self.header().bytes * 8
    }

    /// Our fields in it: the bit of the composite at which each begins.
    fn parts(self) -> &'static [(Field, u8)] {
        match self {
            Composite::InPort => &[(Field::InPort, 0)],
            Composite::VlanTci => &[(Field::VlanVid, 0), (Field::VlanPcp, 13)],
            Composite::IpTos => &[(Field::IpDscp, 2)],
        }
    }

    /// What to write instead of bits that belong to no one field.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Composite::InPort => "OXM_OF_IN_PORT[]",
            Composite::VlanTci => "OXM_OF_VLAN_VID[], OXM_OF_VLAN_PCP[], push_vlan or pop_vlan",
            Composite::IpTos => "OXM_OF_IP_DSCP[] or NXM_OF_IP_TOS[2..7]",
        }
    }
}

/// How a field is named in Nicira's actions, on the wire and in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NxmHeader {
    class: u16,
    number: u8,
    bytes: u8,
    pub(crate) name: &'static str,
}

impl NxmHeader {
    fn bits(self) -> u32 {
        u32::from(self.class) << 16 | u32::from(self.number) << 9 | u32::from(self.bytes)
    }
}

/// What a name or a header stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    Field(Field),
    Composite(Composite),
}

impl Whole {
    /// Width in bits.
    pub(crate) fn width(self) -> u8 {
        match self {
            Whole::Field(field) => width(field),
            Whole::Composite(composite) => composite.width(),
        }
    }

    /// What has this name in `load` and `move`: Nicira's, the specification's, or the short one
    /// of flow text.
    pub(crate) fn from_name(name: &str) -> Option<Whole> {
        let composite = Composite::ALL.into_iter().find(|composite| {
            let short = match composite {
                Composite::InPort => "in_port",
                Composite::VlanTci => "vlan_tci",
                Composite::IpTos => "nw_tos",
            };
            name == composite.header().name || name == short
        });
        if let Some(composite) = composite {
            return Some(Whole::Composite(composite));
        }
        let field = Field::ALL.iter().copied().find(|field| {
            let (nxm, oxm) = names(*field);
            name == nxm || oxm == Some(name)
        });
        field.or_else(|| short_name(name)).map(Whole::Field)
    }

    fn from_header(header: u32) -> Option<Whole> {
        let composite =
            Composite::ALL.into_iter().find(|composite| composite.header().bits() == header);
        let field = || {
            let class = (header >> 16) as u16;
            let number = (header >> 9 & 0x7f) as u8;
            let length = header as u8;
            let known = |field: &Field| {
                let own = field.info();
                length == own.bytes
                    && ((own.class, own.number) == (class, number)
                        || header == nxm_header(*field).bits())
            };
            Field::ALL.iter().copied().find(known)
        };
        composite.map(Whole::Composite).or_else(|| field().map(Whole::Field))
    }
}

fn short_name(name: &str) -> Option<Field> {
    match name {
        "in_port_oxm" => Some(Field::InPort),
        "nw_src" => Some(Field::Ipv4Src),
        "nw_dst" => Some(Field::Ipv4Dst),
        "nw_proto" => Some(Field::IpProto),
        _ => Field::from_name(name),
    }
}

/// Bits of a field that `load` and `move` see.
fn width(field: Field) -> u8 {
    match field {
        Field::VlanVid => 12,
        Field::ArpOp => 16,
        _ => field.info().bits,
    }
}

const NOT_ONE_FIELD: DecodeError =
    DecodeError::new(ErrorCode::OFPBAC_BAD_SET_LEN, "the bits do not lie in one field");
const CANNOT_WRITE: DecodeError =
    DecodeError::new(ErrorCode::OFPBAC_BAD_SET_ARGUMENT, "the field cannot be written");
const UNKNOWN: DecodeError =
    DecodeError::new(ErrorCode::OFPBAC_BAD_SET_TYPE, "unknown or unsupported field");

impl SubField {
    /// `bits` bits of the field from bit `offset`, counted from the lowest. An error unless they
    /// lie in it.
    pub fn new(field: Field, offset: u8, bits: u8) -> Result<SubField, DecodeError> {
        SubField::of(Whole::Field(field), offset, bits)
    }

    /// All bits of a field.
    pub fn whole(field: Field) -> SubField {
        SubField { field, offset: 0, bits: width(field), through: None }
    }

    pub(crate) fn of(whole: Whole, offset: u8, bits: u8) -> Result<SubField, DecodeError> {
        let end = offset.checked_add(bits).filter(|end| *end <= whole.width());
        let end = end.filter(|_| bits > 0).ok_or(NOT_ONE_FIELD)?;
        match whole {
            Whole::Field(field) => Ok(SubField { field, offset, bits, through: None }),
            Whole::Composite(composite) => {
                let part = composite.parts().iter().find(|(field, start)| {
                    offset >= *start && end <= start.saturating_add(width(*field))
                });
                let (field, start) = part.ok_or(NOT_ONE_FIELD)?;
                let offset = offset - start;
                Ok(SubField { field: *field, offset, bits, through: Some(composite) })
            }
        }
    }

    /// The field.
    pub fn field(&self) -> Field {
        self.field
    }

    /// The lowest of the bits, counted from the lowest of the field.
    pub fn offset(&self) -> u32 {
        u32::from(self.offset)
    }

    /// How many bits.
    pub fn bits(&self) -> u32 {
        u32::from(self.bits)
    }

    /// Some of the bits: `bits` from the `skip`th on.
    pub(crate) fn part(&self, skip: u32, bits: u32) -> Result<SubField, DecodeError> {
        if skip + bits > self.bits() || bits == 0 {
            return Err(NOT_ONE_FIELD);
        }
        Ok(SubField { offset: self.offset + skip as u8, bits: bits as u8, ..*self })
    }

    /// The bits as a mask of the field.
    pub fn mask(&self) -> u128 {
        (u128::MAX >> (128 - self.bits())) << self.offset()
    }

    /// The name that it goes by in text, the width of what has that name, and where in that the
    /// bits begin.
    pub(crate) fn spelling(&self) -> (&'static str, u32, u32) {
        match self.through {
            None => (nxm_header(self.field).name, u32::from(width(self.field)), self.offset()),
            Some(composite) => {
                let start = composite.parts().iter().find(|(field, _)| *field == self.field);
                let start = start.map_or(0, |(_, start)| u32::from(*start));
                (composite.header().name, u32::from(composite.width()), start + self.offset())
            }
        }
    }

    pub(crate) fn header(&self) -> u32 {
        match self.through {
            None => nxm_header(self.field).bits(),
            Some(composite) => composite.header().bits(),
        }
    }

    /// Where the bits begin in what [`SubField::header`] names.
    pub(crate) fn wire_offset(&self) -> u16 {
        self.spelling().2 as u16
    }

    pub(crate) fn from_wire(header: u32, offset: u16, bits: u16) -> Result<SubField, DecodeError> {
        let whole = Whole::from_header(header).ok_or(UNKNOWN)?;
        let (Ok(offset), Ok(bits)) = (u8::try_from(offset), u8::try_from(bits)) else {
            return Err(NOT_ONE_FIELD);
        };
        SubField::of(whole, offset, bits)
    }

    /// Refuses what can only be read.
    pub(crate) fn check_writable(&self) -> Result<(), DecodeError> {
        if self.field.info().settable { Ok(()) } else { Err(CANNOT_WRITE) }
    }
}

/// The header that Open vSwitch prefers for a field: Nicira's if there is one.
fn nxm_header(field: Field) -> NxmHeader {
    let info = field.info();
    let (class, number) = match nxm0_number(field) {
        Some(number) => (OXM_CLASS_NXM0, number),
        None => nxm1_number(field).map_or((info.class, info.number), |n| (OXM_CLASS_NXM1, n)),
    };
    NxmHeader { class, number, bytes: info.bytes, name: names(field).0 }
}

fn nxm0_number(field: Field) -> Option<u8> {
    Some(match field {
        Field::EthDst => 1,
        Field::EthSrc => 2,
        Field::EthType => 3,
        Field::IpProto => 6,
        Field::Ipv4Src => 7,
        Field::Ipv4Dst => 8,
        Field::TcpSrc => 9,
        Field::TcpDst => 10,
        Field::UdpSrc => 11,
        Field::UdpDst => 12,
        Field::Icmpv4Type => 13,
        Field::Icmpv4Code => 14,
        Field::ArpOp => 15,
        Field::ArpSpa => 16,
        Field::ArpTpa => 17,
        _ => return None,
    })
}

fn nxm1_number(field: Field) -> Option<u8> {
    Some(match field {
        Field::ArpSha => 17,
        Field::ArpTha => 18,
        Field::Ipv6Src => 19,
        Field::Ipv6Dst => 20,
        Field::Icmpv6Type => 21,
        Field::Icmpv6Code => 22,
        Field::NdTarget => 23,
        Field::NdSll => 24,
        Field::NdTll => 25,
        Field::Ipv6Flabel => 27,
        Field::IpEcn => 28,
        Field::TcpFlags => 34,
        _ => return None,
    })
}

/// The name by which a field is printed, and the other one under which it is known.
fn names(field: Field) -> (&'static str, Option<&'static str>) {
    match field {
        Field::InPort => ("OXM_OF_IN_PORT", None),
        Field::EthSrc => ("NXM_OF_ETH_SRC", Some("OXM_OF_ETH_SRC")),
        Field::EthDst => ("NXM_OF_ETH_DST", Some("OXM_OF_ETH_DST")),
        Field::EthType => ("NXM_OF_ETH_TYPE", Some("OXM_OF_ETH_TYPE")),
        Field::VlanVid => ("OXM_OF_VLAN_VID", None),
        Field::VlanPcp => ("OXM_OF_VLAN_PCP", None),
        Field::Ipv4Src => ("NXM_OF_IP_SRC", Some("OXM_OF_IPV4_SRC")),
        Field::Ipv4Dst => ("NXM_OF_IP_DST", Some("OXM_OF_IPV4_DST")),
        Field::Ipv6Src => ("NXM_NX_IPV6_SRC", Some("OXM_OF_IPV6_SRC")),
        Field::Ipv6Dst => ("NXM_NX_IPV6_DST", Some("OXM_OF_IPV6_DST")),
        Field::Ipv6Flabel => ("NXM_NX_IPV6_LABEL", Some("OXM_OF_IPV6_FLABEL")),
        Field::NwFrag => ("NXM_NX_IP_FRAG", None),
        Field::IpDscp => ("OXM_OF_IP_DSCP", None),
        Field::IpEcn => ("NXM_NX_IP_ECN", Some("OXM_OF_IP_ECN")),
        Field::NwTtl => ("NXM_NX_IP_TTL", None),
        Field::IpProto => ("NXM_OF_IP_PROTO", Some("OXM_OF_IP_PROTO")),
        Field::TcpSrc => ("NXM_OF_TCP_SRC", Some("OXM_OF_TCP_SRC")),
        Field::TcpDst => ("NXM_OF_TCP_DST", Some("OXM_OF_TCP_DST")),
        Field::TcpFlags => ("NXM_NX_TCP_FLAGS", Some("OXM_OF_TCP_FLAGS")),
        Field::UdpSrc => ("NXM_OF_UDP_SRC", Some("OXM_OF_UDP_SRC")),
        Field::UdpDst => ("NXM_OF_UDP_DST", Some("OXM_OF_UDP_DST")),
        Field::SctpSrc => ("OXM_OF_SCTP_SRC", None),
        Field::SctpDst => ("OXM_OF_SCTP_DST", None),
        Field::Icmpv4Type => ("NXM_OF_ICMP_TYPE", Some("OXM_OF_ICMPV4_TYPE")),
        Field::Icmpv4Code => ("NXM_OF_ICMP_CODE", Some("OXM_OF_ICMPV4_CODE")),
        Field::Icmpv6Type => ("NXM_NX_ICMPV6_TYPE", Some("OXM_OF_ICMPV6_TYPE")),
        Field::Icmpv6Code => ("NXM_NX_ICMPV6_CODE", Some("OXM_OF_ICMPV6_CODE")),
        Field::NdTarget => ("NXM_NX_ND_TARGET", Some("OXM_OF_IPV6_ND_TARGET")),
        Field::NdSll => ("NXM_NX_ND_SLL", Some("OXM_OF_IPV6_ND_SLL")),
        Field::NdTll => ("NXM_NX_ND_TLL", Some("OXM_OF_IPV6_ND_TLL")),
        Field::ArpOp => ("NXM_OF_ARP_OP", Some("OXM_OF_ARP_OP")),
        Field::ArpSpa => ("NXM_OF_ARP_SPA", Some("OXM_OF_ARP_SPA")),
        Field::ArpTpa => ("NXM_OF_ARP_TPA", Some("OXM_OF_ARP_TPA")),
        Field::ArpSha => ("NXM_NX_ARP_SHA", Some("OXM_OF_ARP_SHA")),
        Field::ArpTha => ("NXM_NX_ARP_THA", Some("OXM_OF_ARP_THA")),
        Field::Metadata => ("OXM_OF_METADATA", None),
        Field::Reg0 => ("NXM_NX_REG0", None),
        Field::Reg1 => ("NXM_NX_REG1", None),
        Field::Reg2 => ("NXM_NX_REG2", None),
        Field::Reg3 => ("NXM_NX_REG3", None),
        Field::Reg4 => ("NXM_NX_REG4", None),
        Field::Reg5 => ("NXM_NX_REG5", None),
        Field::Reg6 => ("NXM_NX_REG6", None),
        Field::Reg7 => ("NXM_NX_REG7", None),
        Field::Reg8 => ("NXM_NX_REG8", None),
        Field::Reg9 => ("NXM_NX_REG9", None),
        Field::Reg10 => ("NXM_NX_REG10", None),
        Field::Reg11 => ("NXM_NX_REG11", None),
        Field::Reg12 => ("NXM_NX_REG12", None),
        Field::Reg13 => ("NXM_NX_REG13", None),
        Field::Reg14 => ("NXM_NX_REG14", None),
        Field::Reg15 => ("NXM_NX_REG15", None),
    }
}

/// The names of a field in `load` and `move` beside the short one.
pub(crate) fn field_names(field: Field) -> impl IntoIterator<Item = &'static str> {
    let (nxm, oxm) = names(field);
    std::iter::once(nxm).chain(oxm)
}
