//! OFPT_PACKET_OUT (OF 1.3.5 §7.3.7).

use crate::action::Actions;
use crate::error::{DecodeError, ErrorCode};
use crate::limits::MESSAGE_MAX_BYTES;
use crate::message::HEADER_BYTES;
use crate::wire::{Reader, Writer};

/// A packet that a controller has the switch send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The buffer that holds the packet, or `OFP_NO_BUFFER`: then it is in `data`.
    pub buffer_id: u32,
    /// The port it is taken to have come in by; `OFPP_CONTROLLER` for none.
    pub in_port: u32,
    /// What is done with it.
    pub actions: Actions,
    /// The frame.
    pub data: Vec<u8>,
}

impl PacketOut {
    /// Whether it fits into one message.
    pub(crate) fn fits(&self) -> bool {
        let mut out = Writer::default();
        self.encode(&mut out);
        out.len() <= MESSAGE_MAX_BYTES - HEADER_BYTES
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.buffer_id);
        out.u32(self.in_port);
        let length = out.len();
        out.zeros(8);
        let start = out.len();
        self.actions.encode(out);
        out.set_length(length, start);
        out.put(&self.data);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<PacketOut, DecodeError> {
        let buffer_id = input.u32()?;
        let in_port = input.u32()?;
        let actions_len = usize::from(input.u16()?);
        input.skip(6)?;
        let actions = Actions::decode(input.part(actions_len, ErrorCode::OFPBAC_BAD_LEN)?)?;
        Ok(PacketOut { buffer_id, in_port, actions, data: input.rest().to_vec() })
    }
}
