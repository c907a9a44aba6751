//! Neighbour solicitations and advertisements (RFC 4861, 4.3 and 4.4) and their link-layer address
//! options (4.6.1).

use crate::MacAddr;
use crate::limits::MAX_ND_OPTIONS;
use crate::wire::Icmp;

/// ICMPv6 type of a neighbour solicitation.
pub(crate) const SOLICITATION: u8 = 135;
/// ICMPv6 type of a neighbour advertisement.
pub(crate) const ADVERTISEMENT: u8 = 136;

const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
/// Options are multiples of this, and one with an Ethernet address is exactly this long.
const OPTION_UNIT_BYTES: usize = 8;

/// A field of a message: its value, and where it starts in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<T> {
    pub(crate) value: T,
    pub(crate) offset: usize,
}

/// The fields of a message, as far as it has them and they are not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) target: Option<Found<[u8; 16]>>,
    pub(crate) source_address: Option<Found<MacAddr>>,
    pub(crate) target_address: Option<Found<MacAddr>>,
}

impl Neighbour {
    /// Reads `message`, which starts with the ICMPv6 header and ends where the packet or, if
    /// sooner, the header copy does.
    ///
    /// As in Open vSwitch: options are read up to the first that is empty or longer than what is
    /// left, and a message that repeats an address is taken for one without any field.
    // Out of line: few packets are neighbour discovery.
    #[inline(never)]
    pub(crate) fn read(message: &[u8]) -> Self {
        const TARGET: usize = size_of::<Icmp>();
        const OPTIONS: usize = TARGET + 16;
        let mut found = Self::default();
        let Some(target) = message.get(TARGET..).and_then(<[u8]>::first_chunk) else {
            return found;
        };
        found.target = (*target != [0; 16]).then_some(Found { value: *target, offset: TARGET });
        let mut offset = OPTIONS;
        for _ in 0..MAX_ND_OPTIONS {
            let option = message.get(offset..).and_then(<[u8]>::first_chunk::<8>);
            let Some(&[kind, units, a, b, c, d, e, f]) = option else { break };
            let end = offset + usize::from(units) * OPTION_UNIT_BYTES;
            if units == 0 || end > message.len() {
                break;
            }
            let place = match (kind, units) {
                (SOURCE_LINK_LAYER_ADDRESS, 1) => Some(&mut found.source_address),
                (TARGET_LINK_LAYER_ADDRESS, 1) => Some(&mut found.target_address),
                _ => None,
            };
            if let Some(place) = place {
                if place.is_some() {
                    return Self::default();
                }
                let address = MacAddr([a, b, c, d, e, f]);
                let is_there = address != MacAddr::default();
                *place = is_there.then_some(Found { value: address, offset: offset + 2 });
            }
            offset = end;
        }
        found
    }
}
