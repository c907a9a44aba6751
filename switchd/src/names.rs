//! What bridges, ports and tenants may be called.

use crate::limits::{MAX_NAME_BYTES, MAX_TENANT_NAME_BYTES};

/// Words of the flow grammar that stand where a port name may stand.
const RESERVED_PORTS: [&str; 10] =
    ["in_port", "table", "normal", "flood", "all", "controller", "local", "any", "none", "unset"];

/// Checks a bridge's or port's name: it is an OpenFlow port name, part of a file name and a word
/// of the flow grammar.
///
/// # Errors
/// What a name must be, to follow after the name of the offending key.
pub fn check_name(name: &str) -> Result<(), String> {
    check(name, MAX_NAME_BYTES)?;
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "{name:?} is a number, which could not be told from a port number: put a letter in it"
        ));
    }
    if RESERVED_PORTS.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(format!("{name:?} is a reserved port name of OpenFlow: choose another"));
    }
    Ok(())
}

/// Checks a tenant's name.
///
/// # Errors
/// What a name must be, to follow after the name of the offending key.
pub fn check_tenant_name(name: &str) -> Result<(), String> {
    check(name, MAX_TENANT_NAME_BYTES)?;
    if name.eq_ignore_ascii_case("system") {
        return Err(format!("{name:?} is the switch's own account: choose another"));
    }
    Ok(())
}

fn check(name: &str, max_bytes: usize) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if name.len() <= max_bytes && starts_well && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(format!(
        "{} must be 1 to {max_bytes} letters, digits, '-', '_' or '.', the first a letter or digit",
        shortened(name)
    ))
}

/// `text` quoted, cut to a length that fits an error message.
pub fn shortened(text: &str) -> String {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_be_mistaken_for_something_else_are_refused() {
        for good in ["br0", "vm1", "vhu12345678-ab", "a.b_c", "0a"] {
            check_name(good).unwrap();
        }
        for bad in
            ["", "..", "a/b", "-v", "12", "LOCAL", "in_port", "sixteen-letters-", "a b", "é", "a\0"]
        {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        check_tenant_name("6f1c2f6e-5dd1-4cf4-8f0e-a1b4b8f5a5a9").unwrap();
        assert!(check_tenant_name("System").is_err());
        assert!(check_tenant_name(&"x".repeat(64)).is_err());
    }

    #[test]
    fn a_huge_name_makes_a_short_message() {
        assert!(check_name(&"é".repeat(100_000)).unwrap_err().len() < 300);
    }
}
