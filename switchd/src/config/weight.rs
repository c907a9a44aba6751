//! Weights as TOML numbers.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};
use tollgate_policy::Weight;

pub(super) fn serialize<S: Serializer>(weight: &Weight, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(weight.as_f64())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Weight, D::Error> {
    let number = f64::deserialize(from)?;
    Weight::try_from(number).map_err(D::Error::custom)
}
