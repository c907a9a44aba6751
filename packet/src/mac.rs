//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address, in wire order.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
    zerocopy::Unaligned,
)]
#[repr(C)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the group bit is set (IEEE 802-2014, 8.2.2): multicast or broadcast.
    pub const fn is_multicast(&self) -> bool {
        self.0[0] & 1 == 1
    }

    /// The address as a number of 48 bits.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address of this number, of which the low 48 bits count.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Not six hexadecimal octets separated by colons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacParseError(pub String);

impl fmt::Display for MacParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an Ethernet address like 02:00:00:00:00:01", self.0)
    }
}

impl std::error::Error for MacParseError {}

impl FromStr for MacAddr {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || MacParseError(text.to_owned());
        let mut octets = text.split(':');
        let mut mac = [0; 6];
        for byte in &mut mac {
            let octet = octets.next().filter(|octet| (1..=2).contains(&octet.len()));
            let octet = octet.ok_or_else(error)?;
            *byte = u8::from_str_radix(octet, 16).map_err(|_| error())?;
        }
        if octets.next().is_some() { Err(error()) } else { Ok(Self(mac)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        let mac: MacAddr = "02:0:00:00:ab:FF".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:00:00:ab:ff");
        for bad in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "02-00-00-00-00-01", "g:0:0:0:0:0"]
        {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
        assert!(MacAddr::BROADCAST.is_multicast());
        assert!(!mac.is_multicast());
    }
}
