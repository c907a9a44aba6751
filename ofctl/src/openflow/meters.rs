//! `add-meter` and the other commands about meters.

use tollgate_openflow::Message;
use tollgate_openflow::meter::MeterCommand;
use tollgate_openflow::multipart::{MultipartReply, MultipartRequest};
use tollgate_openflow::text::{
    format_meter_config, format_meter_features, format_meter_stats, parse_meter, parse_meter_id,
    reply_heading,
};

use super::Session;
use super::connection::unexpected;
use crate::output::print;

/// Adds, changes or deletes a meter.
pub(super) fn change(
    mut session: Session<'_>,
    command: MeterCommand,
    meter: Option<&str>,
) -> anyhow::Result<()> {
    let meter = parse_meter(meter.unwrap_or_default(), command)?;
    session.connection.order(Message::MeterMod(Box::new(meter)))
}

pub(super) fn dump(mut session: Session<'_>, meter: Option<&str>) -> anyhow::Result<()> {
    let meter_id = parse_meter_id(meter.unwrap_or_default())?;
    let request = MultipartRequest::MeterConfig { meter_id };
    session.connection.multipart(request, |reply, xid, more| match reply {
        MultipartReply::MeterConfig(meters) => {
            let meters: Vec<String> = meters.iter().map(format_meter_config).collect();
            let heading = reply_heading("OFPST_METER_CONFIG reply", xid, more);
            Ok(print(&format!("{heading}\n{}", meters.join("\n")))?)
        }
        _ => Err(unexpected()),
    })
}

pub(super) fn stats(mut session: Session<'_>, meter: Option<&str>) -> anyhow::Result<()> {
    let meter_id = parse_meter_id(meter.unwrap_or_default())?;
    session.connection.multipart(MultipartRequest::Meter { meter_id }, |reply, xid, more| {
        match reply {
            MultipartReply::Meter(meters) => {
                let meters: Vec<String> = meters.iter().map(format_meter_stats).collect();
                let heading = reply_heading("OFPST_METER reply", xid, more);
                Ok(print(&format!("{heading}\n{}", meters.join("\n")))?)
            }
            _ => Err(unexpected()),
        }
    })
}

pub(super) fn features(mut session: Session<'_>) -> anyhow::Result<()> {
    session.connection.multipart(MultipartRequest::MeterFeatures, |reply, xid, more| match reply {
        MultipartReply::MeterFeatures(features) => {
            let heading = reply_heading("OFPST_METER_FEATURES reply", xid, more);
            Ok(print(&format!("{heading}\n{}", format_meter_features(&features)))?)
        }
        _ => Err(unexpected()),
    })
}
