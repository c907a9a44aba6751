//! The slow path's end of the lanes: misses out of every PMD, answers back, evicted megaflows home.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, PushError};
use tollgate_packet::limits::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};
use tollgate_packet::{FlowKey, PortIndex};
use tollgate_policy::TenantIndex;

use crate::byte_ring::RecordConsumer;
use crate::kept_frames::Ticket;
use crate::lane::{AnsweredFrame, Injection, LaneLimits, PuntOutcome, Reply, SlowLane};
use crate::limits::NAPS_FOR;
use crate::megaflow::Megaflow;
use crate::waker::{Naps, Waker};

/// Why a packet is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissKind {
    /// No cached decision covers it. It is answered ([`SlowPathEnd::reply`]), and the PMD sends it.
    Miss,
    /// A cached decision sends a copy to a controller ([`Op::Punt`](crate::Op::Punt)): this one,
    /// within the tenant's limit. It is not answered; whoever takes it has it to himself.
    Punt,
}

/// A packet that needs a walk through the tables.
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
    /// Bytes of the frame ([`SlowPathEnd::frame`]).
    pub frame_len: usize,
    /// An earlier packet of the same flow is ahead: the answer given to it may be repeated.
    pub follower: bool,
    /// What for.
    pub kind: MissKind,
    key_hash: u64,
    kept: Option<Ticket>,
    frame: Option<Vec<u8>>,
    punt: PuntOutcome,
}

impl Miss {
    /// The hash of the key, by a secret of the PMD: flows with equal hashes are rare, and nobody can
    /// make them.
    pub fn key_hash(&self) -> u64 {
        self.key_hash
    }
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
    /// Walked under tables older than the PMD has heard of; never cached.
    Refused,
    /// An equal match is cached already.
    Duplicate,
    /// No room for it, or for its mask.
    CacheFull,
    /// Its match leaves the ingress port open: the PMD keeps megaflows by port.
    InPortWild,
}

/// A megaflow that a PMD holds no longer, or never held; its counters are final. Those that
/// [`tables_changed`](crate::Datapath::tables_changed) names do not come this way: when it returns,
/// no PMD holds them.
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

/// Why a frame was not injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// It is no frame that the switch carries.
    #[error("a frame has {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES} bytes, not {0}")]
    Length(usize),
    /// The ingress port is gone.
    #[error("there is no such ingress port")]
    NoSuchPort,
    /// Too many wait already.
    #[error("too many injected frames wait already")]
    Full,
}

/// What the slow path is told of tenants and ports.
#[derive(Debug)]
pub(crate) enum LaneChange {
    Add(SlowLane),
    Remove(TenantIndex),
    Limits(TenantIndex, Arc<LaneLimits>),
    /// Misses of the tenant on the PMD will come here too.
    Arena(TenantIndex, usize, RecordConsumer),
    PortAdd(PortIndex, TenantIndex, usize),
    PortRemove(PortIndex),
}

/// Taken by the one thread that walks the tables.
#[derive(Debug)]
pub struct SlowPathEnd {
    lanes: Vec<SlowLane>,
    /// Every port's tenant and PMD.
    ports: HashMap<PortIndex, (TenantIndex, usize)>,
    /// To the PMD that carries out what enters through no port.
    portless: Producer<Injection>,
    changes: mpsc::Receiver<LaneChange>,
    homebound: Vec<Consumer<Homebound>>,
    waker: Arc<Waker>,
    naps: Naps,
    evicted: VecDeque<Evicted>,
    /// Lanes with answers that their PMDs were not told of, in turn.
    unrung: Vec<(TenantIndex, usize)>,
    /// When the last miss or punt was taken.
    taken_at: Option<Instant>,
}

impl SlowPathEnd {
    pub(crate) fn new(
        changes: mpsc::Receiver<LaneChange>,
        homebound: Vec<Consumer<Homebound>>,
        portless: Producer<Injection>,
        waker: Arc<Waker>,
    ) -> Self {
        Self {
            lanes: Vec::new(),
            ports: HashMap::new(),
            portless,
            changes,
            homebound,
            waker,
            naps: Naps::default(),
            evicted: VecDeque::new(),
            unrung: Vec::new(),
            taken_at: None,
        }
    }

    fn take_changes(&mut self) {
        while let Ok(change) = self.changes.try_recv() {
            match change {
                LaneChange::Add(lane) => self.lanes.push(lane),
                LaneChange::Remove(gone) => self.lanes.retain(|lane| lane.tenant != gone),
                LaneChange::Limits(tenant, limits) => {
                    let lanes = self.lanes.iter_mut().filter(|lane| lane.tenant == tenant);
                    lanes.for_each(|lane| lane.limits = Arc::clone(&limits));
                }
                LaneChange::Arena(tenant, pmd, misses) => {
                    let mut lanes = self.lanes.iter_mut();
                    if let Some(lane) = lanes.find(|lane| lane.tenant == tenant && lane.pmd == pmd)
                    {
                        lane.add_arena(misses);
                    }
                }
                LaneChange::PortAdd(port, tenant, pmd) => {
                    self.ports.insert(port, (tenant, pmd));
                }
                LaneChange::PortRemove(port) => {
                    self.ports.remove(&port);
                }
            }
        }
    }

    /// Names each tenant that has a miss or a punt waiting (once for every PMD where it has).
    pub fn waiting(&mut self, mut tenant: impl FnMut(TenantIndex)) {
        self.take_changes();
        let waiting = self.lanes.iter().filter(|lane| lane.has_records());
        waiting.for_each(|lane| tenant(lane.tenant));
    }

    /// The tenant's oldest miss or punt; the two take turns. With several PMDs, the fullest waits no
    /// longer than the others: lanes are asked in turn.
    pub fn take(&mut self, tenant: TenantIndex) -> Option<Miss> {
        let mut lanes = self.lanes.iter_mut().enumerate();
        let (at, kind, head) = lanes.find_map(|(at, lane)| {
            let (kind, head) = (lane.tenant == tenant).then(|| lane.pop()).flatten()?;
            Some((at, kind, head))
        })?;
        // The lane that was served goes behind its siblings.
        let served = self.lanes.remove(at);
        let (pmd, frame_len) = (served.pmd, served.frame_len(kind));
        self.lanes.push(served);
        self.naps.took();
        #[expect(clippy::disallowed_methods, reason = "not on a PMD")]
        {
            self.taken_at = Some(Instant::now());
        }
        Some(Miss {
            pmd,
            port: PortIndex(head.port),
            tenant,
            key: head.key,
            frame_len,
            follower: head.follower != 0,
            kind,
            key_hash: head.key_hash,
            kept: Ticket::from_record(head.kept),
            frame: None,
            punt: PuntOutcome::Sent,
        })
    }

    /// The whole frame of the miss or punt that was taken last. Most misses are answered without: the
    /// PMD has it, and reading it costs cache misses.
    pub fn frame<'m>(&mut self, miss: &'m mut Miss) -> &'m [u8] {
        let (tenant, pmd, kind) = (miss.tenant, miss.pmd, miss.kind);
        miss.frame.get_or_insert_with(|| {
            let lane = self.lane_mut(tenant, pmd);
            lane.map(|lane| lane.take_frame(kind)).unwrap_or_default()
        })
    }

    fn lane_mut(&mut self, tenant: TenantIndex, pmd: usize) -> Option<&mut SlowLane> {
        // The one that was served last is the last.
        self.lanes.iter_mut().rfind(|lane| lane.tenant == tenant && lane.pmd == pmd)
    }

    /// Whether a copy of the packet may be sent to a controller now, by the tenant's limit. Asked
    /// once for a miss whose walk sends one; a punt has passed the limit already.
    pub fn admits_punt(&self, miss: &mut Miss, now_tsc: u64) -> bool {
        if miss.kind == MissKind::Punt {
            return true;
        }
        let lane = self.lanes.iter().find(|lane| lane.tenant == miss.tenant);
        let admitted = lane.is_some_and(|lane| lane.limits.punts.take(1, now_tsc));
        miss.punt = if admitted { PuntOutcome::Sent } else { PuntOutcome::Denied };
        admitted
    }

    /// Has a PMD carry out `megaflow`'s list on a frame, as if it had entered through `ingress`, at
    /// the expense of that port's tenant; without one it is nobody's. A copy for a controller
    /// ([`Op::Punt`](crate::Op::Punt)) counts as sent by the caller.
    ///
    /// # Errors
    /// See [`InjectError`].
    pub fn inject(
        &mut self,
        ingress: Option<PortIndex>,
        frame: Vec<u8>,
        megaflow: Arc<Megaflow>,
    ) -> Result<(), InjectError> {
        let carried = MIN_FRAME_BYTES as usize..=MAX_FRAME_BYTES as usize;
        if !carried.contains(&frame.len()) {
            return Err(InjectError::Length(frame.len()));
        }
        self.take_changes();
        let injection = Injection { port: ingress, frame, megaflow };
        let outcome = match ingress {
            None => self.portless.push(injection),
            Some(port) => {
                let (tenant, pmd) = *self.ports.get(&port).ok_or(InjectError::NoSuchPort)?;
                let lane = self.lane_mut(tenant, pmd);
                lane.ok_or(InjectError::NoSuchPort)?.inject(injection)
            }
        };
        outcome.map_err(|PushError::Full(_)| InjectError::Full)
    }

    /// Answers the miss that was taken last; the PMD sends the packet, when it is told
    /// ([`answered`](Self::answered)) at the latest. The answer is lost only if the tenant is gone. A punt
    /// has no answer.
    pub fn reply(&mut self, miss: Miss, verdict: Verdict) {
        let Miss { pmd, port, tenant, kind, key_hash, kept, frame, punt, .. } = miss;
        if kind == MissKind::Punt {
            return;
        }
        let Verdict { megaflow, install } = verdict;
        let Some(lane) = self.lane_mut(tenant, pmd) else { return };
        let frame = match kept {
            Some(ticket) => AnsweredFrame::Kept(ticket),
            None => AnsweredFrame::Back(frame.unwrap_or_else(|| lane.take_frame(kind))),
        };
        lane.reply(Reply { port, key_hash, frame, megaflow, install, punt });
        if self.unrung.last() != Some(&(tenant, pmd)) {
            self.unrung.push((tenant, pmd));
        }
    }

    /// Tells PMDs of the answers so far: after some of them, for each costs a PMD less when there are
    /// others.
    pub fn answered(&mut self) {
        while let Some((tenant, pmd)) = self.unrung.pop() {
            if let Some(lane) = self.lane_mut(tenant, pmd) {
                lane.ring();
            }
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

    /// Sleeps until a PMD has a miss or a punt, or for `timeout`. While they come one after the other it
    /// naps instead, so that PMDs need not wake it for each.
    pub fn wait(&mut self, timeout: Duration) {
        self.answered();
        let has_work = || self.lanes.iter().any(SlowLane::has_records);
        if self.taken_at.is_some_and(|taken_at| taken_at.elapsed() < NAPS_FOR) {
            self.waker.nap(self.naps.next().min(timeout), has_work);
        } else {
            self.naps = Naps::default();
            self.waker.sleep(timeout, has_work);
        }
    }
}
