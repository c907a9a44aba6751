//! Bounds on what a scheduler is configured with and on what one call does.

/// Largest cap, floor or quantum, in cycles (about 0.4 s at 2.5 GHz). Credits are kept in 64 bits
/// of which 32 are a fraction, so a cycle count must stay below 2^31; nothing near it is useful.
pub const CREDIT_CYCLES_MAX: u64 = 1 << 30;

/// Smallest cap in quanta. A waking tenant must be able to run one whole turn and still be funded
/// for a second one, else every turn of a well-behaved tenant ends in debt.
pub const CAP_QUANTA_MIN: u64 = 2;

/// Weights in thousandths: 0.001 to 1000, six orders of magnitude, which keeps a sum of 65 535 of
/// them far below 2^64.
pub const WEIGHT_THOUSANDTHS_MIN: u32 = 1;
/// See [`WEIGHT_THOUSANDTHS_MIN`].
pub const WEIGHT_THOUSANDTHS_MAX: u32 = 1_000_000;

/// Most tenants of one scheduler, the system account included: list links are 16 bits wide and one
/// value means "nobody".
pub const TENANTS_MAX: u16 = u16::MAX;

/// What a turn that was charged nothing counts for, in cycles. Looking at a queue is never free; if
/// it were, a tenant whose turns are all empty could hold the clock still and with it everybody's
/// recovery from debt.
pub const EMPTY_TURN_CYCLES: u64 = 50;
