//! Matches: lists of OXM fields (OF 1.3.5 §7.2.3).

use crate::error::{DecodeError, ErrorCode};
use crate::field::{Field, ONF_EXPERIMENTER, OXM_CLASS_BASIC, OXM_CLASS_EXPERIMENTER};
use crate::port::widen_port;
use crate::wire::{Pad, Reader, Writer};

/// One field with its value and mask. A number in the low bits whatever the field: a MAC address
/// is 48 bits, an IPv6 address all 128.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OxmField {
    field: Field,
    value: u128,
    mask: u128,
}

impl OxmField {
    /// An exact match. Bits that the field does not have are dropped.
    pub fn exact(field: Field, value: impl Into<u128>) -> OxmField {
        let mask = field.full_mask();
        OxmField { field, value: value.into() & mask, mask }
    }

    /// A match on the bits of `mask`; value bits outside it are dropped.
    pub fn masked(field: Field, value: impl Into<u128>, mask: impl Into<u128>) -> OxmField {
        let mask = mask.into() & field.full_mask();
        OxmField { field, value: value.into() & mask, mask }
    }

    /// Which field.
    pub fn field(&self) -> Field {
        self.field
    }

    /// The value, zero outside the mask.
    pub fn value(&self) -> u128 {
        self.value
    }

    /// The mask; [`Field::full_mask`] for an exact match.
    pub fn mask(&self) -> u128 {
        self.mask
    }

    /// Whether every bit is matched.
    pub fn is_exact(&self) -> bool {
        self.mask == self.field.full_mask()
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        let info = self.field.info();
        let experimenter = info.class == OXM_CLASS_EXPERIMENTER;
        let masked = !self.is_exact();
        let length =
            usize::from(info.bytes) * (1 + usize::from(masked)) + 4 * usize::from(experimenter);
        out.u16(info.class);
        out.u8(info.number << 1 | u8::from(masked));
        out.uint(length as u128, 1);
        if experimenter {
            out.u32(ONF_EXPERIMENTER);
        }
        out.uint(self.value, usize::from(info.bytes));
        if masked {
            out.uint(self.mask, usize::from(info.bytes));
        }
    }

    /// The field as set-field carries it: the ingress port by Nicira's 16-bit header, which is the
    /// only one that Open vSwitch takes there.
    pub(crate) fn encode_to_set(&self, out: &mut Writer) {
        if self.field == Field::InPort {
            out.u32(NXM_OF_IN_PORT);
            out.u16(self.value as u16);
        } else {
            self.encode(out);
        }
    }

    /// Reads the field of a set-field.
    pub(crate) fn decode_to_set(input: &mut Reader<'_>) -> Result<OxmField, DecodeError> {
        let mut ahead = *input;
        if ahead.u32()? == NXM_OF_IN_PORT {
            *input = ahead;
            let port = widen_port(input.u16()?);
            return Ok(OxmField::exact(Field::InPort, port));
        }
        let refused = |error: DecodeError| match error.code {
            ErrorCode::OFPBMC_BAD_LEN => {
                DecodeError::new(ErrorCode::OFPBAC_BAD_SET_LEN, error.detail)
            }
            ErrorCode::OFPBMC_BAD_VALUE | ErrorCode::OFPBMC_BAD_WILDCARDS => {
                DecodeError::new(ErrorCode::OFPBAC_BAD_SET_ARGUMENT, error.detail)
            }
            ErrorCode::OFPBAC_BAD_LEN => error,
            _ => DecodeError::new(ErrorCode::OFPBAC_BAD_SET_TYPE, error.detail),
        };
        match OxmField::decode(input).map_err(refused)? {
            Some(field) if field.field() == Field::InPort => Err(DecodeError::new(
                ErrorCode::OFPBAC_BAD_SET_TYPE,
                "the ingress port is set by Nicira's 16-bit field only",
            )),
            Some(field) => Ok(field),
            None => Err(DecodeError::new(
                ErrorCode::OFPBAC_BAD_SET_TYPE,
                "the packet type cannot be set",
            )),
        }
    }

    /// Reads one OXM element. `None`: it was `packet_type=(0,0)`, which Open vSwitch sends in a
    /// match without other fields and which every Ethernet packet satisfies.
    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Option<OxmField>, DecodeError> {
        let class = input.u16()?;
        let number_and_mask = input.u8()?;
        let length = usize::from(input.u8()?);
        let mut body = input.part(length, ErrorCode::OFPBMC_BAD_LEN)?;
        if class == OXM_CLASS_EXPERIMENTER && body.u32()? != ONF_EXPERIMENTER {
            return Err(BAD_FIELD);
        }
        let number = number_and_mask >> 1;
        let masked = number_and_mask & 1 != 0;
        if (class, number, masked) == (OXM_CLASS_BASIC, OXM_PACKET_TYPE, false) {
            return match (body.u32()?, body.is_empty()) {
                (0, true) => Ok(None),
                (_, true) => Err(NOT_ETHERNET),
                (_, false) => Err(TOO_LONG),
            };
        }
        let field = Field::from_oxm(class, number).ok_or(BAD_FIELD)?;
        let value = body.uint(field.byte_len())?;
        let mask = if masked { body.uint(field.byte_len())? } else { field.full_mask() };
        if !body.is_empty() {
            return Err(TOO_LONG);
        }
        OxmField::validated(field, value, mask, masked).map(Some)
    }

    fn validated(
        field: Field,
        value: u128,
        mask: u128,
        masked: bool,
    ) -> Result<OxmField, DecodeError> {
        let full = field.full_mask();
        // A mask of all wire bits stands for an exact match even in a field of fewer bits.
        let all_wire_bits = u128::MAX >> (128 - 8 * field.byte_len() as u32);
        let mask = if mask == all_wire_bits { full } else { mask };
        if mask & !full != 0 {
            return Err(DecodeError::new(ErrorCode::OFPBMC_BAD_MASK, "mask wider than the field"));
        }
        if masked && mask != full && !field.info().maskable {
            return Err(DecodeError::new(ErrorCode::OFPBMC_BAD_MASK, "field cannot be masked"));
        }
        if value & !full != 0 {
            return Err(DecodeError::new(
                ErrorCode::OFPBMC_BAD_VALUE,
                "value wider than the field",
            ));
        }
        if value & !mask != 0 {
            return Err(DecodeError::new(
                ErrorCode::OFPBMC_BAD_WILDCARDS,
                "value has bits that its mask does not",
            ));
        }
        Ok(OxmField { field, value, mask })
    }
}

/// Header of Nicira's ingress port, two bytes.
const NXM_OF_IN_PORT: u32 = 0x0000_0002;

/// `OXM_OF_PACKET_TYPE` of OpenFlow 1.5.
const OXM_PACKET_TYPE: u8 = 44;

const NOT_ETHERNET: DecodeError =
    DecodeError::new(ErrorCode::OFPBMC_BAD_VALUE, "packet type not Ethernet");
const TOO_LONG: DecodeError =
    DecodeError::new(ErrorCode::OFPBMC_BAD_LEN, "field longer than its value");
const BAD_FIELD: DecodeError =
    DecodeError::new(ErrorCode::OFPBMC_BAD_FIELD, "unknown or unsupported match field");

impl std::fmt::Debug for OxmField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={:#x}", self.field.info().name, self.value)?;
        if self.is_exact() { Ok(()) } else { write!(f, "/{:#x}", self.mask) }
    }
}

/// A valid match: no field twice, every prerequisite there. Fields are kept in wire order, so
/// equal matches compare equal. Wholly wildcarded fields are left out.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Match {
    fields: Vec<OxmField>,
}

/// `ofp_match` type of OXM matches.
const OFPMT_OXM: u16 = 1;

impl Match {
    /// A match of all packets.
    pub fn any() -> Match {
        Match::default()
    }

    /// Fields as they come, to ask about prerequisites before all are known.
    pub(crate) fn from_fields_unchecked(fields: impl IntoIterator<Item = OxmField>) -> Match {
        let mut fields: Vec<OxmField> = fields.into_iter().filter(|f| f.mask != 0).collect();
        fields.sort_by_key(|field| field.field);
        Match { fields }
    }

    /// A match of these fields, in any order.
    pub fn from_fields(fields: impl IntoIterator<Item = OxmField>) -> Result<Match, DecodeError> {
        let matched = Match::from_fields_unchecked(fields);
        let fields = &matched.fields;
        if fields.windows(2).any(|pair| matches!(pair, [a, b] if a.field == b.field)) {
            return Err(DUPLICATE);
        }
        matched.check_prerequisites()?;
        Ok(matched)
    }

    /// The value of one field, if it is matched.
    pub fn get(&self, field: Field) -> Option<&OxmField> {
        self.fields.iter().find(|candidate| candidate.field == field)
    }

    /// The matched fields in wire order.
    pub fn iter(&self) -> impl Iterator<Item = &OxmField> + '_ {
        self.fields.iter()
    }

    /// Whether every packet matches.
    pub fn is_any(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.element(OFPMT_OXM, Pad::Uncounted, |out| {
            self.fields.iter().for_each(|field| field.encode(out));
        });
    }

    /// Reads an `ofp_match` with its padding. A field must follow its prerequisites.
    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Match, DecodeError> {
        let (kind, body) = input.element(Pad::Uncounted)?;
        if kind != OFPMT_OXM {
            return Err(DecodeError::new(ErrorCode::OFPBMC_BAD_TYPE, "not an OXM match"));
        }
        let mut body = body.reporting(ErrorCode::OFPBMC_BAD_LEN);
        let mut matched = Match::any();
        while !body.is_empty() {
            let Some(field) = OxmField::decode(&mut body)? else { continue };
            if matched.get(field.field).is_some() {
                return Err(DUPLICATE);
            }
            if !field.field.info().prerequisite.satisfied_by(&matched) {
                return Err(UNMET);
            }
            if field.mask != 0 {
                matched.fields.push(field);
            }
        }
        matched.fields.sort_by_key(|field| field.field);
        // A field that says what is not there may have come after what it excludes.
        if matched.get(Field::NwFrag).is_some() || matched.get(Field::Icmpv6Code).is_some() {
            matched.check_prerequisites()?;
        }
        Ok(matched)
    }

    fn check_prerequisites(&self) -> Result<(), DecodeError> {
        let met = |field: &OxmField| field.field.info().prerequisite.satisfied_by(self);
        if self.fields.iter().all(met) { Ok(()) } else { Err(UNMET) }
    }
}

const DUPLICATE: DecodeError =
    DecodeError::new(ErrorCode::OFPBMC_DUP_FIELD, "a field is matched twice");
const UNMET: DecodeError =
    DecodeError::new(ErrorCode::OFPBMC_BAD_PREREQ, "a field comes without its prerequisite");

impl std::fmt::Debug for Match {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.fields).finish()
    }
}
