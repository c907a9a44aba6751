//! A coordinator's boost as a TOML number.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};
use tollgate_policy::Boost;

pub(super) fn serialize<S: Serializer>(boost: &Boost, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(boost.as_f64())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Boost, D::Error> {
    let number = f64::deserialize(from)?;
    Boost::try_from(number).map_err(D::Error::custom)
}
