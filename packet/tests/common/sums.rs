//! Checksums of whole frames, by other means than the crate's own. (etherparse sums words in the
//! host's byte order, so its sums are in that order.)

use etherparse::checksum::Sum16BitWords;

use super::{Frame, ICMP, ICMPV6, SCTP, TCP, UDP};

/// A checksum's place and the value that it should have.
type Sum = (usize, Vec<u8>);

/// Puts the right checksums in. A UDP checksum of zero stays.
pub(crate) fn fill_in(frame: &mut Frame) {
    let bytes = frame.bytes.clone();
    for (offset, value) in sums(frame, &bytes) {
        frame.bytes[offset..offset + value.len()].copy_from_slice(&value);
    }
}

/// Whether the checksums of `bytes` are right, which is `frame` after edits that moved layer 3 by
/// `shift`.
pub(crate) fn assert_right(frame: &Frame, bytes: &[u8], shift: i32) {
    let moved = |offset: usize| match offset {
        0 => 0,
        _ => (offset as i32 + shift) as usize,
    };
    let moved = Frame {
        l3_offset: moved(frame.l3_offset),
        l4_offset: moved(frame.l4_offset),
        end: moved(frame.end),
        ..frame.clone()
    };
    for (offset, value) in sums(&moved, bytes) {
        assert_eq!(&bytes[offset..offset + value.len()], value, "checksum at {offset}");
    }
}

fn sums(frame: &Frame, bytes: &[u8]) -> Vec<Sum> {
    let mut sums = Vec::new();
    if frame.is_ipv4() {
        let header_len = usize::from(bytes[frame.l3_offset] & 0xf) * 4;
        let header = &bytes[frame.l3_offset..frame.l3_offset + header_len];
        let sum = Sum16BitWords::new().add_slice(&header[..10]).add_slice(&header[12..]);
        sums.push((frame.l3_offset + 10, sum.ones_complement().to_ne_bytes().to_vec()));
    }
    if frame.l4_offset != 0 {
        sums.extend(layer4_sum(frame, bytes));
    }
    sums
}

fn layer4_sum(frame: &Frame, bytes: &[u8]) -> Option<Sum> {
    let protocol = frame.key.ip_proto;
    let layer4 = &bytes[frame.l4_offset..frame.end];
    let field = match protocol {
        TCP => 16,
        UDP if layer4[6..8] == [0, 0] => return None,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        SCTP => {
            let zeroed = [&layer4[..8], &[0; 4], &layer4[12..]].concat();
            return Some((frame.l4_offset + 8, crc32c(&zeroed).to_le_bytes().to_vec()));
        }
        _ => return None,
    };
    let l3 = frame.l3_offset;
    let len = (layer4.len() as u16).to_be_bytes();
    let pseudo_header = if protocol == ICMP {
        Vec::new()
    } else if frame.is_ipv4() {
        [&bytes[l3 + 12..l3 + 20], &[0, protocol], &len].concat()
    } else {
        let dst = frame.final_destination.unwrap_or(*bytes[l3 + 24..].first_chunk().unwrap());
        [&bytes[l3 + 8..l3 + 24], &dst, &[0, protocol], &len].concat()
    };
    let sum = Sum16BitWords::new()
        .add_slice(&pseudo_header)
        .add_slice(&layer4[..field])
        .add_slice(&layer4[field + 2..]);
    let sum = match protocol {
        UDP => sum.to_ones_complement_with_no_zero(),
        _ => sum.ones_complement(),
    };
    Some((frame.l4_offset + field, sum.to_ne_bytes().to_vec()))
}

/// Bit by bit, after RFC 9260, appendix A.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}
