//! Parses the actions that write to fields: `set_field`, `load` and `move`.

use super::error::ParseError;
use super::known::is_unsupported_field;
use super::lexer::Item;
use super::matches::field_for;
use super::names::PortNames;
use super::suggest::nearest;
use super::value::{parse_field, parse_integer, parse_number};
use crate::action::Action;
use crate::field::{Field, OFPVID_PRESENT};
use crate::oxm::{Match, OxmField};
use crate::subfield::{SubField, Whole, field_names};

/// `VALUE->FIELD` or `VALUE/MASK->FIELD`. With a mask this becomes one load for every run of bits,
/// which is how `ovs-ofctl` puts it in OpenFlow 1.3.
pub(super) fn set_field(
    text: &str,
    matcher: &Match,
    names: &dyn PortNames,
) -> Result<Vec<Action>, ParseError> {
    let (value, name) = text.rsplit_once("->").ok_or_else(|| {
        ParseError::new(format!("set_field:{text}: expected set_field:VALUE->FIELD"))
    })?;
    if name == "nw_tos" {
        let tos = parse_number(name, value, 255)?;
        return Ok(vec![Action::SetField(OxmField::exact(Field::IpDscp, tos >> 2))]);
    }
    let field = match name {
        "tp_src" | "tp_dst" => {
            let item = Item { key: "set_field", value: Some(text) };
            transport_field(name, item, matcher)?
        }
        "nw_src" => Field::Ipv4Src,
        "nw_dst" => Field::Ipv4Dst,
        _ => Field::from_name(name)
            .ok_or_else(|| unknown_field(&format!("set_field:{text}"), name))?,
    };
    if !field.info().settable {
        return Err(ParseError::new(format!("set_field:{text}: {name} cannot be set")));
    }
    let parsed = parse_field(field, name, value, names)?;
    if !parsed.is_exact() {
        return Ok(loads(&parsed));
    }
    if field == Field::VlanVid && parsed.value() & u128::from(OFPVID_PRESENT) == 0 {
        return Err(ParseError::new(format!(
            "set_field:{text}: vlan_vid is set together with bit 12: write {} or mod_vlan_vid:{value}",
            parsed.value() | u128::from(OFPVID_PRESENT)
        )));
    }
    Ok(vec![Action::SetField(parsed)])
}

/// The field that `tp_src` or `tp_dst` means; ICMP has no ports to set.
pub(super) fn transport_field(
    name: &str,
    item: Item<'_>,
    matcher: &Match,
) -> Result<Field, ParseError> {
    let field = field_for(name, matcher).ok();
    let is_port = |field: &Field| field.byte_len() == 2;
    field.filter(is_port).ok_or_else(|| {
        ParseError::new(format!(
            "{}:{} needs tcp, udp or sctp in the match",
            item.key,
            item.value.unwrap_or_default()
        ))
    })
}

/// One load for every run of bits in a mask, at most 64 long, from the lowest.
fn loads(field: &OxmField) -> Vec<Action> {
    let whole = SubField::whole(field.field());
    let mut mask = field.mask() & whole.mask();
    let mut loads = Vec::new();
    while mask != 0 {
        let offset = mask.trailing_zeros();
        let bits = (mask >> offset).trailing_ones().min(64);
        if let Ok(dst) = SubField::new(field.field(), offset as u8, bits as u8) {
            mask &= !dst.mask();
            let value = (field.value() & dst.mask()) >> offset;
            loads.push(Action::RegLoad { dst, value: value as u64 });
        } else {
            break;
        }
    }
    loads
}

/// `VALUE->FIELD[BITS]`: one load, or several if there are more than 64 bits.
pub(super) fn load(text: &str) -> Result<Vec<Action>, ParseError> {
    let (value, dst) = text.split_once("->").ok_or_else(|| {
        ParseError::new(format!("load:{text}: expected load:VALUE->FIELD[FIRST..LAST]"))
    })?;
    let action = format!("load:{text}");
    let dst = subfield(&action, dst)?;
    writable(&action, &dst)?;
    let value = parse_integer(value)
        .ok_or_else(|| ParseError::new(format!("{action}: {value} is no number")))?;
    if dst.bits() < 128 && value >> dst.bits() != 0 {
        return Err(ParseError::new(format!(
            "{action}: {value:#x} does not fit into {} bits",
            dst.bits()
        )));
    }
    let mut loads = Vec::new();
    let mut done = 0;
    while done < dst.bits() {
        let bits = (dst.bits() - done).min(64);
        let part = dst.part(done, bits)?;
        let value = value >> done & (u128::MAX >> (128 - bits));
        loads.push(Action::RegLoad { dst: part, value: value as u64 });
        done += bits;
    }
    Ok(loads)
}

/// `FIELD[BITS]->FIELD[BITS]`.
pub(super) fn copy(text: &str) -> Result<Action, ParseError> {
    let (src, dst) = text.split_once("->").ok_or_else(|| {
        ParseError::new(format!(
            "move:{text}: expected move:FIELD[FIRST..LAST]->FIELD[FIRST..LAST]"
        ))
    })?;
    let action = format!("move:{text}");
    let (src, dst) = (subfield(&action, src)?, subfield(&action, dst)?);
    writable(&action, &dst)?;
    if src.bits() != dst.bits() {
        return Err(ParseError::new(format!(
            "{action}: the source is {} bits wide and the destination {}: write which bits, as in \
             reg0[0..{}]",
            src.bits(),
            dst.bits(),
            src.bits().min(dst.bits()) - 1
        )));
    }
    Ok(Action::RegMove { src, dst })
}

fn writable(action: &str, dst: &SubField) -> Result<(), ParseError> {
    dst.check_writable().map_err(|_| {
        ParseError::new(format!("{action}: {} cannot be written", dst.field().info().name))
    })
}

/// `FIELD`, `FIELD[]`, `FIELD[BIT]` or `FIELD[FIRST..LAST]`; `action` is for messages.
fn subfield(action: &str, text: &str) -> Result<SubField, ParseError> {
    let (name, range) = match text.split_once('[') {
        None => (text, ""),
        Some((name, range)) => {
            let range = range
                .strip_suffix(']')
                .ok_or_else(|| ParseError::new(format!("{action}: {text}: missing `]'")))?;
            (name, range)
        }
    };
    let whole = Whole::from_name(name).ok_or_else(|| unknown_field(action, name))?;
    let width = whole.width();
    let expected = |bound: &str| {
        ParseError::new(format!(
            "{action}: {text}: expected a bit from 0 to {} instead of {bound}",
            width - 1
        ))
    };
    let bit = |bound: &str| {
        let bit: Option<u8> = bound.parse().ok();
        bit.filter(|bit| *bit < width).ok_or_else(|| expected(bound))
    };
    let (first, last) = match range.split_once("..") {
        None if range.is_empty() => (0, width - 1),
        None => (bit(range)?, bit(range)?),
        Some((first, last)) => (bit(first)?, bit(last)?),
    };
    if first > last {
        return Err(ParseError::new(format!(
            "{action}: {text}: the first bit is above the last: write {name}[{last}..{first}]"
        )));
    }
    SubField::of(whole, first, last - first + 1).map_err(|_| match whole {
        Whole::Composite(composite) => ParseError::new(format!(
            "{action}: {text} spans more than one field: write {}",
            composite.remedy()
        )),
        Whole::Field(_) => ParseError::new(format!("{action}: {text}: no such bits")),
    })
}

/// `place` is the action that names the field.
fn unknown_field(place: &str, name: &str) -> ParseError {
    if is_unsupported_field(name) {
        return ParseError::new(format!("{place}: field {name} is not supported"));
    }
    let settable = Field::ALL.iter().filter(|field| field.info().settable);
    let candidates = settable.flat_map(|field| {
        let info = field.info();
        field_names(*field)
            .into_iter()
            .chain(std::iter::once(info.name))
            .chain(info.aliases.iter().copied())
    });
    let hint = match nearest(name, candidates) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => String::new(),
    };
    ParseError::new(format!("{place}: unknown field {name}{hint}"))
}
