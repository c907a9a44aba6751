//! One connection's conversation, apart from its socket: a message in, answers out.

use std::sync::Arc;

use tollgate_openflow::message::{ErrorMessage, HEADER_BYTES, Header, Hello, SwitchConfig};
use tollgate_openflow::multipart::{FlowStats, MultipartReply, MultipartRequest};
use tollgate_openflow::port::OFPP_ANY;
use tollgate_openflow::{DecodeError, ErrorCode, Message};

use super::Bridge;
use crate::pipeline::FlowError;
use crate::ratelimit::RateLimit;

/// Flows encoded at a time: a dump of a million must not be held a second time as bytes.
const FLOWS_PER_CHUNK: usize = 256;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Continue,
    Close,
}

/// Takes one answer (one or more whole messages); false when nobody wants more.
pub(super) type Answer<'a> = &'a mut dyn FnMut(Vec<u8>) -> bool;

pub(super) struct Session {
    bridge: Arc<dyn Bridge>,
    /// OpenFlow 1.3 was agreed upon.
    greeted: bool,
    config: SwitchConfig,
    log: Arc<RateLimit>,
}

impl Session {
    pub(super) fn new(bridge: Arc<dyn Bridge>, log: Arc<RateLimit>) -> Self {
        Self { bridge, greeted: false, config: SwitchConfig::default(), log }
    }

    /// What the switch says first (OpenFlow 1.3.5, section 6.3.1).
    pub(super) fn greeting() -> Vec<u8> {
        Message::Hello(Hello::OURS).encode(0)
    }

    /// Answers one whole message.
    pub(super) fn handle(&mut self, bytes: &[u8], answer: Answer<'_>) -> Verdict {
        let header = bytes.first_chunk::<HEADER_BYTES>().and_then(|h| Header::decode(*h).ok());
        let xid = header.map_or(0, |header| header.xid);
        let decoded = Message::decode(bytes);
        if !self.greeted {
            return self.greet(xid, decoded, answer);
        }
        let outcome = match decoded {
            Ok((_, message)) => self.respond(xid, message, answer),
            Err(error) => Err(error.into()),
        };
        let heard = match outcome {
            Ok(heard) => heard,
            Err(error) => {
                self.log_refusal(xid, error);
                answer(Message::error(error.code, bytes).encode(xid))
            }
        };
        if heard { Verdict::Continue } else { Verdict::Close }
    }

    /// Agrees on the version, or says why not.
    fn greet(
        &mut self,
        xid: u32,
        decoded: Result<(Header, Message), DecodeError>,
        answer: Answer<'_>,
    ) -> Verdict {
        let reason: &[u8] = match decoded {
            Ok((header, Message::Hello(hello))) if hello.speaks_1_3(&header) => {
                self.greeted = true;
                return Verdict::Continue;
            }
            Ok((_, Message::Hello(_))) => {
                b"only OpenFlow 1.3 is spoken here (ovs-ofctl: -O OpenFlow13)"
            }
            _ => b"the first message must be a HELLO",
        };
        let code = ErrorCode::OFPHFC_INCOMPATIBLE;
        answer(Message::Error(ErrorMessage { code, data: reason.to_vec() }).encode(xid));
        Verdict::Close
    }

    /// Whether the answer, if any, was wanted.
    fn respond(
        &mut self,
        xid: u32,
        message: Message,
        answer: Answer<'_>,
    ) -> Result<bool, FlowError> {
        let bridge = &self.bridge;
        let reply = match message {
            Message::EchoRequest(data) => Message::EchoReply(data),
            Message::FeaturesRequest => Message::FeaturesReply(bridge.features()),
            Message::GetConfigRequest => Message::GetConfigReply(self.config),
            Message::SetConfig(config) => {
                self.set_config(config)?;
                return Ok(true);
            }
            Message::FlowMod(flow_mod) => {
                bridge.flow_mod(&flow_mod)?;
                return Ok(true);
            }
            Message::BarrierRequest => {
                bridge.barrier();
                Message::BarrierReply
            }
            Message::MultipartRequest(MultipartRequest::Flow(request)) => {
                let flows = bridge.flows(&request)?;
                return Ok(send_flows(xid, flows, answer));
            }
            Message::MultipartRequest(request) => {
                Message::MultipartReply { reply: self.describe(&request)?, more: false }
            }
            // To answer an error with an error would never end.
            Message::Hello(_) | Message::Error(_) | Message::EchoReply(_) => return Ok(true),
            Message::FeaturesReply(_)
            | Message::GetConfigReply(_)
            | Message::MultipartReply { .. }
            | Message::PacketIn(_)
            | Message::FlowRemoved(_)
            | Message::PortStatus(_)
            | Message::RoleReply(_)
            | Message::GetAsyncReply(_)
            | Message::BarrierReply => {
                return Err(refusal(ErrorCode::OFPBRC_BAD_TYPE, "only a switch sends this"));
            }
            Message::BundleControl(_) | Message::BundleAdd(_) => {
                let code = ErrorCode::OFPBRC_BAD_EXPERIMENTER;
                return Err(refusal(code, "bundles are not supported"));
            }
            Message::PacketOut(_)
            | Message::GroupMod(_)
            | Message::PortMod(_)
            | Message::MeterMod(_)
            | Message::RoleRequest(_)
            | Message::GetAsyncRequest
            | Message::SetAsync(_) => {
                let code = ErrorCode::OFPBRC_BAD_TYPE;
                return Err(refusal(code, "this type of message is not supported"));
            }
            unknown @ Message::Unknown { .. } => {
                let code = unknown.refusal().unwrap_or(ErrorCode::OFPBRC_BAD_TYPE);
                return Err(refusal(code, "this type of message is not supported"));
            }
        };
        Ok(answer(reply.encode(xid)))
    }

    fn set_config(&mut self, config: SwitchConfig) -> Result<(), FlowError> {
        if config.flags != 0 {
            return Err(refusal(
                ErrorCode::OFPSCFC_BAD_FLAGS,
                "fragments are neither dropped nor reassembled here",
            ));
        }
        self.config = config;
        Ok(())
    }

    /// The answer to every multipart request but that for flows.
    fn describe(&self, request: &MultipartRequest) -> Result<MultipartReply, FlowError> {
        let bridge = &self.bridge;
        Ok(match request {
            MultipartRequest::Desc => MultipartReply::Desc(bridge.description()),
            MultipartRequest::Flow(request) => MultipartReply::Flow(bridge.flows(request)?),
            MultipartRequest::Aggregate(request) => {
                MultipartReply::Aggregate(bridge.aggregate(request)?)
            }
            MultipartRequest::Table => MultipartReply::Table(bridge.tables()),
            MultipartRequest::PortStats { port_no } => {
                let mut ports = bridge.port_stats();
                if *port_no != OFPP_ANY {
                    ports.retain(|port| port.port_no == *port_no);
                    if ports.is_empty() {
                        return Err(refusal(ErrorCode::OFPBRC_BAD_PORT, "there is no such port"));
                    }
                }
                MultipartReply::PortStats(ports)
            }
            MultipartRequest::TableFeatures(changes) if changes.is_empty() => {
                MultipartReply::TableFeatures(bridge.table_features())
            }
            MultipartRequest::TableFeatures(_) => {
                return Err(refusal(
                    ErrorCode::OFPTFFC_EPERM,
                    "the tables' features cannot be changed",
                ));
            }
            MultipartRequest::PortDesc => MultipartReply::PortDesc(bridge.ports()),
            MultipartRequest::Queue { .. }
            | MultipartRequest::Group { .. }
            | MultipartRequest::GroupDesc
            | MultipartRequest::GroupFeatures
            | MultipartRequest::Meter { .. }
            | MultipartRequest::MeterConfig { .. }
            | MultipartRequest::MeterFeatures => {
                return Err(refusal(
                    ErrorCode::OFPBRC_BAD_MULTIPART,
                    "this type of multipart is not supported",
                ));
            }
        })
    }

    fn log_refusal(&self, xid: u32, error: FlowError) {
        if let Some(suppressed) = self.log.allow() {
            let bridge = self.bridge.name();
            tracing::info!(bridge, xid, %error, suppressed, "refused an OpenFlow message");
        }
    }
}

/// Sends flows in chunks, each encoded when the one before has left.
fn send_flows(xid: u32, mut flows: Vec<FlowStats>, answer: Answer<'_>) -> bool {
    loop {
        let rest = flows.split_off(flows.len().min(FLOWS_PER_CHUNK));
        let more = !rest.is_empty();
        let reply = MultipartReply::Flow(std::mem::replace(&mut flows, rest));
        if !answer(Message::MultipartReply { reply, more }.encode(xid)) {
            return false;
        }
        if !more {
            return true;
        }
    }
}

fn refusal(code: ErrorCode, detail: &'static str) -> FlowError {
    FlowError { code, detail }
}
