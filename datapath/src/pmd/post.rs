//! Taking in mail.

use std::sync::atomic::Ordering::Release;

use tollgate_packet::PortIndex;
use tollgate_vhost::ActiveVring;

use crate::limits::{MAIL_PER_TURN, STALE_PER_MAIL};
use crate::mail::{Discard, Mail};
use crate::pmd::Pmd;

impl Pmd {
    /// Carries out a few orders; `true` when there was one.
    pub(crate) fn take_mail(&mut self) -> bool {
        let mut taken = 0;
        // An order is taken only when all that it may give back has room.
        while taken < MAIL_PER_TURN
            && self.mail.discards.slots() > 0
            && self.cache.homeward_room() >= STALE_PER_MAIL
        {
            let Ok(order) = self.mail.orders.pop() else { break };
            taken += 1;
            if let Some(discard) = self.carry_out(order) {
                let pushed = self.mail.discards.push(discard);
                debug_assert!(pushed.is_ok(), "room was asked for before");
            }
            self.mail.taken += 1;
            self.shared.mail_acked.store(self.mail.taken, Release);
        }
        taken > 0
    }

    fn carry_out(&mut self, order: Mail) -> Option<Discard> {
        match order {
            Mail::TenantAdd(settings, slot) => {
                // Refused only where the control side has lost count; then the slot goes back.
                match self.accounts.scheduler.tenant_add(slot.index, settings.weight) {
                    Ok(()) => self.tenants.put(slot).map(Discard::Tenant),
                    Err(_) => Some(Discard::Tenant(slot)),
                }
            }
            Mail::TenantSet(tenant, settings, punt_limit) => {
                // An unknown tenant has no weight to set; the control side checks before.
                let _ = self.accounts.scheduler.set_weight(tenant, settings.weight);
                let old = match self.tenants.get_mut(tenant) {
                    Some(slot) => slot.lane.set_punt_limit(punt_limit),
                    None => punt_limit,
                };
                Some(Discard::PuntLimit(old))
            }
            Mail::TenantRemove(tenant) => {
                let _ = self.accounts.scheduler.tenant_remove(tenant);
                self.accounts.retire(tenant);
                self.tenants.take(tenant).map(Discard::Tenant)
            }
            Mail::PortAdd(slot) => self.ports.put(slot).map(Discard::Port),
            Mail::PortRemove(port) => {
                let slot = self.ports.take(port)?;
                let tenant = self.tenants.get_mut(slot.tenant);
                if let Some(tenant) = tenant {
                    slot.polled_rings().for_each(|ring| tenant.remove_ring(ring));
                }
                Some(Discard::Port(slot))
            }
            Mail::RingStart(port, ring) => self.start_ring(port, ring),
            Mail::RingStop(port, vring_index) => {
                let slot = self.ports.get_mut(port)?;
                let (ring, polled) = slot.stop(vring_index);
                if let Some(polled) = polled
                    && let Some(tenant) = self.tenants.get_mut(slot.tenant)
                {
                    tenant.remove_ring(polled);
                }
                ring.map(Discard::Ring)
            }
            Mail::Generation(generation) => {
                self.cache.require_generation(generation);
                None
            }
            Mail::Stale(matches) => {
                matches.iter().for_each(|matcher| self.cache.forget(matcher));
                Some(Discard::Stale(matches))
            }
            Mail::Protection(on) => {
                self.accounts.scheduler.set_protection(on);
                None
            }
            Mail::Stop => {
                self.stopping = true;
                None
            }
        }
    }

    fn start_ring(&mut self, port: PortIndex, ring: Box<ActiveVring>) -> Option<Discard> {
        let Some(slot) = self.ports.get_mut(port) else { return Some(Discard::Ring(ring)) };
        let vring_index = ring.index();
        match slot.start(ring) {
            Err(refused) => Some(Discard::Ring(refused)),
            Ok(None) => None,
            Ok(Some(polled)) => {
                let listed =
                    self.tenants.get_mut(slot.tenant).is_some_and(|tenant| tenant.add_ring(polled));
                if listed { None } else { slot.stop(vring_index).0.map(Discard::Ring) }
            }
        }
    }
}
