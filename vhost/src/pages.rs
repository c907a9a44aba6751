//! Which pages of a guest's memory frames were written to before.
//!
//! The first write to a page may have the kernel find, clear and map it: a thousand cycles, or, for a
//! huge page, a hundred times as many. Which pages a guest offers is its own choice, so such a write is
//! made apart, timed, and is the receiver's to pay; the rest of a delivery is not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::TRACKED_PAGES_MAX;

const PAGE_SHIFT: u32 = 12;

/// One bit a page of a region. Shared by all rings in it: a lost bit only means to look again.
#[derive(Debug)]
pub(crate) struct MetPages {
    /// Of a region that is too large for a bit for each page, several share one.
    shift: u32,
    words: Box<[AtomicU64]>,
}

impl MetPages {
    /// None met, of a region of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        let mut shift = PAGE_SHIFT;
        while size >> shift >= TRACKED_PAGES_MAX {
            shift += 1;
        }
        // At most `TRACKED_PAGES_MAX` and a part of one.
        let words = (size >> shift) / 64 + 1;
        Self { shift, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The first byte after `offset` that is of another page.
    pub(crate) fn page_end(&self, offset: u64) -> u64 {
        ((offset >> self.shift) + 1) << self.shift
    }

    /// Whether the page of `offset` was written to.
    #[inline]
    pub(crate) fn has(&self, offset: u64) -> bool {
        let page = offset >> self.shift;
        self.word(page).is_none_or(|word| word.load(Ordering::Relaxed) >> (page % 64) & 1 == 1)
    }

    /// Notes that it was.
    pub(crate) fn meet(&self, offset: u64) {
        let page = offset >> self.shift;
        if let Some(word) = self.word(page) {
            word.fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }

    #[inline]
    fn word(&self, page: u64) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(page / 64).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_met_once_and_its_neighbours_are_not() {
        let pages = MetPages::new(3 << 20);
        assert!(!pages.has(0) && !pages.has((3 << 20) - 1));
        pages.meet(64 * 4096 + 7);
        assert!(pages.has(64 * 4096) && pages.has(64 * 4096 + 4095));
        assert!(!pages.has(64 * 4096 - 1) && !pages.has(65 * 4096));
        assert_eq!(pages.page_end(5), 4096);
        assert_eq!(pages.page_end(4096), 8192);
        assert!(pages.has(1 << 40), "outside, there is nothing to find out");
    }

    #[test]
    fn the_largest_region_takes_no_more_memory_than_allowed() {
        for size in [1, 4096, 1 << 36, (1 << 36) + 1, 1 << 47, u64::MAX] {
            let pages = MetPages::new(size);
            assert!(pages.words.len() as u64 * 64 <= TRACKED_PAGES_MAX + 64, "{size}");
            pages.meet(size - 1);
            assert!(pages.has(size - 1));
        }
    }
}
