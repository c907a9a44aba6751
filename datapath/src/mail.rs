//! Orders to a PMD, and what it gives back on them.
//!
//! A call returns only after the PMD has taken the order in. Whatever the PMD no longer needs comes
//! back in the same call and is dropped here: a PMD frees no memory and unmaps none.
//!
//! A PMD has two mailboxes: one for rings and the end of the PMD, whose orders it takes first in
//! every turn, and one for everything else, which may be much.
#![allow(clippy::disallowed_methods)] // control side

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use tollgate_nic::Queues;
use tollgate_packet::PortIndex;
use tollgate_policy::{Recording, SchedulerConfig, TenantIndex, TenantKnobs};
use tollgate_vhost::ActiveVring;

use crate::byte_ring::RecordProducer;
use crate::lane::LaneLimits;
use crate::limits::{DISCARD_SLOTS, MAILBOX_SLOTS};
use crate::megaflow::Megaflow;
use crate::pmd::{PortSlot, TenantSlot};
use crate::shared::PmdShared;

/// One order. Each is bounded work.
#[derive(Debug)]
pub(crate) enum Mail {
    TenantAdd(TenantKnobs, Box<TenantSlot>),
    /// What it replaces comes back in its place.
    TenantSet(TenantIndex, Box<TenantUpdate>),
    TenantRemove(TenantIndex),
    PortAdd(Box<PortSlot>),
    PortRemove(PortIndex),
    RingStart(PortIndex, Box<ActiveVring>),
    RingStop(PortIndex, u16),
    /// A network card's queues; those that find no place come back.
    QueuesStart(PortIndex, Box<Queues>),
    /// The same box takes them back.
    QueuesStop(PortIndex, Box<Queues>),
    /// Refuse megaflows walked under an older generation from now on.
    Generation(u64),
    /// Forget these megaflows; the PMD's references come back in their places.
    Stale(Box<[StaleFlow]>),
    Protection(bool),
    /// Look packets up in the exact-match table or not.
    ExactMatch(bool),
    /// Time the stages of sampled tasks or not.
    Stages(bool),
    /// Other knobs of the scheduler; what was granted by another refill is void.
    Scheduler(SchedulerConfig),
    /// What of a tenant's knobs concerns the scheduler.
    TenantKnobs(TenantIndex, TenantKnobs),
    /// Note in this what the scheduler is told and says; it comes back if another is on.
    RecordingStart(Box<Recording>),
    /// Give the recording back.
    RecordingStop,
    Stop,
}

/// A tenant's new settings.
#[derive(Debug)]
pub(crate) struct TenantUpdate {
    pub(crate) knobs: TenantKnobs,
    pub(crate) exact_entries: Option<u64>,
    pub(crate) limits: Arc<LaneLimits>,
    /// A queue to the slow path of another size.
    pub(crate) arena: Option<RecordProducer>,
}

/// A megaflow that is to be forgotten, and what the cache held once it is.
#[derive(Debug)]
pub(crate) struct StaleFlow {
    pub(crate) megaflow: Arc<Megaflow>,
    pub(crate) forgotten: Option<Arc<Megaflow>>,
}

impl StaleFlow {
    pub(crate) fn of(megaflow: &Arc<Megaflow>) -> Self {
        Self { megaflow: Arc::clone(megaflow), forgotten: None }
    }
}

/// What comes back on an order, to be dropped off the PMD unless it is what was asked for.
#[derive(Debug)]
pub(crate) enum Discard {
    Ring(Box<ActiveVring>),
    Queues(Box<Queues>),
    Recording(Box<Recording>),
    #[expect(dead_code, reason = "held only to be dropped off the PMD")]
    Port(Box<PortSlot>),
    #[expect(dead_code, reason = "as above")]
    Tenant(Box<TenantSlot>),
    #[expect(dead_code, reason = "as above")]
    Stale(Box<[StaleFlow]>),
    #[expect(dead_code, reason = "as above")]
    TenantUpdate(Box<TenantUpdate>),
}

/// The PMD thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the polling thread has stopped")]
pub(crate) struct PmdGone;

/// The control side of one PMD's mail.
#[derive(Debug)]
pub(crate) struct Mailbox {
    ends: Mutex<MailboxEnds>,
    acked: Arc<AtomicU64>,
    shared: Arc<PmdShared>,
}

#[derive(Debug)]
struct MailboxEnds {
    orders: Producer<Mail>,
    discards: Consumer<Discard>,
    sent: u64,
}

/// The PMD's side.
#[derive(Debug)]
pub(crate) struct PmdMail {
    pub(crate) orders: Consumer<Mail>,
    pub(crate) discards: Producer<Discard>,
    taken: u64,
    acked: Arc<AtomicU64>,
}

impl PmdMail {
    /// The next order. It is taken only when what it may give back has room.
    pub(crate) fn next(&mut self) -> Option<Mail> {
        if self.discards.slots() == 0 {
            return None;
        }
        self.orders.pop().ok()
    }

    /// An order was carried out, and this comes back on it.
    pub(crate) fn done(&mut self, discard: Option<Discard>) {
        if let Some(discard) = discard {
            let pushed = self.discards.push(discard);
            debug_assert!(pushed.is_ok(), "room was asked for before");
        }
        self.taken += 1;
        self.acked.store(self.taken, Ordering::Release);
    }
}

/// Makes both sides of one of a PMD's mailboxes.
pub(crate) fn mailbox(shared: Arc<PmdShared>) -> (Mailbox, PmdMail) {
    let (orders, orders_out) = RingBuffer::new(MAILBOX_SLOTS);
    let (discards_in, discards) = RingBuffer::new(DISCARD_SLOTS);
    let ends = Mutex::new(MailboxEnds { orders, discards, sent: 0 });
    let acked = Arc::new(AtomicU64::new(0));
    let pmd_end =
        PmdMail { orders: orders_out, discards: discards_in, taken: 0, acked: Arc::clone(&acked) };
    (Mailbox { ends, acked, shared }, pmd_end)
}

/// What a caller of a mailbox is given back.
#[derive(Debug, Default)]
pub(crate) struct Returned {
    pub(crate) ring: Option<Box<ActiveVring>>,
    pub(crate) queues: Option<Box<Queues>>,
    pub(crate) recording: Option<Box<Recording>>,
}

impl MailboxEnds {
    /// Drops what has come back and nobody waits for.
    fn take_discards(&mut self, returned: &mut Returned) {
        while let Ok(discard) = self.discards.pop() {
            match discard {
                Discard::Ring(ring) => returned.ring = Some(ring),
                Discard::Queues(queues) => returned.queues = Some(queues),
                Discard::Recording(recording) => returned.recording = Some(recording),
                Discard::Port(_)
                | Discard::Tenant(_)
                | Discard::Stale(_)
                | Discard::TenantUpdate(_) => {}
            }
        }
    }
}

impl Mailbox {
    /// Sends the orders and waits until the PMD has carried out the last. A ring, queues or a recording that
    /// it gives back is returned (no call is about more than one), everything else is dropped.
    pub(crate) fn call(&self, orders: impl IntoIterator<Item = Mail>) -> Result<Returned, PmdGone> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let mut returned = Returned::default();
        for order in orders {
            let mut unsent = Some(order);
            self.wait_until(|| {
                // The PMD takes no order while it has no room to give something back.
                ends.take_discards(&mut returned);
                if let Some(order) = unsent.take()
                    && let Err(rtrb::PushError::Full(order)) = ends.orders.push(order)
                {
                    unsent = Some(order);
                }
                unsent.is_none()
            })?;
            ends.sent += 1;
        }
        let sent = ends.sent;
        let done = self.wait_until(|| {
            ends.take_discards(&mut returned);
            self.acked.load(Ordering::Acquire) >= sent
        });
        ends.take_discards(&mut returned);
        done.map(|()| returned)
    }

    /// Polls with short sleeps: the PMD answers within a turn, but must not have to wake us.
    fn wait_until(&self, mut done: impl FnMut() -> bool) -> Result<(), PmdGone> {
        for attempt in 0_u32.. {
            if done() {
                return Ok(());
            }
            if self.shared.stopped.load(Ordering::Acquire) {
                return if done() { Ok(()) } else { Err(PmdGone) };
            }
            if attempt > 100 {
                std::thread::sleep(Duration::from_micros(20));
            } else {
                std::hint::spin_loop();
            }
        }
        Err(PmdGone)
    }
}
