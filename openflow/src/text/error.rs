//! Why a flow was not understood.

use crate::error::DecodeError;

/// A sentence that names the field and says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    pub(super) fn new(message: impl Into<String>) -> ParseError {
        ParseError(message.into())
    }

    /// `key=value` is not what `expected` describes.
    pub(super) fn value(key: &str, value: &str, expected: &str) -> ParseError {
        ParseError(format!("{key}={value}: expected {expected}"))
    }
}

impl From<DecodeError> for ParseError {
    /// For what is left to be refused after parsing, such as too many actions.
    fn from(error: DecodeError) -> ParseError {
        ParseError(error.to_string())
    }
}
