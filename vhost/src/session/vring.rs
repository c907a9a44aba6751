//! A ring as the frontend has described it so far, whether it runs or not.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::features::Features;
use crate::memory::GuestMemory;
use crate::notify::CallFd;
use crate::ring::{ActiveVring, VringConfig};
use crate::shared::{RingAddresses, RingPlaceError};
use crate::status::{PortStatus, RingFault};

/// The kick, which also is the frontend's word that the ring may start.
#[derive(Debug, Default)]
pub(super) enum Kick {
    /// Not given: the ring is stopped.
    #[default]
    None,
    /// Given without an fd: the ring is polled.
    Polled,
    /// Given.
    Fd(OwnedFd),
}

#[derive(Debug)]
pub(super) struct Vring {
    index: u16,
    size: Option<u32>,
    addresses: Option<RingAddresses>,
    base: u16,
    call: Option<Arc<CallFd>>,
    kick: Kick,
    enabled: bool,
    running: bool,
    /// A quarantine outlives what the frontend does to a ring short of stopping it.
    fault: Option<RingFault>,
}

impl Vring {
    pub(super) fn new(index: u16) -> Self {
        Self {
            index,
            size: None,
            addresses: None,
            base: 0,
            call: None,
            kick: Kick::None,
            enabled: false,
            running: false,
            fault: None,
        }
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }

    /// Whether the PMD has it.
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// The next avail index, of a ring that is not running.
    pub(super) fn base(&self) -> u16 {
        self.base
    }

    pub(super) fn set_size(&mut self, size: u32) {
        self.size = Some(size);
    }

    pub(super) fn set_addresses(&mut self, addresses: RingAddresses) {
        self.addresses = Some(addresses);
    }

    pub(super) fn set_base(&mut self, base: u16) {
        self.base = base;
    }

    pub(super) fn set_call(&mut self, call: Option<Arc<CallFd>>) {
        self.call = call;
    }

    pub(super) fn set_kick(&mut self, kick: Kick) {
        self.kick = kick;
    }

    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Undoes what started it, so that only a new kick starts it again (vhost-user protocol,
    /// GET_VRING_BASE).
    pub(super) fn set_stopped(&mut self) {
        self.call = None;
        self.kick = Kick::None;
        self.fault = None;
    }

    /// Forgets everything, as after connecting.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.index);
    }

    /// A ring that can start, or `None` as long as something is missing. It counts as running from
    /// here on.
    pub(super) fn activate(
        &mut self,
        features: Features,
        memory: &Arc<GuestMemory>,
        status: &Arc<PortStatus>,
    ) -> Result<Option<ActiveVring>, RingPlaceError> {
        // Without the feature there is no message to enable a ring (vhost-user protocol, "Ring
        // states").
        let enabled = self.enabled || !features.protocol_features();
        let (Some(size), Some(addresses)) = (self.size, self.addresses) else { return Ok(None) };
        if self.running || !enabled || matches!(self.kick, Kick::None) {
            return Ok(None);
        }
        let config = VringConfig {
            index: self.index,
            size,
            addresses,
            base: self.base,
            features,
            call: self.call.clone(),
            fault: self.fault,
        };
        let mut ring = ActiveVring::activate(config, memory, status)?;
        if let Kick::Fd(fd) = std::mem::replace(&mut self.kick, Kick::Polled) {
            ring.set_kick(fd);
        }
        self.running = true;
        Ok(Some(ring))
    }

    /// Keeps what a ring that has stopped running leaves behind; its memory is let go of.
    pub(super) fn came_back(&mut self, ring: Option<Box<ActiveVring>>) {
        self.running = false;
        if let Some(ring) = ring {
            self.base = ring.next_avail();
            self.fault = ring.fault();
            if let Some(fd) = ring.into_kick() {
                self.kick = Kick::Fd(fd);
            }
        }
    }
}
