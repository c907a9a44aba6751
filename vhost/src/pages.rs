//! Which pages of a guest's memory frames were written to before.
//!
//! The first write to a page may have the kernel find, clear and map it: a thousand cycles, or, for a
//! huge page, a hundred times as many. Which pages a guest offers is its own choice, so such a write is
//! made apart, timed, and is the receiver's to pay; the rest of a delivery is not.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_accel::tsc;

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
    pub(crate) fn has(&self, offset: u64) -> bool {
        let page = offset >> self.shift;
        self.word(page).is_none_or(|word| word.load(Ordering::Relaxed) >> (page % 64) & 1 == 1)
    }

    /// For many questions in a row.
    pub(crate) fn view(&self) -> MetView {
        MetView { words: self.words.as_ptr(), shift: self.shift }
    }

    /// Notes that it was.
    pub(crate) fn meet(&self, offset: u64) {
        let page = offset >> self.shift;
        if let Some(word) = self.word(page) {
            word.fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }

    fn word(&self, page: u64) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(page / 64).ok()?)
    }
}

/// [`MetPages`] by address, to be used while they live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetView {
    words: *const AtomicU64,
    shift: u32,
}

// SAFETY: what it points to are atomics, and is used by contract only while they live.
unsafe impl Send for MetView {}

impl MetView {
    /// Of nothing.
    pub(crate) const NOWHERE: Self = Self { words: std::ptr::null(), shift: PAGE_SHIFT };

    /// Whether the pages of the bytes from `first` to `last` were written to, if these are two at most.
    ///
    /// # Safety
    /// The pages live, and `first` <= `last` < the size that they were made with.
    #[inline(always)]
    pub(crate) unsafe fn has_both(self, first: u64, last: u64) -> bool {
        let (first, last) = (first >> self.shift, last >> self.shift);
        let bit = |page: u64| {
            // Lossless: usize has 64 bits on the only architecture that builds.
            let word = self.words.wrapping_add((page / 64) as usize);
            // SAFETY: there is a word for each page up to the size's, and it lives by contract.
            let word = unsafe { &*word };
            word.load(Ordering::Relaxed) >> (page % 64) & 1 == 1
        };
        bit(first) && (first == last || bit(last))
    }
}

/// How likely a receive ring's next buffers are new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPages {
    /// How many buffers must be known ones in a row before each need not be looked at.
    watch: u16,
    ring_entries: u16,
    /// For a choice that the guest cannot foresee.
    random: u64,
}

impl NewPages {
    /// A round of the ring is looked at first, and after each new one.
    pub(crate) fn new(ring_entries: u16) -> Self {
        Self { watch: ring_entries, ring_entries, random: tsc::now() | 1 }
    }

    #[inline]
    pub(crate) fn is_likely(self) -> bool {
        self.watch > 0
    }

    /// A buffer was looked at.
    pub(crate) fn seen(&mut self, is_new: bool) {
        self.watch = if is_new { self.ring_entries } else { self.watch.saturating_sub(1) };
    }

    /// One of `count` (Marsaglia, Xorshift RNGs, 2003).
    #[inline]
    pub(crate) fn pick(&mut self, count: u16) -> u16 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // Less than `count`.
        ((u64::from(count) * (self.random >> 48)) >> 16) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_watched_until_a_round_of_known_buffers_and_again_after_a_new_one() {
        let mut pages = NewPages::new(256);
        (0..256).for_each(|_| {
            assert!(pages.is_likely());
            pages.seen(false);
        });
        assert!(!pages.is_likely());
        pages.seen(true);
        assert!(pages.is_likely());
        let picked: std::collections::HashSet<_> = (0..1000).map(|_| pages.pick(32)).collect();
        assert_eq!(picked.len(), 32, "all of them, and no other");
    }

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
