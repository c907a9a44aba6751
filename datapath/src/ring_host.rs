//! The door through which a port's vhost-user session reaches its PMD.

use std::sync::Arc;

use tollgate_packet::PortIndex;
use tollgate_vhost::{ActiveVring, HostGone, RingHost};

use crate::mail::{Mail, Mailbox};

/// One port's rings on the PMD that polls them.
#[derive(Debug)]
pub(crate) struct PortRings {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) port: PortIndex,
}

impl PortRings {
    fn call(&self, order: Mail) -> Result<Option<Box<ActiveVring>>, HostGone> {
        self.mailbox.call([order]).map(|returned| returned.ring).map_err(|_| HostGone)
    }
}

impl RingHost for PortRings {
    fn start(&self, ring: ActiveVring) -> Result<(), HostGone> {
        // A ring that comes straight back found no port: it was removed meanwhile.
        match self.call(Mail::RingStart(self.port, Box::new(ring)))? {
            None => Ok(()),
            Some(_) => Err(HostGone),
        }
    }

    fn stop(&self, index: u16) -> Result<Option<Box<ActiveVring>>, HostGone> {
        self.call(Mail::RingStop(self.port, index))
    }
}
