//! JSON-RPC 2.0 error objects (specification section 5.1).

use serde::Serialize;

use crate::names::shortened;

/// What a failed request is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// A code of the specification, or [`Self::REFUSED`].
    pub code: i32,
    /// What is wrong and what would be right.
    pub message: String,
}

impl RpcError {
    /// The text is no JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// The JSON is no request.
    pub const INVALID_REQUEST: i32 = -32600;
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// A parameter is missing, unknown, or has a wrong value.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The switch itself failed.
    pub const INTERNAL: i32 = -32603;
    /// Understood, but not possible in the present state.
    pub const REFUSED: i32 = -1;

    /// An [`Self::INVALID_REQUEST`].
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self { code: Self::INVALID_REQUEST, message: message.into() }
    }

    /// A [`Self::METHOD_NOT_FOUND`].
    pub fn method_not_found(method: &str) -> Self {
        let method = shortened(method);
        let message = format!("there is no method {method}: rpc_get_methods lists them");
        Self { code: Self::METHOD_NOT_FOUND, message }
    }

    /// An [`Self::INVALID_PARAMS`].
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self { code: Self::INVALID_PARAMS, message: message.into() }
    }

    /// An [`Self::INTERNAL`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: Self::INTERNAL, message: message.into() }
    }

    /// A [`Self::REFUSED`].
    pub fn refused(message: impl Into<String>) -> Self {
        Self { code: Self::REFUSED, message: message.into() }
    }
}
