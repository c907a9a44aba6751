//! The types of a build without DPDK: of none is there a value.

use tollgate_frame::{Buffer, Burst, DropReason, FetchStats, Segment, Sink};
use tollgate_packet::MacAddr;

use crate::{DeviceConfig, Link, NicError, Queues, Unsent};

/// DPDK's process-wide environment.
#[derive(Clone, Copy, Debug)]
pub enum Eal {}

impl Eal {
    /// Refused.
    ///
    /// # Errors
    /// Always: [`NicError::NotBuilt`].
    pub fn init(_arguments: &[String]) -> Result<Self, NicError> {
        Err(NicError::NotBuilt)
    }
}

/// Nothing to be done.
///
/// # Errors
/// Never.
pub fn register_polling_thread() -> Result<(), NicError> {
    Ok(())
}

/// A started device.
#[derive(Debug)]
pub enum Device {}

impl Device {
    /// Nobody has the environment that it takes.
    ///
    /// # Errors
    /// None.
    pub fn open(eal: Eal, _config: &DeviceConfig) -> Result<(Self, Queues), NicError> {
        match eal {}
    }

    /// Its driver.
    pub fn driver(&self) -> &str {
        match *self {}
    }

    /// Its address.
    pub fn mac(&self) -> Option<MacAddr> {
        match *self {}
    }

    /// Its MTU in bytes.
    pub fn mtu(&self) -> u16 {
        match *self {}
    }

    /// Whether it takes frames for other stations.
    pub fn is_promiscuous(&self) -> bool {
        match *self {}
    }

    /// Its link as last known.
    pub fn link(&self) -> Link {
        match *self {}
    }

    /// The driver's own counters, by its names.
    pub fn xstats(&self) -> Vec<(String, u64)> {
        match *self {}
    }

    /// Mbufs that are not in its pools.
    pub fn mbufs_in_use(&self) -> u32 {
        match *self {}
    }

    /// Ends it.
    pub fn close(self, _queues: Queues) {
        match self {}
    }
}

/// A receive queue.
#[derive(Debug)]
pub enum RxQueue {}

impl RxQueue {
    /// Whether a fetch yields something.
    pub fn has_work(&self) -> bool {
        match *self {}
    }

    /// Asks the driver for frames.
    pub fn poll(&mut self) -> bool {
        match *self {}
    }

    /// Fills a burst.
    pub fn fetch(&mut self, _burst: &mut Burst, _max: usize, _stats: &mut FetchStats) -> usize {
        match *self {}
    }

    /// Takes packets back.
    pub fn unfetch(&mut self, _burst: &Burst, _count: usize) {
        match *self {}
    }

    /// Frees the mbufs.
    pub fn complete(&mut self, _burst: &Burst) {
        match *self {}
    }
}

/// A transmit queue.
#[derive(Debug)]
pub enum TxQueue {}

impl TxQueue {
    /// Sends a frame out of a burst.
    ///
    /// # Errors
    /// None.
    pub fn deliver_from(
        &mut self,
        _take: impl FnOnce() -> Option<Buffer>,
        _header: &[u8],
        _payload: &[Segment<'_>],
    ) -> Result<(), DropReason> {
        match *self {}
    }

    /// Hands over what was delivered.
    pub fn flush(&mut self) -> Unsent {
        match *self {}
    }
}

impl Sink for TxQueue {
    fn deliver(&mut self, _header: &[u8], _payload: &[Segment<'_>]) -> Result<(), DropReason> {
        match *self {}
    }
}
