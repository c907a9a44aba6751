//! The rules of one mask.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;
use tollgate_packet::{FlowKey, FlowMask};

use crate::compact::{RuleMask, Words};
use crate::prefixes::{PrefixField, Prefixes};
use crate::stages::{Depth, Fingerprint, Reached, Stages};

/// Finds rules by their values, as places of the table's; it does not hold them.
#[derive(Debug)]
pub(crate) struct Subtable {
    mask: Arc<RuleMask>,
    /// The mask's bits of packets.
    flow: FlowMask,
    /// Each with the place of the rule of the highest priority that has these values.
    places: HashTable<(Fingerprint, u32)>,
    /// How many rules have each priority.
    priorities: BTreeMap<u16, u32>,
    stages: Stages,
    prefixes: Box<[Prefixes]>,
    /// Orders subtables whose highest priorities are equal.
    pub(crate) age: u64,
}

/// Why a packet has no rule in a subtable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    depth: Depth,
    /// No rule agrees with the packet in these bits.
    mask: FlowMask,
}

impl Subtable {
    pub(crate) fn new(mask: Arc<RuleMask>, age: u64) -> Self {
        let flow = mask.flow();
        let fields =
            [PrefixField::IpSrc, PrefixField::IpDst, PrefixField::L4Src, PrefixField::L4Dst];
        Self {
            flow,
            places: HashTable::new(),
            priorities: BTreeMap::new(),
            stages: Stages::of_mask(&mask),
            prefixes: fields.iter().filter_map(|field| Prefixes::of_mask(*field, &flow)).collect(),
            age,
            mask,
        }
    }

    pub(crate) fn mask(&self) -> &Arc<RuleMask> {
        &self.mask
    }

    /// The mask's bits of packets.
    pub(crate) fn flow_mask(&self) -> FlowMask {
        self.flow
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.priorities.is_empty()
    }

    pub(crate) fn max_priority(&self) -> u16 {
        self.priorities.last_key_value().map_or(0, |(priority, _)| *priority)
    }

    pub(crate) fn has_priority(&self, priority: u16) -> bool {
        self.priorities.contains_key(&priority)
    }

    /// The place of the first rule that agrees with a packet. `values_of` gives the values of the
    /// rule in a place.
    pub(crate) fn find<'v>(
        &self,
        packet: &Words,
        values_of: impl Fn(u32) -> &'v [u64],
    ) -> Result<u32, Miss> {
        let hash = match self.stages.walk(packet) {
            Reached::Stop(depth, mask) => return Err(Miss { depth, mask }),
            Reached::End(hash) => hash,
        };
        let agrees = |place: u32| {
            let values = values_of(place).iter();
            self.mask
                .lanes()
                .zip(values)
                .all(|((word, mask), value)| packet.get(word) & mask == *value)
        };
        let found =
            self.places.find(hash.spread(), |(other, place)| *other == hash && agrees(*place));
        found.map(|(_, place)| *place).ok_or(Miss { depth: Depth::All, mask: self.flow })
    }

    /// The hash of a rule's bits.
    pub(crate) fn fingerprint(&self, rule: &Words) -> Fingerprint {
        self.stages.fingerprint(rule)
    }

    /// The places of the first rule of each match.
    pub(crate) fn places(&self) -> impl Iterator<Item = u32> {
        self.places.iter().map(|(_, place)| *place)
    }

    /// The place of the first rule with exactly these values.
    pub(crate) fn place_of<'v>(
        &self,
        hash: Fingerprint,
        values: &[u64],
        values_of: impl Fn(u32) -> &'v [u64],
    ) -> Option<u32> {
        let is_it =
            |(other, place): &(Fingerprint, u32)| *other == hash && values_of(*place) == values;
        self.places.find(hash.spread(), is_it).map(|(_, place)| *place)
    }

    /// Makes `place` the first of the rules with these values; before, that was `old`, if any.
    pub(crate) fn set_place(&mut self, hash: Fingerprint, old: Option<u32>, place: u32) {
        let is_old = |(_, place): &(Fingerprint, u32)| Some(*place) == old;
        match self.places.find_mut(hash.spread(), is_old) {
            Some((_, known)) => *known = place,
            None => {
                let entry = (hash, place);
                self.places.insert_unique(hash.spread(), entry, |(hash, _)| hash.spread());
            }
        }
    }

    /// Forgets the place of the only rule with these values.
    pub(crate) fn clear_place(&mut self, hash: Fingerprint, place: u32) {
        if let Ok(entry) = self.places.find_entry(hash.spread(), |(_, other)| *other == place) {
            entry.remove();
        }
    }

    /// Counts a rule in.
    pub(crate) fn rule_added(&mut self, priority: u16, rule: &Words) {
        *self.priorities.entry(priority).or_default() += 1;
        self.stages.rule_added(rule);
        let key = rule.key();
        self.prefixes.iter_mut().for_each(|prefixes| prefixes.rule_added(&key));
    }

    /// Counts a rule out.
    pub(crate) fn rule_removed(&mut self, priority: u16, rule: &Words) {
        if let Some(rules) = self.priorities.get_mut(&priority) {
            *rules -= 1;
            if *rules == 0 {
                self.priorities.remove(&priority);
            }
        }
        self.stages.rule_removed(rule);
        let key = rule.key();
        self.prefixes.iter_mut().for_each(|prefixes| prefixes.rule_removed(&key));
    }

    /// Whether there may be less to look at than what the stages say.
    pub(crate) fn may_narrow(&self, miss: &Miss) -> bool {
        self.prefixes.iter().any(|prefixes| miss.may_narrow(prefixes.field()))
    }

    /// The bits that tell that the packet has no rule here: of several such sets, the one that adds
    /// the fewest to what was looked at.
    pub(crate) fn telling_bits(
        &self,
        miss: &Miss,
        key: &FlowKey,
        looked_at: &FlowMask,
    ) -> FlowMask {
        // Deeper down, a field's bits are among those that the stages say.
        let mut best =
            miss.has_most_choice().then(|| (bits_beyond(&miss.mask, looked_at), miss.mask));
        for prefixes in self.prefixes.iter().filter(|prefixes| miss.may_narrow(prefixes.field())) {
            if best.is_some_and(|(added, _)| added == 0) {
                break;
            }
            let Some(bits) = prefixes.differing_bits(key) else { continue };
            // What kind of packet has the field belongs to a mask that names it.
            let bits = bits | (prefixes.field().kind() & self.flow);
            let added = bits_beyond(&bits, looked_at);
            if best.is_none_or(|(least, _)| added < least) {
                best = Some((added, bits));
            }
        }
        best.map_or(miss.mask, |(_, bits)| bits)
    }
}

/// How many bits of a mask are not in another.
fn bits_beyond(mask: &FlowMask, known: &FlowMask) -> u32 {
    let added = mask.words().iter().zip(known.words()).map(|(mask, known)| mask & !known);
    // Few words have any, and not every processor counts bits in one instruction.
    added.filter(|added| *added != 0).map(u64::count_ones).sum()
}

impl Miss {
    pub(crate) fn mask(&self) -> FlowMask {
        self.mask
    }

    /// Whether what the stages say is an alternative to a field's bits.
    pub(crate) fn has_most_choice(&self) -> bool {
        self.depth == Depth::Protocol
    }

    /// Whether the field may tell, in place of what the stages say. Where layer 3 tells, no ports
    /// are looked at, however few of their bits it would take: there are more of them than of
    /// addresses.
    fn may_narrow(&self, field: PrefixField) -> bool {
        match field {
            PrefixField::IpSrc | PrefixField::IpDst => self.depth >= Depth::Protocol,
            PrefixField::L4Src | PrefixField::L4Dst => self.depth == Depth::All,
        }
    }
}
