//! The meters of a bridge (OpenFlow 1.3.5, sections 5.7 and 7.3.4.4).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_datapath::limits::MAX_METER_BANDS;
use tollgate_datapath::{self as datapath, Meter, MeterUnit};
use tollgate_openflow::ErrorCode;
use tollgate_openflow::meter::{
    MeterBandKind, MeterBandStats, MeterConfig, MeterFeatures, MeterMod, MeterStats, OFPM_ALL,
    OFPM_MAX, OFPMBT_DROP, OFPMF_BURST, OFPMF_KBPS, OFPMF_PKTPS, OFPMF_STATS,
};

use super::error::FlowError;
use super::limits::METERS_PER_BRIDGE;
use super::rule::Rule;

pub(super) const INVALID: FlowError =
    FlowError::new(ErrorCode::OFPMMFC_INVALID_METER, "there is no such meter");
const UNKNOWN: FlowError =
    FlowError::new(ErrorCode::OFPMMFC_UNKNOWN_METER, "there is no such meter");
const OUT_OF_BANDS: FlowError =
    FlowError::new(ErrorCode::OFPMMFC_OUT_OF_BANDS, "a meter has at most eight bands");

/// By number.
#[derive(Debug, Default)]
pub(super) struct Meters(BTreeMap<u32, Entry>);

#[derive(Debug)]
struct Entry {
    config: MeterConfig,
    meter: Arc<Meter>,
    created_ms: u64,
    flows: u32,
}

/// The clock that meters are kept by.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeterClock {
    pub(super) tsc_hz: u64,
    pub(super) now_tsc: u64,
}

impl Meters {
    pub(super) fn get(&self, id: u32) -> Option<&Arc<Meter>> {
        self.0.get(&id).map(|entry| &entry.meter)
    }

    /// Rules that use a meter, or all that use one.
    pub(super) fn flows(&self, id: u32) -> u32 {
        self.selected(id).map(|(_, entry)| entry.flows).sum()
    }

    pub(super) fn rule_added(&mut self, rule: &Rule) {
        if let Some(entry) = rule.program().meter.and_then(|id| self.0.get_mut(&id)) {
            entry.flows += 1;
        }
    }

    pub(super) fn rule_removed(&mut self, rule: &Rule) {
        if let Some(entry) = rule.program().meter.and_then(|id| self.0.get_mut(&id)) {
            entry.flows -= 1;
        }
    }

    pub(super) fn add(
        &mut self,
        request: &MeterMod,
        clock: MeterClock,
        now_ms: u64,
    ) -> Result<(), FlowError> {
        let (config, meter) = make(request, clock)?;
        if self.0.contains_key(&config.meter_id) {
            return Err(FlowError::new(
                ErrorCode::OFPMMFC_METER_EXISTS,
                "there is a meter of that number already",
            ));
        }
        if self.0.len() >= METERS_PER_BRIDGE {
            return Err(FlowError::new(
                ErrorCode::OFPMMFC_OUT_OF_METERS,
                "the bridge has too many meters",
            ));
        }
        let entry = Entry { config, meter: Arc::new(meter), created_ms: now_ms, flows: 0 };
        self.0.insert(entry.config.meter_id, entry);
        Ok(())
    }

    /// Puts another meter in a meter's place: its counters and buckets begin anew, as in Open
    /// vSwitch.
    pub(super) fn modify(
        &mut self,
        request: &MeterMod,
        clock: MeterClock,
    ) -> Result<(), FlowError> {
        let (config, meter) = make(request, clock)?;
        let entry = self.0.get_mut(&config.meter_id).ok_or(UNKNOWN)?;
        (entry.config, entry.meter) = (config, Arc::new(meter));
        Ok(())
    }

    /// Removes a meter or all; it is no error if there is none.
    pub(super) fn remove(&mut self, id: u32) {
        if id == OFPM_ALL {
            self.0.clear();
        } else {
            self.0.remove(&id);
        }
    }

    pub(super) fn configs(&self, id: u32) -> Result<Vec<MeterConfig>, FlowError> {
        self.check(id)?;
        Ok(self.selected(id).map(|(_, entry)| entry.config.clone()).collect())
    }

    pub(super) fn stats(&self, id: u32, now_ms: u64) -> Result<Vec<MeterStats>, FlowError> {
        self.check(id)?;
        Ok(self.selected(id).map(|(id, entry)| entry.stats(*id, now_ms)).collect())
    }

    fn check(&self, id: u32) -> Result<(), FlowError> {
        if id == OFPM_ALL || self.0.contains_key(&id) { Ok(()) } else { Err(UNKNOWN) }
    }

    fn selected(&self, id: u32) -> impl Iterator<Item = (&u32, &Entry)> {
        let range = if id == OFPM_ALL { 0..=OFPM_MAX } else { id..=id };
        self.0.range(range)
    }
}

impl Entry {
    fn stats(&self, meter_id: u32, now_ms: u64) -> MeterStats {
        let stats = self.meter.stats();
        let band = |band: &datapath::BandStats| MeterBandStats {
            packet_count: band.packets,
            byte_count: band.bytes,
        };
        MeterStats {
            meter_id,
            flow_count: self.flows,
            packet_in_count: stats.packets,
            byte_in_count: stats.bytes,
            duration: Duration::from_millis(now_ms.saturating_sub(self.created_ms)),
            bands: stats.bands.iter().map(band).collect(),
        }
    }
}

/// What meters a bridge can have.
pub fn meter_features() -> MeterFeatures {
    MeterFeatures {
        max_meter: METERS_PER_BRIDGE as u32,
        band_types: 1 << OFPMBT_DROP,
        capabilities: (OFPMF_KBPS | OFPMF_PKTPS | OFPMF_BURST | OFPMF_STATS).into(),
        max_bands: MAX_METER_BANDS as u8,
        max_color: 0,
    }
}

fn make(request: &MeterMod, clock: MeterClock) -> Result<(MeterConfig, Meter), FlowError> {
    let &MeterMod { flags, meter_id, ref bands, .. } = request;
    if !(1..=OFPM_MAX).contains(&meter_id) {
        return Err(INVALID);
    }
    if bands.len() > MAX_METER_BANDS {
        return Err(OUT_OF_BANDS);
    }
    if flags & OFPMF_KBPS != 0 && flags & OFPMF_PKTPS != 0 {
        return Err(FlowError::new(
            ErrorCode::OFPMMFC_BAD_FLAGS,
            "a meter counts either kilobits or packets",
        ));
    }
    if bands.iter().any(|band| band.kind != MeterBandKind::Drop) {
        return Err(FlowError::new(
            ErrorCode::OFPMMFC_BAD_BAND,
            "the only bands that are supported drop packets",
        ));
    }
    let unit = if flags & OFPMF_PKTPS == 0 { MeterUnit::Kilobits } else { MeterUnit::Packets };
    let has_burst = flags & OFPMF_BURST != 0;
    let band = |band: &tollgate_openflow::meter::MeterBand| datapath::MeterBand {
        rate: band.rate,
        burst: if has_burst { band.burst_size } else { 0 },
    };
    let config = datapath::MeterConfig { unit, bands: bands.iter().map(band).collect() };
    let meter = Meter::new(&config, clock.tsc_hz, clock.now_tsc).map_err(|_| OUT_OF_BANDS)?;
    Ok((MeterConfig { meter_id, flags, bands: bands.clone() }, meter))
}
