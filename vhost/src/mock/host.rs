//! A host for rings without a PMD: the test is the PMD.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::ring::ActiveVring;
use crate::session::{HostGone, RingHost};

/// Keeps started rings for the test to use.
#[derive(Debug, Default)]
pub struct MockHost {
    rings: Mutex<BTreeMap<u16, Box<ActiveVring>>>,
    changed: Condvar,
    events: Mutex<Vec<String>>,
}

impl MockHost {
    /// Without rings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses ring `index` as its PMD would, once it has been started; waits for that up to 10 s.
    pub fn with_ring<T>(&self, index: u16, work: impl FnOnce(&mut ActiveVring) -> T) -> T {
        let rings = self.rings.lock().unwrap();
        let started = |rings: &mut BTreeMap<_, _>| !rings.contains_key(&index);
        let (mut rings, _) =
            self.changed.wait_timeout_while(rings, Duration::from_secs(10), started).unwrap();
        work(rings.get_mut(&index).expect("the ring was started"))
    }

    /// The rings that are here.
    pub fn started(&self) -> Vec<u16> {
        self.rings.lock().unwrap().keys().copied().collect()
    }

    /// "start N" and "stop N" in the order in which they came.
    pub fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

impl RingHost for MockHost {
    fn start(&self, ring: ActiveVring) -> Result<(), HostGone> {
        let index = ring.index();
        self.events.lock().unwrap().push(format!("start {index}"));
        let before = self.rings.lock().unwrap().insert(index, Box::new(ring));
        assert!(before.is_none(), "ring {index} was started twice");
        self.changed.notify_all();
        Ok(())
    }

    fn stop(&self, index: u16) -> Result<Option<Box<ActiveVring>>, HostGone> {
        self.events.lock().unwrap().push(format!("stop {index}"));
        Ok(self.rings.lock().unwrap().remove(&index))
    }
}
