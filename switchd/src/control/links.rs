//! Tells controllers of guests that come and go, and of cables: their port's link is up or down then.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::registry::Registry;
use crate::openflow::EventHub;
use crate::pipeline::{BridgeId, Event, EventSink as _, Pipeline, PortReason, PortStatusEvent};

/// How often links are looked at: a controller hears of a guest long before the guest has booted.
const INTERVAL: Duration = Duration::from_millis(200);

/// What decides whether links have changed.
#[derive(Debug)]
pub(super) struct LinkWatch {
    pub(super) registry: Arc<RwLock<Registry>>,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) events: Arc<EventHub>,
}

/// The ports whose link is up, each with its bridge.
type Up = BTreeMap<String, BridgeId>;

impl LinkWatch {
    /// Watches until the future is dropped.
    pub(super) async fn run(self) {
        let mut before = Up::new();
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let now = self.up();
            for (name, bridge) in changed(&before, &now) {
                self.tell(name, *bridge);
            }
            before = now;
        }
    }

    fn up(&self) -> Up {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        let up = registry.ports.iter().filter(|(_, port)| port.attachment.is_up());
        up.filter_map(|(name, port)| {
            let bridge = registry.bridges.get(&port.bridge)?;
            Some((name.clone(), bridge.id))
        })
        .collect()
    }

    fn tell(&self, name: &str, bridge: BridgeId) {
        let port = self.pipeline.ports(bridge).into_iter().find(|port| port.name == name);
        // One that was removed has been told of as removed.
        if let Some(port) = port {
            let event = PortStatusEvent { reason: PortReason::Modify, port };
            self.events.event(bridge, Event::PortStatus(event));
        }
    }
}

/// Those in one of the two only.
fn changed<'a>(before: &'a Up, now: &'a Up) -> impl Iterator<Item = (&'a String, &'a BridgeId)> {
    let only = |some: &'a Up, others: &'a Up| {
        some.iter().filter(|(name, bridge)| others.get(*name) != Some(bridge))
    };
    only(before, now).chain(only(now, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_went_up_or_down_are_told_of_and_others_are_not() {
        let up = |names: &[(&str, u32)]| -> Up {
            names.iter().map(|(name, bridge)| ((*name).to_owned(), BridgeId(*bridge))).collect()
        };
        let (before, now) =
            (up(&[("a", 1), ("b", 1), ("c", 1)]), up(&[("b", 1), ("c", 2), ("d", 1)]));
        let told: Vec<_> = changed(&before, &now).map(|(name, id)| (name.as_str(), id.0)).collect();
        assert_eq!(told, [("a", 1), ("c", 1), ("c", 2), ("d", 1)]);
        assert_eq!(changed(&now, &now).count(), 0);
    }
}
