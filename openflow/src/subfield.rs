//! Runs of bits in a field, which `load` and `move` work on, and the headers that they go by in
//! Nicira's actions (Open vSwitch's `meta-flow.h`).

use crate::error::{DecodeError, ErrorCode};
use crate::field::{Field, OXM_CLASS_NXM0};
use crate::nxm::{NxmField, nxm};

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

    fn nxm(self) -> NxmField {
        let (number, bytes, name) = match self {
            Composite::InPort => (0, 2, "NXM_OF_IN_PORT"),
            Composite::VlanTci => (4, 2, "NXM_OF_VLAN_TCI"),
            Composite::IpTos => (5, 1, "NXM_OF_IP_TOS"),
        };
        NxmField { class: OXM_CLASS_NXM0, number, bytes, name, other_name: None }
    }

    /// The short name in flow text.
    fn short_name(self) -> &'static str {
        match self {
            Composite::InPort => "in_port",
            Composite::VlanTci => "vlan_tci",
            Composite::IpTos => "nw_tos",
        }
    }

    /// Width in bits.
    fn width(self) -> u8 {
        self.nxm().bytes * 8
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
        let named =
            |composite: &Composite| name == composite.nxm().name || name == composite.short_name();
        if let Some(composite) = Composite::ALL.into_iter().find(named) {
            return Some(Whole::Composite(composite));
        }
        let field = Field::ALL.iter().copied().find(|field| {
            let nxm = nxm(*field);
            name == nxm.name || nxm.other_name == Some(name)
        });
        field.or_else(|| short_name(name)).map(Whole::Field)
    }

    fn from_header(header: u32) -> Option<Whole> {
        let composite =
            Composite::ALL.into_iter().find(|composite| composite.nxm().header() == header);
        let field = || {
            let class = (header >> 16) as u16;
            let number = (header >> 9 & 0x7f) as u8;
            let length = header as u8;
            let known = |field: &Field| {
                let own = field.info();
                length == own.bytes
                    && ((own.class, own.number) == (class, number)
                        || header == nxm(*field).header())
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
            None => (nxm(self.field).name, u32::from(width(self.field)), self.offset()),
            Some(composite) => {
                let start = composite.parts().iter().find(|(field, _)| *field == self.field);
                let start = start.map_or(0, |(_, start)| u32::from(*start));
                (composite.nxm().name, u32::from(composite.width()), start + self.offset())
            }
        }
    }

    pub(crate) fn header(&self) -> u32 {
        match self.through {
            None => nxm(self.field).header(),
            Some(composite) => composite.nxm().header(),
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

/// The names of a field in `load` and `move` beside the short ones.
pub(crate) fn field_names(field: Field) -> impl IntoIterator<Item = &'static str> {
    let nxm = nxm(field);
    std::iter::once(nxm.name).chain(nxm.other_name)
}
