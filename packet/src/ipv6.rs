//! The walk over IPv6 extension headers (RFC 8200, 4), bounded.

use crate::key::{FRAG_ANY, FRAG_LATER};
use crate::limits::MAX_IPV6_EXTENSIONS;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// What the extension headers say.
pub(crate) struct Extensions {
    /// The first header that is not an extension header. [`FRAGMENT`] for a fragment other than
    /// the first: what its payload starts with is unknown. Zero when the chain is truncated or
    /// longer than [`MAX_IPV6_EXTENSIONS`]; then it counts as no fragment either, as in OVS.
    pub(crate) protocol: u8,
    /// Where that header starts; `None` when there is no such header to read.
    pub(crate) upper_offset: Option<usize>,
    /// As in [`FlowKey`](crate::FlowKey).
    pub(crate) ip_frag: u8,
    /// Whether a routing header has segments left, so that the destination address is not the
    /// final one, which the upper layer's checksum covers (RFC 8200, 8.1).
    pub(crate) routed: bool,
}

impl Extensions {
    /// Reads the chain at `offset` of `packet`, which ends where the IPv6 payload does or, if
    /// sooner, where the header copy does.
    #[inline]
    pub(crate) fn walk(packet: &[u8], offset: usize, next_header: u8) -> Self {
        let mut found =
            Self { protocol: next_header, upper_offset: Some(offset), ip_frag: 0, routed: false };
        if is_extension(next_header) {
            found.walk_chain(packet, offset);
        }
        found
    }

    // Out of line: nearly no packet has extension headers.
    #[inline(never)]
    fn walk_chain(&mut self, packet: &[u8], mut offset: usize) {
        self.upper_offset = None;
        for _ in 0..MAX_IPV6_EXTENSIONS {
            // Every extension header has at least 8 bytes.
            let header = packet.get(offset..).and_then(<[u8]>::first_chunk::<8>);
            let Some(&[next_header, len, high, low, ..]) = header else { break };
            let header_bytes = match self.protocol {
                FRAGMENT => {
                    self.note_fragment(u16::from_be_bytes([high, low]));
                    if self.ip_frag & FRAG_LATER != 0 {
                        return;
                    }
                    8
                }
                AUTHENTICATION => (usize::from(len) + 2) * 4,
                ROUTING => {
                    self.routed |= low != 0;
                    (usize::from(len) + 1) * 8
                }
                _ => (usize::from(len) + 1) * 8,
            };
            offset += header_bytes;
            if offset > packet.len() {
                break;
            }
            self.protocol = next_header;
            if !is_extension(next_header) {
                self.upper_offset = Some(offset);
                return;
            }
        }
        (self.protocol, self.ip_frag) = (0, 0);
    }

    /// As in OVS, a bit of the reserved ones makes a fragment too. Only a header of zeros, which
    /// RFC 6946 calls an atomic fragment, makes none.
    fn note_fragment(&mut self, offset_and_flags: u16) {
        const OFFSET: u16 = 0xfff8;
        if offset_and_flags != 0 {
            self.ip_frag |= FRAG_ANY;
        }
        if offset_and_flags & OFFSET != 0 {
            self.ip_frag |= FRAG_LATER;
        }
    }
}

#[inline]
const fn is_extension(header: u8) -> bool {
    matches!(header, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS)
}
