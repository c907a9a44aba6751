//! The values that the rules of one mask have in one field, in order: what tells with the fewest
//! bits that a packet's value is none of them.
//!
//! A value that is not in the set differs from every value in it within the prefix that it shares
//! with the nearest ones, plus one bit; and the nearest ones stand next to where it would stand.
//! So an ordered set answers what a prefix tree would.

use std::collections::BTreeMap;
use std::ops::Bound;

use tollgate_packet::{FlowKey, FlowMask};

const ETH_TYPE: FlowMask = FlowMask(FlowKey { eth_type: u16::MAX, ..FlowKey::ZERO });
const PROTOCOL: FlowMask =
    FlowMask(FlowKey { eth_type: u16::MAX, ip_proto: u8::MAX, ip_frag: u8::MAX, ..FlowKey::ZERO });

/// A field whose leading bits say which part of a network or of a range a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefixField {
    IpSrc,
    IpDst,
    L4Src,
    L4Dst,
}

impl PrefixField {
    /// What says whether a packet has the field.
    pub(crate) fn kind(self) -> FlowMask {
        match self {
            Self::IpSrc | Self::IpDst => ETH_TYPE,
            Self::L4Src | Self::L4Dst => PROTOCOL,
        }
    }

    /// The field, its first bit in the highest.
    fn read(self, key: &FlowKey) -> u128 {
        match self {
            Self::IpSrc => u128::from_be_bytes(key.ip_src),
            Self::IpDst => u128::from_be_bytes(key.ip_dst),
            Self::L4Src => u128::from(key.l4_src) << 112,
            Self::L4Dst => u128::from(key.l4_dst) << 112,
        }
    }

    /// A mask of these bits of the field.
    fn place(self, bits: u128) -> FlowMask {
        let none = FlowKey::default();
        FlowMask(match self {
            Self::IpSrc => FlowKey { ip_src: bits.to_be_bytes(), ..none },
            Self::IpDst => FlowKey { ip_dst: bits.to_be_bytes(), ..none },
            Self::L4Src => FlowKey { l4_src: (bits >> 112) as u16, ..none },
            Self::L4Dst => FlowKey { l4_dst: (bits >> 112) as u16, ..none },
        })
    }
}

/// The values of one field, with how many rules have each.
#[derive(Debug)]
pub(crate) struct Prefixes {
    field: PrefixField,
    /// The bits of the field that the rules match.
    mask: u128,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// Of fields whose last 96 bits are not matched, without these.
    Short(BTreeMap<u32, u32>),
    Long(BTreeMap<u128, u32>),
}

/// The upper 32 bits, where a short value stands.
fn shorten(value: u128) -> u32 {
    (value >> 96) as u32
}

impl Prefixes {
    /// An empty set; `None` when the mask has no bit of the field.
    pub(crate) fn of_mask(field: PrefixField, mask: &FlowMask) -> Option<Self> {
        let mask = field.read(&mask.0);
        let is_short = mask << 32 == 0;
        let values = || match is_short {
            true => Values::Short(BTreeMap::new()),
            false => Values::Long(BTreeMap::new()),
        };
        (mask != 0).then(|| Self { field, mask, values: values() })
    }

    pub(crate) fn field(&self) -> PrefixField {
        self.field
    }

    pub(crate) fn rule_added(&mut self, key: &FlowKey) {
        let value = self.field.read(key) & self.mask;
        let rules = match &mut self.values {
            Values::Short(values) => values.entry(shorten(value)).or_default(),
            Values::Long(values) => values.entry(value).or_default(),
        };
        *rules += 1;
    }

    pub(crate) fn rule_removed(&mut self, key: &FlowKey) {
        let value = self.field.read(key) & self.mask;
        match &mut self.values {
            Values::Short(values) => forget(values, shorten(value)),
            Values::Long(values) => forget(values, value),
        }
    }

    /// The bits by which the packet's value differs from those of all rules; `None` when some rule
    /// has it.
    pub(crate) fn differing_bits(&self, key: &FlowKey) -> Option<FlowMask> {
        let value = self.field.read(key) & self.mask;
        let shared = match &self.values {
            Values::Short(values) => {
                let short = shorten(value);
                shared_bits(values, short, |other| (short ^ other).leading_zeros())
            }
            Values::Long(values) => {
                shared_bits(values, value, |other| (value ^ other).leading_zeros())
            }
        }?;
        let prefix = u128::MAX.checked_shl(127 - shared).unwrap_or(0);
        Some(self.field.place(self.mask & prefix))
    }
}

fn forget<K: Ord>(values: &mut BTreeMap<K, u32>, value: K) {
    if let Some(rules) = values.get_mut(&value) {
        *rules -= 1;
        if *rules == 0 {
            values.remove(&value);
        }
    }
}

/// The leading bits that the value shares with the nearest ones; `None` when it is in the set.
fn shared_bits<K: Ord + Copy>(
    values: &BTreeMap<K, u32>,
    value: K,
    shared: impl Fn(K) -> u32,
) -> Option<u32> {
    let above = values.range(value..).next().map(|(above, _)| *above);
    if above == Some(value) {
        return None;
    }
    let below = values.range((Bound::Unbounded, Bound::Excluded(value))).next_back();
    let nearest = above.into_iter().chain(below.map(|(below, _)| *below));
    Some(nearest.map(shared).max().unwrap_or(0))
}
