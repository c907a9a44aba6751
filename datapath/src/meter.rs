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
