//! Port names: looking them up, and writing them so that they can be read back.

use std::collections::BTreeMap;

use crate::port::{PortDesc, RESERVED_PORTS, TEXT_PORT_MAX};

/// The names of a bridge's ports.
pub trait PortNames {
    /// The OpenFlow number of the port with this name.
    fn number(&self, name: &str) -> Option<u32>;
    /// The name of the port with this OpenFlow number.
    fn name(&self, number: u32) -> Option<&str>;
}

/// Ports have numbers only.
#[derive(Clone, Copy, Debug)]
pub struct NoNames;

impl PortNames for NoNames {
    fn number(&self, _: &str) -> Option<u32> {
        None
    }

    fn name(&self, _: u32) -> Option<&str> {
        None
    }
}

/// Names as a switch's port descriptions give them.
#[derive(Clone, Debug, Default)]
pub struct PortTable {
    names: BTreeMap<u32, String>,
    numbers: BTreeMap<String, u32>,
}

impl PortTable {
    /// The names in these descriptions. Of ports with one name or one number the first counts.
    pub fn new<'a>(ports: impl IntoIterator<Item = &'a PortDesc>) -> PortTable {
        let mut table = PortTable::default();
        for port in ports {
            table.names.entry(port.port_no).or_insert_with(|| port.name.clone());
            table.numbers.entry(port.name.clone()).or_insert(port.port_no);
        }
        table
    }
}

impl PortNames for PortTable {
    fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    fn name(&self, number: u32) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }
}

/// A port as flow text names it: a reserved name, the port's own name, or its number.
pub fn format_port(number: u32, names: &dyn PortNames) -> String {
    if let Some((name, _)) = RESERVED_PORTS.iter().find(|(_, reserved)| *reserved == number) {
        return (*name).to_owned();
    }
    match names.name(number) {
        Some(name) if is_plain(name) => name.to_owned(),
        Some(name) => quote(name),
        None => number.to_string(),
    }
}

/// Reads a port: number, reserved name, or name, which may be quoted.
pub fn parse_port(text: &str, names: &dyn PortNames) -> Option<u32> {
    if let Some(name) = text.strip_prefix('"') {
        return names.number(&unquote(name)?);
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match number {
        Some(number) => {
            let reserved = RESERVED_PORTS.iter().any(|(_, reserved)| *reserved == number);
            (number <= TEXT_PORT_MAX || reserved).then_some(number)
        }
        None => RESERVED_PORTS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, number)| *number)
            .or_else(|| names.number(text)),
    }
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric())
        && !RESERVED_PORTS.iter().any(|(reserved, _)| reserved.eq_ignore_ascii_case(name))
}

fn quote(name: &str) -> String {
    let mut quoted = String::from('"');
    for c in name.chars() {
        if matches!(c, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// The inside of a quoted name whose opening quote is gone already.
fn unquote(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut chars = text.strip_suffix('"')?.chars();
    while let Some(c) = chars.next() {
        name.push(if c == '\\' { chars.next()? } else { c });
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> PortTable {
        let port = |port_no, name: &str| PortDesc {
            port_no,
            name: name.to_owned(),
            ..PortDesc::default()
        };
        PortTable::new(&[
            port(1, "p1"),
            port(2, "vm-2"),
            port(3, "22"),
            port(4, "a\"b"),
            port(5, "flood"),
        ])
    }

    #[test]
    fn every_port_is_written_so_that_it_reads_back() {
        for number in [1, 2, 3, 4, 5, 6, crate::port::OFPP_LOCAL, crate::port::OFPP_FLOOD] {
            let text = format_port(number, &table());
            assert_eq!(parse_port(&text, &table()), Some(number), "{text}");
        }
    }

    #[test]
    fn names_are_quoted_as_ovs_ofctl_does() {
        assert_eq!(format_port(1, &table()), "p1");
        assert_eq!(format_port(2, &table()), "\"vm-2\"");
        assert_eq!(format_port(3, &table()), "\"22\"");
        assert_eq!(format_port(4, &table()), "\"a\\\"b\"");
    }

    #[test]
    fn a_bare_number_is_a_number_and_reserved_names_win_in_any_case() {
        assert_eq!(parse_port("22", &table()), Some(22));
        assert_eq!(parse_port("local", &table()), Some(crate::port::OFPP_LOCAL));
        assert_eq!(parse_port("flood", &table()), Some(crate::port::OFPP_FLOOD));
        assert_eq!(parse_port("nosuch", &table()), None);
        assert_eq!(parse_port("65279", &table()), Some(TEXT_PORT_MAX));
        assert_eq!(parse_port("65280", &table()), None);
        assert_eq!(parse_port("4294967294", &table()), Some(crate::port::OFPP_LOCAL));
        assert_eq!(parse_port("\"open", &table()), None);
    }
}
