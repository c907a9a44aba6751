//! How long the OpenFlow side waits for others.

use std::time::Duration;

use crate::limits::{
    CONNECT_TIMEOUT, CONTROLLER_PROBE, RECEIVE_STALL, RECONNECT_MAX, RECONNECT_MIN, SEND_STALL,
    SERVICE_PROBE,
};

/// Every time that something ends or begins by waiting.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A controller that is silent for so long is asked whether it is there, and has as long to
    /// answer.
    pub controller_probe: Duration,
    /// The same for whoever connects to the bridge's own socket.
    pub service_probe: Duration,
    /// How long a message may be half sent, or the greeting missing.
    pub receive_stall: Duration,
    /// How long what is sent may be left unread.
    pub send_stall: Duration,
    /// How long a controller may take to accept a connection.
    pub connect_timeout: Duration,
    /// The first pause before a controller is tried again.
    pub reconnect_min: Duration,
    /// The longest one.
    pub reconnect_max: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            controller_probe: CONTROLLER_PROBE,
            service_probe: SERVICE_PROBE,
            receive_stall: RECEIVE_STALL,
            send_stall: SEND_STALL,
            connect_timeout: CONNECT_TIMEOUT,
            reconnect_min: RECONNECT_MIN,
            reconnect_max: RECONNECT_MAX,
        }
    }
}
