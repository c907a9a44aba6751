//! Meters: their bands, OFPT_METER_MOD (OF 1.3.5 §7.3.4.4) and what is told about them (§7.3.5.12
//! to §7.3.5.14).

use std::time::Duration;

use crate::error::{DecodeError, ErrorCode};
use crate::limits::METER_BANDS_MAX;
use crate::wire::{Pad, Reader, Writer, decode_duration, encode_duration};

/// Highest number of a meter.
pub const OFPM_MAX: u32 = 0xffff_0000;
/// All meters, in deletions and requests.
pub const OFPM_ALL: u32 = 0xffff_ffff;

/// `OFPMF_KBPS`: rates are in kbit/s.
pub const OFPMF_KBPS: u16 = 1;
/// `OFPMF_PKTPS`: rates are in packets per second.
pub const OFPMF_PKTPS: u16 = 1 << 1;
/// `OFPMF_BURST`: burst sizes are given.
pub const OFPMF_BURST: u16 = 1 << 2;
/// `OFPMF_STATS`: collect statistics.
pub const OFPMF_STATS: u16 = 1 << 3;

/// `OFPMBT_DROP`.
pub const OFPMBT_DROP: u16 = 1;
/// `OFPMBT_DSCP_REMARK`.
pub const OFPMBT_DSCP_REMARK: u16 = 2;

/// What a meter-mod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeterCommand {
    /// A new meter.
    Add = 0,
    /// Replace a meter.
    Modify = 1,
    /// Remove a meter, or all.
    Delete = 2,
}

/// What happens to packets beyond a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MeterBandKind {
    /// They are dropped.
    Drop,
    /// Their drop precedence is raised.
    DscpRemark {
        /// By how much.
        prec_level: u8,
    },
}

/// A band: from which rate on what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MeterBand {
    /// What happens.
    pub kind: MeterBandKind,
    /// Rate, in kbit/s or packets per second.
    pub rate: u32,
    /// Burst, in kbit or packets.
    pub burst_size: u32,
}

/// A meter as it was configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Its number.
    pub meter_id: u32,
    /// `OFPMF_*` bits.
    pub flags: u16,
    /// Its bands.
    pub bands: Vec<MeterBand>,
}

/// OFPT_METER_MOD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// What to do.
    pub command: MeterCommand,
    /// `OFPMF_*` bits.
    pub flags: u16,
    /// Which meter, or [`OFPM_ALL`] in deletions.
    pub meter_id: u32,
    /// Its bands.
    pub bands: Vec<MeterBand>,
}

impl MeterMod {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u16(self.command as u16);
        out.u16(self.flags);
        out.u32(self.meter_id);
        self.bands.iter().for_each(|band| band.encode(out));
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<MeterMod, DecodeError> {
        let command = match input.u16()? {
            0 => MeterCommand::Add,
            1 => MeterCommand::Modify,
            2 => MeterCommand::Delete,
            _ => {
                return Err(DecodeError::new(
                    ErrorCode::OFPMMFC_BAD_COMMAND,
                    "unknown meter-mod command",
                ));
            }
        };
        let flags = decode_flags(input)?;
        let meter_id = input.u32()?;
        let bands = decode_bands(Reader::new(input.rest(), ErrorCode::OFPBRC_BAD_LEN))?;
        Ok(MeterMod { command, flags, meter_id, bands })
    }
}

fn decode_flags(input: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let flags = input.u16()?;
    if flags & !(OFPMF_KBPS | OFPMF_PKTPS | OFPMF_BURST | OFPMF_STATS) != 0 {
        return Err(DecodeError::new(ErrorCode::OFPMMFC_BAD_FLAGS, "unknown meter flag"));
    }
    Ok(flags)
}

fn decode_bands(mut input: Reader<'_>) -> Result<Vec<MeterBand>, DecodeError> {
    let mut bands = Vec::new();
    while !input.is_empty() {
        if bands.len() == METER_BANDS_MAX {
            return Err(DecodeError::new(ErrorCode::OFPMMFC_OUT_OF_BANDS, "too many bands"));
        }
        bands.push(MeterBand::decode(&mut input)?);
    }
    Ok(bands)
}

impl MeterBand {
    fn encode(&self, out: &mut Writer) {
        let kind = match self.kind {
            MeterBandKind::Drop => OFPMBT_DROP,
            MeterBandKind::DscpRemark { .. } => OFPMBT_DSCP_REMARK,
        };
        out.element(kind, Pad::None, |out| {
            out.u32(self.rate);
            out.u32(self.burst_size);
            match self.kind {
                MeterBandKind::Drop => out.zeros(4),
                MeterBandKind::DscpRemark { prec_level } => {
                    out.u8(prec_level);
                    out.zeros(3);
                }
            }
        });
    }

    fn decode(input: &mut Reader<'_>) -> Result<MeterBand, DecodeError> {
        let (kind, mut body) = input.element(Pad::None)?;
        let rate = body.u32()?;
        let burst_size = body.u32()?;
        let kind = match kind {
            OFPMBT_DROP => {
                body.skip(4)?;
                MeterBandKind::Drop
            }
            OFPMBT_DSCP_REMARK => {
                let prec_level = body.u8()?;
                body.skip(3)?;
                MeterBandKind::DscpRemark { prec_level }
            }
            _ => {
                return Err(DecodeError::new(
                    ErrorCode::OFPMMFC_BAD_BAND,
                    "unsupported type of band",
                ));
            }
        };
        if !body.is_empty() {
            return Err(DecodeError::new(ErrorCode::OFPBRC_BAD_LEN, "band longer than its type"));
        }
        Ok(MeterBand { kind, rate, burst_size })
    }
}

impl MeterConfig {
    pub(crate) fn encode(&self, out: &mut Writer) {
        let start = out.len();
        out.u16(0);
        out.u16(self.flags);
        out.u32(self.meter_id);
        self.bands.iter().for_each(|band| band.encode(out));
        out.set_length(start, start);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<MeterConfig, DecodeError> {
        let mut body = sized(input, 2)?;
        let flags = decode_flags(&mut body)?;
        let meter_id = body.u32()?;
        Ok(MeterConfig { meter_id, flags, bands: decode_bands(body)? })
    }
}

/// The rest of a structure whose length was in the 16 bits after the first `before - 2` bytes.
fn sized<'a>(input: &mut Reader<'a>, before: usize) -> Result<Reader<'a>, DecodeError> {
    let length = usize::from(input.u16()?);
    let rest = length.checked_sub(before).ok_or(DecodeError::new(
        ErrorCode::OFPBRC_BAD_LEN,
        "an entry about a meter is shorter than its header",
    ))?;
    input.part(rest, ErrorCode::OFPBRC_BAD_LEN)
}

/// Counters of one band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterBandStats {
    /// Packets beyond its rate.
    pub packet_count: u64,
    /// Bytes beyond its rate.
    pub byte_count: u64,
}

/// Counters of one meter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Its number.
    pub meter_id: u32,
    /// Flows that use it.
    pub flow_count: u32,
    /// Packets that came.
    pub packet_in_count: u64,
    /// Bytes that came.
    pub byte_in_count: u64,
    /// How long it has existed.
    pub duration: Duration,
    /// Counters of its bands.
    pub bands: Vec<MeterBandStats>,
}

impl MeterStats {
    pub(crate) fn encode(&self, out: &mut Writer) {
        let start = out.len();
        out.u32(self.meter_id);
        out.u16(0);
        out.zeros(6);
        out.u32(self.flow_count);
        out.u64(self.packet_in_count);
        out.u64(self.byte_in_count);
        encode_duration(self.duration, out);
        for band in &self.bands {
            out.u64(band.packet_count);
            out.u64(band.byte_count);
        }
        out.set_length(start + 4, start);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<MeterStats, DecodeError> {
        let meter_id = input.u32()?;
        let mut body = sized(input, 6)?;
        body.skip(6)?;
        let mut stats = MeterStats {
            meter_id,
            flow_count: body.u32()?,
            packet_in_count: body.u64()?,
            byte_in_count: body.u64()?,
            duration: decode_duration(&mut body)?,
            bands: Vec::new(),
        };
        while !body.is_empty() {
            let band = MeterBandStats { packet_count: body.u64()?, byte_count: body.u64()? };
            stats.bands.push(band);
        }
        Ok(stats)
    }
}

/// What meters the switch can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterFeatures {
    /// How many.
    pub max_meter: u32,
    /// Bit n: bands of type n (`OFPMBT_*`).
    pub band_types: u32,
    /// `OFPMF_*` bits.
    pub capabilities: u32,
    /// Bands a meter can have.
    pub max_bands: u8,
    /// Colours.
    pub max_color: u8,
}

impl MeterFeatures {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.max_meter);
        out.u32(self.band_types);
        out.u32(self.capabilities);
        out.u8(self.max_bands);
        out.u8(self.max_color);
        out.zeros(2);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<MeterFeatures, DecodeError> {
        let features = MeterFeatures {
            max_meter: input.u32()?,
            band_types: input.u32()?,
            capabilities: input.u32()?,
            max_bands: input.u8()?,
            max_color: input.u8()?,
        };
        input.skip(2)?;
        Ok(features)
    }
}
