//! The masks of cached decisions: an ingress port has room for a limited number of them.

use std::collections::HashMap;

use tollgate_classifier::limits::SUBTABLES_PER_PORT_MAX;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch};

/// By the datapath's number of the port: how many decisions have each mask.
#[derive(Debug, Default)]
pub(super) struct Masks(HashMap<u32, HashMap<FlowMask, usize>>);

impl Masks {
    /// What to cache a decision about `packet` under, which is good for all packets of `matcher`:
    /// that, as long as its port has room for another mask; otherwise, for fewer packets, the
    /// widest mask of its port that has all of its bits; if there is none, the packet itself.
    pub(super) fn fit(&self, packet: &FlowKey, matcher: &FlowMatch) -> FlowMatch {
        let Some(masks) = self.0.get(&matcher.key().in_port) else { return *matcher };
        if masks.len() < SUBTABLES_PER_PORT_MAX || masks.contains_key(matcher.mask()) {
            return *matcher;
        }
        let narrower = masks.keys().filter(|mask| mask.contains(matcher.mask()));
        let widest = narrower.min_by_key(|mask| (bits(mask), *mask.words()));
        let packet = FlowKey { in_port: matcher.key().in_port, ..*packet };
        FlowMatch::new(&packet, widest.copied().unwrap_or_else(exact))
    }

    /// A decision may be cached from now on.
    pub(super) fn add(&mut self, matcher: &FlowMatch) {
        if *matcher.mask() != exact() {
            let masks = self.0.entry(matcher.key().in_port).or_default();
            *masks.entry(*matcher.mask()).or_default() += 1;
        }
    }

    /// A decision is cached no longer.
    pub(super) fn remove(&mut self, matcher: &FlowMatch) {
        let port = matcher.key().in_port;
        let Some(masks) = self.0.get_mut(&port) else { return };
        if let Some(decisions) = masks.get_mut(matcher.mask()) {
            *decisions -= 1;
            if *decisions == 0 {
                masks.remove(matcher.mask());
            }
        }
        if masks.is_empty() {
            self.0.remove(&port);
        }
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

    #[test]
    fn a_port_without_room_for_masks_gets_narrower_decisions_of_those_it_has() {
        let mut masks = Masks::default();
        let wanted = |l4_dst, l4_src| FlowMatch::new(&PACKET, mask(l4_dst, l4_src));
        for n in 1..=SUBTABLES_PER_PORT_MAX as u16 {
            let matcher = wanted(n << 8 | 1, 0);
            assert_eq!(masks.fit(&PACKET, &matcher), matcher);
            masks.add(&matcher);
        }
        let fitted = |masks: &Masks, matcher: &FlowMatch| *masks.fit(&PACKET, matcher).mask();
        assert_eq!(fitted(&masks, &wanted(0x0701, 0)), mask(0x0701, 0));
        assert_eq!(fitted(&masks, &wanted(0x0600, 0)), mask(0x0601, 0));
        assert_eq!(fitted(&masks, &wanted(0, 1)), exact());
        assert_eq!(masks.fit(&PACKET, &wanted(0, 1)).key(), &PACKET);
        // Exact decisions take no room, other ports have their own.
        masks.add(&FlowMatch::new(&PACKET, exact()));
        let elsewhere = FlowMatch::new(&FlowKey { in_port: 8, ..PACKET }, mask(0, 1));
        assert_eq!(masks.fit(&FlowKey { in_port: 8, ..PACKET }, &elsewhere), elsewhere);
        // Room comes back with the last decision of a mask.
        masks.add(&wanted(0x0101, 0));
        masks.remove(&wanted(0x0101, 0));
        assert_eq!(fitted(&masks, &wanted(0, 1)), exact());
        masks.remove(&wanted(0x0101, 0));
        assert_eq!(fitted(&masks, &wanted(0, 1)), mask(0, 1));
    }
}
