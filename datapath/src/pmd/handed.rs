//! Frames that other PMDs hand over because their output port is polled here.

use std::sync::Arc;

use tollgate_frame::DropReason;
use tollgate_policy::{Account, TenantIndex};

use crate::limits::HANDOFFS_PER_TURN;
use crate::pmd::Pmd;
use crate::pmd::egress::Source;
use crate::pmd::frames::OwnedFrame;
use crate::pmd::owned::PORTLESS;

impl Pmd {
    /// Delivers a few of them, each charged to the tenant that sent it; `true` when there was one.
    ///
    /// They come mixed, as from a NIC, so the gate cannot hold one tenant's back. Instead a frame of
    /// a tenant in debt is dropped, after it is attributed, while a funded one has work.
    pub(crate) fn take_handed_frames(&mut self) -> bool {
        let mut payer: Option<TenantIndex> = None;
        let mut began_tsc = 0;
        for _ in 0..HANDOFFS_PER_TURN {
            if payer.is_none() && !self.handoff_in.is_empty() {
                // What came before in this turn was mail.
                self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
                began_tsc = self.accounts.last_tsc();
            }
            let Some(handed) = self.handoff_in.pop() else { break };
            // The ingress port may be gone; then so are its counters, and nobody is left to pay.
            let ingress = match handed.in_port {
                PORTLESS => Some((TenantIndex::SYSTEM, &self.portless_counters)),
                port => self.ports.get(port).map(|slot| (slot.tenant, &slot.counters)),
            };
            let Some((tenant, counters)) = ingress.map(|(tenant, c)| (tenant, Arc::clone(c)))
            else {
                self.accounts.lap(Account::Tenant(TenantIndex::SYSTEM));
                continue;
            };
            counters.handed_in();
            let over_share = self.accounts.is_over_share(tenant);
            if over_share {
                counters.dropped(DropReason::TenantOverShare, 1);
                if let Some(cells) = self.shared.tenants.get(usize::from(tenant.0)) {
                    cells.dropped_over_share();
                }
            } else {
                let frame = OwnedFrame::new(&mut self.returned, handed.frame);
                let now_tsc = self.accounts.last_tsc();
                let deadline_tsc = u64::MAX;
                let source =
                    Source { port: handed.in_port, counters: &counters, now_tsc, deadline_tsc };
                let (port, hash) = (handed.out_port, handed.flow_hash);
                self.egress.send(port, hash, &frame, &mut self.ports, source);
            }
            // Each sender pays for publishing its own run of frames.
            if let Some(previous) = payer.filter(|previous| *previous != tenant) {
                self.publish(previous);
            }
            self.accounts.lap_tenant(tenant);
            payer = Some(tenant);
            if self.accounts.last_tsc().saturating_sub(began_tsc) >= self.slice_cycles() {
                break;
            }
        }
        if let Some(tenant) = payer {
            self.publish(tenant);
            self.accounts.lap_tenant(tenant);
            self.shared.rx_cycles.record(self.accounts.last_tsc().saturating_sub(began_tsc));
        }
        payer.is_some()
    }
}
