//! Frames that the slow path owns: answers to misses, and what controllers put in. Both come with
//! their decision.

use std::sync::Arc;

use tollgate_frame::{DropReason, Segment};
use tollgate_packet::PortIndex;
use tollgate_packet::limits::HEADER_COPY_BYTES;
use tollgate_policy::{Account, TenantIndex};

use crate::counters::PortCounters;
use crate::kept_frames::KeptFrames;
use crate::lane::{Injection, PuntOutcome, Reply};
use crate::limits::{INJECTIONS_PER_TASK, PORTLESS_REST_FACTOR, REPLIES_PER_TASK};
use crate::megaflow::Megaflow;
use crate::pmd::Pmd;
use crate::pmd::egress::Source;
use crate::pmd::frames::{Frames as _, OwnedFrame};
use crate::pmd::parked::{Decision, Job, Punt};
use crate::pmd::progress::{Progress, Ran};

/// Where a frame waits that was cut short.
#[derive(Clone, Copy)]
enum Place {
    Tenant(TenantIndex),
    Portless,
}

/// Where frames that entered through no port come from. No port has this index
/// ([`MAX_PORTS`](crate::limits::MAX_PORTS)).
pub(crate) const PORTLESS: PortIndex = PortIndex(u16::MAX);

impl Pmd {
    /// Sends packets that the slow path has decided, and caches the decisions. Returns how many.
    pub(crate) fn send_answers(&mut self, tenant: TenantIndex, deadline_tsc: u64) -> usize {
        let mut answered = 0;
        self.prefetch_answers(tenant);
        while answered < REPLIES_PER_TASK && self.cache.homeward_room() >= 2 {
            let Some(slot) = self.tenants.get_mut(tenant) else { break };
            let Ok(reply) = slot.lane.replies.pop() else { break };
            slot.lane.pending.leave(reply.key_hash);
            answered += 1;
            if self.cache.is_stale(&reply.megaflow) {
                self.ask_again(tenant, reply);
            } else {
                self.send_answer(tenant, reply, deadline_tsc);
            }
            self.accounts.lap_tenant(tenant);
            if self.accounts.last_tsc() >= deadline_tsc || self.is_parked(tenant) {
                break;
            }
        }
        if answered > 0 {
            self.publish(tenant);
        }
        answered
    }

    /// Asks for what the answers that have come say, all of them together: another core has written it.
    fn prefetch_answers(&mut self, tenant: TenantIndex) {
        let Some(slot) = self.tenants.get_mut(tenant) else { return };
        let replies = &mut slot.lane.replies;
        let count = replies.slots().min(REPLIES_PER_TASK);
        let Ok(chunk) = replies.read_chunk(count) else { return };
        let (front, back) = chunk.as_slices();
        let answers = || front.iter().chain(back);
        answers().for_each(|reply| Megaflow::prefetch(Arc::as_ptr(&reply.megaflow)));
        for (ahead, reply) in answers().enumerate() {
            self.cache.prefetch_install(&reply.megaflow, ahead);
        }
    }

    fn send_answer(&mut self, tenant: TenantIndex, reply: Reply, deadline_tsc: u64) {
        let Reply { port, key_hash, frame, megaflow, install, punt } = reply;
        // The port may be gone; then so are its counters.
        let Some(counters) = self.ports.get(port).map(|slot| Arc::clone(&slot.counters)) else {
            return self.let_go(megaflow, install, frame.into_bytes());
        };
        counters.miss_returned();
        let mut kept = self.take_kept(tenant);
        let Some(bytes) = frame.bytes(&mut kept) else {
            // No answer has another's ticket.
            debug_assert!(false, "an answer's frame is kept until it comes");
            counters.dropped(DropReason::NoBuffers, 1);
            self.put_kept(tenant, kept);
            return self.let_go(megaflow, install, frame.into_bytes());
        };
        let now_tsc = self.accounts.last_tsc();
        let source = Source { port, counters: &counters, now_tsc, deadline_tsc };
        let cut = self.run_owned(&megaflow, bytes, Some(key_hash), source, punt);
        if let Some(progress) = cut {
            let decision = Decision::Answer { megaflow, install };
            let punt = Punt::Done(punt);
            let job = Job { decision, progress, port, payer: tenant, punt };
            self.park_owned(Place::Tenant(tenant), bytes, job, &counters);
        } else {
            self.let_go_of_decision(megaflow, install);
        }
        self.put_kept(tenant, kept);
        self.let_go_of_bytes(frame.into_bytes());
    }

    /// The frames of a lane, so that one can be read while it is carried out.
    fn take_kept(&mut self, tenant: TenantIndex) -> KeptFrames {
        let slot = self.tenants.get_mut(tenant);
        slot.map(|slot| std::mem::take(&mut slot.lane.kept)).unwrap_or_default()
    }

    fn put_kept(&mut self, tenant: TenantIndex, kept: KeptFrames) {
        if let Some(slot) = self.tenants.get_mut(tenant) {
            slot.lane.kept = kept;
        }
    }

    /// An answer from before a change of the tables must not be carried out after it: the packet
    /// goes to the slow path once more. It stays queued, or is lost if there is no room.
    fn ask_again(&mut self, tenant: TenantIndex, reply: Reply) {
        let Reply { port, key_hash, frame, megaflow, install, punt: _ } = reply;
        if let Some(counters) = self.ports.get(port).map(|slot| Arc::clone(&slot.counters)) {
            let mut kept = self.take_kept(tenant);
            let bytes = frame.bytes(&mut kept).unwrap_or_default();
            let parsed = OwnedFrame::parsed(&mut self.returned, bytes, port);
            let key = parsed.packet(0).map(|packet| packet.key).unwrap_or_default();
            let slot = self.tenants.get_mut(tenant);
            // It is not kept this time: where it is now is not to be written to.
            let is_queued = slot.is_some_and(|slot| slot.lane.queue(port, &key, key_hash, bytes));
            self.put_kept(tenant, kept);
            if is_queued {
                self.wake_slow_path(tenant);
            } else {
                counters.miss_returned();
                counters.dropped(DropReason::MissQueueFull, 1);
            }
        }
        self.let_go(megaflow, install, frame.into_bytes());
    }

    /// Carries out what controllers have put in at the tenant's ports.
    pub(crate) fn send_injections(&mut self, tenant: TenantIndex, deadline_tsc: u64) {
        let mut sent = 0;
        while sent < INJECTIONS_PER_TASK
            && self.accounts.last_tsc() < deadline_tsc
            && !self.is_parked(tenant)
            && self.cache.homeward_room() >= 2
        {
            let Some(slot) = self.tenants.get_mut(tenant) else { break };
            let Ok(Injection { port, frame, megaflow }) = slot.lane.injections.pop() else { break };
            sent += 1;
            let port = port.unwrap_or(PORTLESS);
            // The port may be gone; then so are its counters.
            match self.ports.get(port).map(|slot| Arc::clone(&slot.counters)) {
                Some(counters) => {
                    let source = self.injection_source(port, &counters, deadline_tsc);
                    self.inject(megaflow, frame, source, Place::Tenant(tenant));
                }
                None => self.let_go(megaflow, false, Some(frame)),
            }
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
        let is_parked = self.parked_portless.as_ref().is_some_and(|parked| parked.is_taken());
        if ring.is_empty() && !is_parked || self.cache.homeward_room() < 2 {
            return false;
        }
        let injection = if is_parked { None } else { ring.pop().ok() };
        // What came before in this turn was mail.
        self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
        let started_tsc = self.accounts.last_tsc();
        let quantum_cycles = self.accounts.scheduler.config().quantum_cycles;
        let deadline_tsc = started_tsc.saturating_add(quantum_cycles);
        if let Some(Injection { frame, megaflow, .. }) = injection {
            let counters = Arc::clone(&self.portless_counters);
            let source = self.injection_source(PORTLESS, &counters, deadline_tsc);
            self.inject(megaflow, frame, source, Place::Portless);
        } else if let Some(mut parked) = self.parked_portless.take() {
            self.resume(&mut parked, deadline_tsc);
            self.parked_portless = Some(parked);
        }
        self.publish(TenantIndex::SYSTEM);
        self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
        let now_tsc = self.accounts.last_tsc();
        let rest_cycles = now_tsc.saturating_sub(started_tsc) * PORTLESS_REST_FACTOR;
        self.portless_due_tsc = now_tsc.saturating_add(rest_cycles);
        true
    }

    fn injection_source<'a>(
        &self,
        port: PortIndex,
        counters: &'a PortCounters,
        deadline_tsc: u64,
    ) -> Source<'a> {
        Source { port, counters, now_tsc: self.accounts.last_tsc(), deadline_tsc }
    }

    /// Carries out a controller's wish, or begins to: then the rest waits in `place`.
    fn inject(
        &mut self,
        megaflow: Arc<Megaflow>,
        frame: Vec<u8>,
        source: Source<'_>,
        place: Place,
    ) {
        source.counters.injected();
        let punt = PuntOutcome::Sent;
        let cut = self.run_owned(&megaflow, &frame, None, source, punt);
        if let Some(progress) = cut {
            let (decision, punt) = (Decision::Injected(megaflow), Punt::Done(punt));
            let payer = match place {
                Place::Tenant(tenant) => tenant,
                Place::Portless => TenantIndex::SYSTEM,
            };
            let port = source.port;
            let job = Job { decision, progress, port, payer, punt };
            self.park_owned(place, &frame, job, source.counters);
            self.let_go_of_bytes(Some(frame));
        } else {
            self.let_go(megaflow, false, Some(frame));
        }
    }

    /// Runs a decision on a frame and delivers what it outputs. How far that
    /// got, if it was cut.
    fn run_owned(
        &mut self,
        megaflow: &Megaflow,
        frame: &[u8],
        flow_hash: Option<u64>,
        source: Source<'_>,
        punt: PuntOutcome,
    ) -> Option<Progress> {
        megaflow.stats.add(1, frame.len() as u64, source.now_tsc);
        let mut frames = OwnedFrame::parsed(&mut self.returned, frame, source.port);
        let key_hash = || frames.packet(0).map_or(0, |packet| self.cache.hash(&packet.key));
        let flow_hash = flow_hash.unwrap_or_else(key_hash);
        let ports = &mut self.ports;
        let mut progress = Progress::of(flow_hash);
        let ran = self.egress.run(megaflow, &mut frames, 0, ports, source, &mut progress);
        self.egress.flush(&frames, ports, source);
        if ran == Ran::Cut {
            return Some(progress);
        }
        match punt {
            _ if !progress.punts => {}
            PuntOutcome::Sent => source.counters.consumed(),
            PuntOutcome::Denied => source.counters.dropped(DropReason::ControllerLimit, 1),
        }
        None
    }

    /// Keeps a frame whose list was cut: its header is where it was edited.
    fn park_owned(&mut self, place: Place, frame: &[u8], job: Job, counters: &PortCounters) {
        let parked = match place {
            Place::Tenant(tenant) => {
                self.tenants.get_mut(tenant).and_then(|slot| slot.parked.as_mut())
            }
            Place::Portless => self.parked_portless.as_mut(),
        };
        // What follows the header copy is as it was.
        let payload = frame.get(HEADER_COPY_BYTES..).unwrap_or_default();
        match parked {
            Some(parked) => {
                let payload = [Segment::from_slice(payload)];
                parked.fill(&self.returned, &payload, &self.egress, job, counters);
            }
            None => {
                job.progress.account_lost(DropReason::NoBuffers, counters);
                self.let_go_of(job);
            }
        }
    }

    /// What is left of an owned frame: its decision goes into the caches or home, its bytes go
    /// home if they came from there.
    fn let_go(&mut self, megaflow: Arc<Megaflow>, install: bool, bytes: Option<Vec<u8>>) {
        self.let_go_of_decision(megaflow, install);
        self.let_go_of_bytes(bytes);
    }

    fn let_go_of_decision(&mut self, megaflow: Arc<Megaflow>, install: bool) {
        if install {
            self.cache.install(megaflow);
        } else {
            self.cache.decline(megaflow);
        }
    }

    fn let_go_of_bytes(&mut self, bytes: Option<Vec<u8>>) {
        if let Some(bytes) = bytes {
            self.cache.send_frame_home(bytes);
        }
    }
}
