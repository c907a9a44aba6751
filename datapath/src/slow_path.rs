//! The slow path's end of the lanes: misses out of every PMD, answers back, evicted megaflows home.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::Thread;
use std::time::Duration;

use rtrb::Consumer;
use tollgate_packet::{FlowKey, PortIndex};
use tollgate_policy::TenantIndex;
use zerocopy::FromBytes;

use crate::lane::{MissHead, Reply, SlowLane};
use crate::megaflow::Megaflow;

/// A packet that no cached decision covers.
#[derive(Debug)]
pub struct Miss {
    /// The PMD that waits for the answer.
    pub pmd: usize,
    /// Where the packet entered.
    pub port: PortIndex,
    /// The port's tenant, who pays for the walk.
    pub tenant: TenantIndex,
    /// The packet's fields; `in_port` holds `port`.
    pub key: FlowKey,
    /// The whole frame.
    pub frame: Vec<u8>,
    /// An earlier packet of the same flow is ahead: the answer given to it may be repeated.
    pub follower: bool,
    key_hash: u64,
}

/// The answer to a miss: what to do with the packet, and whether to cache it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The decision. An `Arc` of its own for every PMD: its counters have one writer.
    pub megaflow: Arc<Megaflow>,
    /// Put it in the PMD's caches.
    pub install: bool,
}

/// Why a PMD gave a megaflow back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionCause {
    /// It was asked to, by [`tables_changed`](crate::Datapath::tables_changed).
    Removed,
    /// Walked under tables older than the PMD has heard of; never cached.
    Refused,
    /// An equal match is cached already.
    Duplicate,
    /// No room for it, or for its mask.
    CacheFull,
    /// Its match leaves the ingress port open: the PMD keeps megaflows by port.
    InPortWild,
}

/// A megaflow that a PMD holds no longer; its counters are final.
#[derive(Debug)]
pub struct Evicted {
    /// The megaflow.
    pub megaflow: Arc<Megaflow>,
    /// Who held it.
    pub pmd: usize,
    /// Why it came back.
    pub cause: EvictionCause,
}

/// What a PMD sends home to the slow path.
#[derive(Debug)]
pub(crate) enum Homebound {
    Megaflow(Arc<Megaflow>, EvictionCause),
    /// It was for one packet, and is carried out.
    #[expect(dead_code, reason = "held only to be dropped off the PMD")]
    Decision(Arc<Megaflow>),
    /// An answered packet's bytes.
    #[expect(dead_code, reason = "as above")]
    Frame(Vec<u8>),
}

/// A lane comes or goes.
#[derive(Debug)]
pub(crate) enum LaneChange {
    Add(SlowLane),
    Remove(TenantIndex),
}

/// Wakes the slow-path thread from a PMD: one futex call, and only while it sleeps.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    sleeping: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Waker {
    /// PMD side; never blocks.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `sleep`: either the sleeper sees the miss, or we see it asleep.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed)
            && self.sleeping.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.sleeper.get()
        {
            thread.unpark();
        }
    }

    fn sleep(&self, timeout: Duration, has_work: impl FnOnce() -> bool) {
        self.sleeper.get_or_init(std::thread::current);
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            std::thread::park_timeout(timeout);
        }
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// Taken by the one thread that walks the tables.
#[derive(Debug)]
pub struct SlowPathEnd {
    lanes: Vec<SlowLane>,
    changes: mpsc::Receiver<LaneChange>,
    homebound: Vec<Consumer<Homebound>>,
    waker: Arc<Waker>,
    record: Vec<u8>,
    evicted: VecDeque<Evicted>,
}

impl SlowPathEnd {
    pub(crate) fn new(
        changes: mpsc::Receiver<LaneChange>,
        homebound: Vec<Consumer<Homebound>>,
        waker: Arc<Waker>,
    ) -> Self {
        let (lanes, record, evicted) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { lanes, changes, homebound, waker, record, evicted }
    }

    /// Names each tenant that has a miss waiting (once for every PMD where it has).
    pub fn waiting(&mut self, mut tenant: impl FnMut(TenantIndex)) {
        while let Ok(change) = self.changes.try_recv() {
            match change {
                LaneChange::Add(lane) => self.lanes.push(lane),
                LaneChange::Remove(gone) => self.lanes.retain(|lane| lane.tenant != gone),
            }
        }
        self.lanes
            .iter()
            .filter(|lane| !lane.misses.is_empty())
            .for_each(|lane| tenant(lane.tenant));
    }

    /// The tenant's oldest miss. With several PMDs, the fullest waits no longer than the others:
    /// lanes are asked in turn.
    pub fn take(&mut self, tenant: TenantIndex) -> Option<Miss> {
        let record = &mut self.record;
        let at = self
            .lanes
            .iter_mut()
            .position(|lane| lane.tenant == tenant && lane.misses.pop(record))?;
        let pmd = self.lanes.get(at)?.pmd;
        // The lane that was served goes behind its siblings.
        let served = self.lanes.remove(at);
        self.lanes.push(served);
        let (head, frame) = MissHead::read_from_prefix(record).ok()?;
        Some(Miss {
            pmd,
            port: PortIndex(head.port),
            tenant,
            key: head.key,
            frame: frame.to_vec(),
            follower: head.follower != 0,
            key_hash: head.key_hash,
        })
    }

    /// Answers a miss; the PMD sends the packet. The answer is lost only if the tenant is gone.
    pub fn reply(&mut self, miss: Miss, verdict: Verdict) {
        let Miss { pmd, port, tenant, frame, key_hash, .. } = miss;
        let Verdict { megaflow, install } = verdict;
        let reply = Reply { port, key_hash, frame, megaflow, install };
        let mut lanes = self.lanes.iter_mut();
        if let Some(lane) = lanes.find(|lane| lane.tenant == tenant && lane.pmd == pmd) {
            // Room is certain: a lane has more answer slots than its arena can hold records.
            let pushed = lane.replies.push(reply);
            debug_assert!(pushed.is_ok(), "a lane cannot hold more answers than misses");
        }
    }

    /// A megaflow that a PMD has given back since the last call.
    pub fn take_evicted(&mut self) -> Option<Evicted> {
        for (pmd, ring) in self.homebound.iter_mut().enumerate() {
            while let Ok(item) = ring.pop() {
                if let Homebound::Megaflow(megaflow, cause) = item {
                    self.evicted.push_back(Evicted { megaflow, pmd, cause });
                }
            }
        }
        self.evicted.pop_front()
    }

    /// Sleeps until a PMD has a miss, or for `timeout`.
    pub fn wait(&self, timeout: Duration) {
        self.waker.sleep(timeout, || self.lanes.iter().any(|lane| !lane.misses.is_empty()));
    }
}
