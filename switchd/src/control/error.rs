//! Why the switch refuses an order.

use tollgate_datapath::ControlError;
use tollgate_nic::NicError;
use tollgate_policy::ConfigError;
use tollgate_vhost::SocketError;

use crate::config::check::NEEDS_DPDK;
use crate::limits::{MAX_BRIDGES, MAX_CONTROLLERS, MAX_OFPORT};
use crate::openflow::ListenError;
use crate::pipeline::{BridgeError, TraceError};
use crate::rundir::RunDirError;

/// An order that is well formed but cannot be carried out as things stand.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The daemon is ending.
    #[error("the switch is shutting down")]
    ShuttingDown,
    /// A name that is taken.
    #[error("there is a {kind} {name:?} already")]
    Exists {
        /// A bridge, a port.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name that nothing has.
    #[error("there is no {kind} {name:?}")]
    Unknown {
        /// A bridge, a port, a tenant.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A port that is on another bridge.
    #[error("port {port:?} is on bridge {bridge:?}")]
    OnOtherBridge {
        /// The port.
        port: String,
        /// Where it is.
        bridge: String,
    },
    /// A bridge that has ports.
    #[error("bridge {bridge:?} still has ports ({ports}): remove them first")]
    HasPorts {
        /// The bridge.
        bridge: String,
        /// Their names.
        ports: String,
    },
    /// A tenant that has ports.
    #[error("tenant {tenant:?} still has ports ({ports}): remove them first")]
    TenantHasPorts {
        /// The tenant.
        tenant: String,
        /// Their names.
        ports: String,
    },
    /// No room for a bridge.
    #[error("there are {MAX_BRIDGES} bridges already")]
    TooManyBridges,
    /// An OpenFlow number that another port has.
    #[error("port {holder:?} has OpenFlow number {ofport} already")]
    OfportTaken {
        /// The number.
        ofport: u32,
        /// Who has it.
        holder: String,
    },
    /// No OpenFlow number is free.
    #[error("the bridge has {MAX_OFPORT} ports already")]
    NoFreeOfport,
    /// The port's socket.
    #[error("socket {0}")]
    Socket(#[from] SocketError),
    /// The port's network card.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// DPDK was not initialised.
    #[error("type: {NEEDS_DPDK}")]
    NoDpdk,
    /// The bridge's socket.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A controller cannot be listened for.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// More controllers than a bridge can have.
    #[error("a bridge has at most {MAX_CONTROLLERS} controllers")]
    TooManyControllers,
    /// A scheduler's knob does not go with what was set for a tenant.
    #[error("tenant {tenant:?}: {source}")]
    KnobOfTenant {
        /// Whose.
        tenant: String,
        /// Which of its knobs, and the range that it would have.
        source: ConfigError,
    },
    /// The datapath refused.
    #[error(transparent)]
    Datapath(#[from] ControlError),
    /// There is no such packet to trace.
    #[error(transparent)]
    Trace(TraceError),
    /// The pipeline refused.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
}

impl Refusal {
    pub(super) fn unknown(kind: &'static str, name: &str) -> Self {
        Self::Unknown { kind, name: name.to_owned() }
    }

    pub(super) fn exists(kind: &'static str, name: &str) -> Self {
        Self::Exists { kind, name: name.to_owned() }
    }
}
