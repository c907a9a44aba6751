//! Who gives tenants their credit, as text.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Who gives tenants their credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RefillKind {
    /// The PMDs themselves: what one tenant is charged is issued to those with work.
    #[default]
    Local,
    /// A thread that grants every registered tenant its part of the elapsed time.
    Coordinator,
}

/// The text is no refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a refill is \"local\" or \"coordinator\"")]
pub struct RefillError;

impl RefillKind {
    /// As written in the configuration and in JSON-RPC.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Coordinator => "coordinator",
        }
    }
}

impl FromStr for RefillKind {
    type Err = RefillError;

    fn from_str(text: &str) -> Result<Self, RefillError> {
        let kinds = [Self::Local, Self::Coordinator];
        kinds.into_iter().find(|kind| kind.as_str() == text).ok_or(RefillError)
    }
}
