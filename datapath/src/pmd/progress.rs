//! How far a packet's action list has been carried out, and what of it is counted.

use tollgate_frame::DropReason;

use crate::counters::PortCounters;

/// A cursor into an action list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// By which a receive queue is chosen.
    pub(crate) flow_hash: u64,
    pub(crate) next_op: usize,
    pub(crate) outputs: u64,
    /// Those that are counted as clones already.
    cloned: u64,
    /// A copy is to go to the slow path.
    pub(crate) punts: bool,
    /// Some action has changed the header.
    pub(crate) edited: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ran {
    Finished,
    /// Time was up; what is left is to be run later.
    Cut,
}

impl Progress {
    /// Nothing of the list yet, for a packet of a flow.
    #[inline]
    pub(crate) fn of(flow_hash: u64) -> Self {
        Self { flow_hash, ..Self::default() }
    }

    /// Counts what came of a packet whose list has ended, early if it is `lost`.
    #[inline]
    pub(crate) fn account(
        &self,
        drop_reason: DropReason,
        lost: Option<DropReason>,
        counters: &PortCounters,
    ) {
        let copies = self.outputs + u64::from(self.punts);
        match (copies, lost) {
            (0, None) => counters.dropped(drop_reason, 1),
            // Controllers hear of it, but the packet itself is lost.
            (1, None) if self.punts && drop_reason == DropReason::TtlExpired => {
                counters.cloned(1);
                counters.dropped(DropReason::TtlExpired, 1);
            }
            (1, None) => {}
            (_, None) => counters.cloned(copies - 1 - self.cloned),
            // The copies already made stand; the one that went on is lost.
            (_, Some(reason)) => {
                counters.cloned(copies - self.cloned);
                counters.dropped(reason, 1);
            }
        }
    }

    /// Counts the copies made so far, so that the books close while the packet waits. One of which
    /// there is no copy yet counts as queued, which is the caller's to note.
    pub(crate) fn account_cut(&mut self, counters: &PortCounters) {
        let clones = self.outputs.saturating_sub(1);
        counters.cloned(clones - self.cloned);
        self.cloned = clones;
    }

    /// Counts a packet whose list is given up.
    pub(crate) fn account_lost(&self, reason: DropReason, counters: &PortCounters) {
        // The copy for a controller that was yet to be made.
        let unpunted = Self { punts: false, ..*self };
        unpunted.account(reason, Some(reason), counters);
    }
}
