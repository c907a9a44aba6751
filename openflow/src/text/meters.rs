//! Meters as text: what `add-meter` reads and `dump-meters`, `meter-stats` and `meter-features`
//! print.

use super::error::ParseError;
use super::format::format_duration;
use super::lexer::{Item, Lexer};
use super::suggest::nearest;
use super::value::parse_number;
use crate::limits::METER_BANDS_MAX;
use crate::meter::{
    MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterFeatures, MeterMod, MeterStats,
    OFPM_ALL, OFPM_MAX, OFPMBT_DROP, OFPMBT_DSCP_REMARK, OFPMF_BURST, OFPMF_KBPS, OFPMF_PKTPS,
    OFPMF_STATS,
};

/// The flags of a meter and their names, in the order in which they are printed.
const FLAGS: [(u16, &str); 4] =
    [(OFPMF_KBPS, "kbps"), (OFPMF_PKTPS, "pktps"), (OFPMF_BURST, "burst"), (OFPMF_STATS, "stats")];

/// Reads `meter=ID,kbps|pktps[,burst][,stats],bands=type=drop,rate=N[,burst_size=N]`; several
/// bands follow one another.
pub fn parse_meter(text: &str, command: MeterCommand) -> Result<MeterMod, ParseError> {
    if command == MeterCommand::Delete {
        return Ok(MeterMod { command, flags: 0, meter_id: parse_meter_id(text)?, bands: vec![] });
    }
    let mut meter = MeterMod { command, flags: 0, meter_id: 0, bands: Vec::new() };
    let mut bands = None;
    let mut lexer = Lexer::new(text);
    loop {
        let before = lexer.rest();
        let Some(Item { key, value }) = lexer.next()? else { break };
        match (key, value) {
            ("meter", Some(value)) => meter.meter_id = meter_number(value)?,
            ("band" | "bands", Some(_)) => {
                bands = before.split_once('=').map(|(_, bands)| bands);
                break;
            }
            _ => match FLAGS.iter().find(|(_, name)| *name == key) {
                Some((flag, _)) if value.is_none() => meter.flags |= flag,
                _ => {
                    return Err(unknown(
                        key,
                        &["meter", "kbps", "pktps", "burst", "stats", "bands"],
                    ));
                }
            },
        }
    }
    if meter.meter_id == 0 {
        return Err(ParseError::new("a meter needs a number: meter=ID"));
    }
    match meter.flags & (OFPMF_KBPS | OFPMF_PKTPS) {
        OFPMF_KBPS | OFPMF_PKTPS => {}
        _ => return Err(ParseError::new("a meter needs a unit: either kbps or pktps")),
    }
    let bands = bands.unwrap_or_default();
    meter.bands = parse_bands(bands, meter.flags & OFPMF_BURST != 0)?;
    Ok(meter)
}

/// Reads `meter=ID` or `meter=all`; an empty text means all.
pub fn parse_meter_id(text: &str) -> Result<u32, ParseError> {
    let mut lexer = Lexer::new(text);
    let mut meter_id = OFPM_ALL;
    while let Some(Item { key, value }) = lexer.next()? {
        meter_id = match (key, value) {
            ("meter", Some("all")) => OFPM_ALL,
            ("meter", Some(value)) => meter_number(value)?,
            _ => return Err(ParseError::new(format!("{key}: expected meter=ID or meter=all"))),
        };
    }
    Ok(meter_id)
}

fn meter_number(text: &str) -> Result<u32, ParseError> {
    match parse_number("meter", text, u128::from(OFPM_MAX))? as u32 {
        0 => Err(ParseError::value("meter", text, &format!("a number from 1 to {OFPM_MAX}"))),
        number => Ok(number),
    }
}

fn unknown(key: &str, known: &[&str]) -> ParseError {
    ParseError::new(match nearest(key, known.iter().copied()) {
        Some(meant) if meant != key => format!("unknown keyword {key}; did you mean {meant}?"),
        Some(_) => format!("{key} is written without a value, or needs one"),
        None => format!("unknown keyword {key}"),
    })
}

fn parse_bands(text: &str, burst: bool) -> Result<Vec<MeterBand>, ParseError> {
    let mut bands: Vec<MeterBand> = Vec::new();
    let mut lexer = Lexer::new(text);
    while let Some(Item { key, value }) = lexer.next()? {
        let value = value.unwrap_or_default();
        if key == "type" {
            let kind = match value {
                "drop" => MeterBandKind::Drop,
                "dscp_remark" => MeterBandKind::DscpRemark { prec_level: 0 },
                _ => return Err(ParseError::value(key, value, "drop or dscp_remark")),
            };
            bands.push(MeterBand { kind, rate: 0, burst_size: 0 });
            continue;
        }
        let Some(band) = bands.last_mut() else {
            return Err(ParseError::new("a band begins with its type: bands=type=drop,rate=N"));
        };
        let number = |max: u128| parse_number(key, value, max);
        match (key, &mut band.kind) {
            ("rate", _) => band.rate = number(u128::from(u32::MAX))? as u32,
            ("burst_size", _) => band.burst_size = number(u128::from(u32::MAX))? as u32,
            ("prec_level", MeterBandKind::DscpRemark { prec_level }) => {
                *prec_level = number(255)? as u8;
            }
            ("prec_level", MeterBandKind::Drop) => {
                return Err(ParseError::new("prec_level is for bands of type=dscp_remark"));
            }
            _ => return Err(unknown(key, &["type", "rate", "burst_size", "prec_level"])),
        }
    }
    if bands.is_empty() {
        return Err(ParseError::new("a meter needs bands: bands=type=drop,rate=N"));
    }
    if bands.len() > METER_BANDS_MAX {
        return Err(ParseError::new(format!("a meter has at most {METER_BANDS_MAX} bands")));
    }
    bands.iter().try_for_each(|band| check_band(band, burst))?;
    Ok(bands)
}

fn check_band(band: &MeterBand, burst: bool) -> Result<(), ParseError> {
    Err(ParseError::new(match band {
        MeterBand { rate: 0, .. } => "a band needs a rate of at least 1: rate=N",
        MeterBand { kind: MeterBandKind::DscpRemark { prec_level: 0 }, .. } => {
            "a band of type=dscp_remark needs a prec_level"
        }
        MeterBand { burst_size: 0, .. } if burst => {
            "with burst each band needs a burst_size of at least 1"
        }
        MeterBand { burst_size: 1.., .. } if !burst => {
            "burst_size needs the word burst before the bands"
        }
        _ => return Ok(()),
    }))
}

/// One meter of `dump-meters`, two lines or more.
pub fn format_meter_config(meter: &MeterConfig) -> String {
    let flags = FLAGS.iter().filter(|(flag, _)| meter.flags & flag != 0);
    let flags: String = flags.map(|(_, name)| format!("{name} ")).collect();
    let mut text = format!("meter={} {flags}bands=\n", format_meter_id(meter.meter_id));
    for band in &meter.bands {
        let kind = match band.kind {
            MeterBandKind::Drop => "drop",
            MeterBandKind::DscpRemark { .. } => "dscp_remark",
        };
        text += &format!("type={kind} rate={}", band.rate);
        if meter.flags & OFPMF_BURST != 0 {
            text += &format!(" burst_size={}", band.burst_size);
        }
        if let MeterBandKind::DscpRemark { prec_level } = band.kind {
            text += &format!(" prec_level={prec_level}");
        }
        text.push('\n');
    }
    text
}

/// The reserved meters have names.
fn format_meter_id(meter_id: u32) -> String {
    match meter_id {
        0xffff_fffd => "slowpath".to_owned(),
        0xffff_fffe => "controller".to_owned(),
        OFPM_ALL => "all".to_owned(),
        number => number.to_string(),
    }
}

/// One meter of `meter-stats`, two lines or more.
pub fn format_meter_stats(stats: &MeterStats) -> String {
    let mut text = format!(
        "meter:{} flow_count:{} packet_in_count:{} byte_in_count:{} duration:{} bands:\n",
        format_meter_id(stats.meter_id),
        stats.flow_count,
        stats.packet_in_count,
        stats.byte_in_count,
        format_duration(stats.duration)
    );
    for (index, band) in stats.bands.iter().enumerate() {
        text += &format!(
            "{index}: packet_count:{} byte_count:{}\n",
            band.packet_count, band.byte_count
        );
    }
    text
}

/// `meter-features`, below its heading.
pub fn format_meter_features(features: &MeterFeatures) -> String {
    let types = [(OFPMBT_DROP, "drop"), (OFPMBT_DSCP_REMARK, "dscp_remark")];
    let names = |set: u32, names: &mut dyn Iterator<Item = (u32, &'static str)>| -> String {
        names.filter(|(bit, _)| set & bit != 0).map(|(_, name)| format!(" {name}")).collect()
    };
    format!(
        "max_meter:{} max_bands:{} max_color:{}\nband_types:{}\ncapabilities:{}\n",
        features.max_meter,
        features.max_bands,
        features.max_color,
        names(features.band_types, &mut types.into_iter().map(|(bit, name)| (1 << bit, name))),
        names(
            features.capabilities,
            &mut FLAGS.into_iter().map(|(flag, name)| (u32::from(flag), name))
        )
    )
}
