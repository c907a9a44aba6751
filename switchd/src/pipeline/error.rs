//! Why a change was refused.

use tollgate_openflow::{DecodeError, ErrorCode};

/// A flow-mod or query that is refused, with what goes into the OFPT_ERROR message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct FlowError {
    /// Type and code (OpenFlow 1.3.5, section 7.4.4).
    pub code: ErrorCode,
    /// The reason in words.
    pub detail: &'static str,
}

impl FlowError {
    pub(super) const fn new(code: ErrorCode, detail: &'static str) -> Self {
        Self { code, detail }
    }
}

impl From<DecodeError> for FlowError {
    fn from(error: DecodeError) -> Self {
        Self::new(error.code, error.detail)
    }
}

/// A change of bridges or ports that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// The name is taken.
    #[error("there is a bridge of that name already")]
    Exists,
    /// No such bridge.
    #[error("there is no such bridge")]
    NoSuchBridge,
    /// The bridge still has ports.
    #[error("the bridge still has ports; remove them first")]
    HasPorts,
    /// OpenFlow port number out of range.
    #[error("an OpenFlow port number is 1 to {}", crate::limits::MAX_OFPORT)]
    BadOfport,
    /// The OpenFlow port number is taken.
    #[error("the bridge has a port of that OpenFlow number already")]
    OfportTaken,
    /// The port is attached already.
    #[error("the port is attached to a bridge already")]
    PortTaken,
    /// No such port.
    #[error("there is no such port")]
    NoSuchPort,
}
