//! The polling thread. Everything in here belongs to one thread; the way in and out is mail.

mod accounts;
#[cfg(any(test, feature = "test-utils"))]
pub(crate) mod bench;
mod cache;
#[cfg(test)]
mod delivery_cost;
mod egress;
mod ends;
mod frames;
mod granted;
mod handed;
mod housekeeping;
mod macs;
mod owned;
mod parked;
mod poll;
mod port_decision;
mod ports;
mod post;
mod progress;
mod punt;
mod received;
mod run;
mod stopwatch;
mod task;
mod tenants;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use rtrb::{Consumer, Producer};
use tollgate_accel::hash::HashSecret;
use tollgate_classifier::{ExactTable, MegaflowCache};
use tollgate_frame::{Burst, Packet};
use tollgate_policy::{Account, Backoff, Books, ConfigError, Scheduler, TenantIndex};
use tollgate_vhost::Notifier;

pub(crate) use self::frames::copy_frame;
pub(crate) use self::ports::PortSlot;
pub(crate) use self::tenants::TenantSlot;

use self::accounts::Accounts;
use self::cache::FlowCache;
use self::egress::Egress;
use self::granted::GrantCursor;
use self::housekeeping::Housekeeping;
use self::macs::MacTable;
use self::parked::Parked;
use self::poll::Watch;
use self::ports::{PortTable, RingRef};
use self::received::Attribution;
use self::task::TaskScratch;
use self::tenants::TenantTable;
use crate::control::DatapathConfig;
use crate::counters::PortCounters;
use crate::handoff::{HandoffIn, HandoffOut};
use crate::lane::{Injection, LaneBell};
use crate::limits::{HOUSEKEEPING_US, MAX_PORTS, MAX_QUEUE_PAIRS, MAX_TENANTS, QUIET_RING_LATE_US};
use crate::mail::PmdMail;
use crate::megaflow::single_writer_add;
use crate::shared::PmdShared;
use crate::slow_path::Homebound;
use crate::waker::{Rousing, Waker};

/// What a PMD is made from.
#[derive(Debug)]
pub(crate) struct PmdParts<'a> {
    pub(crate) index: usize,
    pub(crate) handoff: (HandoffOut, HandoffIn),
    pub(crate) config: &'a DatapathConfig,
    pub(crate) tsc_hz: u64,
    pub(crate) shared: Arc<PmdShared>,
    pub(crate) mail: PmdMail,
    pub(crate) urgent_mail: PmdMail,
    pub(crate) homeward: Producer<Homebound>,
    pub(crate) portless: Option<Consumer<Injection>>,
    pub(crate) portless_counters: Arc<PortCounters>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) bell: Arc<LaneBell>,
    pub(crate) notifier: Notifier,
}

/// One polling thread's state.
#[derive(Debug)]
pub(crate) struct Pmd {
    accounts: Accounts,
    ports: PortTable,
    tenants: TenantTable,
    /// Rings that are not known to have work.
    back_off: Backoff<Option<Watch>>,
    looks: u64,
    grant_cursor: GrantCursor,
    cache: FlowCache,
    burst: Burst,
    egress: Egress,
    /// Uplink rings known to have packets.
    uplinks: VecDeque<RingRef>,
    macs: MacTable,
    attribution: Attribution,
    handoff_in: HandoffIn,
    scratch: TaskScratch,
    /// The place for the header of a frame that comes back from the slow path.
    returned: Packet,
    /// Frames of controllers that entered through no port, and when the next may be taken.
    portless: Option<Consumer<Injection>>,
    portless_counters: Arc<PortCounters>,
    portless_due_tsc: u64,
    /// Where a packet waits that was cut short and is not of a tenant's turn: one of an uplink, and one
    /// of a controller's. `None` only while it is run on.
    parked_received: Option<Box<Parked>>,
    parked_portless: Option<Box<Parked>>,
    notifier: Notifier,
    mail: PmdMail,
    /// Rings that start and stop, and the end: before everything else.
    urgent_mail: PmdMail,
    waker: Arc<Waker>,
    rousing: Rousing,
    bell: Arc<LaneBell>,
    shared: Arc<PmdShared>,
    /// Stale megaflows that mail has named.
    forgotten: u64,
    /// Tenants among whom the exact-match table is divided.
    exact_owners: usize,
    housekeeping: Housekeeping,
    stopping: bool,
}

impl Pmd {
    /// Allocates everything that the thread will ever use.
    pub(crate) fn new(parts: PmdParts<'_>) -> Result<Self, ConfigError> {
        let PmdParts {
            index,
            handoff: (handoff_out, handoff_in),
            config,
            tsc_hz,
            shared,
            mail,
            urgent_mail,
            homeward,
            portless,
            portless_counters,
            waker,
            bell,
            notifier,
        } = parts;
        let us_cycles = tsc_hz / 1_000_000;
        let rings = (MAX_PORTS * MAX_QUEUE_PAIRS) as u16;
        let mut scheduler = Scheduler::new(config.scheduler, MAX_TENANTS as u16)?;
        scheduler.set_protection(config.protection);
        let exact = ExactTable::new(config.exact_entries, MAX_TENANTS, HashSecret::random());
        let megaflows =
            MegaflowCache::new(config.megaflows_max, config.subtables_max, HashSecret::random());
        let mut cache = FlowCache::new(index, exact, megaflows, homeward);
        cache.set_exact_match(config.exact_match);
        let books = Books::new(MAX_TENANTS as u16);
        Ok(Self {
            accounts: Accounts::new(scheduler, books, Arc::clone(&shared), tsc_hz),
            ports: PortTable::new(),
            tenants: TenantTable::new(),
            back_off: Backoff::new(rings, QUIET_RING_LATE_US * us_cycles),
            looks: 0,
            grant_cursor: GrantCursor::default(),
            cache,
            burst: Burst::new(),
            egress: Egress::new(index, handoff_out),
            uplinks: VecDeque::with_capacity(usize::from(rings)),
            macs: MacTable::new(),
            attribution: Attribution::new(),
            handoff_in,
            scratch: TaskScratch::new(),
            returned: Packet::new(),
            portless,
            portless_counters,
            portless_due_tsc: 0,
            parked_received: Some(Box::new(Parked::new())),
            parked_portless: Some(Box::new(Parked::new())),
            notifier,
            mail,
            urgent_mail,
            waker,
            rousing: Rousing::default(),
            bell,
            shared,
            forgotten: 0,
            exact_owners: 1,
            housekeeping: Housekeeping::new(us_cycles * HOUSEKEEPING_US),
            stopping: false,
        })
    }

    /// `system`'s guaranteed part of a turn: what it has beyond waits for the next, as a tenant's work
    /// does.
    pub(crate) fn slice_cycles(&self) -> u64 {
        self.accounts.scheduler.config().quantum_cycles
    }

    /// The poll loop: mail, a look at the quiet tenants, one task, and again.
    pub(crate) fn run(&mut self) {
        self.accounts.start();
        while !self.stopping {
            let system_before = self.accounts.system_cycles();
            // What `system` does in a turn, apart from single pieces, ends here.
            let slice_end_tsc = self.accounts.last_tsc().saturating_add(self.slice_cycles());
            let mut moved = self.take_mail(slice_end_tsc) | self.take_portless();
            self.take_grants();
            let received = self.take_handed_frames() | self.take_received();
            let now_tsc = self.accounts.last_tsc();
            self.look_around(now_tsc);
            moved |= self.keep_house(now_tsc);
            match self.accounts.scheduler.next(now_tsc) {
                Some(turn) => {
                    self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
                    let cycles = self.accounts.system_cycles() - system_before;
                    let shared = &self.shared;
                    let what = if moved { &shared.system_cycles } else { &shared.scan_cycles };
                    what.record(cycles);
                    self.task(turn);
                }
                None if moved || received => {
                    self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
                }
                None => {
                    self.look_ahead(now_tsc);
                    self.accounts.lap(Account::Idle);
                }
            }
            single_writer_add(&self.shared.heartbeat, 1);
        }
        self.publish_all_figures();
        self.shared.stopped.store(true, Release);
    }
}
