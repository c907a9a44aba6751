//! What becomes of received packets over a tenant's share, as TOML text.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};
use tollgate_policy::RxOverrun;

pub(super) fn serialize<S: Serializer>(overrun: &RxOverrun, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(overrun.name())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<RxOverrun, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
