//! What a switch tells its controllers unasked (OF 1.3.5 §7.4).

use std::time::Duration;

use crate::error::DecodeError;
use crate::oxm::Match;
use crate::port::PortDesc;
use crate::wire::{Reader, Writer, decode_duration, encode_duration};

/// `OFPR_NO_MATCH`: the table-miss flow sent the packet.
pub const OFPR_NO_MATCH: u8 = 0;
/// `OFPR_ACTION`: an output to the controller.
pub const OFPR_ACTION: u8 = 1;
/// `OFPR_INVALID_TTL`: the packet's TTL ran out.
pub const OFPR_INVALID_TTL: u8 = 2;

/// OFPT_PACKET_IN: a packet for the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The buffer that holds the packet, or `OFP_NO_BUFFER`.
    pub buffer_id: u32,
    /// Length of the whole frame in bytes; `data` may have been cut.
    pub total_len: u16,
    /// `OFPR_*`.
    pub reason: u8,
    /// Table of the flow that sent it.
    pub table_id: u8,
    /// Cookie of that flow.
    pub cookie: u64,
    /// Ingress port, metadata and registers of the packet.
    pub matcher: Match,
    /// The frame, or its beginning.
    pub data: Vec<u8>,
}

impl PacketIn {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.buffer_id);
        out.u16(self.total_len);
        out.u8(self.reason);
        out.u8(self.table_id);
        out.u64(self.cookie);
        self.matcher.encode(out);
        out.zeros(2);
        out.put(&self.data);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<PacketIn, DecodeError> {
        let buffer_id = input.u32()?;
        let total_len = input.u16()?;
        let reason = input.u8()?;
        let table_id = input.u8()?;
        let cookie = input.u64()?;
        let matcher = Match::decode(input)?;
        input.skip(2)?;
        let data = input.rest().to_vec();
        Ok(PacketIn { buffer_id, total_len, reason, table_id, cookie, matcher, data })
    }
}

/// `OFPRR_IDLE_TIMEOUT`.
pub const OFPRR_IDLE_TIMEOUT: u8 = 0;
/// `OFPRR_HARD_TIMEOUT`.
pub const OFPRR_HARD_TIMEOUT: u8 = 1;
/// `OFPRR_DELETE`: by a flow-mod.
pub const OFPRR_DELETE: u8 = 2;
/// `OFPRR_GROUP_DELETE`: with its group.
pub const OFPRR_GROUP_DELETE: u8 = 3;
/// `OFPRR_METER_DELETE`: with its meter.
pub const OFPRR_METER_DELETE: u8 = 4;

/// OFPT_FLOW_REMOVED: a flow that wanted it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// Its cookie.
    pub cookie: u64,
    /// Its priority.
    pub priority: u16,
    /// `OFPRR_*`.
    pub reason: u8,
    /// The table it was in.
    pub table_id: u8,
    /// How long it was there.
    pub duration: Duration,
    /// Its idle timeout in seconds; 0 = none.
    pub idle_timeout_s: u16,
    /// Its hard timeout in seconds; 0 = none.
    pub hard_timeout_s: u16,
    /// Packets that matched.
    pub packet_count: u64,
    /// Bytes that matched.
    pub byte_count: u64,
    /// What it matched.
    pub matcher: Match,
}

impl FlowRemoved {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u64(self.cookie);
        out.u16(self.priority);
        out.u8(self.reason);
        out.u8(self.table_id);
        encode_duration(self.duration, out);
        out.u16(self.idle_timeout_s);
        out.u16(self.hard_timeout_s);
        out.u64(self.packet_count);
        out.u64(self.byte_count);
        self.matcher.encode(out);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<FlowRemoved, DecodeError> {
        Ok(FlowRemoved {
            cookie: input.u64()?,
            priority: input.u16()?,
            reason: input.u8()?,
            table_id: input.u8()?,
            duration: decode_duration(input)?,
            idle_timeout_s: input.u16()?,
            hard_timeout_s: input.u16()?,
            packet_count: input.u64()?,
            byte_count: input.u64()?,
            matcher: Match::decode(input)?,
        })
    }
}

/// `OFPPR_ADD`: the port is new.
pub const OFPPR_ADD: u8 = 0;
/// `OFPPR_DELETE`: the port is gone.
pub const OFPPR_DELETE: u8 = 1;
/// `OFPPR_MODIFY`: the port has changed.
pub const OFPPR_MODIFY: u8 = 2;

/// OFPT_PORT_STATUS: a port came, went or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// `OFPPR_*`.
    pub reason: u8,
    /// The port.
    pub port: PortDesc,
}

impl PortStatus {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u8(self.reason);
        out.zeros(7);
        self.port.encode(out);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<PortStatus, DecodeError> {
        let reason = input.u8()?;
        input.skip(7)?;
        Ok(PortStatus { reason, port: PortDesc::decode(input)? })
    }
}
