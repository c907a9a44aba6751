//! A tenant's way into the slow path and back: one lane per tenant and PMD, so that one tenant's
//! misses neither fill nor delay another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rtrb::{Consumer, Producer, PushError, RingBuffer};
use tollgate_packet::{FlowKey, PortIndex};
use tollgate_policy::TenantIndex;
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

use crate::byte_ring::{RecordConsumer, RecordProducer, byte_ring};
use crate::kept_frames::{KeptFrames, Ticket};
use crate::limits::{
    INJECTION_SLOTS, MAX_TENANTS, PENDING_FLOWS, PENDING_PROBES, PUNT_ARENA_BYTES, REPLY_SLOTS,
};
use crate::megaflow::Megaflow;
use crate::slow_path::MissKind;
use crate::token_bucket::TokenBucket;

/// By which the slow path tells a PMD whose lanes it has put something in, so that a turn need not
/// look at every tenant's.
#[derive(Debug)]
pub(crate) struct LaneBell {
    /// Bit per word that is not zero.
    summary: AtomicU64,
    /// Bit per tenant.
    tenants: [AtomicU64; MAX_TENANTS / 64],
}

impl Default for LaneBell {
    fn default() -> Self {
        Self {
            summary: AtomicU64::new(0),
            tenants: [const { AtomicU64::new(0) }; MAX_TENANTS / 64],
        }
    }
}

impl LaneBell {
    /// After something was put in the tenant's lane.
    pub(crate) fn ring(&self, tenant: TenantIndex) {
        let (word, bit) = (usize::from(tenant.0) / 64, tenant.0 % 64);
        if let Some(tenants) = self.tenants.get(word) {
            tenants.fetch_or(1 << bit, Ordering::Release);
            self.summary.fetch_or(1 << word, Ordering::Release);
        }
    }

    /// Names each tenant for whom it has rung since the last time. One load when there is none.
    #[inline]
    pub(crate) fn answer(&self, mut tenant: impl FnMut(TenantIndex)) {
        if self.summary.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut words = self.summary.swap(0, Ordering::Acquire);
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            words &= words - 1;
            let Some(tenants) = self.tenants.get(word) else { break };
            let mut bits = tenants.swap(0, Ordering::Acquire);
            while bits != 0 {
                tenant(TenantIndex((word * 64) as u16 + bits.trailing_zeros() as u16));
                bits &= bits - 1;
            }
        }
    }
}

/// What a tenant may ask of the slow path, on all PMDs together.
#[derive(Debug)]
pub(crate) struct LaneLimits {
    /// Copies for controllers.
    pub(crate) punts: TokenBucket,
    /// New flows.
    pub(crate) setups: TokenBucket,
}

/// What stands in front of the frame in a record of a miss or a punt.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MissHead {
    pub(crate) key: FlowKey,
    pub(crate) key_hash: u64,
    pub(crate) port: u16,
    /// 1 when a packet of the same flow is ahead of this one in the slow path.
    pub(crate) follower: u16,
    /// The [`Ticket`] of the frame, if the PMD has kept it.
    pub(crate) kept: u32,
}

/// The slow path's answer to one miss.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) port: PortIndex,
    pub(crate) key_hash: u64,
    pub(crate) frame: AnsweredFrame,
    pub(crate) megaflow: Arc<Megaflow>,
    pub(crate) install: bool,
    /// Whether the controller's copy, if the decision makes one, was sent by the slow path.
    pub(crate) punt: PuntOutcome,
}

/// Where an answered packet's bytes are.
#[derive(Debug)]
pub(crate) enum AnsweredFrame {
    /// Where the PMD has kept them.
    Kept(Ticket),
    /// They come back.
    Back(Vec<u8>),
}

impl AnsweredFrame {
    /// The bytes; those that are kept only once.
    pub(crate) fn bytes<'a>(&'a self, kept: &'a mut KeptFrames) -> Option<&'a [u8]> {
        match self {
            Self::Kept(ticket) => kept.take(*ticket),
            Self::Back(bytes) => Some(bytes),
        }
    }

    /// What is to go home.
    pub(crate) fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Kept(_) => None,
            Self::Back(bytes) => Some(bytes),
        }
    }
}

/// What has become of the copy for the controller that an owned frame's decision makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntOutcome {
    /// The slow path has sent it.
    Sent,
    /// It was over the tenant's limit.
    Denied,
}

/// A frame of a controller's, and what to do with it.
#[derive(Debug)]
pub(crate) struct Injection {
    /// As if received here; `None` where there is no such port.
    pub(crate) port: Option<PortIndex>,
    pub(crate) frame: Vec<u8>,
    pub(crate) megaflow: Arc<Megaflow>,
}

/// The PMD's end.
#[derive(Debug)]
pub(crate) struct PmdLane {
    misses: RecordProducer,
    punts: RecordProducer,
    limits: Arc<LaneLimits>,
    pub(crate) replies: Consumer<Reply>,
    pub(crate) injections: Consumer<Injection>,
    pub(crate) pending: PendingFlows,
    /// Of packets that are queued. Empty only while one of them is carried out.
    pub(crate) kept: KeptFrames,
    /// When the last packet was queued.
    queued_tsc: u64,
}

/// The slow path's end.
#[derive(Debug)]
pub(crate) struct SlowLane {
    pub(crate) pmd: usize,
    pub(crate) tenant: TenantIndex,
    /// The oldest first: another one is begun when the tenant's arena gets another size.
    misses: Vec<RecordConsumer>,
    punts: RecordConsumer,
    /// The next record is taken from the punts, if there is one: the two take turns.
    punts_next: bool,
    pub(crate) limits: Arc<LaneLimits>,
    replies: Producer<Reply>,
    injections: Producer<Injection>,
    bell: Arc<LaneBell>,
}

/// Makes both ends of a tenant's lane on one PMD. The limits are the tenant's, on all PMDs together.
pub(crate) fn lane(
    pmd: usize,
    tenant: TenantIndex,
    limits: Arc<LaneLimits>,
    bell: Arc<LaneBell>,
    arena_bytes: usize,
) -> (PmdLane, SlowLane) {
    let (misses_in, misses) = byte_ring(arena_bytes);
    let (punts_in, punts) = byte_ring(PUNT_ARENA_BYTES);
    let (replies, replies_out) = RingBuffer::new(REPLY_SLOTS);
    let (injections, injections_out) = RingBuffer::new(INJECTION_SLOTS);
    let pmd_end = PmdLane {
        misses: misses_in,
        punts: punts_in,
        limits: Arc::clone(&limits),
        replies: replies_out,
        injections: injections_out,
        pending: PendingFlows::new(),
        kept: KeptFrames::new(),
        queued_tsc: 0,
    };
    let slow_end = SlowLane {
        pmd,
        tenant,
        misses: vec![misses],
        punts,
        punts_next: false,
        limits,
        replies,
        injections,
        bell,
    };
    (pmd_end, slow_end)
}

impl PmdLane {
    /// Whether the slow path has answered, or a controller has put something in.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        (self.pending.packets() > 0 && !self.replies.is_empty()) || !self.injections.is_empty()
    }

    /// Whether one more packet may be queued: it follows others of its flow, or the tenant's limit
    /// has room for one more new flow.
    #[inline]
    pub(crate) fn admits_setup(&self, key_hash: u64, now_tsc: u64) -> bool {
        self.pending.contains(key_hash) || self.limits.setups.take(1, now_tsc)
    }

    /// Queues a packet; `false` when the arena or the table of pending flows is full.
    #[must_use]
    pub(crate) fn queue(
        &mut self,
        port: PortIndex,
        key: &FlowKey,
        key_hash: u64,
        frame: &[u8],
    ) -> bool {
        // However large the arena is, each packet has a place for its answer.
        if self.pending.packets() >= REPLY_SLOTS {
            return false;
        }
        let Some(ahead) = self.pending.enter(key_hash) else { return false };
        let follower = u16::from(ahead > 0);
        let ticket = self.kept.keep(frame);
        let kept = Ticket::to_record(ticket);
        let head = MissHead { key: *key, key_hash, port: port.0, follower, kept };
        let queued = self.misses.push(head.as_bytes(), frame);
        if !queued {
            self.pending.leave(key_hash);
            if let Some(ticket) = ticket {
                self.kept.forget(ticket);
            }
        }
        queued
    }

    /// When the packet before the one that is queued now was.
    pub(crate) fn queued_before(&mut self, now_tsc: u64) -> u64 {
        std::mem::replace(&mut self.queued_tsc, now_tsc)
    }

    /// Whether the tenant's limit has room for one more copy for the controller.
    pub(crate) fn admits_punt(&self, now_tsc: u64) -> bool {
        self.limits.punts.take(1, now_tsc)
    }

    /// Queues a copy for the controller; `false` when its arena is full.
    #[must_use]
    pub(crate) fn punt(&mut self, port: PortIndex, key: &FlowKey, frame: &[u8]) -> bool {
        let head = MissHead { key: *key, key_hash: 0, port: port.0, follower: 0, kept: 0 };
        self.punts.push(head.as_bytes(), frame)
    }

    /// Puts other limits in force, and another arena if there is one; what they replace is left in
    /// their place, to be dropped elsewhere.
    pub(crate) fn update(
        &mut self,
        limits: &mut Arc<LaneLimits>,
        arena: Option<&mut RecordProducer>,
    ) {
        std::mem::swap(&mut self.limits, limits);
        if let Some(arena) = arena {
            std::mem::swap(&mut self.misses, arena);
        }
    }
}

impl SlowLane {
    /// The PMD will put misses here soon, after the last in the arenas there are.
    pub(crate) fn add_arena(&mut self, misses: RecordConsumer) {
        self.misses.push(misses);
    }

    /// Takes the next miss. The PMD fills an arena only when it has left those before, so once there
    /// is something in a later one and the first is empty, that will not be filled again.
    fn pop_miss(&mut self, head: &mut MissHead) -> bool {
        let is_later_begun = self.misses.iter().skip(1).any(|later| !later.is_empty());
        if is_later_begun && self.misses.first().is_some_and(RecordConsumer::is_empty) {
            self.misses.remove(0);
        }
        self.misses.first_mut().is_some_and(|misses| misses.pop_head(head.as_mut_bytes()))
    }

    /// Answers a miss; the bell is still to be rung. Room is certain: a PMD has no more packets in a lane
    /// than there are places for answers.
    pub(crate) fn reply(&mut self, reply: Reply) {
        let pushed = self.replies.push(reply);
        debug_assert!(pushed.is_ok(), "a lane cannot hold more answers than misses");
    }

    /// Tells the PMD of answers.
    pub(crate) fn ring(&self) {
        self.bell.ring(self.tenant);
    }

    /// Puts a controller's frame in.
    pub(crate) fn inject(&mut self, injection: Injection) -> Result<(), PushError<Injection>> {
        self.injections.push(injection)?;
        self.bell.ring(self.tenant);
        Ok(())
    }

    /// Whether the slow path has something to take.
    pub(crate) fn has_records(&self) -> bool {
        self.misses.iter().any(|misses| !misses.is_empty()) || !self.punts.is_empty()
    }

    /// Takes the head of the next record; misses and punts take turns.
    pub(crate) fn pop(&mut self) -> Option<(MissKind, MissHead)> {
        let mut head = MissHead::new_zeroed();
        let mut pop = |lane: &mut Self, kind| match kind {
            MissKind::Miss => lane.pop_miss(&mut head),
            MissKind::Punt => lane.punts.pop_head(head.as_mut_bytes()),
        };
        let order = match self.punts_next {
            false => [MissKind::Miss, MissKind::Punt],
            true => [MissKind::Punt, MissKind::Miss],
        };
        let kind = order.into_iter().find(|kind| pop(self, *kind))?;
        self.punts_next = kind == MissKind::Miss;
        Some((kind, head))
    }

    /// Bytes of the frame of the record of this kind that was taken last.
    pub(crate) fn frame_len(&self, kind: MissKind) -> usize {
        match kind {
            MissKind::Miss => self.misses.first().map_or(0, RecordConsumer::rest_len),
            MissKind::Punt => self.punts.rest_len(),
        }
    }

    /// That frame; nothing if it was taken before.
    pub(crate) fn take_frame(&mut self, kind: MissKind) -> Vec<u8> {
        match kind {
            MissKind::Miss => self.misses.first_mut().map(RecordConsumer::pop_rest),
            MissKind::Punt => Some(self.punts.pop_rest()),
        }
        .unwrap_or_default()
    }
}

/// How many packets of which flows are in the slow path. While a flow has some, its later packets
/// follow them there, or wait once its decision is known, so that none overtakes.
#[derive(Debug)]
pub(crate) struct PendingFlows {
    slots: Box<[PendingFlow]>,
    packets: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct PendingFlow {
    key_hash: u64,
    packets: u32,
}

impl PendingFlows {
    fn new() -> Self {
        Self { slots: vec![PendingFlow::default(); PENDING_FLOWS].into(), packets: 0 }
    }

    /// Packets in the slow path, of all flows.
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Whether packets of this flow are in the slow path.
    pub(crate) fn contains(&self, key_hash: u64) -> bool {
        self.packets > 0 && Self::probes(key_hash).any(|at| self.holds(at, key_hash))
    }

    fn probes(key_hash: u64) -> impl Iterator<Item = usize> {
        (0..PENDING_PROBES).map(move |step| (key_hash as usize).wrapping_add(step) % PENDING_FLOWS)
    }

    fn holds(&self, at: usize, key_hash: u64) -> bool {
        self.slots.get(at).is_some_and(|flow| flow.packets > 0 && flow.key_hash == key_hash)
    }

    /// Counts one more packet of the flow and says how many were there; `None` without a slot.
    fn enter(&mut self, key_hash: u64) -> Option<u32> {
        let vacant = |at: &usize| self.slots.get(*at).is_some_and(|flow| flow.packets == 0);
        let at = Self::probes(key_hash)
            .find(|at| self.holds(*at, key_hash))
            .or_else(|| Self::probes(key_hash).find(vacant))?;
        let flow = self.slots.get_mut(at)?;
        flow.key_hash = key_hash;
        flow.packets += 1;
        self.packets += 1;
        Some(flow.packets - 1)
    }

    /// One packet of the flow is back.
    pub(crate) fn leave(&mut self, key_hash: u64) {
        let found = Self::probes(key_hash).find(|at| self.holds(*at, key_hash));
        if let Some(flow) = found.and_then(|at| self.slots.get_mut(at)) {
            flow.packets -= 1;
            self.packets -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each, and no more.
    fn limits() -> Arc<LaneLimits> {
        let one = || TokenBucket::new(0, 1, 1, 0);
        Arc::new(LaneLimits { punts: one(), setups: one() })
    }

    #[test]
    fn packets_of_a_flow_that_is_being_set_up_count_as_one() {
        let (mut pmd, _slow) = lane(0, TenantIndex(1), limits(), Arc::default(), 64 * 1024);
        assert!(pmd.admits_setup(7, 0));
        assert!(pmd.queue(PortIndex(0), &FlowKey::default(), 7, &[7; 60]));
        assert!(pmd.admits_setup(7, 0), "it follows");
        assert!(!pmd.admits_setup(8, 0));
    }

    /// Nothing is lost or overtaken when the arena changes its size, also twice in a row.
    #[test]
    fn an_arena_of_another_size_is_filled_behind_the_old_one() {
        let (mut pmd, mut slow) = lane(0, TenantIndex(1), limits(), Arc::default(), 64 * 1024);
        let mut numbers = 0_u64..;
        let mut queue = |pmd: &mut PmdLane, count| {
            for number in numbers.by_ref().take(count) {
                assert!(pmd.queue(PortIndex(0), &FlowKey::default(), number, &[7; 60]));
            }
        };
        let mut got = Vec::new();
        let mut take = |slow: &mut SlowLane, count| {
            for _ in 0..count {
                let (kind, head) = slow.pop().unwrap();
                assert_eq!(kind, MissKind::Miss);
                got.push(head.key_hash);
            }
        };
        queue(&mut pmd, 2);
        for bytes in [128 * 1024, 64 * 1024] {
            let (mut arena, misses) = byte_ring(bytes);
            slow.add_arena(misses);
            take(&mut slow, 1);
            queue(&mut pmd, 1);
            pmd.update(&mut limits(), Some(&mut arena));
            queue(&mut pmd, 2);
        }
        take(&mut slow, 6);
        assert_eq!(slow.misses.len(), 1, "arenas that were left are gone");
        queue(&mut pmd, 1);
        take(&mut slow, 1);
        assert!(!slow.has_records());
        assert_eq!(got, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn the_bell_names_each_tenant_once() {
        let bell = LaneBell::default();
        let answer = || {
            let mut named = Vec::new();
            bell.answer(|tenant| named.push(tenant.0));
            named
        };
        assert!(answer().is_empty());
        let last = MAX_TENANTS as u16 - 1;
        for tenant in [last, 64, 1, 63, 1, 700] {
            bell.ring(TenantIndex(tenant));
        }
        assert_eq!(answer(), [1, 63, 64, 700, last]);
        assert!(answer().is_empty());
    }

    #[test]
    fn a_flow_is_pending_until_its_last_packet_is_back() {
        let mut pending = PendingFlows::new();
        assert_eq!(pending.enter(7), Some(0));
        assert_eq!(pending.enter(7), Some(1));
        assert!(pending.contains(7) && !pending.contains(8));
        pending.leave(7);
        assert!(pending.contains(7));
        pending.leave(7);
        assert!(!pending.contains(7));
        pending.leave(7);
        assert_eq!(pending.packets(), 0);
    }

    #[test]
    fn a_flood_of_punts_takes_no_room_from_misses_and_half_of_the_turns() {
        let (mut pmd, mut slow) = lane(0, TenantIndex(1), limits(), Arc::default(), 256 * 1024);
        let (port, key, frame) = (PortIndex(3), FlowKey::default(), [7; 1500]);
        while pmd.punt(port, &key, &frame) {}
        assert!(pmd.queue(port, &key, 1, &frame) && pmd.queue(port, &key, 2, &frame));
        assert!(slow.has_records());
        let kinds: Vec<_> = (0..5).filter_map(|_| Some(slow.pop()?.0)).collect();
        let (miss, punt) = (MissKind::Miss, MissKind::Punt);
        assert_eq!(kinds, [miss, punt, miss, punt, punt]);
        assert!(pmd.punt(port, &key, &frame), "there is room again");
        assert!(pmd.admits_punt(0) && !pmd.admits_punt(0));
        pmd.update(&mut limits(), None);
        assert!(pmd.admits_punt(0) && !pmd.admits_punt(0));
        while slow.pop().is_some() {}
        assert!(!slow.has_records());
    }

    #[test]
    fn colliding_flows_are_refused_beyond_the_probes() {
        let mut pending = PendingFlows::new();
        let colliding = |n: u64| n << 32;
        for n in 0..PENDING_PROBES as u64 {
            assert_eq!(pending.enter(colliding(n)), Some(0));
        }
        assert_eq!(pending.enter(colliding(99)), None);
        pending.leave(colliding(0));
        assert_eq!(pending.enter(colliding(99)), Some(0));
        assert!(pending.contains(colliding(3)));
    }
}
