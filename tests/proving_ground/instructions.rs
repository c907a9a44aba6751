//! What the instruction counts of `benches/instructions` and whoever reads them have in common.

/// Packets that every case deals with: seven full bursts, as many as a ring of 256 entries holds.
pub const PACKETS: usize = 224;
