//! One task: a tenant's turn, of at most a burst of packets and about a quantum of cycles.
//!
//! ```text
//! fetch (header copies) -> classify -> run actions, deliver by port -> publish -> charge
//! ```

use std::sync::Arc;

use tollgate_accel::tsc;
use tollgate_classifier::FlowSlot;
use tollgate_frame::{DropReason, FetchStats};
use tollgate_packet::limits::MAX_FRAME_BYTES;
use tollgate_packet::{FlowKey, PortIndex};
use tollgate_policy::{TenantIndex, Turn};

use crate::counters::PortCounters;
use crate::limits::{
    REPLIES_PER_TASK, SMALL_SERVICE_PACKETS, SMALL_SERVICE_REST_CYCLES, TASK_PACKETS,
    WAIT_FOR_ANSWERS_CYCLES,
};
use crate::megaflow::{Megaflow, single_writer_add};
use crate::pmd::Pmd;
use crate::pmd::cache::FlowCache;
use crate::pmd::egress::Source;
use crate::pmd::frames::{copy_frame, parse_packet};
use crate::pmd::parked::{Decision, Job, Punt};
use crate::pmd::ports::RingRef;
use crate::pmd::progress::{Progress, Ran};
use crate::pmd::stopwatch::Stopwatch;
use crate::stages::Stage;

/// What was found for each packet of a burst; never zeroed.
#[derive(Debug)]
pub(crate) struct TaskScratch {
    pub(crate) flow_hashes: Box<[u64]>,
    pub(crate) decisions: Box<[Option<FlowSlot>]>,
    malformed: FetchStats,
    /// A frame, put together on its way to the slow path.
    pub(crate) frame: Box<[u8]>,
}

impl TaskScratch {
    pub(crate) fn new() -> Self {
        Self {
            flow_hashes: vec![0; TASK_PACKETS].into(),
            decisions: vec![None; TASK_PACKETS].into(),
            malformed: FetchStats::new(),
            frame: vec![0; MAX_FRAME_BYTES as usize].into(),
        }
    }
}

impl Pmd {
    /// Serves a tenant: first what the slow path has answered and controllers have put in, then a
    /// burst from one of its rings.
    pub(crate) fn task(&mut self, turn: Turn) {
        let started_tsc = self.accounts.last_tsc();
        let deadline_tsc = started_tsc.saturating_add(turn.budget_cycles);
        self.begin_task(turn, started_tsc);
        let (mut served, mut ring_began_tsc) = (0, started_tsc);
        // What an earlier turn has not finished comes first.
        if !self.resume_tenant(turn.tenant, deadline_tsc) {
            let answered = self.send_answers(turn.tenant, deadline_tsc);
            self.send_injections(turn.tenant, deadline_tsc);
            ring_began_tsc = self.accounts.last_tsc();
            if answered < REPLIES_PER_TASK
                && ring_began_tsc < deadline_tsc
                && !self.is_parked(turn.tenant)
            {
                self.egress.stopwatch.start(ring_began_tsc, self.accounts.stolen_cycles());
                served = self.serve_ring(turn, deadline_tsc);
            }
        }
        self.end_task(turn.tenant, served, ring_began_tsc);
        self.shared.task_cycles.record(self.accounts.last_tsc().saturating_sub(started_tsc));
    }

    /// Notes how long the turn was waited for.
    fn begin_task(&mut self, turn: Turn, started_tsc: u64) {
        if !turn.slack
            && let Some(slot) = self.tenants.get(turn.tenant)
            && let Some(cells) = self.shared.tenants.get(usize::from(turn.tenant.0))
        {
            cells.waits.record(started_tsc.saturating_sub(slot.work_since_tsc));
        }
    }

    /// Charges what is left to charge, learns from it, and tells the scheduler.
    fn end_task(&mut self, tenant: TenantIndex, served: usize, ring_began_tsc: u64) {
        single_writer_add(&self.shared.tasks, 1);
        let mut has_more = false;
        if let Some(slot) = self.tenants.get_mut(tenant) {
            has_more = slot.has_work();
            slot.listed = has_more;
        }
        self.accounts.lap_tenant(tenant);
        let now_tsc = self.accounts.last_tsc();
        let stolen_cycles = self.accounts.stolen_cycles();
        self.egress.stopwatch.finish(now_tsc, stolen_cycles, served, &self.shared.stages);
        if let Some(slot) = self.tenants.get_mut(tenant) {
            slot.learn_cost(served as u64, now_tsc.saturating_sub(ring_began_tsc));
            slot.work_since_tsc = now_tsc;
        }
        self.accounts.scheduler.done(tenant, has_more, now_tsc);
    }

    /// Takes a burst from the tenant's next ring and sees it through.
    fn serve_ring(&mut self, turn: Turn, deadline_tsc: u64) -> usize {
        let tenant = turn.tenant;
        let Some(slot) = self.tenants.get_mut(tenant) else { return 0 };
        let wanted = slot.packets_for(turn.budget_cycles);
        let Some(at) = slot.next_ring() else { return 0 };
        let Some(counters) = self.ports.get(at.port).map(|port| Arc::clone(&port.counters)) else {
            return 0;
        };
        // One payer from here to the receivers' interrupts, so no boundary in between.
        let fetched = self.fetch(at, wanted, &counters);
        self.egress.stopwatch.lap(Stage::Fetch, fetched);
        let is_decided = self.decide_by_port(tenant, at);
        self.egress.stopwatch.lap(Stage::Port, fetched);
        if !is_decided {
            self.classify(at);
            self.learn_port_decision(at);
            self.learn_classify_cost(tenant, fetched);
            self.egress.stopwatch.lap(Stage::Account, 0);
        }
        let Forwarded { done, waits, is_cut } = self.forward(tenant, at, deadline_tsc, &counters);
        self.give_back(at, fetched - done);
        if self.complete(at) {
            self.egress.interrupt_sender(tenant);
        }
        self.egress.stopwatch.lap(Stage::Fetch, 0);
        self.publish(tenant);
        self.egress.stopwatch.lap(Stage::Deliver, 0);
        self.burst.clear();
        single_writer_add(&self.shared.packets, done as u64);
        single_writer_add(&self.shared.cut_tasks, u64::from(is_cut || done < fetched && !waits));
        if waits {
            self.rest(at, WAIT_FOR_ANSWERS_CYCLES);
        } else if fetched < wanted.min(SMALL_SERVICE_PACKETS) {
            self.rest(at, SMALL_SERVICE_REST_CYCLES);
        }
        self.put_back(tenant, at);
        done
    }

    /// Learns what fetching and classifying have cost, which does not end with the task's time.
    fn learn_classify_cost(&mut self, tenant: TenantIndex, fetched: usize) {
        let cycles = tsc::now().saturating_sub(self.accounts.last_tsc());
        if let Some(slot) = self.tenants.get_mut(tenant) {
            slot.learn_classify_cost(fetched as u64, cycles);
        }
    }

    pub(crate) fn fetch(&mut self, at: RingRef, wanted: usize, counters: &PortCounters) -> usize {
        let Some(polled) = self.ports.polled(at) else { return 0 };
        let malformed = &mut self.scratch.malformed;
        let fetched = polled.ring.fetch(&mut self.burst, wanted, malformed);
        if malformed.dropped() > 0 {
            for reason in DropReason::ALL {
                let dropped = u64::from(malformed.drops(reason));
                counters.received(dropped, 0);
                counters.dropped(reason, dropped);
            }
            malformed.clear();
        }
        fetched
    }

    /// Finds the decision for every packet of the burst, in stages over all of it, so that the cache
    /// misses of its packets overlap.
    fn classify(&mut self, at: RingRef) {
        let Self { burst, cache, scratch, egress, .. } = self;
        let stopwatch = &mut egress.stopwatch;
        // All of them first: a field is not read back as part of a word right after it was written.
        burst.packets_mut().iter_mut().for_each(|packet| parse_packet(packet, at.port));
        let packets = burst.packets();
        // A packet of the same flow as the one before it needs neither hash nor lookup.
        let mut repeats = [false; TASK_PACKETS];
        let mut before: Option<(&FlowKey, u64)> = None;
        for ((packet, hash), repeat) in
            packets.iter().zip(&mut scratch.flow_hashes).zip(&mut repeats)
        {
            *hash = match before {
                Some((key, hash)) if *key == packet.key => {
                    *repeat = true;
                    hash
                }
                _ => {
                    let hash = cache.hash(&packet.key);
                    cache.prefetch_bucket(hash);
                    hash
                }
            };
            before = Some((&packet.key, *hash));
        }
        stopwatch.lap(Stage::Parse, packets.len());
        let found = || packets.iter().zip(scratch.flow_hashes.iter()).zip(&repeats);
        let new = || found().filter(|(_, repeat)| !**repeat).map(|(new, _)| new);
        new().for_each(|(_, hash)| cache.prefetch_entry(*hash));
        let is_large = cache.is_large();
        if is_large {
            new().for_each(|(packet, hash)| cache.prefetch_megaflow(*hash, &packet.key));
        }
        let keys = found().map(|((packet, hash), repeat)| (&packet.key, *hash, *repeat));
        let to_find = keys.zip(&mut scratch.decisions);
        if stopwatch.is_running() {
            look_up_in_stages(cache, to_find, packets.len(), stopwatch);
        } else {
            look_up(cache, to_find, |_| ());
        }
        if is_large {
            let decisions = scratch.decisions.iter().take(packets.len()).flatten();
            decisions.for_each(|slot| cache.prefetch_ops(*slot));
        }
    }

    /// Runs the decisions until the budget is used up, or a packet has to wait.
    fn forward(
        &mut self,
        tenant: TenantIndex,
        at: RingRef,
        deadline_tsc: u64,
        counters: &PortCounters,
    ) -> Forwarded {
        let now_tsc = self.accounts.last_tsc();
        let source = Source { port: at.port, counters, now_tsc, deadline_tsc };
        let fetched = self.burst.len();
        let (mut done, mut bytes, mut waits, mut is_cut) = (0, 0, false, false);
        let mut tally = Tally::default();
        while done < fetched {
            let moved = self.forward_run(tenant, done, deadline_tsc, &mut tally, source);
            done += moved.packets;
            bytes += moved.bytes;
            if moved.is_late || done == fetched {
                break;
            }
            let frame_len = self.burst.packet(done).map_or(0, |packet| u64::from(packet.frame_len));
            let flow_hash = self.scratch.flow_hashes.get(done).copied().unwrap_or_default();
            let decision = self.scratch.decisions.get(done).copied().flatten();
            let megaflow = decision.and_then(|slot| self.cache.get(slot));
            if megaflow.is_some() && self.is_in_slow_path(tenant, flow_hash) {
                // Its decision is here but earlier packets are not back: it must not overtake them.
                // It waits in the guest's ring; following them would keep the flow there for ever.
                waits = true;
                break;
            }
            let heavy = match megaflow {
                Some(megaflow) => {
                    tally.count(decision, 1, frame_len, &self.cache, now_tsc);
                    let (ports, burst) = (&mut self.ports, &mut self.burst);
                    let mut progress = Progress::of(flow_hash);
                    let ran = self.egress.run(megaflow, burst, done, ports, source, &mut progress);
                    let is_long = is_long(megaflow);
                    is_cut = ran == Ran::Cut;
                    if let Some(slot) = decision.filter(|_| is_cut) {
                        self.park(tenant, at.port, done, slot, progress, counters);
                    }
                    let punted =
                        !is_cut && progress.punts && self.punt(tenant, at.port, done, counters);
                    is_long || punted
                }
                None => {
                    self.egress.stopwatch.lap(Stage::Actions, 0);
                    self.queue_miss(tenant, at, done, flow_hash, counters);
                    self.egress.stopwatch.lap(Stage::Miss, 1);
                    true
                }
            };
            bytes += frame_len;
            done += 1;
            if is_cut {
                break;
            }
            if heavy || self.egress.is_heavy() {
                self.egress.flush(&self.burst, &mut self.ports, source);
                if tsc::now() >= deadline_tsc {
                    break;
                }
            }
        }
        self.egress.flush(&self.burst, &mut self.ports, source);
        tally.settle(&self.cache, now_tsc);
        counters.received(done as u64, bytes);
        Forwarded { done, waits, is_cut }
    }

    /// Keeps the packet at `index` of the burst, whose list was cut, for the tenant's next turn.
    fn park(
        &mut self,
        tenant: TenantIndex,
        port: PortIndex,
        index: usize,
        slot: FlowSlot,
        progress: Progress,
        counters: &PortCounters,
    ) {
        let decision = Decision::Cached(slot);
        let job = Job { decision, progress, port, payer: tenant, punt: Punt::Here };
        let place = self.tenants.get_mut(tenant).and_then(|slot| slot.parked.as_mut());
        match (place, self.burst.packet(index)) {
            (Some(place), Some(packet)) => {
                place.fill(packet, self.burst.payload(index), &self.egress, job, counters);
            }
            _ => progress.account_lost(DropReason::NoBuffers, counters),
        }
    }

    pub(super) fn is_parked(&self, tenant: TenantIndex) -> bool {
        self.tenants.get(tenant).is_some_and(|slot| slot.is_parked())
    }

    #[inline]
    fn is_in_slow_path(&self, tenant: TenantIndex, flow_hash: u64) -> bool {
        self.tenants.get(tenant).is_some_and(|slot| slot.lane.pending.contains(flow_hash))
    }

    /// Copies a packet into its tenant's queue to the slow path.
    pub(crate) fn queue_miss(
        &mut self,
        tenant: TenantIndex,
        at: RingRef,
        index: usize,
        flow_hash: u64,
        counters: &PortCounters,
    ) {
        single_writer_add(&self.shared.misses, 1);
        // Before the copy is made: a flood of new flows costs next to nothing.
        let now_tsc = self.accounts.last_tsc();
        let lane = self.tenants.get(tenant).map(|slot| &slot.lane);
        if lane.is_some_and(|lane| !lane.admits_setup(flow_hash, now_tsc)) {
            return counters.dropped(DropReason::SetupLimit, 1);
        }
        let queued = self.burst.packet(index).is_some_and(|packet| {
            let len = copy_frame(
                packet.header.bytes(),
                self.burst.payload(index),
                &mut self.scratch.frame,
            );
            let frame = self.scratch.frame.get(..len).unwrap_or_default();
            let slot = self.tenants.get_mut(tenant);
            slot.is_some_and(|slot| slot.lane.queue(at.port, &packet.key, flow_hash, frame))
        });
        if queued {
            counters.miss_queued();
            self.wake_slow_path(tenant);
        } else {
            counters.dropped(DropReason::MissQueueFull, 1);
        }
    }

    pub(crate) fn give_back(&mut self, at: RingRef, packets: usize) {
        if packets > 0
            && let Some(polled) = self.ports.polled(at)
        {
            polled.ring.unfetch(&self.burst, packets);
        }
    }

    /// Returns the burst's descriptors to the guest; `true` when it wants an interrupt, which is
    /// then queued.
    pub(crate) fn complete(&mut self, at: RingRef) -> bool {
        let Some(polled) = self.ports.polled(at) else { return false };
        let interrupt = polled.ring.complete(&self.burst);
        interrupt.inspect(|call| self.notifier.queue(call)).is_some()
    }

    /// Shows the receivers their packets. The sender pays for that, each receiver for its own
    /// interrupt, and for what was spent on small buffers of its.
    pub(crate) fn publish(&mut self, tenant: TenantIndex) {
        self.egress.publish(&mut self.ports, &mut self.notifier);
        let (accounts, notifier) = (&mut self.accounts, &mut self.notifier);
        self.egress.take_receivers_pay(|receivers| accounts.lap_receivers(receivers));
        self.egress.take_interrupted(|receivers| {
            accounts.lap_tenant(tenant);
            notifier.flush();
            accounts.lap_shared(receivers);
        });
    }

    /// Leaves a ring alone for a while.
    fn rest(&mut self, at: RingRef, cycles: u64) {
        if let Some(polled) = self.ports.polled(at) {
            polled.rest_until_tsc = tsc::now().saturating_add(cycles);
        }
    }
}

/// Looks up each key that is not as the one before it; `lap` hears of the end of each stage that a
/// packet passes.
#[inline(always)]
fn look_up<'a>(
    cache: &mut FlowCache,
    to_find: impl Iterator<Item = ((&'a FlowKey, u64, bool), &'a mut Option<FlowSlot>)>,
    mut lap: impl FnMut(Stage),
) {
    let mut last = None;
    for ((key, hash, is_repeat), decision) in to_find {
        if is_repeat && last.is_some() {
            cache.count_repeat();
        } else {
            last = cache.lookup_in_stages(hash, key, &mut lap);
        }
        *decision = last;
    }
}

/// The same, timed.
#[cold]
fn look_up_in_stages<'a>(
    cache: &mut FlowCache,
    to_find: impl Iterator<Item = ((&'a FlowKey, u64, bool), &'a mut Option<FlowSlot>)>,
    packets: usize,
    stopwatch: &mut Stopwatch,
) {
    // While the exact-match table is off it takes no time: what passes is the megaflows'.
    let exact_match = cache.exact_match();
    let of = |stage| if exact_match { stage } else { Stage::Megaflow };
    let exact_before = cache.exact_hits;
    look_up(cache, to_find, |stage| stopwatch.lap(of(stage), 0));
    stopwatch.lap(of(Stage::Exact), 0);
    let exact_hits = (cache.exact_hits - exact_before) as usize;
    stopwatch.count(Stage::Exact, if exact_match { packets } else { 0 });
    stopwatch.count(Stage::Megaflow, packets.saturating_sub(exact_hits));
}

/// What a run of packets of one megaflow adds to its counters.
#[derive(Default)]
pub(crate) struct Tally {
    slot: Option<FlowSlot>,
    packets: u64,
    bytes: u64,
}

impl Tally {
    /// Counts packets of one decision.
    #[inline]
    pub(crate) fn count(
        &mut self,
        decision: Option<FlowSlot>,
        packets: u64,
        bytes: u64,
        cache: &FlowCache,
        now_tsc: u64,
    ) {
        if self.slot != decision {
            self.settle(cache, now_tsc);
            self.slot = decision;
        }
        self.packets += packets;
        self.bytes += bytes;
    }

    #[inline]
    fn settle(&mut self, cache: &FlowCache, now_tsc: u64) {
        if let Some(megaflow) = self.slot.and_then(|slot| cache.get(slot)) {
            megaflow.stats.add(self.packets, self.bytes, now_tsc);
        }
        (self.packets, self.bytes) = (0, 0);
    }
}

/// How far a burst was dealt with.
struct Forwarded {
    /// Packets.
    done: usize,
    /// The next one waits for earlier ones of its flow to come back from the slow path.
    waits: bool,
    /// The last one's list is to be run on in the next turn.
    is_cut: bool,
}

/// An action list long enough that the clock is looked at after each packet.
pub(crate) fn is_long(megaflow: &Megaflow) -> bool {
    megaflow.ops.len() > 4
}
