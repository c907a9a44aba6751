//! Bounds on what one lookup may cost.

/// Subtables of one ingress port in the megaflow cache, the one of exact megaflows not counted. A
/// probe costs 20 to 60 cycles, so a miss that probes them all stays below a scheduling quantum
/// (5000 cycles). Rule sets seen in practice need 5 to 20.
pub const SUBTABLES_PER_PORT_MAX: usize = 64;

/// Subtables that one [`rank`](crate::MegaflowCache::rank) looks at while it searches for the next
/// port to rank: about as long as ranking a port takes.
pub const RANK_SCAN_SUBTABLES: usize = 64;

/// Entries above its quota that an owner gives up on each insert, after its quota was lowered.
pub const TRIM_PER_INSERT: usize = 2;
