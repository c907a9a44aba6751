//! Meters (OpenFlow 1.3.5, section 5.7): rates beyond which packets are dropped, kept packet by
//! packet and shared by all PMDs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::MAX_METER_BANDS;
use crate::token_bucket::TokenBucket;

/// What a meter's rates and bursts count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Packets per second; packets.
    Packets,
    /// Kilobits (1000 bits) per second; kilobits. Frames count as received, without FCS.
    Kilobits,
}

/// A rate and what is done beyond it: the packet is dropped, the one type of band there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// In the meter's unit, per second; 0 lets the burst through and then nothing.
    pub rate: u32,
    /// In the meter's unit: what may pass at once after a pause. 0 means as much as in one second,
    /// as in Open vSwitch.
    pub burst: u32,
}

/// What a meter is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// What the bands count.
    pub unit: MeterUnit,
    /// At most [`MAX_METER_BANDS`].
    pub bands: Vec<MeterBand>,
}

/// Why a meter was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a meter has at most {MAX_METER_BANDS} bands")]
pub struct TooManyBands;

/// A meter that packets pass through, on any PMD.
#[derive(Debug)]
pub struct Meter {
    unit: MeterUnit,
    bands: Box<[Band]>,
    passed: Tally,
}

#[derive(Debug)]
struct Band {
    rate: u32,
    bucket: TokenBucket,
    exceeded: Tally,
}

/// Counted by every PMD that meets the meter.
#[derive(Debug, Default)]
struct Tally {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// A meter's counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Packets that came to the meter, those that it dropped included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What each band has dropped, in the order of [`MeterConfig::bands`].
    pub bands: Vec<BandStats>,
}

/// What one band has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandStats {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Tokens of one packet, so that a part of one is kept.
const TOKENS_PER_PACKET: u64 = 256;

/// Tokens of one kilobit: a token is a byte.
const TOKENS_PER_KILOBIT: u64 = 125;

impl Meter {
    /// A meter with full buckets. `tsc_hz` is the frequency of the clock that `now_tsc` and the
    /// PMDs read.
    ///
    /// # Errors
    /// When there are too many bands.
    pub fn new(config: &MeterConfig, tsc_hz: u64, now_tsc: u64) -> Result<Self, TooManyBands> {
        if config.bands.len() > MAX_METER_BANDS {
            return Err(TooManyBands);
        }
        let tokens = match config.unit {
            MeterUnit::Packets => TOKENS_PER_PACKET,
            MeterUnit::Kilobits => TOKENS_PER_KILOBIT,
        };
        let band = |band: &MeterBand| {
            let burst = if band.burst == 0 { band.rate } else { band.burst };
            let (rate, burst) = (u64::from(band.rate) * tokens, u64::from(burst) * tokens);
            Band {
                rate: band.rate,
                bucket: TokenBucket::new(rate, burst, tsc_hz, now_tsc),
                exceeded: Tally::default(),
            }
        };
        let bands = config.bands.iter().map(band).collect();
        Ok(Self { unit: config.unit, bands, passed: Tally::default() })
    }

    /// Counts a packet and says whether it may pass. Where it exceeds several bands, the one with
    /// the highest rate applies (OpenFlow 1.3.5, section 5.7.1).
    #[inline]
    pub fn admit(&self, frame_bytes: u32, now_tsc: u64) -> bool {
        let bytes = u64::from(frame_bytes);
        self.passed.add(bytes);
        let tokens = match self.unit {
            MeterUnit::Packets => TOKENS_PER_PACKET,
            MeterUnit::Kilobits => bytes,
        };
        // A band that is not exceeded measures the packet also when another one drops it.
        let exceeded = self.bands.iter().filter(|band| !band.bucket.take(tokens, now_tsc));
        match exceeded.max_by_key(|band| band.rate) {
            None => true,
            Some(band) => {
                band.exceeded.add(bytes);
                false
            }
        }
    }

    /// Its counters now.
    pub fn stats(&self) -> MeterStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bands = self.bands.iter().map(|band| BandStats {
            packets: load(&band.exceeded.packets),
            bytes: load(&band.exceeded.bytes),
        });
        MeterStats {
            packets: load(&self.passed.packets),
            bytes: load(&self.passed.bytes),
            bands: bands.collect(),
        }
    }
}

impl Tally {
    #[inline]
    fn add(&self, bytes: u64) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 3_000_000_000;

    fn meter(unit: MeterUnit, bands: &[(u32, u32)]) -> Meter {
        let bands = bands.iter().map(|(rate, burst)| MeterBand { rate: *rate, burst: *burst });
        Meter::new(&MeterConfig { unit, bands: bands.collect() }, HZ, 0).unwrap()
    }

    /// Packets that pass of `offered_pps` for `seconds`, evenly spaced.
    fn passed(meter: &Meter, frame_bytes: u32, offered_pps: u64, seconds: u64) -> u64 {
        let sent = 0..offered_pps * seconds;
        let at_tsc =
            |packet: u64| (u128::from(packet) * u128::from(HZ) / u128::from(offered_pps)) as u64;
        sent.filter(|packet| meter.admit(frame_bytes, at_tsc(*packet))).count() as u64
    }

    #[test]
    fn packets_beyond_the_rate_are_dropped_one_by_one() {
        for (rate, burst) in [(1, 1), (333, 10), (1000, 2), (9999, 5000)] {
            let meter = meter(MeterUnit::Packets, &[(rate, burst)]);
            let expected = u64::from(burst) + 20 * u64::from(rate);
            let passed = passed(&meter, 64, 50_021, 20);
            assert!(passed.abs_diff(expected) <= 1, "{rate} pps: {passed} instead of {expected}");
        }
    }

    #[test]
    fn kilobits_are_counted_in_bytes_of_frames() {
        for (rate_kbps, burst_kbit, frame_bytes) in
            [(8, 8, 64), (1000, 100, 1500), (10_000, 50, 61)]
        {
            let meter = meter(MeterUnit::Kilobits, &[(rate_kbps, burst_kbit)]);
            let budget_bytes = 125 * (u64::from(burst_kbit) + 10 * u64::from(rate_kbps));
            let passed = passed(&meter, frame_bytes, 40_013, 10);
            let expected = budget_bytes / u64::from(frame_bytes);
            assert!(passed.abs_diff(expected) <= 1, "{rate_kbps}: {passed} instead of {expected}");
        }
    }

    #[test]
    fn without_a_burst_a_second_of_the_rate_may_come_at_once() {
        let meter = meter(MeterUnit::Packets, &[(100, 0)]);
        assert_eq!((0..1000).filter(|_| meter.admit(64, 7)).count(), 100);
        // A frame that the burst has no room for never passes.
        let meter = self::meter(MeterUnit::Kilobits, &[(1, 0)]);
        assert!(meter.admit(125, 0) && !meter.admit(126, HZ) && meter.admit(125, HZ));
    }

    #[test]
    fn the_band_with_the_highest_rate_exceeded_applies() {
        let meter = meter(MeterUnit::Packets, &[(10, 3), (30, 6), (20, 4)]);
        assert_eq!((0..12).filter(|_| meter.admit(106, 0)).count(), 3);
        // The first band is exceeded from the fourth packet on, the third from the fifth, the second
        // from the seventh: each measures what is offered, whatever another band drops. Open vSwitch
        // 3.1 counts the same.
        let stats = meter.stats();
        let dropped: Vec<_> = stats.bands.iter().map(|band| (band.packets, band.bytes)).collect();
        assert_eq!(dropped, [(1, 106), (6, 636), (2, 212)]);
        assert_eq!((stats.packets, stats.bytes), (12, 1272));
    }

    #[test]
    fn a_meter_without_bands_only_counts_and_bands_are_limited() {
        let meter = meter(MeterUnit::Packets, &[]);
        assert!((0..100).all(|now| meter.admit(64, now)));
        assert_eq!(meter.stats().packets, 100);
        let band = MeterBand { rate: 1, burst: 1 };
        let config = |bands| MeterConfig { unit: MeterUnit::Packets, bands: vec![band; bands] };
        assert!(Meter::new(&config(MAX_METER_BANDS), HZ, 0).is_ok());
        assert_eq!(Meter::new(&config(MAX_METER_BANDS + 1), HZ, 0).unwrap_err(), TooManyBands);
    }
}
