//! Frames that the slow path owns: answers to misses, and what controllers put in. Both come with
//! their decision.

use std::sync::Arc;

use tollgate_frame::DropReason;
use tollgate_packet::PortIndex;
use tollgate_policy::{Account, TenantIndex};

use crate::counters::PortCounters;
use crate::lane::{Injection, PuntOutcome, Reply};
use crate::limits::{INJECTIONS_PER_TASK, PORTLESS_REST_FACTOR, REPLIES_PER_TASK};
use crate::megaflow::Megaflow;
use crate::pmd::Pmd;
use crate::pmd::egress::Source;
use crate::pmd::frames::{Frames as _, OwnedFrame};

/// Where frames that entered through no port come from. No port has this index
/// ([`MAX_PORTS`](crate::limits::MAX_PORTS)).
pub(crate) const PORTLESS: PortIndex = PortIndex(u16::MAX);

impl Pmd {
    /// Sends packets that the slow path has decided, and caches the decisions. Returns how many.
    pub(crate) fn send_answers(&mut self, tenant: TenantIndex, deadline_tsc: u64) -> usize {
        let mut answered = 0;
        while answered < REPLIES_PER_TASK && self.cache.homeward_room() >= 2 {
            let Some(slot) = self.tenants.get_mut(tenant) else { break };
            let Ok(reply) = slot.lane.replies.pop() else { break };
            slot.lane.pending.leave(reply.key_hash);
            answered += 1;
            if self.cache.is_stale(&reply.megaflow) {
                self.ask_again(tenant, reply);
            } else {
                self.send_answer(reply);
            }
            self.accounts.lap_tenant(tenant);
            if self.accounts.last_tsc() >= deadline_tsc {
                break;
            }
        }
        if answered > 0 {
            self.publish(tenant);
        }
        answered
    }

    fn send_answer(&mut self, reply: Reply) {
        let Reply { port, key_hash, frame, megaflow, install, punt } = reply;
        // The port may be gone; then so are its counters.
        if let Some(counters) = self.ports.get(port).map(|slot| Arc::clone(&slot.counters)) {
            counters.miss_returned();
            let source = Source { port, counters: &counters, now_tsc: self.accounts.last_tsc() };
            self.run_owned(&megaflow, &frame, Some(key_hash), source, punt);
        }
        self.let_go(megaflow, install, frame);
    }

    /// An answer from before a change of the tables must not be carried out after it: the packet
    /// goes to the slow path once more. It stays queued, or is lost if there is no room.
    fn ask_again(&mut self, tenant: TenantIndex, reply: Reply) {
        let Reply { port, key_hash, frame, megaflow, install, punt: _ } = reply;
        if let Some(counters) = self.ports.get(port).map(|slot| Arc::clone(&slot.counters)) {
            let parsed = OwnedFrame::parsed(&mut self.returned, &frame, port);
            let key = parsed.packet(0).map(|packet| packet.key).unwrap_or_default();
            let slot = self.tenants.get_mut(tenant);
            if slot.is_some_and(|slot| slot.lane.queue(port, &key, key_hash, &frame)) {
                self.waker.wake();
            } else {
                counters.miss_returned();
                counters.dropped(DropReason::MissQueueFull, 1);
            }
        }
        self.let_go(megaflow, install, frame);
    }

    /// Carries out what controllers have put in at the tenant's ports.
    pub(crate) fn send_injections(&mut self, tenant: TenantIndex, deadline_tsc: u64) {
        let mut sent = 0;
        while sent < INJECTIONS_PER_TASK
            && self.accounts.last_tsc() < deadline_tsc
            && self.cache.homeward_room() >= 2
        {
            let Some(slot) = self.tenants.get_mut(tenant) else { break };
            let Ok(Injection { port, frame, megaflow }) = slot.lane.injections.pop() else { break };
            sent += 1;
            let port = port.unwrap_or(PORTLESS);
            // The port may be gone; then so are its counters.
            if let Some(counters) = self.ports.get(port).map(|slot| Arc::clone(&slot.counters)) {
                self.inject(&megaflow, &frame, port, &counters);
            }
            self.let_go(megaflow, false, frame);
            self.accounts.lap_tenant(tenant);
        }
        if sent > 0 {
            self.publish(tenant);
        }
    }

    /// Carries out one frame that a controller has put in at no port, if it is time; `true` when
    /// there was one. It is `system` that pays, which no gate holds back: hence the rest.
    pub(crate) fn take_portless(&mut self) -> bool {
        let is_due = self.accounts.last_tsc() >= self.portless_due_tsc;
        let Some(ring) = self.portless.as_mut().filter(|_| is_due) else { return false };
        if ring.is_empty() || self.cache.homeward_room() < 2 {
            return false;
        }
        let Ok(Injection { frame, megaflow, .. }) = ring.pop() else { return false };
        // What came before in this turn was mail.
        self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
        let started_tsc = self.accounts.last_tsc();
        let counters = Arc::clone(&self.portless_counters);
        self.inject(&megaflow, &frame, PORTLESS, &counters);
        self.let_go(megaflow, false, frame);
        self.publish(TenantIndex::SYSTEM);
        self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
        let now_tsc = self.accounts.last_tsc();
        let rest_cycles = now_tsc.saturating_sub(started_tsc) * PORTLESS_REST_FACTOR;
        self.portless_due_tsc = now_tsc.saturating_add(rest_cycles);
        true
    }

    fn inject(
        &mut self,
        megaflow: &Megaflow,
        frame: &[u8],
        port: PortIndex,
        counters: &PortCounters,
    ) {
        counters.injected();
        let source = Source { port, counters, now_tsc: self.accounts.last_tsc() };
        self.run_owned(megaflow, frame, None, source, PuntOutcome::Sent);
    }

    /// Runs a decision on a frame and delivers what it outputs.
    fn run_owned(
        &mut self,
        megaflow: &Megaflow,
        frame: &[u8],
        flow_hash: Option<u64>,
        source: Source<'_>,
        punt: PuntOutcome,
    ) {
        megaflow.stats.add(1, frame.len() as u64, source.now_tsc);
        let mut frames = OwnedFrame::parsed(&mut self.returned, frame, source.port);
        let key_hash = || frames.packet(0).map_or(0, |packet| self.cache.hash(&packet.key));
        let flow_hash = flow_hash.unwrap_or_else(key_hash);
        let ports = &mut self.ports;
        let punts = self.egress.run(megaflow, &mut frames, 0, flow_hash, ports, source);
        self.egress.flush(&frames, ports, source);
        match punt {
            _ if !punts => {}
            PuntOutcome::Sent => source.counters.consumed(),
            PuntOutcome::Denied => source.counters.dropped(DropReason::ControllerLimit, 1),
        }
    }

    /// What is left of an owned frame: its decision goes into the caches or home, its bytes go
    /// home.
    fn let_go(&mut self, megaflow: Arc<Megaflow>, install: bool, frame: Vec<u8>) {
        if install {
            self.cache.install(megaflow);
        } else {
            self.cache.decline(megaflow);
        }
        self.cache.send_frame_home(frame);
    }
}
