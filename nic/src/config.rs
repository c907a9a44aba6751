//! What a device is opened with and what it says of itself.

use crate::{RxQueue, TxQueue};

/// What is asked of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// A PCI address (`0000:3b:00.0`) or a virtual device (`net_af_packet0,iface=eth1`), with the
    /// arguments that its driver takes.
    pub devargs: String,
    /// Receive queues.
    pub queues: u16,
    /// Largest payload of a frame, in bytes; the device's own (mostly 1500) when it is not given.
    pub mtu: Option<u16>,
    /// Whether it takes frames for other stations than itself, as a switch's uplink must.
    pub promiscuous: bool,
}

/// A device's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether it carries frames.
    pub is_up: bool,
    /// Its speed in Mbit/s; `None` where the device does not know one.
    pub speed_mbps: Option<u32>,
    /// Whether it sends and receives at once.
    pub is_full_duplex: bool,
}

/// Queues on their way to a PMD and back.
#[derive(Debug, Default)]
pub struct Queues {
    /// Receive queues by their numbers.
    pub rx: [Option<Box<RxQueue>>; crate::limits::MAX_QUEUES as usize],
    /// The transmit queue.
    pub tx: Option<Box<TxQueue>>,
}

/// Frames that a device's ring had no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsent {
    /// How many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}
