//! Brings what happens on a bridge to the connections that want to hear of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::peer::{Kind, Peer};
use super::recording::Budget;
use super::roles::Role;
use crate::limits::BUNDLE_BYTES_MAX;
use crate::pipeline::{BridgeId, Event, EventSink};

/// The event sink of the pipeline. Whoever reports an event waits for nobody: every connection has
/// a bounded queue of its own.
#[derive(Debug, Default)]
pub struct EventHub {
    bridges: RwLock<BTreeMap<BridgeId, Arc<Audience>>>,
}

impl EventHub {
    /// The audience of a bridge, which is empty at first.
    pub fn audience(&self, bridge: BridgeId) -> Arc<Audience> {
        let mut bridges = self.bridges.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(bridges.entry(bridge).or_default())
    }

    /// Forgets a bridge that is gone.
    pub fn forget(&self, bridge: BridgeId) {
        self.bridges.write().unwrap_or_else(PoisonError::into_inner).remove(&bridge);
    }
}

impl EventSink for EventHub {
    fn event(&self, bridge: BridgeId, event: Event) {
        let bridges = self.bridges.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(audience) = bridges.get(&bridge) {
            audience.tell(event);
        }
    }
}

/// The connections of one bridge, and what they share.
#[derive(Debug)]
pub struct Audience {
    peers: RwLock<Vec<Arc<Peer>>>,
    election: Mutex<Election>,
    bundles: Arc<Budget>,
}

impl Default for Audience {
    fn default() -> Self {
        let bundles = Arc::new(Budget::new(BUNDLE_BYTES_MAX));
        Self { peers: RwLock::default(), election: Mutex::default(), bundles }
    }
}

/// Which mastership is the latest (OpenFlow 1.3.5, section 6.3.4).
#[derive(Debug, Default)]
struct Election {
    generation_id: Option<u64>,
}

/// The generation id is older than one seen before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stale;

impl Audience {
    /// Brings `event` to the connections that want it and have room.
    pub fn tell(&self, event: Event) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        if peers.is_empty() {
            return;
        }
        let event = Arc::new(event);
        peers.iter().for_each(|peer| peer.offer(&event));
    }

    /// Adds a connection; it leaves when the membership is dropped.
    pub(super) fn join(self: &Arc<Self>, kind: Kind) -> Membership {
        let peer = Arc::new(Peer::new(kind));
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        peers.push(Arc::clone(&peer));
        Membership { audience: Arc::clone(self), peer }
    }

    /// What is left for bundles.
    pub(super) fn bundles(&self) -> &Arc<Budget> {
        &self.bundles
    }

    fn election(&self) -> MutexGuard<'_, Election> {
        self.election.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest generation id, if there was any.
    pub(super) fn generation_id(&self) -> Option<u64> {
        self.election().generation_id
    }

    /// Gives `peer` a role. Whoever was master when another becomes it is a slave from then on.
    ///
    /// # Errors
    /// When the role depends on the generation and this one is old.
    pub(super) fn assign(&self, peer: &Peer, role: Role, generation_id: u64) -> Result<(), Stale> {
        let mut election = self.election();
        if role != Role::Equal {
            // Signed distance, so that ids may wrap around (OpenFlow 1.3.5, section 6.3.4).
            let is_old = |latest: u64| generation_id.wrapping_sub(latest).cast_signed() < 0;
            if election.generation_id.is_some_and(is_old) {
                return Err(Stale);
            }
            election.generation_id = Some(generation_id);
        }
        if role == Role::Master {
            let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
            for other in peers.iter() {
                other.change(|settings| {
                    if settings.role == Role::Master {
                        settings.role = Role::Slave;
                    }
                });
            }
        }
        peer.change(|settings| settings.role = role);
        Ok(())
    }
}

/// A connection's place in the audience.
#[derive(Debug)]
pub(super) struct Membership {
    audience: Arc<Audience>,
    peer: Arc<Peer>,
}

impl Membership {
    pub(super) fn audience(&self) -> &Arc<Audience> {
        &self.audience
    }

    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.peer.close();
        let mut peers = self.audience.peers.write().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|other| !Arc::ptr_eq(other, &self.peer));
    }
}
