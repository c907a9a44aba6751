//! Bounds on what a scheduler is configured with, on what one call does, and on what one tenant
//! may hold of the tables that all share.

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

/// What the authors of the coordinated refill run it with: every microsecond, 0.85 of what has
/// elapsed, and a cap of 15 000 cycles.
pub const COORDINATOR_PERIOD_US: u64 = 1;
/// See [`COORDINATOR_PERIOD_US`].
pub const COORDINATOR_BOOST_THOUSANDTHS: u32 = 850;
/// See [`COORDINATOR_PERIOD_US`].
pub const COORDINATOR_CAP_CYCLES: u64 = 15_000;

/// Longest period of a coordinator, in microseconds: beyond a tenth of a second no cap would carry a
/// tenant from one grant to the next.
pub const COORDINATOR_PERIOD_US_MAX: u64 = 100_000;

/// Most that a coordinator may multiply the elapsed time with. Above 1000 it gives out more than
/// there is and gates nobody; some room is left to measure that.
pub const BOOST_THOUSANDTHS_MAX: u32 = 2000;

/// A tenant may always set up one flow a second: with none it could never send.
pub const SETUPS_PER_SECOND_MIN: u64 = 1;
/// Far above what a slow path can do; it keeps the bucket's arithmetic in 64 bits.
pub const SETUPS_PER_SECOND_MAX: u64 = 10_000_000;

/// A bucket of set-ups holds this part of a second's worth, so that a guest that boots or a
/// connection pool that opens is not throttled for it.
pub const SETUP_BURST_PER_SECOND: u64 = 8;
/// It holds no fewer than this.
pub const SETUP_BURST_MIN: u64 = 32;

/// Most megaflows of one tenant: the largest table that can be configured.
pub const MEGAFLOWS_MAX: u64 = 1 << 22;
/// Most subtables of one tenant: the largest number that can be configured.
pub const SUBTABLES_MAX: u64 = 32_768;
/// Most exact-match entries of one tenant: the largest table that can be configured.
pub const EXACT_ENTRIES_MAX: u64 = 1 << 24;

/// Fewest bytes of a tenant's arena of misses: a few of the largest frames (9216 bytes).
pub const ARENA_BYTES_MIN: u64 = 64 * 1024;
/// Most bytes of a tenant's arena. It is held on every PMD, for every tenant.
pub const ARENA_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most calls on a scheduler that one recording holds, 48 bytes each: a PMD fills 6 MB, and the text
/// that a client is sent has as many. At some five calls a turn they are 50 ms of a full core.
pub const RECORDED_EVENTS_MAX: u64 = 1 << 17;

/// As many unless another number is asked for.
pub const RECORDED_EVENTS: u64 = 1 << 16;

/// Turns that a replay names of those on which it disagrees: later ones mostly follow from the first.
pub const DIFFERENCES_KEPT: usize = 8;

/// Largest count of turns that is read from a file: no switch gets there, and none that goes on from
/// it runs over.
pub const RECORDED_COUNT_MAX: u64 = 1 << 62;

/// A queue may be seen this part of its silence late, at most: one that was empty for a second is
/// looked at every millisecond unless the configured bound is lower. A power of two.
pub const BACKOFF_SILENCE_PARTS: u64 = 1024;

/// Steps by which the time between two looks at a quiet queue doubles up to the configured bound.
pub const BACKOFF_LEVELS: usize = 6;

/// Smallest bound on how late a quiet queue is seen, in cycles: a step on the lowest level must be
/// some cycles long. Anything below a turn's length means to look every turn.
pub const BACKOFF_CYCLES_MIN: u64 = 1024;
