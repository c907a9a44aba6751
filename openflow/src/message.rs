//! Messages: the header, and one variant per type (OF 1.3.5 §7.1, §7.3).

use crate::bundle::{BundleAdd, BundleControl, ONF_BUNDLE_ADD, ONF_BUNDLE_CONTROL};
use crate::controller::{AsyncConfig, Role};
use crate::error::{DecodeError, ErrorCode};
use crate::event::{FlowRemoved, PacketIn, PortStatus};
use crate::field::ONF_EXPERIMENTER;
use crate::flow_mod::FlowMod;
use crate::group::GroupMod;
use crate::limits::{ERROR_DATA_MAX_BYTES, MESSAGE_MAX_BYTES};
use crate::meter::MeterMod;
use crate::multipart::{MultipartReply, MultipartRequest};
use crate::nicira::NICIRA_EXPERIMENTER;
use crate::packet_out::PacketOut;
use crate::port_mod::PortMod;
use crate::wire::{Pad, Reader, Writer, padding};

/// The version that this crate speaks: OpenFlow 1.3.
pub const OFP_VERSION: u8 = 4;

/// Length of the header that every message starts with.
pub const HEADER_BYTES: usize = 8;

/// `ofp_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol version; in a HELLO the highest the sender speaks.
    pub version: u8,
    /// `OFPT_*`.
    pub message_type: u8,
    /// Length of the whole message in bytes.
    pub length: u16,
    /// Transaction id; a reply carries its request's.
    pub xid: u32,
}

impl Header {
    /// Reads a header off the start of a stream. The rest of the message is `length - 8` bytes.
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Header, DecodeError> {
        let mut input = Reader::new(&bytes, ErrorCode::OFPBRC_BAD_LEN);
        let header = Header {
            version: input.u8()?,
            message_type: input.u8()?,
            length: input.u16()?,
            xid: input.u32()?,
        };
        if usize::from(header.length) < HEADER_BYTES {
            return Err(BAD_LENGTH);
        }
        Ok(header)
    }

    /// Whether a bundle may hold a message of this type.
    pub(crate) fn may_be_bundled(&self) -> bool {
        [OFPT_FLOW_MOD, OFPT_GROUP_MOD, OFPT_PORT_MOD, OFPT_PACKET_OUT].contains(&self.message_type)
    }
}

/// A message without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Version negotiation.
    Hello(Hello),
    /// Refusal of a message.
    Error(ErrorMessage),
    /// Liveness check; the reply repeats the data.
    EchoRequest(Vec<u8>),
    /// Answer to an echo request.
    EchoReply(Vec<u8>),
    /// What the switch is.
    FeaturesRequest,
    /// Answer to a features request.
    FeaturesReply(Features),
    /// Ask for the configuration.
    GetConfigRequest,
    /// Answer to it.
    GetConfigReply(SwitchConfig),
    /// Change the configuration.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(Box<PacketIn>),
    /// A flow is gone.
    FlowRemoved(Box<FlowRemoved>),
    /// A port came, went or changed.
    PortStatus(Box<PortStatus>),
    /// Send a packet.
    PacketOut(Box<PacketOut>),
    /// Change the flow tables.
    FlowMod(Box<FlowMod>),
    /// Change a group.
    GroupMod(Box<GroupMod>),
    /// Change a port.
    PortMod(PortMod),
    /// Change a meter.
    MeterMod(Box<MeterMod>),
    /// Ask for statistics or descriptions.
    MultipartRequest(MultipartRequest),
    /// A part of the answer.
    MultipartReply {
        /// The content.
        reply: MultipartReply,
        /// Whether more parts follow.
        more: bool,
    },
    /// Answer only when everything before it has taken effect.
    BarrierRequest,
    /// Answer to it.
    BarrierReply,
    /// Ask for a role, or for the present one.
    RoleRequest(Role),
    /// Answer to it.
    RoleReply(Role),
    /// Ask which events are sent.
    GetAsyncRequest,
    /// Answer to it.
    GetAsyncReply(AsyncConfig),
    /// Choose which events are sent.
    SetAsync(AsyncConfig),
    /// Open, close, commit or discard a bundle, or answer to that.
    BundleControl(BundleControl),
    /// Add a message to a bundle.
    BundleAdd(BundleAdd),
    /// A type that is not supported; [`Message::refusal`] says how to answer.
    Unknown {
        /// `OFPT_*`.
        message_type: u8,
        /// What follows the header.
        body: Vec<u8>,
    },
}

/// OFPT_HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The versions the sender speaks, bit n for version n; `None` if it sent no bitmap.
    pub versions: Option<u32>,
}

impl Hello {
    /// The HELLO of a peer that speaks OpenFlow 1.3 only.
    pub const OURS: Hello = Hello { versions: Some(1 << OFP_VERSION) };

    /// Whether OpenFlow 1.3 can be agreed upon with the sender of this HELLO (§6.3.1).
    pub fn speaks_1_3(&self, header: &Header) -> bool {
        match self.versions {
            Some(versions) => versions & (1 << OFP_VERSION) != 0,
            None => header.version >= OFP_VERSION,
        }
    }
}

/// OFPT_ERROR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Type and code.
    pub code: ErrorCode,
    /// The start of the refused message, or a text for a failed HELLO. An experimenter's error has
    /// its id before that.
    pub data: Vec<u8>,
}

/// OFPT_FEATURES_REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Identity of the bridge; the low 48 bits are a MAC address.
    pub datapath_id: u64,
    /// Packets that can be buffered for the controller.
    pub n_buffers: u32,
    /// Number of tables.
    pub n_tables: u8,
    /// Which auxiliary connection this is; 0 for the main one.
    pub auxiliary_id: u8,
    /// `OFPC_*` bits.
    pub capabilities: u32,
}

/// `OFPC_FLOW_STATS`.
pub const OFPC_FLOW_STATS: u32 = 1;
/// `OFPC_TABLE_STATS`.
pub const OFPC_TABLE_STATS: u32 = 1 << 1;
/// `OFPC_PORT_STATS`.
pub const OFPC_PORT_STATS: u32 = 1 << 2;
/// `OFPC_GROUP_STATS`.
pub const OFPC_GROUP_STATS: u32 = 1 << 3;
/// `OFPC_IP_REASM`.
pub const OFPC_IP_REASM: u32 = 1 << 5;
/// `OFPC_QUEUE_STATS`.
pub const OFPC_QUEUE_STATS: u32 = 1 << 6;
/// `OFPC_PORT_BLOCKED`.
pub const OFPC_PORT_BLOCKED: u32 = 1 << 8;

/// OFPT_SET_CONFIG and OFPT_GET_CONFIG_REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// `OFPC_FRAG_*`: 0 = fragments are handled normally.
    pub flags: u16,
    /// Bytes of a missed packet sent to the controller.
    pub miss_send_len: u16,
}

const OFPT_HELLO: u8 = 0;
const OFPT_ERROR: u8 = 1;
const OFPT_ECHO_REQUEST: u8 = 2;
const OFPT_ECHO_REPLY: u8 = 3;
const OFPT_EXPERIMENTER: u8 = 4;
const OFPT_FEATURES_REQUEST: u8 = 5;
const OFPT_FEATURES_REPLY: u8 = 6;
const OFPT_GET_CONFIG_REQUEST: u8 = 7;
const OFPT_GET_CONFIG_REPLY: u8 = 8;
const OFPT_SET_CONFIG: u8 = 9;
const OFPT_PACKET_IN: u8 = 10;
const OFPT_FLOW_REMOVED: u8 = 11;
const OFPT_PORT_STATUS: u8 = 12;
const OFPT_PACKET_OUT: u8 = 13;
const OFPT_FLOW_MOD: u8 = 14;
const OFPT_GROUP_MOD: u8 = 15;
const OFPT_PORT_MOD: u8 = 16;
const OFPT_MULTIPART_REQUEST: u8 = 18;
const OFPT_MULTIPART_REPLY: u8 = 19;
const OFPT_BARRIER_REQUEST: u8 = 20;
const OFPT_BARRIER_REPLY: u8 = 21;
const OFPT_ROLE_REQUEST: u8 = 24;
const OFPT_ROLE_REPLY: u8 = 25;
const OFPT_GET_ASYNC_REQUEST: u8 = 26;
const OFPT_GET_ASYNC_REPLY: u8 = 27;
const OFPT_SET_ASYNC: u8 = 28;
const OFPT_METER_MOD: u8 = 29;

/// Element of a HELLO that carries the version bitmap.
const OFPHET_VERSIONBITMAP: u16 = 1;

const BAD_LENGTH: DecodeError =
    DecodeError::new(ErrorCode::OFPBRC_BAD_LEN, "message length does not fit its type");

impl Message {
    /// The refusal of a received message, to be sent with its xid.
    pub fn error(code: ErrorCode, refused: &[u8]) -> Message {
        let mut data = Vec::new();
        if code.is_experimenter() {
            data.extend(ONF_EXPERIMENTER.to_be_bytes());
        }
        data.extend(refused.get(..ERROR_DATA_MAX_BYTES).unwrap_or(refused));
        Message::Error(ErrorMessage { code, data })
    }

    /// How to answer a message of an unsupported type; `None` if the type is known.
    pub fn refusal(&self) -> Option<ErrorCode> {
        match self {
            Message::Unknown { message_type: OFPT_EXPERIMENTER, body } => {
                let known = [ONF_EXPERIMENTER, NICIRA_EXPERIMENTER].map(u32::to_be_bytes);
                let experimenter = body.first_chunk();
                Some(match experimenter.is_some_and(|id| known.contains(id)) {
                    true => ErrorCode::OFPBRC_BAD_EXP_TYPE,
                    false => ErrorCode::OFPBRC_BAD_EXPERIMENTER,
                })
            }
            Message::Unknown { .. } => Some(ErrorCode::OFPBRC_BAD_TYPE),
            _ => None,
        }
    }

    fn message_type(&self) -> u8 {
        match self {
            Message::Hello(_) => OFPT_HELLO,
            Message::Error(_) => OFPT_ERROR,
            Message::EchoRequest(_) => OFPT_ECHO_REQUEST,
            Message::EchoReply(_) => OFPT_ECHO_REPLY,
            Message::FeaturesRequest => OFPT_FEATURES_REQUEST,
            Message::FeaturesReply(_) => OFPT_FEATURES_REPLY,
            Message::GetConfigRequest => OFPT_GET_CONFIG_REQUEST,
            Message::GetConfigReply(_) => OFPT_GET_CONFIG_REPLY,
            Message::SetConfig(_) => OFPT_SET_CONFIG,
            Message::PacketIn(_) => OFPT_PACKET_IN,
            Message::FlowRemoved(_) => OFPT_FLOW_REMOVED,
            Message::PortStatus(_) => OFPT_PORT_STATUS,
            Message::PacketOut(_) => OFPT_PACKET_OUT,
            Message::FlowMod(_) => OFPT_FLOW_MOD,
            Message::GroupMod(_) => OFPT_GROUP_MOD,
            Message::PortMod(_) => OFPT_PORT_MOD,
            Message::MeterMod(_) => OFPT_METER_MOD,
            Message::MultipartRequest(_) => OFPT_MULTIPART_REQUEST,
            Message::MultipartReply { .. } => OFPT_MULTIPART_REPLY,
            Message::BarrierRequest => OFPT_BARRIER_REQUEST,
            Message::BarrierReply => OFPT_BARRIER_REPLY,
            Message::RoleRequest(_) => OFPT_ROLE_REQUEST,
            Message::RoleReply(_) => OFPT_ROLE_REPLY,
            Message::GetAsyncRequest => OFPT_GET_ASYNC_REQUEST,
            Message::GetAsyncReply(_) => OFPT_GET_ASYNC_REPLY,
            Message::SetAsync(_) => OFPT_SET_ASYNC,
            Message::BundleControl(_) | Message::BundleAdd(_) => OFPT_EXPERIMENTER,
            Message::Unknown { message_type, .. } => *message_type,
        }
    }

    /// The bytes to send. One message, except for a multipart reply too long for one, which
    /// becomes several in a row. Free-form data (echo, error) that does not fit is cut.
    pub fn encode(&self, xid: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_into(xid, &mut bytes);
        bytes
    }

    /// Appends the bytes to send, see [`Message::encode`].
    pub fn encode_into(&self, xid: u32, bytes: &mut Vec<u8>) {
        let mut out = Writer { bytes: std::mem::take(bytes) };
        if let Message::MultipartReply { reply, more } = self {
            for part in reply.encode_parts(*more) {
                self.frame(xid, &mut out, |out| out.put(&part));
            }
        } else {
            self.encode_one(xid, &mut out);
        }
        *bytes = out.bytes;
    }

    /// Appends a message that is one whatever its length.
    pub(crate) fn encode_one(&self, xid: u32, out: &mut Writer) {
        self.frame(xid, out, |out| self.encode_body(xid, out));
    }

    fn frame(&self, xid: u32, out: &mut Writer, body: impl FnOnce(&mut Writer)) {
        let start = out.len();
        out.u8(OFP_VERSION);
        out.u8(self.message_type());
        out.u16(0);
        out.u32(xid);
        body(out);
        out.bytes.truncate(start + MESSAGE_MAX_BYTES);
        out.set_length(start + 2, start);
    }

    fn encode_body(&self, xid: u32, out: &mut Writer) {
        match self {
            Message::Hello(hello) => hello.encode(out),
            Message::Error(error) => {
                out.u16(error.code.error_type);
                out.u16(error.code.code);
                out.put(&error.data);
            }
            Message::EchoRequest(data) | Message::EchoReply(data) => out.put(data),
            Message::FeaturesReply(features) => features.encode(out),
            Message::GetConfigReply(config) | Message::SetConfig(config) => {
                out.u16(config.flags);
                out.u16(config.miss_send_len);
            }
            Message::PacketIn(packet) => packet.encode(out),
            Message::FlowRemoved(flow) => flow.encode(out),
            Message::PortStatus(status) => status.encode(out),
            Message::PacketOut(packet) => packet.encode(out),
            Message::FlowMod(flow_mod) => flow_mod.encode(out),
            Message::GroupMod(group_mod) => group_mod.encode(out),
            Message::PortMod(port_mod) => port_mod.encode(out),
            Message::MeterMod(meter_mod) => meter_mod.encode(out),
            Message::RoleRequest(role) | Message::RoleReply(role) => role.encode(out),
            Message::GetAsyncReply(config) | Message::SetAsync(config) => config.encode(out),
            Message::BundleControl(control) => {
                out.u32(ONF_EXPERIMENTER);
                out.u32(ONF_BUNDLE_CONTROL);
                control.encode(out);
            }
            Message::BundleAdd(add) => {
                out.u32(ONF_EXPERIMENTER);
                out.u32(ONF_BUNDLE_ADD);
                add.encode(xid, out);
            }
            Message::MultipartRequest(request) => request.encode(out),
            Message::Unknown { body, .. } => out.put(body),
            Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::MultipartReply { .. }
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::GetAsyncRequest => {}
        }
    }

    /// Reads one whole message. The error says how to answer it; its xid is in the header, which
    /// [`Header::decode`] gives even then.
    pub fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
        let header = *bytes.first_chunk().ok_or(BAD_LENGTH)?;
        let header = Header::decode(header)?;
        if bytes.len() != usize::from(header.length) {
            return Err(BAD_LENGTH);
        }
        if header.version != OFP_VERSION
            && header.message_type != OFPT_HELLO
            && header.message_type != OFPT_ERROR
        {
            return Err(DecodeError::new(ErrorCode::OFPBRC_BAD_VERSION, "not OpenFlow 1.3"));
        }
        let mut body = Reader::new(bytes, ErrorCode::OFPBRC_BAD_LEN);
        body.skip(HEADER_BYTES)?;
        let message = Message::decode_body(&header, &mut body)?;
        if !body.is_empty() {
            return Err(BAD_LENGTH);
        }
        Ok((header, message))
    }

    fn decode_body(header: &Header, body: &mut Reader<'_>) -> Result<Message, DecodeError> {
        Ok(match header.message_type {
            OFPT_HELLO => Message::Hello(Hello::decode(body)?),
            OFPT_ERROR => {
                let code = ErrorCode { error_type: body.u16()?, code: body.u16()? };
                Message::Error(ErrorMessage { code, data: body.rest().to_vec() })
            }
            OFPT_ECHO_REQUEST => Message::EchoRequest(body.rest().to_vec()),
            OFPT_ECHO_REPLY => Message::EchoReply(body.rest().to_vec()),
            OFPT_FEATURES_REQUEST => Message::FeaturesRequest,
            OFPT_FEATURES_REPLY => Message::FeaturesReply(Features::decode(body)?),
            OFPT_GET_CONFIG_REQUEST => Message::GetConfigRequest,
            OFPT_GET_CONFIG_REPLY => Message::GetConfigReply(SwitchConfig::decode(body)?),
            OFPT_SET_CONFIG => Message::SetConfig(SwitchConfig::decode(body)?),
            OFPT_EXPERIMENTER => experimenter(header.xid, body)?,
            OFPT_PACKET_IN => Message::PacketIn(Box::new(PacketIn::decode(body)?)),
            OFPT_FLOW_REMOVED => Message::FlowRemoved(Box::new(FlowRemoved::decode(body)?)),
            OFPT_PORT_STATUS => Message::PortStatus(Box::new(PortStatus::decode(body)?)),
            OFPT_PACKET_OUT => Message::PacketOut(Box::new(PacketOut::decode(body)?)),
            OFPT_FLOW_MOD => Message::FlowMod(Box::new(FlowMod::decode(body)?)),
            OFPT_GROUP_MOD => Message::GroupMod(Box::new(GroupMod::decode(body)?)),
            OFPT_PORT_MOD => Message::PortMod(PortMod::decode(body)?),
            OFPT_METER_MOD => Message::MeterMod(Box::new(MeterMod::decode(body)?)),
            OFPT_MULTIPART_REQUEST => Message::MultipartRequest(MultipartRequest::decode(body)?),
            OFPT_MULTIPART_REPLY => {
                let (reply, more) = MultipartReply::decode(body)?;
                Message::MultipartReply { reply, more }
            }
            OFPT_BARRIER_REQUEST => Message::BarrierRequest,
            OFPT_BARRIER_REPLY => Message::BarrierReply,
            OFPT_ROLE_REQUEST => Message::RoleRequest(Role::decode(body)?),
            OFPT_ROLE_REPLY => Message::RoleReply(Role::decode(body)?),
            OFPT_GET_ASYNC_REQUEST => Message::GetAsyncRequest,
            OFPT_GET_ASYNC_REPLY => Message::GetAsyncReply(AsyncConfig::decode(body)?),
            OFPT_SET_ASYNC => Message::SetAsync(AsyncConfig::decode(body)?),
            message_type => Message::Unknown { message_type, body: body.rest().to_vec() },
        })
    }
}

fn experimenter(xid: u32, body: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let mut ahead = *body;
    let mut kind = || Ok::<_, DecodeError>((ahead.u32()?, ahead.u32()?));
    Ok(match kind() {
        Ok((ONF_EXPERIMENTER, ONF_BUNDLE_CONTROL)) => {
            *body = ahead;
            Message::BundleControl(BundleControl::decode(body)?)
        }
        Ok((ONF_EXPERIMENTER, ONF_BUNDLE_ADD)) => {
            *body = ahead;
            Message::BundleAdd(BundleAdd::decode(xid, body)?)
        }
        _ => Message::Unknown { message_type: OFPT_EXPERIMENTER, body: body.rest().to_vec() },
    })
}

impl Hello {
    fn encode(&self, out: &mut Writer) {
        if let Some(versions) = self.versions {
            out.element(OFPHET_VERSIONBITMAP, Pad::Uncounted, |out| out.u32(versions));
        }
    }

    /// Elements of other types, and versions beyond the first 32, are skipped (§7.5.1).
    fn decode(body: &mut Reader<'_>) -> Result<Hello, DecodeError> {
        let mut hello = Hello::default();
        // A peer of OpenFlow 1.0 may send anything after the header; it is to be ignored.
        while body.len() >= 4 {
            let Ok((kind, mut element)) = body.element(Pad::None) else { break };
            body.skip(padding(element.len() + 4).min(body.len()))?;
            if kind == OFPHET_VERSIONBITMAP && hello.versions.is_none() {
                hello.versions = element.u32().ok();
            }
        }
        body.rest();
        Ok(hello)
    }
}

impl Features {
    fn encode(&self, out: &mut Writer) {
        out.u64(self.datapath_id);
        out.u32(self.n_buffers);
        out.u8(self.n_tables);
        out.u8(self.auxiliary_id);
        out.zeros(2);
        out.u32(self.capabilities);
        out.zeros(4);
    }

    fn decode(body: &mut Reader<'_>) -> Result<Features, DecodeError> {
        let datapath_id = body.u64()?;
        let n_buffers = body.u32()?;
        let n_tables = body.u8()?;
        let auxiliary_id = body.u8()?;
        body.skip(2)?;
        let capabilities = body.u32()?;
        body.skip(4)?;
        Ok(Features { datapath_id, n_buffers, n_tables, auxiliary_id, capabilities })
    }
}

impl SwitchConfig {
    fn decode(body: &mut Reader<'_>) -> Result<SwitchConfig, DecodeError> {
        Ok(SwitchConfig { flags: body.u16()?, miss_send_len: body.u16()? })
    }
}
