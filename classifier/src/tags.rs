//! The tags of one bucket: a filter in front of the comparison of whole keys.

use tollgate_accel::lanes::equal_lanes;

/// Entries of a bucket. Eight 16-bit tags are compared by one 128-bit instruction.
pub(crate) const WAYS: usize = 8;

/// A tag says "empty" or holds 16 bits of the entry's hash.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
pub(crate) struct Tags([u16; WAYS]);

const EMPTY: u16 = 0;

/// The tag of an entry with this hash. Its bits are those that bucket numbers do not use.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(EMPTY + 1)
}

impl Tags {
    /// The ways that may hold an entry with this tag.
    #[inline]
    pub(crate) fn matching(&self, tag: u16) -> Ways {
        Ways(equal_lanes(&self.0, tag))
    }

    /// The ways that are free.
    #[inline]
    pub(crate) fn empty(&self) -> Ways {
        self.matching(EMPTY)
    }

    /// The ways that are taken.
    #[inline]
    pub(crate) fn used(&self) -> Ways {
        Ways(!self.empty().0 & ((1 << WAYS) - 1))
    }

    pub(crate) fn set(&mut self, way: usize, tag: u16) {
        if let Some(slot) = self.0.get_mut(way) {
            *slot = tag;
        }
    }

    pub(crate) fn clear(&mut self, way: usize) {
        self.set(way, EMPTY);
    }
}

/// A set of ways, taken in order.
#[derive(Debug)]
pub(crate) struct Ways(u32);

impl Ways {
    pub(crate) fn contains(&self, way: usize) -> bool {
        self.0 >> way & 1 == 1
    }
}

impl Iterator for Ways {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let way = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_tag_is_not_mistaken_for_an_empty_way() {
        let mut tags = Tags::default();
        assert_eq!(tags.empty().count(), WAYS);
        tags.set(5, tag_of(0));
        assert_eq!(tags.used().collect::<Vec<_>>(), [5]);
        assert_eq!(tags.matching(tag_of(0)).collect::<Vec<_>>(), [5]);
        tags.clear(5);
        assert_eq!(tags.used().count(), 0);
    }
}
