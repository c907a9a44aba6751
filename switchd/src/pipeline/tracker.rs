//! What a walk has depended on: the packet as the next table sees it, and the bits of the packet
//! as it came that led there.

use tollgate_packet::edit::{Edit, EditError, apply_to_key, prerequisites};
use tollgate_packet::key::VLAN_PRESENT;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, MacAddr};

/// The bits of the tag that say which VLAN a packet is in, or that it is in none.
const VLAN_ID: u16 = VLAN_PRESENT | 0x0fff;
const IN_PORT: FlowMask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::ZERO });
const EVERY_BIT: MacAddr = MacAddr([0xff; 6]);

/// A packet under way through the tables.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    key: FlowKey,
    /// Bits of the original packet that were looked at.
    looked_at: FlowMask,
    /// Bits of `key` whose value follows from the bits looked at: edits wrote them.
    written: FlowMask,
}

/// What of a packet one table saw; complete only with the bits that the whole walk looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glimpse {
    key: FlowKey,
    written: FlowMask,
}

impl Tracker {
    /// A packet of which some bits were looked at before.
    pub(super) fn new(key: FlowKey, looked_at: FlowMask) -> Self {
        Self { key, looked_at, written: FlowMask::default() }
    }

    /// The packet as it is now.
    pub(super) fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Bits of the original packet on which everything so far depends.
    pub(super) fn looked_at(&self) -> FlowMask {
        self.looked_at
    }

    /// Bits of the present key that are certain of every packet that is decided alike so far.
    pub(super) fn known(&self) -> FlowMask {
        self.looked_at | self.written
    }

    /// A decision was taken by these bits of the present key.
    pub(super) fn look(&mut self, bits: &FlowMask) {
        self.looked_at |= without(bits, &self.written);
    }

    /// A decision was taken by the addresses and the VLAN, as NORMAL does.
    pub(super) fn look_at_stations(&mut self) {
        self.look(&FlowMask(FlowKey {
            eth_src: EVERY_BIT,
            eth_dst: EVERY_BIT,
            vlan_tci: VLAN_ID,
            ..FlowKey::default()
        }));
    }

    /// Edits the packet. An edit that the packet cannot take changes nothing, but that it could
    /// not is something the walk now depends on.
    pub(super) fn edit(&mut self, edit: &Edit) -> Result<(), EditError> {
        self.look(&prerequisites(edit));
        apply_to_key(edit, &mut self.key)?;
        self.written |= written(edit);
        Ok(())
    }

    /// An action says that the packet came in by another port.
    pub(super) fn set_in_port(&mut self, in_port: u32) {
        self.key.in_port = in_port;
        self.written |= IN_PORT;
    }

    /// What the next table is about to see, if it takes the packet to have come in by `in_port`;
    /// no glimpse while it is the packet as it came.
    pub(super) fn seen_from(&self, in_port: Option<u32>) -> (FlowKey, Option<Glimpse>) {
        let (mut key, mut written) = (self.key, self.written);
        if let Some(in_port) = in_port {
            key.in_port = in_port;
            written |= IN_PORT;
        }
        let untouched = written == FlowMask::default();
        (key, (!untouched).then_some(Glimpse { key, written }))
    }
}

impl Glimpse {
    /// The bits that are certain of every packet that agrees with the walked one in `looked_at`.
    pub(super) fn known(&self, looked_at: FlowMask) -> FlowMatch {
        FlowMatch::new(&self.key, looked_at | self.written)
    }
}

/// `bits` that are not in `taken`.
fn without(bits: &FlowMask, taken: &FlowMask) -> FlowMask {
    let mut rest = *bits;
    for (word, taken) in rest.0.words_mut().iter_mut().zip(taken.words()) {
        *word &= !taken;
    }
    rest
}

/// Bits whose value after the edit owes nothing to the packet beyond its [`prerequisites`].
fn written(edit: &Edit) -> FlowMask {
    FlowMask(match *edit {
        Edit::Set { field, mask, .. } => field.place(mask),
        Edit::PushVlan { .. } | Edit::PopVlan => FlowKey {
            vlan_tci: u16::MAX,
            vlan_tpid: u16::MAX,
            inner_vlan_tci: u16::MAX,
            inner_vlan_tpid: u16::MAX,
            ..FlowKey::default()
        },
        Edit::DecTtl => FlowKey { ip_ttl: u8::MAX, ..FlowKey::default() },
    })
}
