//! Whose address a received packet carries, as the operator has configured it. Never learned: what a
//! guest sends must not decide who is charged.

use tollgate_packet::MacAddr;
use tollgate_policy::TenantIndex;

use crate::limits::MAX_PORTS;

/// Twice the addresses that there can be, so that searches are short.
const SLOTS: usize = 2 * MAX_PORTS;

#[derive(Debug)]
pub(crate) struct MacTable(Box<[Option<(MacAddr, TenantIndex)>]>);

impl MacTable {
    pub(crate) fn new() -> Self {
        Self(vec![None; SLOTS].into())
    }

    /// Makes it hold these, at most one for each port. Of equal addresses the first stays.
    pub(crate) fn refill(&mut self, macs: impl Iterator<Item = (MacAddr, TenantIndex)>) {
        self.0.fill(None);
        for (mac, tenant) in macs.take(MAX_PORTS) {
            let mut places = probes(mac);
            let place = places
                .find(|at| self.0.get(*at).is_some_and(|p| p.is_none_or(|(held, _)| held == mac)));
            if let Some(place) = place.and_then(|at| self.0.get_mut(at)) {
                place.get_or_insert((mac, tenant));
            }
        }
    }

    #[inline]
    pub(crate) fn owner(&self, mac: MacAddr) -> Option<TenantIndex> {
        for at in probes(mac) {
            match *self.0.get(at)? {
                None => return None,
                Some((held, tenant)) if held == mac => return Some(tenant),
                Some(_) => {}
            }
        }
        None
    }
}

/// Which addresses there are is the operator's choice, so no secret is needed.
#[inline]
fn probes(mac: MacAddr) -> impl Iterator<Item = usize> {
    let [a, b, c, d, e, f] = mac.0;
    let number = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let first = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
    (first..first + SLOTS).map(|at| at % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configured_address_is_found_and_no_other() {
        let mac = |n: usize| MacAddr([2, 0, 0, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
        let mut table = MacTable::new();
        let all = (0..MAX_PORTS).map(|n| (mac(n * 7), TenantIndex(n as u16)));
        table.refill(all.chain([(mac(0), TenantIndex(9))]));
        for n in 0..MAX_PORTS * 7 {
            let owner = n.is_multiple_of(7).then_some(TenantIndex((n / 7) as u16));
            assert_eq!(table.owner(mac(n)), owner, "{n}");
        }
        table.refill([(mac(3), TenantIndex(1)), (mac(3), TenantIndex(2))].into_iter());
        assert_eq!((table.owner(mac(3)), table.owner(mac(7))), (Some(TenantIndex(1)), None));
    }
}
