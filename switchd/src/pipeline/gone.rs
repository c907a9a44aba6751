//! Rules that went, and the messages about it. A rule's count is final when no PMD uses it any
//! longer; only then is it sent.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_openflow::FlowFlags;

use super::bridge::BridgeId;
use super::core::Core;
use super::events::{Event, FlowRemovedEvent, FlowRemovedReason};
use super::rule::Rule;

/// A rule of whose end controllers want to hear.
#[derive(Debug)]
pub(super) struct Gone {
    bridge: BridgeId,
    rule: Arc<Rule>,
    reason: FlowRemovedReason,
    gone_ms: u64,
}

impl Gone {
    /// Nothing if nobody wants to hear of it.
    pub(super) fn of(
        bridge: BridgeId,
        rule: &Arc<Rule>,
        reason: FlowRemovedReason,
        gone_ms: u64,
    ) -> Option<Self> {
        rule.flags.contains(FlowFlags::SEND_FLOW_REM).then(|| Self {
            bridge,
            rule: Arc::clone(rule),
            reason,
            gone_ms,
        })
    }

    /// Which of its timeouts ended the rule.
    pub(super) fn timeout_of(rule: &Rule, now_ms: u64) -> FlowRemovedReason {
        match rule.hard_end_ms() {
            Some(end_ms) if end_ms <= now_ms => FlowRemovedReason::HardTimeout,
            _ => FlowRemovedReason::IdleTimeout,
        }
    }

    fn message(&self) -> FlowRemovedEvent {
        let rule = &self.rule;
        FlowRemovedEvent {
            reason: self.reason,
            cookie: rule.cookie,
            priority: rule.priority,
            table_id: rule.table,
            duration: Duration::from_millis(self.gone_ms.saturating_sub(rule.created_ms)),
            idle_timeout_s: rule.idle_timeout_s,
            hard_timeout_s: rule.hard_timeout_s,
            packet_count: rule.counters.packets(),
            byte_count: rule.counters.bytes(),
            matcher: rule.source.clone(),
        }
    }
}

impl Core {
    pub(super) fn gone(&self) -> MutexGuard<'_, Vec<Gone>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells controllers of rules whose counts are final.
    pub(super) fn report(&self, gone: &[Gone]) {
        for rule in gone {
            self.tell(rule.bridge, Event::FlowRemoved(rule.message()));
        }
    }
}
