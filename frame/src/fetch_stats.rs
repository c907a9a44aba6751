//! What a source of frames has dropped while it filled a burst.

use crate::DropReason;

/// What fetching has dropped, by reason. The packets themselves are counted by whoever processes
/// them.
#[derive(Clone, Debug)]
pub struct FetchStats {
    drops: [u32; DropReason::COUNT],
    total: u32,
}

impl FetchStats {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { drops: [0; DropReason::COUNT], total: 0 }
    }

    /// Frames dropped in all.
    #[inline]
    pub fn dropped(&self) -> u32 {
        self.total
    }

    /// Frames dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u32 {
        self.drops.get(reason.index()).copied().unwrap_or(0)
    }

    /// Starts again from nothing.
    #[inline]
    pub fn clear(&mut self) {
        if self.total > 0 {
            *self = Self::new();
        }
    }

    /// One more frame was dropped.
    pub fn count(&mut self, reason: DropReason) {
        if let Some(count) = self.drops.get_mut(reason.index()) {
            *count += 1;
            self.total += 1;
        }
    }
}

impl Default for FetchStats {
    fn default() -> Self {
        Self::new()
    }
}
