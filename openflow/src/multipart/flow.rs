//! Flow statistics (OF 1.3.5 §7.3.5.2 and §7.3.5.3).

use std::time::Duration;

use crate::error::{DecodeError, ErrorCode};
use crate::flow_mod::FlowFlags;
use crate::instruction::Instructions;
use crate::oxm::Match;
use crate::port::{OFPG_ANY, OFPP_ANY, OFPTT_ALL};
use crate::wire::{Reader, Writer, decode_duration, encode_duration};

/// Which flows a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatsRequest {
    /// Table, or [`OFPTT_ALL`].
    pub table_id: u8,
    /// Only flows that output to this port; `OFPP_ANY`: no restriction.
    pub out_port: u32,
    /// Only flows that output to this group; `OFPG_ANY`: no restriction.
    pub out_group: u32,
    /// Value of the cookie bits selected by `cookie_mask`.
    pub cookie: u64,
    /// Bits of the cookie that must match.
    pub cookie_mask: u64,
    /// Only flows whose match is at least as narrow as this.
    pub matcher: Match,
}

impl Default for FlowStatsRequest {
    /// All flows of all tables.
    fn default() -> FlowStatsRequest {
        FlowStatsRequest {
            table_id: OFPTT_ALL,
            out_port: OFPP_ANY,
            out_group: OFPG_ANY,
            cookie: 0,
            cookie_mask: 0,
            matcher: Match::any(),
        }
    }
}

impl FlowStatsRequest {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.u8(self.table_id);
        out.zeros(3);
        out.u32(self.out_port);
        out.u32(self.out_group);
        out.zeros(4);
        out.u64(self.cookie);
        out.u64(self.cookie_mask);
        self.matcher.encode(out);
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<FlowStatsRequest, DecodeError> {
        let table_id = input.u8()?;
        input.skip(3)?;
        let out_port = input.u32()?;
        let out_group = input.u32()?;
        input.skip(4)?;
        Ok(FlowStatsRequest {
            table_id,
            out_port,
            out_group,
            cookie: input.u64()?,
            cookie_mask: input.u64()?,
            matcher: Match::decode(input)?,
        })
    }
}

/// A flow and its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Which table it is in.
    pub table_id: u8,
    /// How long it has been there.
    pub duration: Duration,
    /// Its priority.
    pub priority: u16,
    /// Seconds without a packet after which it goes; 0 = never.
    pub idle_timeout_s: u16,
    /// Seconds after which it goes; 0 = never.
    pub hard_timeout_s: u16,
    /// Its flags.
    pub flags: FlowFlags,
    /// Its cookie.
    pub cookie: u64,
    /// Packets that matched.
    pub packet_count: u64,
    /// Bytes that matched.
    pub byte_count: u64,
    /// What it matches.
    pub matcher: Match,
    /// What it does.
    pub instructions: Instructions,
}

impl FlowStats {
    pub(super) fn encode(&self, out: &mut Writer) {
        let start = out.len();
        out.u16(0);
        out.u8(self.table_id);
        out.zeros(1);
        encode_duration(self.duration, out);
        out.u16(self.priority);
        out.u16(self.idle_timeout_s);
        out.u16(self.hard_timeout_s);
        out.u16(self.flags.bits());
        out.zeros(4);
        out.u64(self.cookie);
        out.u64(self.packet_count);
        out.u64(self.byte_count);
        self.matcher.encode(out);
        self.instructions.encode(out);
        out.set_length(start, start);
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<FlowStats, DecodeError> {
        let length = usize::from(input.u16()?);
        let rest = length.checked_sub(2).ok_or(DecodeError::new(
            ErrorCode::OFPBRC_BAD_LEN,
            "flow statistics shorter than their header",
        ))?;
        let mut body = input.part(rest, ErrorCode::OFPBRC_BAD_LEN)?;
        let table_id = body.u8()?;
        body.skip(1)?;
        let duration = decode_duration(&mut body)?;
        let priority = body.u16()?;
        let idle_timeout_s = body.u16()?;
        let hard_timeout_s = body.u16()?;
        let flags = FlowFlags::from_wire(body.u16()?)?;
        body.skip(4)?;
        Ok(FlowStats {
            table_id,
            duration,
            priority,
            idle_timeout_s,
            hard_timeout_s,
            flags,
            cookie: body.u64()?,
            packet_count: body.u64()?,
            byte_count: body.u64()?,
            matcher: Match::decode(&mut body)?,
            instructions: Instructions::decode(body)?,
        })
    }
}

/// The sum over flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateStats {
    /// Packets that matched.
    pub packet_count: u64,
    /// Bytes that matched.
    pub byte_count: u64,
    /// Number of flows.
    pub flow_count: u32,
}

impl AggregateStats {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.u64(self.packet_count);
        out.u64(self.byte_count);
        out.u32(self.flow_count);
        out.zeros(4);
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<AggregateStats, DecodeError> {
        let stats = AggregateStats {
            packet_count: input.u64()?,
            byte_count: input.u64()?,
            flow_count: input.u32()?,
        };
        input.skip(4)?;
        Ok(stats)
    }
}
