//! Staged lookup: how little of a packet has to be looked at to know that a subtable has no rule
//! for it.
//!
//! A subtable's mask is split into stages, from what distinguishes few packets to what
//! distinguishes many. If no rule of the subtable agrees with the packet in the first stages, the
//! later ones need not be looked at, and the megaflow leaves them wild.

use std::hash::{BuildHasher, Hasher};

use ahash::{AHasher, RandomState};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tollgate_packet::{FlowKey, FlowMask, MacAddr};

use crate::compact::{RuleMask, Words};
use crate::extra::ExtraKey;

const MAC: MacAddr = MacAddr([0xff; 6]);

/// The ingress port, which every megaflow looks at anyway (and the pipeline fields, which are no
/// bits of the packet), ...
const PORT: FlowKey = FlowKey { in_port: u32::MAX, ..FlowKey::ZERO };
/// ... with what kind of frame it is, ...
const FRAME: FlowKey = FlowKey {
    eth_type: u16::MAX,
    vlan_tpid: u16::MAX,
    inner_vlan_tpid: u16::MAX,
    vlan_tci: u16::MAX,
    inner_vlan_tci: u16::MAX,
    ..PORT
};
/// ... with layer 2, ...
const LAYER2: FlowKey = FlowKey { eth_dst: MAC, eth_src: MAC, ..FRAME };
/// ... with what kind of packet is in it, ...
const PROTOCOL: FlowKey = FlowKey { ip_proto: u8::MAX, ip_frag: u8::MAX, ..LAYER2 };
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
    ..PROTOCOL
};

/// How far a lookup has looked, in the order of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    Port,
    Frame,
    Layer2,
    Protocol,
    Layer3,
    All,
}

const STAGES: [(Depth, FlowMask); 5] = [
    (Depth::Port, FlowMask(PORT)),
    (Depth::Frame, FlowMask(FRAME)),
    (Depth::Layer2, FlowMask(LAYER2)),
    (Depth::Protocol, FlowMask(PROTOCOL)),
    (Depth::Layer3, FlowMask(LAYER3)),
];

/// The bits of one word that a stage adds to those of the stages before it.
#[derive(Clone, Copy, Debug)]
struct Lane {
    word: usize,
    mask: u64,
}

#[derive(Debug)]
struct Stage {
    depth: Depth,
    /// This stage's bits and those of the stages before.
    mask: FlowMask,
    lanes: Box<[Lane]>,
    /// What the rules have in these bits.
    rules: HashCounts,
}

/// The stages of one subtable.
#[derive(Debug)]
pub(crate) struct Stages {
    early: Box<[Stage]>,
    /// What is left after them.
    last: Box<[Lane]>,
    random: RandomState,
}

/// Where a packet's way through the stages ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reached {
    /// No rule agrees with the packet in these bits.
    Stop(Depth, FlowMask),
    /// Perhaps some rule agrees in all bits; their hash.
    End(Fingerprint),
}

impl Stages {
    pub(crate) fn of_mask(mask: &RuleMask) -> Self {
        let (flow, extra) = (mask.flow(), mask.extra());
        let mut before = RuleMask::new(&FlowMask::default(), &ExtraKey::ZERO);
        let mut early = Vec::new();
        for (depth, stage) in STAGES {
            let upto = RuleMask::new(&(stage & flow), &extra);
            if upto == *mask {
                break;
            }
            if upto != before {
                let lanes = lanes_between(&before, &upto);
                early.push(Stage { depth, mask: upto.flow(), lanes, rules: HashCounts::default() });
                before = upto;
            }
        }
        let last = lanes_between(&before, mask);
        Self { early: early.into(), last, random: RandomState::new() }
    }

    /// How far a packet agrees with some rule.
    pub(crate) fn walk(&self, packet: &Words) -> Reached {
        let mut hasher = self.random.build_hasher();
        for stage in &self.early {
            hash_lanes(&mut hasher, &stage.lanes, packet);
            if !stage.rules.contain(Fingerprint::of(&hasher)) {
                return Reached::Stop(stage.depth, stage.mask);
            }
        }
        hash_lanes(&mut hasher, &self.last, packet);
        Reached::End(Fingerprint::of(&hasher))
    }

    /// The hash of all bits of a rule.
    pub(crate) fn fingerprint(&self, rule: &Words) -> Fingerprint {
        let mut hasher = self.random.build_hasher();
        self.early.iter().for_each(|stage| hash_lanes(&mut hasher, &stage.lanes, rule));
        hash_lanes(&mut hasher, &self.last, rule);
        Fingerprint::of(&hasher)
    }

    pub(crate) fn rule_added(&mut self, rule: &Words) {
        self.count(rule, HashCounts::add);
    }

    pub(crate) fn rule_removed(&mut self, rule: &Words) {
        self.count(rule, HashCounts::remove);
    }

    fn count(&mut self, rule: &Words, change: impl Fn(&mut HashCounts, Fingerprint)) {
        let mut hasher = self.random.build_hasher();
        for stage in &mut self.early {
            hash_lanes(&mut hasher, &stage.lanes, rule);
            change(&mut stage.rules, Fingerprint::of(&hasher));
        }
    }
}

/// What `after` has and `before` does not.
fn lanes_between(before: &RuleMask, after: &RuleMask) -> Box<[Lane]> {
    let added = after.lanes().map(|(word, mask)| Lane { word, mask: mask & !before.word(word) });
    added.filter(|lane| lane.mask != 0).collect()
}

fn hash_lanes(hasher: &mut AHasher, lanes: &[Lane], words: &Words) {
    lanes.iter().for_each(|lane| hasher.write_u64(words.get(lane.word) & lane.mask));
}

/// A short hash: two of a million that are equal only make a lookup look a little further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u32);

impl Fingerprint {
    fn of(hasher: &AHasher) -> Self {
        Self(hasher.finish() as u32)
    }

    /// For a hash table, which uses the highest bits, too.
    pub(crate) fn spread(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// How many rules have each hash.
#[derive(Debug, Default)]
struct HashCounts(HashTable<(Fingerprint, u32)>);

impl HashCounts {
    fn contain(&self, hash: Fingerprint) -> bool {
        self.0.find(hash.spread(), |(other, _)| *other == hash).is_some()
    }

    fn entry(&mut self, hash: Fingerprint) -> Entry<'_, (Fingerprint, u32)> {
        self.0.entry(hash.spread(), |(other, _)| *other == hash, |(other, _)| other.spread())
    }

    fn add(&mut self, hash: Fingerprint) {
        self.entry(hash).or_insert((hash, 0)).get_mut().1 += 1;
    }

    fn remove(&mut self, hash: Fingerprint) {
        if let Entry::Occupied(mut entry) = self.entry(hash) {
            let (_, rules) = entry.get_mut();
            *rules -= 1;
            if *rules == 0 {
                entry.remove();
            }
        }
    }
}
