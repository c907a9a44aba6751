//! The masks of cached decisions: an ingress port has room for a limited number of them.

use std::collections::HashMap;
use std::hash::Hash;

use tollgate_classifier::limits::SUBTABLES_PER_PORT_MAX;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};
use tollgate_policy::TenantIndex;

use super::FastMap;

/// How many decisions have each mask: of each port (by the datapath's number), and of each owner.
#[derive(Debug, Default)]
pub(super) struct Masks {
    ports: FastMap<u32, FastMap<FlowMask, usize>>,
    owners: FastMap<TenantIndex, FastMap<(u32, FlowMask), usize>>,
}

impl Masks {
    /// What to cache a decision about `packet` under, which is good for all packets of `matcher`:
    /// that, as long as its port and its owner, who may have so many, have room for another mask;
    /// otherwise, for fewer packets, the widest mask that the owner has at the port and that has all
    /// of its bits; if there is none, the packet itself.
    pub(super) fn fit(
        &self,
        packet: &FlowKey,
        matcher: &FlowMatch,
        owner: TenantIndex,
        owner_max: usize,
    ) -> FlowMatch {
        let in_port = matcher.key().in_port;
        let of_port = self.ports.get(&in_port);
        let of_owner = self.owners.get(&owner);
        let port_has = of_port.is_some_and(|masks| masks.contains_key(matcher.mask()));
        let owner_has =
            of_owner.is_some_and(|masks| masks.contains_key(&(in_port, *matcher.mask())));
        let port_full = of_port.map_or(0, HashMap::len) >= SUBTABLES_PER_PORT_MAX;
        let owner_full = of_owner.map_or(0, HashMap::len) >= owner_max;
        if (port_has || !port_full) && (owner_has || !owner_full) {
            return *matcher;
        }
        let at_port = of_owner.into_iter().flat_map(HashMap::keys).filter(|key| key.0 == in_port);
        let narrower = at_port.map(|(_, mask)| mask).filter(|mask| mask.contains(matcher.mask()));
        let widest = narrower.min_by_key(|mask| (bits(mask), *mask.words()));
        let packet = FlowKey { in_port, ..*packet };
        FlowMatch::new(&packet, widest.copied().unwrap_or_else(exact))
    }

    /// A decision may be cached from now on.
    pub(super) fn add(&mut self, matcher: &FlowMatch, owner: TenantIndex) {
        if *matcher.mask() != exact() {
            let port = matcher.key().in_port;
            *self.ports.entry(port).or_default().entry(*matcher.mask()).or_default() += 1;
            let of_owner = self.owners.entry(owner).or_default();
            *of_owner.entry((port, *matcher.mask())).or_default() += 1;
        }
    }

    /// A decision is cached no longer.
    pub(super) fn remove(&mut self, matcher: &FlowMatch, owner: TenantIndex) {
        let port = matcher.key().in_port;
        take_one(&mut self.ports, port, *matcher.mask());
        take_one(&mut self.owners, owner, (port, *matcher.mask()));
    }
}

/// Counts one less, and forgets what is zero.
fn take_one<A: Eq + Hash, B: Eq + Hash>(
    counts: &mut FastMap<A, FastMap<B, usize>>,
    of: A,
    what: B,
) {
    let Some(inner) = counts.get_mut(&of) else { return };
    if let Some(count) = inner.get_mut(&what) {
        *count -= 1;
        if *count == 0 {
            inner.remove(&what);
        }
    }
    if inner.is_empty() {
        counts.remove(&of);
    }
}

/// Every bit. Such a mask does not count towards a port's limit.
fn exact() -> FlowMask {
    let mut mask = FlowMask::default();
    mask.0.words_mut().fill(u64::MAX);
    mask
}

fn bits(mask: &FlowMask) -> u32 {
    mask.words().iter().map(|word| word.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(l4_dst: u16, l4_src: u16) -> FlowMask {
        FlowMask(FlowKey { in_port: u32::MAX, l4_dst, l4_src, ..FlowKey::default() })
    }

    const PACKET: FlowKey = FlowKey { in_port: 7, l4_dst: 0x5a5a, l4_src: 0xa5a5, ..FlowKey::ZERO };

    const OWNER: TenantIndex = TenantIndex(1);

    #[test]
    fn an_owner_has_no_more_masks_than_it_may_whoever_else_has_them() {
        let mut masks = Masks::default();
        let wanted = |l4_dst, l4_src| FlowMatch::new(&PACKET, mask(l4_dst, l4_src));
        let other = TenantIndex(2);
        masks.add(&wanted(0x0f, 0), OWNER);
        masks.add(&wanted(0xff, 0), OWNER);
        masks.add(&wanted(0, 1), other);
        let fitted = |masks: &Masks, matcher: &FlowMatch, owner| {
            *masks.fit(&PACKET, matcher, owner, 2).mask()
        };
        assert_eq!(fitted(&masks, &wanted(0x0f, 0), OWNER), mask(0x0f, 0));
        assert_eq!(
            fitted(&masks, &wanted(0x07, 0), OWNER),
            mask(0x0f, 0),
            "the widest that it has"
        );
        assert_eq!(fitted(&masks, &wanted(0, 1), OWNER), exact(), "the other's is not its own");
        assert_eq!(fitted(&masks, &wanted(0, 3), other), mask(0, 3), "the other has room");
        masks.remove(&wanted(0xff, 0), OWNER);
        assert_eq!(fitted(&masks, &wanted(0, 1), OWNER), mask(0, 1));
    }

    #[test]
    fn a_port_without_room_for_masks_gets_narrower_decisions_of_those_it_has() {
        let mut masks = Masks::default();
        let wanted = |l4_dst, l4_src| FlowMatch::new(&PACKET, mask(l4_dst, l4_src));
        for n in 1..=SUBTABLES_PER_PORT_MAX as u16 {
            let matcher = wanted(n << 8 | 1, 0);
            assert_eq!(masks.fit(&PACKET, &matcher, OWNER, usize::MAX), matcher);
            masks.add(&matcher, OWNER);
        }
        let fitted = |masks: &Masks, matcher: &FlowMatch| {
            *masks.fit(&PACKET, matcher, OWNER, usize::MAX).mask()
        };
        assert_eq!(fitted(&masks, &wanted(0x0701, 0)), mask(0x0701, 0));
        assert_eq!(fitted(&masks, &wanted(0x0600, 0)), mask(0x0601, 0));
        assert_eq!(fitted(&masks, &wanted(0, 1)), exact());
        assert_eq!(masks.fit(&PACKET, &wanted(0, 1), OWNER, usize::MAX).key(), &PACKET);
        // Exact decisions take no room, other ports have their own.
        masks.add(&FlowMatch::new(&PACKET, exact()), OWNER);
        let elsewhere = FlowMatch::new(&FlowKey { in_port: 8, ..PACKET }, mask(0, 1));
        assert_eq!(
            masks.fit(&FlowKey { in_port: 8, ..PACKET }, &elsewhere, OWNER, usize::MAX),
            elsewhere
        );
        // Room comes back with the last decision of a mask.
        masks.add(&wanted(0x0101, 0), OWNER);
        masks.remove(&wanted(0x0101, 0), OWNER);
        assert_eq!(fitted(&masks, &wanted(0, 1)), exact());
        masks.remove(&wanted(0x0101, 0), OWNER);
        assert_eq!(fitted(&masks, &wanted(0, 1)), mask(0, 1));
    }
}
