//! Staged lookup: how little of a packet has to be looked at to know that a subtable has no rule
//! for it.
//!
//! A subtable's mask is split into stages, from what distinguishes few packets to what
//! distinguishes many. If no rule of the subtable agrees with the packet in the first stages, the
//! later ones need not be looked at, and the megaflow leaves them wild.

use hashbrown::HashMap;
use tollgate_packet::{FlowKey, FlowMask, MacAddr};

use crate::extra::ExtraKey;

const MAC: MacAddr = MacAddr([0xff; 6]);

/// The pipeline fields alone, then with the ingress port (which every megaflow looks at anyway), ...
const PORT: FlowKey = FlowKey { in_port: u32::MAX, ..FlowKey::ZERO };
/// ... with what kind of packet it is, ...
const KIND: FlowKey = FlowKey {
    eth_type: u16::MAX,
    ip_proto: u8::MAX,
    ip_frag: u8::MAX,
    vlan_tpid: u16::MAX,
    inner_vlan_tpid: u16::MAX,
    vlan_tci: u16::MAX,
    inner_vlan_tci: u16::MAX,
    ..PORT
};
/// ... with layer 2, ...
const LAYER2: FlowKey = FlowKey { eth_dst: MAC, eth_src: MAC, ..KIND };
/// ... with layer 3; and at last with everything.
const LAYER3: FlowKey = FlowKey {
    ip_tos: u8::MAX,
    ip_ttl: u8::MAX,
    ipv6_label: u32::MAX,
    ip_src: [u8::MAX; 16],
    ip_dst: [u8::MAX; 16],
    arp_sha: MAC,
    arp_tha: MAC,
    nd_target: [u8::MAX; 16],
    ..LAYER2
};

const STAGES: [FlowMask; 5] =
    [FlowMask(FlowKey::ZERO), FlowMask(PORT), FlowMask(KIND), FlowMask(LAYER2), FlowMask(LAYER3)];

/// One stage of one subtable: the masked keys of its rules, as hashes. Two keys with one hash only
/// make a lookup go on to the next stage, as if the stage were not there.
#[derive(Debug)]
pub(crate) struct Stage {
    mask: FlowMask,
    rules_by_hash: HashMap<u64, usize, ahash::RandomState>,
    hasher: ahash::RandomState,
}

impl Stage {
    /// The stages of a subtable with this mask that come before the whole mask is looked at.
    pub(crate) fn of_mask(mask: &FlowMask, extra_mask: &ExtraKey) -> Vec<Self> {
        let mut masks: Vec<_> = STAGES.iter().map(|stage| *stage & *mask).collect();
        masks.dedup();
        let is_useful = |stage: &FlowMask| {
            stage != mask && (*extra_mask != ExtraKey::ZERO || *stage != FlowMask::default())
        };
        let stages = masks.into_iter().filter(is_useful);
        stages
            .map(|mask| Self {
                mask,
                rules_by_hash: HashMap::default(),
                hasher: ahash::RandomState::new(),
            })
            .collect()
    }

    pub(crate) fn mask(&self) -> FlowMask {
        self.mask
    }

    fn hash(&self, key: &FlowKey, extra: &ExtraKey) -> u64 {
        self.hasher.hash_one((key.masked(&self.mask).words(), extra.words()))
    }

    /// Whether some rule may agree with the packet so far; both arguments may be masked or not,
    /// the pipeline fields are masked.
    pub(crate) fn may_match(&self, key: &FlowKey, extra: &ExtraKey) -> bool {
        self.rules_by_hash.contains_key(&self.hash(key, extra))
    }

    pub(crate) fn rule_added(&mut self, key: &FlowKey, extra: &ExtraKey) {
        *self.rules_by_hash.entry(self.hash(key, extra)).or_default() += 1;
    }

    pub(crate) fn rule_removed(&mut self, key: &FlowKey, extra: &ExtraKey) {
        let hash = self.hash(key, extra);
        if let Some(rules) = self.rules_by_hash.get_mut(&hash) {
            *rules -= 1;
            if *rules == 0 {
                self.rules_by_hash.remove(&hash);
            }
        }
    }
}
