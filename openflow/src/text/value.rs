//! Values of fields, as text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::ParseError;
use super::names::{PortNames, format_port, parse_port};
use crate::field::{Field, ValueFormat};
use crate::oxm::OxmField;

/// Names of the TCP flag bits, from bit 0.
const TCP_FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// Reads an unsigned number, decimal or with `0x`, of at most `max`.
pub(super) fn parse_number(key: &str, text: &str, max: u128) -> Result<u128, ParseError> {
    let expected = || ParseError::value(key, text, &format!("a number from 0 to {max}"));
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => {
            return Err(ParseError::value(
                key,
                text,
                "a number without a leading zero (ovs-ofctl reads those as octal)",
            ));
        }
        None => (text, 10),
    };
    from_digits(digits, radix).filter(|n| *n <= max).ok_or_else(expected)
}

/// Reads an unsigned number, decimal or with `0x`.
pub(super) fn parse_integer(text: &str) -> Option<u128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => from_digits(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => None,
        None => from_digits(text, 10),
    }
}

fn from_digits(digits: &str, radix: u32) -> Option<u128> {
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(digits, radix).ok().filter(|_| all_digits)
}

/// Reads `value` or `value/mask` of a field. `*` and `ANY` are all values.
pub(super) fn parse_field(
    field: Field,
    key: &str,
    text: &str,
    names: &dyn PortNames,
) -> Result<OxmField, ParseError> {
    if text == "*" {
        return Ok(OxmField::masked(field, 0_u8, 0_u8));
    }
    match field.info().format {
        ValueFormat::Port => parse_port(text, names)
            .map(|port| OxmField::exact(field, port))
            .ok_or_else(|| unknown_port(key, text)),
        ValueFormat::Fragment => parse_fragment(key, text),
        ValueFormat::TcpFlags => parse_tcp_flags(key, text),
        format => {
            let (value, mask) = match text.split_once('/') {
                None => (text, None),
                Some(_) if !field.info().maskable => {
                    return Err(ParseError::value(key, text, "a value without a mask"));
                }
                Some((value, mask)) => (value, Some(mask)),
            };
            let value = parse_value(format, field, key, value)?;
            let mask = match mask {
                None => field.full_mask(),
                Some(mask) => parse_mask(format, field, key, mask, text)?,
            };
            Ok(OxmField::masked(field, value, mask))
        }
    }
}

pub(super) fn unknown_port(key: &str, text: &str) -> ParseError {
    ParseError::value(
        key,
        text,
        "a port number up to 65279, the name of a port of this bridge, or LOCAL",
    )
}

fn parse_value(
    format: ValueFormat,
    field: Field,
    key: &str,
    text: &str,
) -> Result<u128, ParseError> {
    let parsed = match format {
        ValueFormat::Ethernet => parse_mac(text).ok_or("an Ethernet address aa:bb:cc:dd:ee:ff"),
        ValueFormat::Ipv4 => text
            .parse::<Ipv4Addr>()
            .map(|address| u128::from(u32::from(address)))
            .map_err(|_| "an IPv4 address a.b.c.d, with /LENGTH or /MASK if wanted"),
        ValueFormat::Ipv6 => text
            .parse::<Ipv6Addr>()
            .map(u128::from)
            .map_err(|_| "an IPv6 address, with /LENGTH or /MASK if wanted"),
        _ => return parse_number(key, text, field.full_mask()),
    };
    parsed.map_err(|expected| ParseError::value(key, text, expected))
}

/// A mask is written like a value; that of an IP address may be a prefix length. `whole` is value
/// and mask.
fn parse_mask(
    format: ValueFormat,
    field: Field,
    key: &str,
    text: &str,
    whole: &str,
) -> Result<u128, ParseError> {
    let bits = u32::from(field.info().bits);
    let is_ip = matches!(format, ValueFormat::Ipv4 | ValueFormat::Ipv6);
    if !is_ip || text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_value(format, field, key, text);
    }
    let length = text.parse().ok().filter(|length| *length <= bits);
    length.map(|length| prefix_mask(length, bits)).ok_or_else(|| {
        let expected = format!("a prefix length from 0 to {bits} after the `/'");
        ParseError::value(key, whole, &expected)
    })
}

fn prefix_mask(length: u32, bits: u32) -> u128 {
    let full = u128::MAX >> (128 - bits);
    full & !full.checked_shr(length).unwrap_or(0)
}

fn parse_mac(text: &str) -> Option<u128> {
    let mut parts = text.split(':');
    let mut value = 0;
    for _ in 0..6 {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        value = value << 8 | u128::from(u8::from_str_radix(part, 16).ok()?);
    }
    parts.next().is_none().then_some(value)
}

fn parse_fragment(key: &str, text: &str) -> Result<OxmField, ParseError> {
    let (value, mask) = match text {
        "no" => (0_u8, 3_u8),
        "yes" => (1, 1),
        "first" => (1, 3),
        "later" => (3, 3),
        "not_later" => (0, 2),
        _ => {
            return Err(ParseError::value(key, text, "no, yes, first, later or not_later"));
        }
    };
    Ok(OxmField::masked(Field::NwFrag, value, mask))
}

fn parse_tcp_flags(key: &str, text: &str) -> Result<OxmField, ParseError> {
    let field = Field::TcpFlags;
    let expected = || ParseError::value(key, text, "flags such as syn|ack, +syn-ack or 0x12/0x3f");
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let (value, mask) = text.split_once('/').unwrap_or((text, "0xfff"));
        let max = field.full_mask();
        return Ok(OxmField::masked(
            field,
            parse_number(key, value, max)?,
            parse_number(key, mask, max)?,
        ));
    }
    let bit = |name: &str| {
        let index = TCP_FLAGS.iter().position(|flag| *flag == name)?;
        Some(1_u128 << index)
    };
    if !text.starts_with(['+', '-']) {
        let value = text.split('|').try_fold(0, |value, name| Some(value | bit(name)?));
        return value.map(|value| OxmField::exact(field, value)).ok_or_else(expected);
    }
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let name = rest.get(1..).unwrap_or_default();
        let end = name.find(['+', '-']).unwrap_or(name.len());
        let (name, after) = name.split_at_checked(end).unwrap_or_default();
        let flag = bit(name).filter(|flag| mask & flag == 0).ok_or_else(expected)?;
        mask |= flag;
        if sign == '+' {
            value |= flag;
        }
        rest = after;
    }
    Ok(OxmField::masked(field, value, mask))
}

/// A field's value, and its mask if it has one, as a match prints them.
pub(super) fn format_field(field: &OxmField, names: &dyn PortNames) -> String {
    let (value, mask) = (field.value(), field.mask());
    let exact = field.is_exact();
    match field.field().info().format {
        ValueFormat::Port => format_port(value as u32, names),
        ValueFormat::Fragment => format_fragment(value, mask).to_owned(),
        ValueFormat::TcpFlags => format_tcp_flags(value, mask, exact),
        ValueFormat::Ethernet if exact => format_mac(value),
        ValueFormat::Ethernet => format!("{}/{}", format_mac(value), format_mac(mask)),
        ValueFormat::Ipv4 | ValueFormat::Ipv6 => format_address(field),
        ValueFormat::Decimal if exact => value.to_string(),
        ValueFormat::Decimal => format!("{value:#x}/{mask:#x}"),
        ValueFormat::Hexadecimal => {
            let digits = match field.field() {
                Field::Ipv6Flabel => 5,
                Field::EthType => 4,
                _ => 0,
            };
            let value = format_hex(value, digits);
            if exact { value } else { format!("{value}/{}", format_hex(mask, digits)) }
        }
    }
}

/// A value as `set_field` prints it.
pub(super) fn format_set_value(field: &OxmField, names: &dyn PortNames) -> String {
    match field.field().info().format {
        ValueFormat::Hexadecimal => format_hex(field.value(), 0),
        _ => format_field(field, names),
    }
}

/// Like C's `%#x`, which prints zero as `0`, or with leading zeros when `digits` are wanted.
pub(super) fn format_hex(value: u128, digits: usize) -> String {
    match (value, digits) {
        (0, 0) => "0".to_owned(),
        (value, 0) => format!("{value:#x}"),
        (value, digits) => format!("0x{value:0digits$x}"),
    }
}

fn format_mac(value: u128) -> String {
    let [.., a, b, c, d, e, f] = value.to_be_bytes();
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn format_address(field: &OxmField) -> String {
    let bits = u32::from(field.field().info().bits);
    let address = |value: u128| {
        if bits == 32 { Ipv4Addr::from(value as u32).to_string() } else { format_ipv6(value) }
    };
    let text = address(field.value());
    let length = field.mask().count_ones();
    if field.is_exact() {
        text
    } else if field.mask() == prefix_mask(length, bits) {
        format!("{text}/{length}")
    } else {
        format!("{text}/{}", address(field.mask()))
    }
}

/// As the C library writes it: unlike Rust's, with the last 32 bits of an IPv4-compatible address
/// (`::1.2.3.4`) in dotted form.
fn format_ipv6(value: u128) -> String {
    if value >> 32 == 0 && value >> 16 != 0 {
        format!("::{}", Ipv4Addr::from(value as u32))
    } else {
        Ipv6Addr::from(value).to_string()
    }
}

fn format_fragment(value: u128, mask: u128) -> &'static str {
    match (value, mask) {
        (0, 1 | 3) => "no",
        (1, 1) => "yes",
        (1, _) => "first",
        (0, 2) => "not_later",
        (2, 2) | (3, _) => "later",
        // "A later fragment that is no fragment": matches nothing.
        _ => "<error>",
    }
}

/// The names of TCP flags, `0` for none.
pub fn format_flags(flags: u16) -> String {
    format_tcp_flags(u128::from(flags), Field::TcpFlags.full_mask(), true)
}

fn format_tcp_flags(value: u128, mask: u128, exact: bool) -> String {
    let bits = TCP_FLAGS.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 != 0);
    if exact {
        let set: Vec<&str> =
            bits.filter(|(bit, _)| value >> bit & 1 != 0).map(|(_, name)| *name).collect();
        if set.is_empty() { "0".to_owned() } else { set.join("|") }
    } else {
        bits.map(|(bit, name)| {
            let sign = if value >> bit & 1 != 0 { '+' } else { '-' };
            format!("{sign}{name}")
        })
        .collect()
    }
}
