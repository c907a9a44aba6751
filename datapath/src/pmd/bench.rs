//! A PMD without a thread, for tests: it polls when they say so.
#![allow(clippy::disallowed_methods)] // control side
#![allow(clippy::unwrap_used, reason = "for tests only")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rtrb::RingBuffer;
use tollgate_packet::PortIndex;
use tollgate_policy::{Account, TenantIndex, Weight};
use tollgate_vhost::mock::{self, Driver, Ram};
use tollgate_vhost::{Features, Notifier, PortStatus};

use crate::control::DatapathConfig;
use crate::counters::PortCounters;
use crate::handoff::handoff_mesh;
use crate::lane::{LaneLimits, lane};
use crate::limits::MAX_TENANTS;
use crate::mail::{Mailbox, mailbox};
use crate::megaflow::Megaflow;
use crate::pmd::{Pmd, PmdParts, PortSlot, TenantSlot};
use crate::settings::PortSettings;
use crate::shared::PmdShared;
use crate::token_bucket::TokenBucket;

pub(crate) const TSC_HZ: u64 = 1_000_000_000;

/// A PMD without a way home.
pub(crate) fn pmd(config: &DatapathConfig) -> (Pmd, Mailbox) {
    let (pmd, mailbox, _) = pmd_with_urgent_mail(config);
    (pmd, mailbox)
}

/// The same, with its mailbox for what must not wait as well.
pub(crate) fn pmd_with_urgent_mail(config: &DatapathConfig) -> (Pmd, Mailbox, Mailbox) {
    let shared = Arc::new(PmdShared::new());
    let (urgent, urgent_mail) = mailbox(Arc::clone(&shared));
    let (mailbox, mail) = mailbox(Arc::clone(&shared));
    let parts = PmdParts {
        index: 0,
        config,
        handoff: handoff_mesh(1).remove(0),
        tsc_hz: TSC_HZ,
        shared,
        mail,
        urgent_mail,
        homeward: RingBuffer::new(1).0,
        portless: None,
        portless_counters: Arc::default(),
        waker: Arc::default(),
        bell: Arc::default(),
        notifier: Notifier::new().unwrap(),
    };
    (Pmd::new(parts).unwrap(), mailbox, urgent)
}

/// Entries of a guest's ring, unless said otherwise.
const RING_SIZE: u16 = 8;

/// A guest: its memory must outlive the ring.
pub(crate) struct Guest {
    pub(crate) driver: Driver,
    _ram: Ram,
}

/// Adds tenant and port `number`, with a ring from the guest.
pub(crate) fn add_guest(pmd: &mut Pmd, number: u16) -> Guest {
    add_port(pmd, number, &PortSettings::default());
    add_ring(pmd, number, mock::FROM_GUEST)
}

/// Adds tenant and port `number`.
pub(crate) fn add_port(pmd: &mut Pmd, number: u16, settings: &PortSettings) {
    let (tenant, port) = (TenantIndex(number), PortIndex(number));
    let bucket = || TokenBucket::new(1000, 1000, TSC_HZ, 0);
    let limits = Arc::new(LaneLimits { punts: bucket(), setups: bucket() });
    let (lane, _) = lane(0, tenant, limits, Arc::default(), 64 * 1024);
    pmd.accounts.scheduler.tenant_add(tenant, Weight::ONE).unwrap();
    assert!(pmd.tenants.put(Box::new(TenantSlot::new(tenant, lane, None))).is_none());
    let slot = PortSlot::new(port, tenant, 0, Arc::<PortCounters>::default(), settings);
    assert!(pmd.ports.put(Box::new(slot)).is_none());
    pmd.macs.refill(pmd.ports.macs());
}

/// Starts one of a port's rings.
pub(crate) fn add_ring(pmd: &mut Pmd, number: u16, index: u16) -> Guest {
    add_ring_of(pmd, number, index, RING_SIZE)
}

/// The same with a ring of `size` entries.
pub(crate) fn add_ring_of(pmd: &mut Pmd, number: u16, index: u16, size: u16) -> Guest {
    let port = PortIndex(number);
    let (ram, driver) = Driver::alone(size);
    let features = Features::offered(1);
    let status = Arc::new(PortStatus::new());
    let ring = mock::activate(&ram, &driver, index, features, &status).unwrap();
    assert!(pmd.start_ring(port, Box::new(ring)).is_none());
    Guest { driver, _ram: ram }
}

/// For benches outside this module.
#[cfg_attr(
    not(feature = "test-utils"),
    allow(dead_code, reason = "the benches that use them are in other packages")
)]
impl Pmd {
    pub(crate) fn start_clock(&mut self) {
        self.accounts.start();
        self.shared.tenants_end.store(MAX_TENANTS, Relaxed);
    }

    pub(crate) fn suspect_no_gap(&mut self) {
        self.accounts.suspect_no_gap();
    }

    pub(crate) fn install(&mut self, megaflow: Arc<Megaflow>) {
        self.cache.install(megaflow);
    }

    pub(crate) fn packets_moved(&self) -> u64 {
        self.shared.packets.load(Relaxed)
    }

    /// What a turn of [`Pmd::run`] does, at a time of the caller's choice and without housekeeping,
    /// which the clock alone brings about.
    pub(crate) fn one_turn(&mut self, now_tsc: u64) {
        self.take_mail(u64::MAX);
        self.take_portless();
        self.take_handed_frames();
        self.take_received();
        self.look_around(now_tsc);
        if let Some(turn) = self.accounts.scheduler.next(now_tsc) {
            self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
            self.task(turn);
        }
    }
}
