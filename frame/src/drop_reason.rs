//! Why a frame was dropped: one vocabulary for the whole switch.

use std::fmt;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a frame was dropped. The names are a stable part of the outer interfaces (counters,
        /// metrics).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// How many reasons there are.
            pub const COUNT: usize = [$($name),+].len();

            /// Every reason, in the order of [`index`](Self::index).
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),+];

            /// The stable snake_case name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

drop_reasons! {
    /// Ingress: shorter than an Ethernet header.
    RxTooShort = "rx_too_short",
    /// Ingress: longer than the largest frame the switch carries.
    RxTooLong = "rx_too_long",
    /// Ingress: a descriptor chain that breaks the rules in a way that concerns only its frame.
    RxBadChain = "rx_bad_chain",
    /// Ingress: spread over more descriptors than a frame may have.
    RxTooManySegments = "rx_too_many_segments",
    /// Ingress: the virtio-net header asks for an offload that was not negotiated.
    RxBadOffload = "rx_bad_offload",
    /// Ingress: the port is configured to receive nothing.
    RxDisabled = "rx_disabled",
    /// No flow matched and the table drops on a miss.
    NoRule = "no_rule",
    /// A flow says drop.
    RuleDrop = "rule_drop",
    /// The tenant's queue to the slow path is full.
    MissQueueFull = "miss_queue_full",
    /// The tenant has more new flows per second than its limit allows.
    SetupLimit = "setup_limit",
    /// No memory left in the tenant's arena for a frame that must outlive its burst.
    NoBuffers = "no_buffers",
    /// An action could not be applied to this frame.
    EditFailed = "edit_failed",
    /// The TTL or hop limit ran out.
    TtlExpired = "ttl_expired",
    /// The tables ask for more look-ups or actions than one packet may cost.
    TooManySteps = "too_many_steps",
    /// Egress: the port has no enabled receive ring.
    TxNoQueue = "tx_no_queue",
    /// Egress: the guest has posted no receive buffer.
    TxRingFull = "tx_ring_full",
    /// Egress: the posted receive buffers cannot hold this frame.
    TxNoBuffers = "tx_no_buffers",
    /// Egress: the receive ring is quarantined.
    TxFault = "tx_fault",
    /// Egress: longer than the largest frame the switch carries.
    TxTooLong = "tx_too_long",
    /// Output to the port that the frame came from.
    TxSelf = "tx_self",
    /// Output to a port that does not exist.
    NoSuchPort = "no_such_port",
    /// The queue to the PMD that owns the output port is full.
    HandoffFull = "handoff_full",
    /// The output port is down.
    PortDown = "port_down",
    /// The tenant is over its share of the core while others have work.
    TenantOverShare = "tenant_over_share",
    /// The same, found by configured addresses before the packet was classified.
    TenantOverShareEarly = "tenant_over_share_early",
    /// The tables changed while copies of the packet were still being made, over several turns.
    TablesChanged = "tables_changed",
    /// A meter's band says drop.
    Meter = "meter",
    /// A copy for the controller: the tenant sends it more than its limit allows.
    ControllerLimit = "controller_limit",
    /// A copy for the controller: too many of the tenant's wait already.
    ControllerQueueFull = "controller_queue_full",
}

impl DropReason {
    /// The reason's place in [`ALL`](Self::ALL) and in arrays of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the frame, or a copy of it, was lost at the port that it was to leave by, which counts
    /// it too.
    pub const fn is_egress(self) -> bool {
        matches!(
            self,
            Self::TxNoQueue
                | Self::TxRingFull
                | Self::TxNoBuffers
                | Self::TxFault
                | Self::TxTooLong
                | Self::HandoffFull
        )
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_and_all_agree_and_names_differ() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
        let mut names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT);
    }
}
