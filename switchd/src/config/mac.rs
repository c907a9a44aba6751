//! Ethernet addresses as TOML text.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};
use tollgate_packet::MacAddr;

pub(super) fn serialize<S: Serializer>(mac: &Option<MacAddr>, to: S) -> Result<S::Ok, S::Error> {
    match mac {
        Some(mac) => to.serialize_str(&mac.to_string()),
        None => to.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MacAddr>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}
