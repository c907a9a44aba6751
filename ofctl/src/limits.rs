//! Bounds on waiting and on what is read.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Weights that the switch takes.
pub(crate) const WEIGHTS: RangeInclusive<f64> = 0.001..=1000.0;

/// Seconds between two tables of `top`. Shorter ones would show the reading itself; an hour is more
/// than anybody watches.
pub(crate) const TOP_INTERVALS_S: RangeInclusive<f64> = 0.1..=3600.0;

/// Seconds for which the switch times stages.
pub(crate) const STAGES_SECONDS: RangeInclusive<f64> = 0.1..=30.0;

/// How long a switch may be silent while an answer is due. Adding a million flows is one long
/// stretch of work before the barrier is answered, and takes seconds; a minute means it hangs.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long version negotiation may take: no work stands behind it.
pub(crate) const HELLO_MAX: Duration = Duration::from_secs(5);

/// Most flows that are copied from standard input to a temporary file: twenty million of 200
/// characters.
pub(crate) const FLOW_FILE_MAX_BYTES: u64 = 4 << 30;

/// Longest recording of a scheduler that is read: the largest has 131072 events of some 60 characters.
pub(crate) const TRACE_FILE_MAX_BYTES: u64 = 64 << 20;

/// Bytes of flow-mods handed to the socket at once.
pub(crate) const SEND_CHUNK_BYTES: usize = 256 << 10;
