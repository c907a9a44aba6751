//! What becomes of a received packet whose owner is over its share.
//!
//! A received packet cannot wait in its sender's ring as one from a guest does: time is spent on it
//! before its owner is known. So the owner is charged afterwards, and once it is in debt its
//! packets are marked or dropped, as long as that time is at somebody's expense
//! ([`Scheduler::must_yield`](crate::Scheduler::must_yield)). An idle core drops nothing.

use std::fmt;
use std::str::FromStr;

/// What a tenant's received packets meet when it is over its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxOverrun {
    /// They are dropped.
    #[default]
    Drop,
    /// Those that can carry it are marked ECN CE (RFC 3168); none are dropped. For tenants whose
    /// senders are known to slow down: others are not stopped.
    Mark,
    /// While the debt is small, those that can carry it are marked and the rest dropped, as RFC
    /// 3168 section 7 has it; when it is deeper, all are dropped.
    MarkThenDrop,
    /// Nothing: they are delivered, at its neighbours' expense.
    None,
}

impl RxOverrun {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Drop, Self::Mark, Self::MarkThenDrop, Self::None];

    /// As it is written in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Mark => "mark",
            Self::MarkThenDrop => "mark-then-drop",
            Self::None => "none",
        }
    }
}

impl fmt::Display for RxOverrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no [`RxOverrun`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rx_overrun is {given:?}; it must be \"drop\", \"mark\", \"mark-then-drop\" or \"none\"")]
pub struct RxOverrunError {
    given: String,
}

impl FromStr for RxOverrun {
    type Err = RxOverrunError;

    fn from_str(text: &str) -> Result<Self, RxOverrunError> {
        let named = Self::ALL.into_iter().find(|overrun| overrun.name() == text);
        // Enough to recognise a slip by; the text may be a stranger's.
        named.ok_or_else(|| RxOverrunError { given: text.chars().take(32).collect() })
    }
}

/// How far a received packet has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Parsed, and the owner known from the operator's configuration: classification can be saved.
    Early,
    /// Classified: the owner is the destination's.
    PostAttribution,
}

/// What to do with a received packet. Its owner is charged for what was spent on it in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Deliver,
    /// Set ECN CE, then go on.
    Mark,
    /// Drop it, and count that as the owner's overrun.
    Drop,
}

/// A tenant's rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxRule {
    pub(crate) overrun: RxOverrun,
    /// With [`RxOverrun::MarkThenDrop`]: the debt from which everything is dropped.
    pub(crate) mark_depth_cycles: u64,
}

impl RxRule {
    /// For a packet of an owner over its share; `owes` says whether its debt is as deep as that.
    /// Marking is left to the last stage: an earlier one may not see the final owner.
    pub(crate) fn over_share(
        self,
        stage: Stage,
        ecn_capable: bool,
        owes: impl FnOnce(u64) -> bool,
    ) -> Verdict {
        let mark = match stage {
            Stage::Early => Verdict::Deliver,
            Stage::PostAttribution => Verdict::Mark,
        };
        match self.overrun {
            RxOverrun::None => Verdict::Deliver,
            RxOverrun::Drop => Verdict::Drop,
            RxOverrun::Mark if ecn_capable => mark,
            RxOverrun::Mark => Verdict::Deliver,
            RxOverrun::MarkThenDrop if ecn_capable && !owes(self.mark_depth_cycles) => mark,
            RxOverrun::MarkThenDrop => Verdict::Drop,
        }
    }
}
