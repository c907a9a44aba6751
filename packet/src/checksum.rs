//! The Internet checksum, whole (RFC 1071) and incremental (RFC 1624), and the incremental CRC32c
//! of SCTP (RFC 9260, appendix A).

/// The Internet checksum of `bytes`, an odd last byte padded with zero.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let (words, odd) = bytes.as_chunks::<2>();
    let sum = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    let odd = odd.first().map_or(0, |last| u64::from(*last) << 8);
    !fold(sum + odd)
}

/// A checksum whose bytes come in pieces: of a frame that lies scattered, or is copied by and by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialSum {
    sum: u64,
    /// An odd number of bytes so far: the next byte is the low one of a word.
    odd: bool,
}

impl PartialSum {
    /// The sum of `bytes` alone.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self::default().and(bytes)
    }

    /// The sum with `bytes` behind what it covers so far.
    #[inline]
    #[must_use]
    pub fn and(mut self, mut bytes: &[u8]) -> Self {
        if self.odd
            && let Some((first, rest)) = bytes.split_first()
        {
            (self.sum, self.odd, bytes) = (self.sum + u64::from(*first), false, rest);
        }
        let (words, odd) = bytes.as_chunks::<2>();
        self.sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        if let [last] = odd {
            (self.sum, self.odd) = (self.sum + (u64::from(*last) << 8), true);
        }
        self
    }

    /// The sum with what `other` covers as well, which starts at an even offset.
    #[inline]
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, odd: self.odd ^ other.odd }
    }

    /// The checksum; zero when the bytes contain their own, rightly.
    #[inline]
    pub fn checksum(self) -> u16 {
        !fold(self.sum)
    }
}

/// What a change of 16-bit words does to the checksums over them.
///
/// One's complement sums do not care where a word stands, so the same change serves the IPv4
/// header and, through the pseudo-header, layer 4.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChecksumChange {
    sum: u64,
}

impl ChecksumChange {
    /// `old` becomes `new`.
    #[inline]
    pub fn word(old: u16, new: u16) -> Self {
        Self { sum: u64::from(!old) + u64::from(new) }
    }

    /// `old` becomes `new`, both starting at an even offset of what the checksum covers.
    #[inline]
    pub fn words(old: &[u8], new: &[u8]) -> Self {
        let (old, _) = old.as_chunks::<2>();
        let (new, _) = new.as_chunks::<2>();
        let changes = old.iter().zip(new);
        let sum = changes
            .map(|(old, new)| Self::word(u16::from_be_bytes(*old), u16::from_be_bytes(*new)).sum);
        Self { sum: sum.sum() }
    }

    /// The checksum after the change: equation 3 of RFC 1624.
    #[inline]
    pub fn update(self, checksum: u16) -> u16 {
        !fold(u64::from(!checksum) + self.sum)
    }

    /// The same for UDP (RFC 768), where a zero says that there is no checksum and stays, and a
    /// checksum that comes out as zero is sent as its other representation.
    #[inline]
    pub fn update_udp(self, checksum: u16) -> u16 {
        match checksum {
            0 => 0,
            _ => match self.update(checksum) {
                0 => 0xffff,
                updated => updated,
            },
        }
    }
}

#[inline]
fn fold(mut sum: u64) -> u16 {
    sum = (sum >> 32) + (sum & 0xffff_ffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The CRC32c (as the number whose least significant byte is sent first) of data of which four
/// bytes, followed by `bytes_after` more, changed from `old` to `new`.
///
/// A CRC is linear: the change of the CRC is the CRC, without initial value and final inversion,
/// of the change of the data. So a wrong CRC stays wrong, and the data need not be at hand.
pub fn update_crc32c(crc: u32, old: [u8; 4], new: [u8; 4], bytes_after: u32) -> u32 {
    let change = u32::from_le_bytes(old) ^ u32::from_le_bytes(new);
    crc ^ multiply(change, x_to_the(8 * (u64::from(bytes_after) + 4)))
}

/// The Castagnoli polynomial, bit-reversed as are all polynomials here: bit 31 is x^0.
const CRC32C_POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

/// The product of two polynomials modulo [`CRC32C_POLYNOMIAL`].
fn multiply(a: u32, mut b: u32) -> u32 {
    (0..32).rev().fold(0, |product, bit| {
        let term = if a >> bit & 1 == 1 { b } else { 0 };
        b = times_x(b);
        product ^ term
    })
}

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ if a & 1 == 1 { CRC32C_POLYNOMIAL } else { 0 }
}

/// x^`exponent` modulo [`CRC32C_POLYNOMIAL`], by squaring.
fn x_to_the(mut exponent: u64) -> u32 {
    let mut result = ONE;
    let mut square = times_x(ONE);
    while exponent != 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn crc32c(data: &[u8]) -> u32 {
        let register = data.iter().fold(u32::MAX, |register, byte| {
            (0..8).fold(register ^ u32::from(*byte), |register, _| times_x(register))
        });
        !register
    }

    #[test]
    fn published_vectors() {
        // RFC 1071, 3: the sum of these bytes is ddf2.
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(internet_checksum(&[0x12]), !0x1200);
        // RFC 1624, 4: checksum DD2F, a word changes from 5555 to 3285.
        assert_eq!(ChecksumChange::word(0x5555, 0x3285).update(0xdd2f), 0);
        assert_eq!(ChecksumChange::word(0x5555, 0x3285).update_udp(0xdd2f), 0xffff);
        assert_eq!(ChecksumChange::word(0x5555, 0x3285).update_udp(0), 0);
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    proptest! {
        #[test]
        fn a_sum_in_pieces_is_the_whole_one(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        ) {
            let sum = pieces.iter().fold(PartialSum::default(), |sum, piece| sum.and(piece));
            prop_assert_eq!(sum.checksum(), internet_checksum(&pieces.concat()));
        }

        #[test]
        fn an_incremental_checksum_is_the_whole_one(
            mut data in prop::collection::vec(any::<u8>(), 16..200),
            new in any::<[u8; 16]>(),
        ) {
            data[0] |= 1; // An all-zero sum has two representations.
            let before = internet_checksum(&data);
            let change = ChecksumChange::words(&data[2..10], &new[..8]);
            data[2..10].copy_from_slice(&new[..8]);
            prop_assert_eq!(change.update(before), internet_checksum(&data));
        }

        #[test]
        fn an_incremental_crc_is_the_whole_one(
            mut data in prop::collection::vec(any::<u8>(), 4..3000),
            new in any::<[u8; 4]>(),
        ) {
            let before = crc32c(&data);
            let old = *data.first_chunk::<4>().unwrap();
            data[..4].copy_from_slice(&new);
            let after = update_crc32c(before, old, new, data.len() as u32 - 4);
            prop_assert_eq!(after, crc32c(&data));
        }
    }
}
