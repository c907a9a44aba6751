//! What an operator sets for a tenant.
#![allow(clippy::disallowed_methods)] // control side

use std::sync::Arc;

use tollgate_accel::tsc;
use tollgate_packet::MacAddr;
use tollgate_policy::{ConfigError, RxOverrun, SchedulerConfig, TenantKnobs, Weight};

use crate::lane::LaneLimits;
use crate::limits::{DEFAULT_PUNT_PPS, PUNT_BURST_DIVISOR};
use crate::token_bucket::TokenBucket;

/// A tenant's weight and limits. What is `None` follows from the switch as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantSettings {
    /// Its share of every PMD, relative to the other active tenants.
    pub weight: Weight,
    /// Copies for controllers that its packets may cause per second, on all PMDs together.
    pub punt_pps: u32,
    /// Most credit it may hold; otherwise the scheduler's.
    pub cap_cycles: Option<u64>,
    /// Most of its debt that is remembered; otherwise the scheduler's.
    pub floor_cycles: Option<u64>,
    /// What becomes of its received packets when it is over its share.
    pub rx_overrun: RxOverrun,
    /// With [`RxOverrun::MarkThenDrop`]: in how much debt dropping begins; otherwise as much as its
    /// cap, or its floor if that is less.
    pub mark_depth_cycles: Option<u64>,
    /// New flows that it may ask the slow path about per second, on all PMDs together. Packets of
    /// others are dropped.
    pub setups_per_second: u64,
    /// Megaflows that it may have on all PMDs together; otherwise what the daemon gives each. Beyond
    /// them its packets are decided one by one.
    pub megaflows: Option<u64>,
    /// Pairs of ingress port and mask among them. Beyond them its megaflows are narrower, down to
    /// exact.
    pub subtables: u64,
    /// Bytes of its packets that may wait for the slow path, on each PMD.
    pub arena_bytes: u64,
    /// Entries that it may have in each PMD's exact-match table; otherwise an equal part of it with
    /// the other active tenants.
    pub exact_entries: Option<u64>,
}

impl Default for TenantSettings {
    fn default() -> Self {
        let knobs = TenantKnobs::new(&SchedulerConfig::default());
        Self {
            weight: knobs.weight,
            punt_pps: DEFAULT_PUNT_PPS,
            cap_cycles: None,
            floor_cycles: None,
            rx_overrun: knobs.rx_overrun,
            mark_depth_cycles: None,
            setups_per_second: knobs.setups_per_second,
            megaflows: None,
            subtables: knobs.subtables,
            arena_bytes: knobs.arena_bytes,
            exact_entries: None,
        }
    }
}

impl TenantSettings {
    /// All of a tenant's knobs under a scheduler, checked.
    ///
    /// # Errors
    /// Names the first knob that is out of range, and its range.
    pub fn knobs(&self, scheduler: &SchedulerConfig) -> Result<TenantKnobs, ConfigError> {
        let default = TenantKnobs::new(scheduler);
        let cap_cycles = self.cap_cycles.unwrap_or(default.cap_cycles);
        let floor_cycles = self.floor_cycles.unwrap_or(default.floor_cycles);
        let knobs = TenantKnobs {
            weight: self.weight,
            cap_cycles,
            floor_cycles,
            rx_overrun: self.rx_overrun,
            mark_depth_cycles: self.mark_depth_cycles.unwrap_or(cap_cycles.min(floor_cycles)),
            setups_per_second: self.setups_per_second,
            megaflows: self.megaflows.unwrap_or(default.megaflows),
            subtables: self.subtables,
            arena_bytes: self.arena_bytes,
            exact_entries: self.exact_entries.unwrap_or(default.exact_entries),
        };
        knobs.validate(scheduler)?;
        Ok(knobs)
    }

    /// Its rates, with the bursts that belong to them.
    pub(crate) fn lane_limits(&self, knobs: &TenantKnobs, tsc_hz: u64) -> Arc<LaneLimits> {
        let now_tsc = tsc::now();
        let bucket = |rate, burst| TokenBucket::new(rate, burst, tsc_hz, now_tsc);
        let punt_burst = self.punt_pps.div_ceil(PUNT_BURST_DIVISOR);
        let setup_burst = knobs.setup_bucket(tsc_hz).burst();
        Arc::new(LaneLimits {
            punts: bucket(u64::from(self.punt_pps), u64::from(punt_burst)),
            setups: bucket(self.setups_per_second, setup_burst),
        })
    }
}

/// What an operator sets for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSettings {
    /// The PMD that polls it; otherwise the one with the fewest ports.
    pub pmd: Option<usize>,
    /// It stands for a network card: what enters here is charged to the tenants that it is for, the
    /// owners of its megaflows, and to the port's own tenant only where there is none.
    pub uplink: bool,
    /// The address of the guest behind it: packets for it are known to be its tenant's before they
    /// are classified.
    pub mac: Option<MacAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_out_of_range_is_refused_by_name_and_what_is_not_set_follows_the_switch() {
        let scheduler = SchedulerConfig { cap_cycles: 12_345, ..SchedulerConfig::default() };
        let settings = TenantSettings::default();
        let knobs = settings.knobs(&scheduler).unwrap();
        assert_eq!((knobs.cap_cycles, knobs.mark_depth_cycles), (12_345, 12_345));
        let refused = |settings: TenantSettings| settings.knobs(&scheduler).unwrap_err().knob;
        let low_cap = TenantSettings { cap_cycles: Some(9_999), ..settings };
        assert_eq!(refused(low_cap), "cap_cycles");
        assert_eq!(refused(TenantSettings { exact_entries: Some(0), ..settings }), "exact_entries");
        assert_eq!(
            refused(TenantSettings { setups_per_second: 0, ..settings }),
            "setups_per_second"
        );
        assert_eq!(refused(TenantSettings { arena_bytes: 1, ..settings }), "arena_bytes");
    }
}
