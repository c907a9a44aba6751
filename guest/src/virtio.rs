//! virtio-net feature bits and the choice among them.

use std::fmt;

/// VIRTIO_NET_F_MRG_RXBUF: a received frame may span several buffers.
pub const MRG_RXBUF: u64 = 1 << 15;
/// VIRTIO_NET_F_MQ: several queue pairs.
pub const MQ: u64 = 1 << 22;
/// VIRTIO_F_ANY_LAYOUT: header and frame may share a descriptor without VERSION_1.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// VIRTIO_F_INDIRECT_DESC: a descriptor may point to a table of descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// VIRTIO_F_EVENT_IDX: notifications are asked for by index.
pub const EVENT_IDX: u64 = 1 << 29;
/// VHOST_USER_F_PROTOCOL_FEATURES: the socket's own negotiation.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// VIRTIO_F_VERSION_1: the device obeys virtio 1.0 or later.
pub const VERSION_1: u64 = 1 << 32;
/// VIRTIO_F_IN_ORDER: chains come back in the order in which they were made available.
pub const IN_ORDER: u64 = 1 << 35;

/// The features a port may choose, by the names used on the command line.
const SELECTABLE: [(&str, u64); 6] = [
    ("mrg", MRG_RXBUF),
    ("indirect", INDIRECT_DESC),
    ("event_idx", EVENT_IDX),
    ("in_order", IN_ORDER),
    ("v1", VERSION_1),
    ("any_layout", ANY_LAYOUT),
];

/// The bit of a selectable feature, by its command-line name.
pub fn selectable(name: &str) -> Option<u64> {
    SELECTABLE.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
}

/// Which features to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureChoice {
    /// Taken when offered.
    pub wanted: u64,
    /// Taken; attaching fails when one is not offered.
    pub required: u64,
}

impl Default for FeatureChoice {
    /// What DPDK's virtio driver takes: all but EVENT_IDX.
    fn default() -> Self {
        let wanted = VERSION_1 | MRG_RXBUF | INDIRECT_DESC | IN_ORDER | ANY_LAYOUT;
        Self { wanted, required: 0 }
    }
}

impl FeatureChoice {
    /// Exactly these, all of them.
    pub fn exactly(features: u64) -> Self {
        Self { wanted: features, required: features }
    }

    /// Takes or leaves one feature.
    pub fn set(&mut self, bit: u64, take: bool) {
        if take {
            self.wanted |= bit;
            self.required |= bit;
        } else {
            self.wanted &= !bit;
            self.required &= !bit;
        }
    }

    /// The features to acknowledge of those `offered`, or the required ones that are missing.
    pub(crate) fn negotiate(self, offered: u64) -> Result<u64, Names> {
        let missing = self.required & !offered;
        if missing != 0 { Err(Names(missing)) } else { Ok((self.wanted | self.required) & offered) }
    }
}

/// Feature bits that print as names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names(pub u64);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = [("mq", MQ), ("protocol_features", PROTOCOL_FEATURES)];
        let names: Vec<&str> = SELECTABLE
            .iter()
            .chain(&others)
            .filter(|(_, bit)| self.0 & bit != 0)
            .map(|(name, _)| *name)
            .collect();
        f.write_str(&names.join(" "))
    }
}

/// How frames lie in buffers under the negotiated features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of virtio_net_hdr in front of each frame: 12, or 10 for a legacy device without
    /// MRG_RXBUF (virtio 1.2, 5.1.6.1).
    pub header_bytes: usize,
    /// Whether the header needs a descriptor of its own (legacy without ANY_LAYOUT).
    pub header_apart: bool,
}

impl Layout {
    /// For the negotiated `features`.
    pub fn of(features: u64) -> Self {
        let modern = features & VERSION_1 != 0;
        Self {
            header_bytes: if modern || features & MRG_RXBUF != 0 { 12 } else { 10 },
            header_apart: !modern && features & ANY_LAYOUT == 0,
        }
    }
}
