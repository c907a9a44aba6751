//! Pipeline fields: what earlier tables wrote for later ones.

/// Registers that a packet carries from table to table (`reg0` to `reg15` of Open vSwitch).
pub const REGISTERS: usize = 16;

pub(crate) const EXTRA_WORDS: usize = 1 + REGISTERS / 2;

/// The pipeline fields of a packet under way, all zero when it enters. Also their mask, with every
/// bit a "must match".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtraKey {
    /// OpenFlow's metadata field.
    pub metadata: u64,
    /// The registers.
    pub regs: [u32; REGISTERS],
}

impl ExtraKey {
    /// No bit set; what [`Default`] gives, for constants.
    pub const ZERO: Self = Self { metadata: 0, regs: [0; REGISTERS] };
    /// Every bit set.
    pub const ONES: Self = Self { metadata: u64::MAX, regs: [u32::MAX; REGISTERS] };

    /// The fields with every bit outside `mask` cleared.
    #[must_use]
    pub fn masked(&self, mask: &Self) -> Self {
        let mut key = *self;
        key.metadata &= mask.metadata;
        key.regs.iter_mut().zip(&mask.regs).for_each(|(reg, mask)| *reg &= mask);
        key
    }

    /// The fields as words, the metadata first.
    pub(crate) fn words(&self) -> [u64; EXTRA_WORDS] {
        let mut words = [0; EXTRA_WORDS];
        let (pairs, _) = self.regs.as_chunks::<2>();
        let registers = pairs.iter().map(|[even, odd]| u64::from(*even) << 32 | u64::from(*odd));
        let values = std::iter::once(self.metadata).chain(registers);
        words.iter_mut().zip(values).for_each(|(word, value)| *word = value);
        words
    }

    pub(crate) fn from_words(words: &[u64; EXTRA_WORDS]) -> Self {
        let [metadata, registers @ ..] = words;
        let mut key = Self { metadata: *metadata, ..Self::ZERO };
        let (pairs, _) = key.regs.as_chunks_mut::<2>();
        for ([even, odd], word) in pairs.iter_mut().zip(registers) {
            (*even, *odd) = ((word >> 32) as u32, *word as u32);
        }
        key
    }
}

/// Pipeline fields that a rule matches, and the bits of them that count. Bits of the key outside
/// the mask are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtraMatch {
    key: ExtraKey,
    mask: ExtraKey,
}

impl ExtraMatch {
    /// Matches every packet.
    pub const ANY: Self = Self { key: ExtraKey::ZERO, mask: ExtraKey::ZERO };

    /// `key` restricted to `mask`.
    pub fn new(key: &ExtraKey, mask: ExtraKey) -> Self {
        Self { key: key.masked(&mask), mask }
    }

    /// The key, zero outside the mask.
    pub fn key(&self) -> &ExtraKey {
        &self.key
    }

    /// The mask.
    pub fn mask(&self) -> &ExtraKey {
        &self.mask
    }

    /// Whether a packet with these fields agrees with the key in every bit of the mask.
    pub fn matches(&self, extra: &ExtraKey) -> bool {
        extra.masked(&self.mask) == self.key
    }

    /// Whether some packet could match both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let shared = self.mask.masked(&other.mask);
        self.key.masked(&shared) == other.key.masked(&shared)
    }

    /// Whether every packet that matches this matches `wider` too.
    pub fn is_within(&self, wider: &Self) -> bool {
        self.mask.masked(&wider.mask) == wider.mask && wider.matches(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(metadata: u64, register: usize, value: u32) -> ExtraKey {
        let mut key = ExtraKey { metadata, ..ExtraKey::ZERO };
        key.regs[register] = value;
        key
    }

    #[test]
    fn only_bits_of_the_mask_count() {
        let matcher = ExtraMatch::new(&with(0x12, 15, 0x34), with(0x0f, 15, 0xf0));
        assert_eq!(matcher.key(), &with(0x02, 15, 0x30));
        assert!(matcher.matches(&with(0xf2, 15, 0x3f)));
        assert!(!matcher.matches(&with(0xf3, 15, 0x3f)));
        assert!(!matcher.matches(&with(0xf2, 15, 0x2f)));
        assert!(ExtraMatch::ANY.matches(&ExtraKey::ONES));
    }

    #[test]
    fn overlapping_and_being_within_are_about_the_packets_matched() {
        let high = ExtraMatch::new(&with(0, 3, 0x10), with(0, 3, 0xf0));
        let low = ExtraMatch::new(&with(0, 3, 0x01), with(0, 3, 0x0f));
        let both = ExtraMatch::new(&with(0, 3, 0x11), with(0, 3, 0xff));
        let other = ExtraMatch::new(&with(0, 3, 0x21), with(0, 3, 0xff));
        assert!(high.overlaps(&low) && high.overlaps(&both) && !high.overlaps(&other));
        assert!(both.is_within(&high) && both.is_within(&low) && both.is_within(&ExtraMatch::ANY));
        assert!(!high.is_within(&both) && !high.is_within(&low) && !other.is_within(&high));
    }

    #[test]
    fn words_cover_every_field() {
        assert!(ExtraKey::ONES.words().iter().all(|word| *word == u64::MAX));
        assert_eq!(with(7, 1, 9).words()[..2], [7, 9]);
        assert_eq!(with(0, 14, 9).words()[EXTRA_WORDS - 1], 9 << 32);
        let key = with(7, 11, 9);
        assert_eq!(ExtraKey::from_words(&key.words()), key);
    }
}
