//! What an operator sets for one tenant.

use crate::bucket::SetupBucket;
use crate::config::{ConfigError, KnobRange, SchedulerConfig};
use crate::limits::{
    ARENA_BYTES_MAX, ARENA_BYTES_MIN, EXACT_ENTRIES_MAX, MEGAFLOWS_MAX, SETUPS_PER_SECOND_MAX,
    SETUPS_PER_SECOND_MIN, SUBTABLES_MAX,
};
use crate::verdict::RxOverrun;
use crate::weight::Weight;

/// Every knob of a tenant. A [`Weight`] is valid by itself; the others are after
/// [`validate`](Self::validate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantKnobs {
    /// Its share of every PMD, relative to the other tenants with work.
    pub weight: Weight,
    /// Most credit it may hold.
    pub cap_cycles: u64,
    /// Most of its debt that is remembered.
    pub floor_cycles: u64,
    /// What becomes of its received packets when it is over its share.
    pub rx_overrun: RxOverrun,
    /// With `rx_overrun = "mark-then-drop"`: in how much debt marking ends and dropping begins.
    pub mark_depth_cycles: u64,
    /// New flows a second that the slow path decides for it.
    pub setups_per_second: u64,
    /// Megaflows that its packets may hold.
    pub megaflows: u64,
    /// Distinct masks of those; beyond them, exact megaflows.
    pub subtables: u64,
    /// Bytes of its packets that may wait for the slow path, on each PMD.
    pub arena_bytes: u64,
    /// Entries of each PMD's exact-match table that it may hold.
    pub exact_entries: u64,
}

impl TenantKnobs {
    /// A tenant that nothing was set for: weight 1, the scheduler's cap and floor, marks as deep as
    /// the cap is high, 100 000 set-ups a second, and quotas that no ordinary tenant meets.
    #[must_use]
    pub fn new(scheduler: &SchedulerConfig) -> Self {
        Self {
            weight: Weight::ONE,
            cap_cycles: scheduler.cap_cycles,
            floor_cycles: scheduler.floor_cycles,
            rx_overrun: RxOverrun::default(),
            mark_depth_cycles: scheduler.cap_cycles.min(scheduler.floor_cycles),
            setups_per_second: 100_000,
            megaflows: 16 * 1024,
            subtables: 64,
            arena_bytes: 256 * 1024,
            exact_entries: 64 * 1024,
        }
    }

    /// Checks every knob against a valid scheduler's.
    ///
    /// # Errors
    /// Names the first knob that is out of range.
    pub fn validate(&self, scheduler: &SchedulerConfig) -> Result<(), ConfigError> {
        scheduler.cap_range().check("cap_cycles", self.cap_cycles)?;
        // A core that was idle for the horizon has not given away more than that.
        let most = scheduler.horizon_cycles.min(crate::limits::CREDIT_CYCLES_MAX);
        let floor_range = scheduler.floor_range(most).most_is("horizon_cycles");
        floor_range.check("floor_cycles", self.floor_cycles)?;
        KnobRange::new(0, self.floor_cycles)
            .most_is("floor_cycles")
            .check("mark_depth_cycles", self.mark_depth_cycles)?;
        let ranges = [
            (
                "setups_per_second",
                self.setups_per_second,
                SETUPS_PER_SECOND_MIN,
                SETUPS_PER_SECOND_MAX,
            ),
            ("megaflows", self.megaflows, 1, MEGAFLOWS_MAX),
            ("subtables", self.subtables, 1, SUBTABLES_MAX),
            ("arena_bytes", self.arena_bytes, ARENA_BYTES_MIN, ARENA_BYTES_MAX),
            ("exact_entries", self.exact_entries, 1, EXACT_ENTRIES_MAX),
        ];
        for (knob, given, least, most) in ranges {
            KnobRange::new(least, most).check(knob, given)?;
        }
        Ok(())
    }

    /// The bucket that holds the tenant to its set-ups, on a clock of `tsc_hz`.
    #[must_use]
    pub fn setup_bucket(&self, tsc_hz: u64) -> SetupBucket {
        SetupBucket::new(self.setups_per_second, tsc_hz)
    }
}
