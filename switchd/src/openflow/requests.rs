//! What each request is answered with.

use tollgate_openflow::group::{GroupCommand, GroupFeatures, GroupMod};
use tollgate_openflow::message::SwitchConfig;
use tollgate_openflow::multipart::{MultipartReply, MultipartRequest};
use tollgate_openflow::port::OFPP_ANY;
use tollgate_openflow::queue::OFPQ_ALL;
use tollgate_openflow::{ErrorCode, Message};

use super::session::Session;
use crate::pipeline::FlowError;

impl Session {
    /// Answers a message other than a flow-mod; `bytes` are the message.
    pub(super) fn respond(
        &mut self,
        xid: u32,
        message: Message,
        bytes: &[u8],
    ) -> Result<(), FlowError> {
        self.check_role(&message)?;
        let bridge = &self.bridge;
        let reply = match message {
            Message::EchoRequest(data) => Message::EchoReply(data),
            Message::FeaturesRequest => Message::FeaturesReply(bridge.features()),
            Message::GetConfigRequest => {
                let miss_send_len = self.peer().settings().miss_send_len;
                Message::GetConfigReply(SwitchConfig { flags: 0, miss_send_len })
            }
            Message::SetConfig(config) => return self.set_config(config),
            Message::FlowMod(flow_mod) => {
                return bridge.flow_mods(&[*flow_mod]).into_iter().collect();
            }
            Message::PacketOut(packet) => return bridge.packet_out(&packet),
            Message::PortMod(port_mod) => return bridge.port_mod(&port_mod),
            Message::MeterMod(meter_mod) => return bridge.meter_mod(&meter_mod),
            Message::GroupMod(group_mod) => return refuse_groups(&group_mod),
            Message::RoleRequest(request) => self.role_request(request)?,
            Message::GetAsyncRequest => Message::GetAsyncReply(self.peer().settings().wanted),
            Message::SetAsync(wanted) => {
                self.peer().change(|settings| settings.wanted = wanted);
                return Ok(());
            }
            Message::BarrierRequest => {
                bridge.barrier();
                Message::BarrierReply
            }
            Message::BundleControl(control) => self.bundle_control(control)?,
            Message::BundleAdd(add) => return self.bundle_add(&add, bytes),
            Message::MultipartRequest(MultipartRequest::Flow(request)) => {
                return self.begin_dump(xid, &request);
            }
            Message::MultipartRequest(request) => {
                Message::MultipartReply { reply: self.describe(&request)?, more: false }
            }
            // To answer an error with an error would never end.
            Message::Hello(_) | Message::Error(_) | Message::EchoReply(_) => return Ok(()),
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
            unknown @ Message::Unknown { .. } => return self.experiment(&unknown),
        };
        self.answer(xid, &reply);
        Ok(())
    }

    /// Nicira's NXT_SET_CONTROLLER_ID is the only message of an unknown type that is understood.
    fn experiment(&self, unknown: &Message) -> Result<(), FlowError> {
        if let Message::Unknown { message_type: OFPT_EXPERIMENTER, body } = unknown
            && let Some((&NXT_SET_CONTROLLER_ID, [_, _, _, _, _, _, id @ ..])) =
                body.split_first_chunk()
            && let Ok(id) = <[u8; 2]>::try_from(id)
        {
            self.peer().change(|settings| settings.controller_id = u16::from_be_bytes(id));
            return Ok(());
        }
        let code = unknown.refusal().unwrap_or(ErrorCode::OFPBRC_BAD_TYPE);
        Err(refusal(code, "this type of message is not supported"))
    }

    fn set_config(&self, config: SwitchConfig) -> Result<(), FlowError> {
        if config.flags != 0 {
            return Err(refusal(
                ErrorCode::OFPSCFC_BAD_FLAGS,
                "fragments are neither dropped nor reassembled here",
            ));
        }
        self.peer().change(|settings| settings.miss_send_len = config.miss_send_len);
        Ok(())
    }

    /// The answer to every multipart request but that for flows.
    fn describe(&self, request: &MultipartRequest) -> Result<MultipartReply, FlowError> {
        let bridge = &self.bridge;
        Ok(match request {
            MultipartRequest::Desc => MultipartReply::Desc(bridge.description()),
            MultipartRequest::Flow(_) => {
                return Err(refusal(ErrorCode::OFPBRC_BAD_MULTIPART, "flows are dumped in parts"));
            }
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
            MultipartRequest::Queue { port_no, queue_id } => {
                self.check_queues(*port_no, *queue_id)?;
                MultipartReply::Queue(Vec::new())
            }
            MultipartRequest::Group { .. } => MultipartReply::Group(Vec::new()),
            MultipartRequest::GroupDesc => MultipartReply::GroupDesc(Vec::new()),
            MultipartRequest::GroupFeatures => {
                MultipartReply::GroupFeatures(GroupFeatures::default())
            }
            MultipartRequest::Meter { meter_id } => {
                MultipartReply::Meter(bridge.meter_stats(*meter_id)?)
            }
            MultipartRequest::MeterConfig { meter_id } => {
                MultipartReply::MeterConfig(bridge.meters(*meter_id)?)
            }
            MultipartRequest::MeterFeatures => {
                MultipartReply::MeterFeatures(bridge.meter_features())
            }
        })
    }

    /// Ports have no queues that could be told of.
    fn check_queues(&self, port_no: u32, queue_id: u32) -> Result<(), FlowError> {
        let exists = || self.bridge.ports().iter().any(|port| port.port_no == port_no);
        if port_no != OFPP_ANY && !exists() {
            Err(refusal(ErrorCode::OFPQOFC_BAD_PORT, "there is no such port"))
        } else if queue_id != OFPQ_ALL {
            Err(refusal(ErrorCode::OFPQOFC_BAD_QUEUE, "there is no such queue"))
        } else {
            Ok(())
        }
    }
}

/// There are no groups, and to delete them is no error (OpenFlow 1.3.5, section 6.5).
fn refuse_groups(group_mod: &GroupMod) -> Result<(), FlowError> {
    match group_mod.command {
        GroupCommand::Delete => Ok(()),
        GroupCommand::Modify => {
            Err(refusal(ErrorCode::OFPGMFC_UNKNOWN_GROUP, "there is no such group"))
        }
        GroupCommand::Add => Err(refusal(ErrorCode::OFPGMFC_BAD_TYPE, "groups are not supported")),
    }
}

/// OFPT_EXPERIMENTER.
const OFPT_EXPERIMENTER: u8 = 4;

/// Nicira's experimenter id and its message type 20. Six zero bytes and the id follow.
const NXT_SET_CONTROLLER_ID: [u8; 8] = [0, 0, 0x23, 0x20, 0, 0, 0, 20];

pub(super) const fn refusal(code: ErrorCode, detail: &'static str) -> FlowError {
    FlowError { code, detail }
}
