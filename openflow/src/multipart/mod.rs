//! OFPT_MULTIPART_REQUEST and OFPT_MULTIPART_REPLY (OF 1.3.5 §7.3.5).

mod flow;
mod stats;

pub use flow::{AggregateStats, FlowStats, FlowStatsRequest};
pub use stats::{COUNTER_UNSUPPORTED, DescStats, PortStats, TableStats};

use crate::error::{DecodeError, ErrorCode};
use crate::group::GroupFeatures;
use crate::limits::MESSAGE_MAX_BYTES;
use crate::meter::{MeterConfig, MeterFeatures, MeterStats};
use crate::port::PortDesc;
use crate::queue::QueueStats;
use crate::table_features::TableFeatures;
use crate::wire::{Reader, Writer};

const OFPMP_DESC: u16 = 0;
const OFPMP_FLOW: u16 = 1;
const OFPMP_AGGREGATE: u16 = 2;
const OFPMP_TABLE: u16 = 3;
const OFPMP_PORT_STATS: u16 = 4;
const OFPMP_QUEUE: u16 = 5;
const OFPMP_GROUP: u16 = 6;
const OFPMP_GROUP_DESC: u16 = 7;
const OFPMP_GROUP_FEATURES: u16 = 8;
const OFPMP_METER: u16 = 9;
const OFPMP_METER_CONFIG: u16 = 10;
const OFPMP_METER_FEATURES: u16 = 11;
const OFPMP_TABLE_FEATURES: u16 = 12;
const OFPMP_PORT_DESC: u16 = 13;
const OFPMP_EXPERIMENTER: u16 = 0xffff;

/// `OFPMPF_REQ_MORE` and `OFPMPF_REPLY_MORE`.
const MORE: u16 = 1;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequest {
    /// Who made the switch.
    Desc,
    /// Flows with their counters.
    Flow(FlowStatsRequest),
    /// The sum of the counters of flows.
    Aggregate(FlowStatsRequest),
    /// Counters of the tables.
    Table,
    /// Counters of one port, or of all with `OFPP_ANY`.
    PortStats {
        /// OpenFlow port number.
        port_no: u32,
    },
    /// Counters of queues.
    Queue {
        /// OpenFlow port number, or `OFPP_ANY`.
        port_no: u32,
        /// Queue of the port, or `OFPQ_ALL`.
        queue_id: u32,
    },
    /// Counters of one group, or of all with `OFPG_ALL`.
    Group {
        /// Which.
        group_id: u32,
    },
    /// The groups as they were configured.
    GroupDesc,
    /// What groups the switch can have.
    GroupFeatures,
    /// Counters of one meter, or of all with `OFPM_ALL`.
    Meter {
        /// Which.
        meter_id: u32,
    },
    /// One meter as it was configured, or all with `OFPM_ALL`.
    MeterConfig {
        /// Which.
        meter_id: u32,
    },
    /// What meters the switch can have.
    MeterFeatures,
    /// What the tables can do. A body would ask to change it.
    TableFeatures(Vec<TableFeatures>),
    /// The ports.
    PortDesc,
}

/// What a switch answers. Lists may be spread over several messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartReply {
    /// Who made the switch.
    Desc(DescStats),
    /// Flows with their counters.
    Flow(Vec<FlowStats>),
    /// The sum of the counters of flows.
    Aggregate(AggregateStats),
    /// Counters of the tables.
    Table(Vec<TableStats>),
    /// Counters of ports.
    PortStats(Vec<PortStats>),
    /// Counters of queues.
    Queue(Vec<QueueStats>),
    /// Counters of groups, as they stand on the wire.
    Group(Vec<u8>),
    /// Groups, as they stand on the wire.
    GroupDesc(Vec<u8>),
    /// What groups the switch can have.
    GroupFeatures(GroupFeatures),
    /// Counters of meters.
    Meter(Vec<MeterStats>),
    /// Meters as they were configured.
    MeterConfig(Vec<MeterConfig>),
    /// What meters the switch can have.
    MeterFeatures(MeterFeatures),
    /// What the tables can do.
    TableFeatures(Vec<TableFeatures>),
    /// The ports.
    PortDesc(Vec<PortDesc>),
}

impl MultipartRequest {
    fn kind(&self) -> u16 {
        match self {
            MultipartRequest::Desc => OFPMP_DESC,
            MultipartRequest::Flow(_) => OFPMP_FLOW,
            MultipartRequest::Aggregate(_) => OFPMP_AGGREGATE,
            MultipartRequest::Table => OFPMP_TABLE,
            MultipartRequest::PortStats { .. } => OFPMP_PORT_STATS,
            MultipartRequest::Queue { .. } => OFPMP_QUEUE,
            MultipartRequest::Group { .. } => OFPMP_GROUP,
            MultipartRequest::GroupDesc => OFPMP_GROUP_DESC,
            MultipartRequest::GroupFeatures => OFPMP_GROUP_FEATURES,
            MultipartRequest::Meter { .. } => OFPMP_METER,
            MultipartRequest::MeterConfig { .. } => OFPMP_METER_CONFIG,
            MultipartRequest::MeterFeatures => OFPMP_METER_FEATURES,
            MultipartRequest::TableFeatures(_) => OFPMP_TABLE_FEATURES,
            MultipartRequest::PortDesc => OFPMP_PORT_DESC,
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        multipart_header(self.kind(), false, out);
        match self {
            MultipartRequest::Desc
            | MultipartRequest::Table
            | MultipartRequest::GroupDesc
            | MultipartRequest::GroupFeatures
            | MultipartRequest::MeterFeatures
            | MultipartRequest::PortDesc => {}
            MultipartRequest::Flow(request) | MultipartRequest::Aggregate(request) => {
                request.encode(out);
            }
            MultipartRequest::PortStats { port_no: which }
            | MultipartRequest::Group { group_id: which }
            | MultipartRequest::Meter { meter_id: which }
            | MultipartRequest::MeterConfig { meter_id: which } => {
                out.u32(*which);
                out.zeros(4);
            }
            MultipartRequest::Queue { port_no, queue_id } => {
                out.u32(*port_no);
                out.u32(*queue_id);
            }
            MultipartRequest::TableFeatures(tables) => {
                tables.iter().for_each(|table| table.encode(out));
            }
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<MultipartRequest, DecodeError> {
        let (kind, more) = decode_header(input)?;
        if more {
            return Err(DecodeError::new(
                ErrorCode::OFPBRC_MULTIPART_BUFFER_OVERFLOW,
                "requests in several parts are not supported",
            ));
        }
        Ok(match kind {
            OFPMP_DESC => MultipartRequest::Desc,
            OFPMP_FLOW => MultipartRequest::Flow(FlowStatsRequest::decode(input)?),
            OFPMP_AGGREGATE => MultipartRequest::Aggregate(FlowStatsRequest::decode(input)?),
            OFPMP_TABLE => MultipartRequest::Table,
            OFPMP_PORT_STATS => MultipartRequest::PortStats { port_no: padded(input)? },
            OFPMP_QUEUE => {
                MultipartRequest::Queue { port_no: input.u32()?, queue_id: input.u32()? }
            }
            OFPMP_GROUP => MultipartRequest::Group { group_id: padded(input)? },
            OFPMP_GROUP_DESC => MultipartRequest::GroupDesc,
            OFPMP_GROUP_FEATURES => MultipartRequest::GroupFeatures,
            OFPMP_METER => MultipartRequest::Meter { meter_id: padded(input)? },
            OFPMP_METER_CONFIG => MultipartRequest::MeterConfig { meter_id: padded(input)? },
            OFPMP_METER_FEATURES => MultipartRequest::MeterFeatures,
            OFPMP_TABLE_FEATURES => {
                MultipartRequest::TableFeatures(list(input, TableFeatures::decode)?)
            }
            OFPMP_PORT_DESC => MultipartRequest::PortDesc,
            other => return Err(unsupported(other)),
        })
    }
}

impl MultipartReply {
    fn kind(&self) -> u16 {
        match self {
            MultipartReply::Desc(_) => OFPMP_DESC,
            MultipartReply::Flow(_) => OFPMP_FLOW,
            MultipartReply::Aggregate(_) => OFPMP_AGGREGATE,
            MultipartReply::Table(_) => OFPMP_TABLE,
            MultipartReply::PortStats(_) => OFPMP_PORT_STATS,
            MultipartReply::Queue(_) => OFPMP_QUEUE,
            MultipartReply::Group(_) => OFPMP_GROUP,
            MultipartReply::GroupDesc(_) => OFPMP_GROUP_DESC,
            MultipartReply::GroupFeatures(_) => OFPMP_GROUP_FEATURES,
            MultipartReply::Meter(_) => OFPMP_METER,
            MultipartReply::MeterConfig(_) => OFPMP_METER_CONFIG,
            MultipartReply::MeterFeatures(_) => OFPMP_METER_FEATURES,
            MultipartReply::TableFeatures(_) => OFPMP_TABLE_FEATURES,
            MultipartReply::PortDesc(_) => OFPMP_PORT_DESC,
        }
    }

    /// The reply as the bodies of one or more messages, each within the length of a message; all
    /// but the last say that more follow, and the last one says `more`.
    pub(crate) fn encode_parts(&self, more: bool) -> Vec<Vec<u8>> {
        let mut parts = Parts { kind: self.kind(), full: Vec::new(), open: Writer::default() };
        multipart_header(parts.kind, more, &mut parts.open);
        match self {
            MultipartReply::Desc(desc) => desc.encode(&mut parts.open),
            MultipartReply::Aggregate(aggregate) => aggregate.encode(&mut parts.open),
            MultipartReply::Flow(flows) => parts.list(flows, more, FlowStats::encode),
            MultipartReply::Table(tables) => parts.list(tables, more, TableStats::encode),
            MultipartReply::PortStats(ports) => parts.list(ports, more, PortStats::encode),
            MultipartReply::Queue(queues) => parts.list(queues, more, QueueStats::encode),
            MultipartReply::Group(entries) | MultipartReply::GroupDesc(entries) => {
                parts.open.put(entries);
            }
            MultipartReply::GroupFeatures(features) => features.encode(&mut parts.open),
            MultipartReply::Meter(meters) => parts.list(meters, more, MeterStats::encode),
            MultipartReply::MeterConfig(meters) => parts.list(meters, more, MeterConfig::encode),
            MultipartReply::MeterFeatures(features) => features.encode(&mut parts.open),
            MultipartReply::TableFeatures(all) => parts.list(all, more, TableFeatures::encode),
            MultipartReply::PortDesc(ports) => parts.list(ports, more, PortDesc::encode),
        }
        parts.full.push(parts.open.bytes);
        parts.full
    }

    /// Reads one part of a reply; whether more follow comes with it.
    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<(MultipartReply, bool), DecodeError> {
        let (kind, more) = decode_header(input)?;
        let reply = match kind {
            OFPMP_DESC => MultipartReply::Desc(DescStats::decode(input)?),
            OFPMP_FLOW => MultipartReply::Flow(list(input, FlowStats::decode)?),
            OFPMP_AGGREGATE => MultipartReply::Aggregate(AggregateStats::decode(input)?),
            OFPMP_TABLE => MultipartReply::Table(list(input, TableStats::decode)?),
            OFPMP_PORT_STATS => MultipartReply::PortStats(list(input, PortStats::decode)?),
            OFPMP_QUEUE => MultipartReply::Queue(list(input, QueueStats::decode)?),
            OFPMP_GROUP => MultipartReply::Group(input.rest().to_vec()),
            OFPMP_GROUP_DESC => MultipartReply::GroupDesc(input.rest().to_vec()),
            OFPMP_GROUP_FEATURES => MultipartReply::GroupFeatures(GroupFeatures::decode(input)?),
            OFPMP_METER => MultipartReply::Meter(list(input, MeterStats::decode)?),
            OFPMP_METER_CONFIG => MultipartReply::MeterConfig(list(input, MeterConfig::decode)?),
            OFPMP_METER_FEATURES => MultipartReply::MeterFeatures(MeterFeatures::decode(input)?),
            OFPMP_TABLE_FEATURES => {
                MultipartReply::TableFeatures(list(input, TableFeatures::decode)?)
            }
            OFPMP_PORT_DESC => MultipartReply::PortDesc(list(input, PortDesc::decode)?),
            other => return Err(unsupported(other)),
        };
        Ok((reply, more))
    }
}

/// A reply being cut into parts.
struct Parts {
    kind: u16,
    full: Vec<Vec<u8>>,
    open: Writer,
}

impl Parts {
    fn list<T>(&mut self, entries: &[T], more: bool, encode: impl Fn(&T, &mut Writer)) {
        const ROOM: usize = MESSAGE_MAX_BYTES - crate::message::HEADER_BYTES;
        for entry in entries {
            let before = self.open.len();
            encode(entry, &mut self.open);
            if self.open.len() > ROOM && before > MULTIPART_HEADER_BYTES {
                let moved = self.open.bytes.split_off(before);
                let mut next = Writer::default();
                multipart_header(self.kind, more, &mut next);
                next.put(&moved);
                let mut closed = std::mem::replace(&mut self.open, next).bytes;
                if let Some(flags) = closed.get_mut(2..4) {
                    flags.copy_from_slice(&MORE.to_be_bytes());
                }
                self.full.push(closed);
            }
        }
    }
}

const MULTIPART_HEADER_BYTES: usize = 8;

fn multipart_header(kind: u16, more: bool, out: &mut Writer) {
    out.u16(kind);
    out.u16(if more { MORE } else { 0 });
    out.zeros(4);
}

fn decode_header(input: &mut Reader<'_>) -> Result<(u16, bool), DecodeError> {
    let kind = input.u16()?;
    let flags = input.u16()?;
    input.skip(4)?;
    Ok((kind, flags & MORE != 0))
}

/// A number and four bytes of padding.
fn padded(input: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let number = input.u32()?;
    input.skip(4)?;
    Ok(number)
}

fn list<'a, T>(
    input: &mut Reader<'a>,
    decode: impl Fn(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut entries = Vec::new();
    while !input.is_empty() {
        entries.push(decode(input)?);
    }
    Ok(entries)
}

fn unsupported(kind: u16) -> DecodeError {
    match kind {
        OFPMP_EXPERIMENTER => DecodeError::new(
            ErrorCode::OFPBRC_BAD_EXPERIMENTER,
            "experimenter multiparts are not supported",
        ),
        _ => DecodeError::new(ErrorCode::OFPBRC_BAD_MULTIPART, "unsupported multipart type"),
    }
}
