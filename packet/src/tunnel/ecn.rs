//! Congestion marks and service classes across a tunnel's ends (RFC 6040, which both RFC 7348's
//! successors and RFC 8926, 4.4, ask for).

use thiserror::Error;

const ECN: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const CE: u8 = 0b11;

/// The underlay marked congestion on a packet that cannot carry the mark on: one that is not
/// capable of ECN should have been dropped there instead, so it is dropped here (RFC 6040, 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("outer header marked CE, inner packet not ECN-capable (RFC 6040, 4.2)")]
pub struct CongestionError;

/// The outer header's TOS or traffic class byte, in normal mode (RFC 6040, 4.1): the inner ECN
/// field, and the inner DSCP or, if the tunnel has one of its own, that. `inner` is `None` when
/// what is inside is not IP, which is not ECN-capable and has no class.
#[inline]
pub fn encapsulate_tos(inner: Option<u8>, own_dscp: Option<u8>) -> u8 {
    let inner = inner.unwrap_or(NOT_ECT);
    match own_dscp {
        Some(dscp) => (dscp << 2) | (inner & ECN),
        None => inner,
    }
}

/// The inner packet's TOS or traffic class byte after decapsulation: its own DSCP (the pipe model
/// of RFC 2983) and the ECN field of RFC 6040, figure 4. `None` when what is inside is not IP: there
/// is nothing to mark.
///
/// # Errors
/// [`CongestionError`]: drop the packet.
#[inline]
pub fn decapsulate_tos(inner: Option<u8>, outer: u8) -> Result<Option<u8>, CongestionError> {
    let Some(inner) = inner else { return Ok(None) };
    let ecn = match (inner & ECN, outer & ECN) {
        (NOT_ECT, CE) => return Err(CongestionError),
        (NOT_ECT, _) => NOT_ECT,
        (CE, _) | (_, CE) => CE,
        (_, ECT_1) => ECT_1,
        (inner, _) => inner,
    };
    Ok(Some((inner & !ECN) | ecn))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040, figure 4: rows are the inner field, columns the outer one, both in the order
    /// Not-ECT, ECT(0), ECT(1), CE.
    const FIGURE_4: [[Option<u8>; 4]; 4] = [
        [Some(0b00), Some(0b00), Some(0b00), None],
        [Some(0b10), Some(0b10), Some(0b01), Some(0b11)],
        [Some(0b01), Some(0b01), Some(0b01), Some(0b11)],
        [Some(0b11), Some(0b11), Some(0b11), Some(0b11)],
    ];
    const ORDER: [u8; 4] = [0b00, 0b10, 0b01, 0b11];

    #[test]
    fn decapsulation_is_figure_4_and_keeps_the_inner_class() {
        for (row, inner) in FIGURE_4.iter().zip(ORDER) {
            for (expected, outer) in row.iter().zip(ORDER) {
                for dscps in 0..64 * 64_u32 {
                    let inner = (dscps as u8 & 63) << 2 | inner;
                    let outer = ((dscps >> 6) as u8) << 2 | outer;
                    let expected =
                        expected.map(|ecn| Some(inner & 0xfc | ecn)).ok_or(CongestionError);
                    assert_eq!(decapsulate_tos(Some(inner), outer), expected);
                }
            }
        }
        assert_eq!(decapsulate_tos(None, 0xff), Ok(None));
    }

    #[test]
    fn encapsulation_copies_the_congestion_field_in_normal_mode() {
        for inner in 0..=255 {
            assert_eq!(encapsulate_tos(Some(inner), None), inner);
            assert_eq!(encapsulate_tos(Some(inner), Some(46)), 0xb8 | inner & 3);
        }
        assert_eq!(encapsulate_tos(None, None), 0);
        assert_eq!(encapsulate_tos(None, Some(46)), 0xb8);
    }
}
