//! The Internet checksum (RFC 1071), kept as partial sums so that most of a frame's is computed once.

/// A one's-complement sum that is not folded yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(u64);

impl Sum {
    /// The sum of big-endian 16-bit words; an odd last byte counts as a word's first half.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        // Sums of 32-bit words fold to the same as sums of their halves (RFC 1071, 2).
        let (words, rest) = bytes.as_chunks::<4>();
        let whole: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
        let mut last = [0; 4];
        for (target, byte) in last.iter_mut().zip(rest) {
            *target = *byte;
        }
        Self(whole + u64::from(u32::from_be_bytes(last)))
    }

    /// Adds a 16-bit word.
    #[inline]
    pub(crate) fn add_u16(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// Adds a 32-bit value's two words.
    #[inline]
    pub(crate) fn add_u32(self, value: u32) -> Self {
        Self(self.0 + u64::from(value >> 16) + u64::from(value & 0xffff))
    }

    /// Adds a 64-bit value's four words.
    #[inline]
    pub(crate) fn add_u64(self, value: u64) -> Self {
        self.add_u32((value >> 32) as u32).add_u32(value as u32)
    }

    /// Adds another sum over an even number of bytes.
    #[inline]
    pub(crate) fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// The checksum: the folded sum's complement. Zero when the summed bytes hold a right one.
    #[inline]
    pub(crate) fn finish(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_sums_up() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).finish(), !0xddf2);
        let words = Sum::default().add_u64(0x0001_f203_f4f5_f6f7);
        assert_eq!(words.finish(), !0xddf2);
    }

    #[test]
    fn carries_of_large_sums_are_folded_to_the_end() {
        let all_ones = Sum::of(&[0xff; 4096]);
        assert_eq!(all_ones.finish(), 0);
        assert_eq!(all_ones.add_u16(1).finish(), !1);
        assert_eq!(Sum(u64::MAX).finish(), 0);
    }

    #[test]
    fn an_odd_byte_is_padded_on_the_right() {
        assert_eq!(Sum::of(&[0x12, 0x34, 0x56]), Sum::of(&[0x12, 0x34, 0x56, 0]));
    }
}
