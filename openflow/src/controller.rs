//! What concerns one controller's connection: its role and the messages that it wants unasked
//! (OF 1.3.5 §7.3.9, §7.3.10).

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// `OFPCR_ROLE_NOCHANGE`: only ask.
pub const OFPCR_ROLE_NOCHANGE: u32 = 0;
/// `OFPCR_ROLE_EQUAL`: may do everything, as others may.
pub const OFPCR_ROLE_EQUAL: u32 = 1;
/// `OFPCR_ROLE_MASTER`: may do everything; at most one.
pub const OFPCR_ROLE_MASTER: u32 = 2;
/// `OFPCR_ROLE_SLAVE`: may only read.
pub const OFPCR_ROLE_SLAVE: u32 = 3;

/// OFPT_ROLE_REQUEST and OFPT_ROLE_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// `OFPCR_ROLE_*`.
    pub role: u32,
    /// Counts the elections of a master.
    pub generation_id: u64,
}

impl Role {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.role);
        out.zeros(4);
        out.u64(self.generation_id);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Role, DecodeError> {
        let role = input.u32()?;
        input.skip(4)?;
        Ok(Role { role, generation_id: input.u64()? })
    }
}

/// Which events a controller gets: bit n of a mask for reason n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMasks {
    /// Reasons of PACKET_IN (`OFPR_*`).
    pub packet_in: u32,
    /// Reasons of PORT_STATUS (`OFPPR_*`).
    pub port_status: u32,
    /// Reasons of FLOW_REMOVED (`OFPRR_*`).
    pub flow_removed: u32,
}

/// OFPT_SET_ASYNC and OFPT_GET_ASYNC_REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// For a controller that is master or equal.
    pub master: AsyncMasks,
    /// For a slave.
    pub slave: AsyncMasks,
}

impl Default for AsyncConfig {
    /// What every connection begins with: for a master or equal all events but packets whose TTL
    /// ran out and flows that went with their meter, for a slave the ports only (as in Open vSwitch, which the specification leaves
    /// free).
    fn default() -> AsyncConfig {
        AsyncConfig {
            master: AsyncMasks { packet_in: 0b11, port_status: 0b111, flow_removed: 0b1111 },
            slave: AsyncMasks { packet_in: 0, port_status: 0b111, flow_removed: 0 },
        }
    }
}

impl AsyncConfig {
    pub(crate) fn encode(&self, out: &mut Writer) {
        let AsyncConfig { master, slave } = self;
        for mask in [
            master.packet_in,
            slave.packet_in,
            master.port_status,
            slave.port_status,
            master.flow_removed,
            slave.flow_removed,
        ] {
            out.u32(mask);
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<AsyncConfig, DecodeError> {
        let packet_in = (input.u32()?, input.u32()?);
        let port_status = (input.u32()?, input.u32()?);
        let flow_removed = (input.u32()?, input.u32()?);
        let masks = |packet_in, port_status, flow_removed| AsyncMasks {
            packet_in,
            port_status,
            flow_removed,
        };
        Ok(AsyncConfig {
            master: masks(packet_in.0, port_status.0, flow_removed.0),
            slave: masks(packet_in.1, port_status.1, flow_removed.1),
        })
    }
}
