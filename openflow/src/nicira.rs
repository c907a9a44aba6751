//! Nicira's actions, which are how Open vSwitch does in OpenFlow 1.3 what that has no action for
//! (its `ofp-actions.c`).

use crate::action::Action;
use crate::error::{DecodeError, ErrorCode};
use crate::event::OFPR_ACTION;
use crate::oxm::OxmField;
use crate::port::{OFPP_CONTROLLER, OFPP_IN_PORT, OFPTT_ALL, narrow_port, widen_port};
use crate::subfield::SubField;
use crate::wire::{Reader, Writer};

/// Nicira's experimenter id.
pub(crate) const NICIRA_EXPERIMENTER: u32 = 0x0000_2320;

const NXAST_RESUBMIT: u16 = 1;
const NXAST_REG_MOVE: u16 = 6;
const NXAST_REG_LOAD: u16 = 7;
const NXAST_NOTE: u16 = 8;
const NXAST_RESUBMIT_TABLE: u16 = 14;
const NXAST_CONTROLLER: u16 = 20;
const NXAST_REG_LOAD2: u16 = 33;

/// The body of an action of ours: everything after type and length. (Other actions, which are not
/// Nicira's, have none.)
pub(crate) fn encode(action: &Action, out: &mut Writer) {
    let mut head = |subtype| {
        out.u32(NICIRA_EXPERIMENTER);
        out.u16(subtype);
    };
    match action {
        Action::SetField(field) => {
            head(NXAST_REG_LOAD2);
            field.encode(out);
        }
        Action::RegLoad { dst, value } => {
            head(NXAST_REG_LOAD);
            out.u16(dst.wire_offset() << 6 | dst.bits().saturating_sub(1) as u16);
            out.u32(dst.header());
            out.u64(*value);
        }
        Action::RegMove { src, dst } => {
            head(NXAST_REG_MOVE);
            out.u16(src.bits() as u16);
            out.u16(src.wire_offset());
            out.u16(dst.wire_offset());
            out.u32(src.header());
            out.u32(dst.header());
        }
        Action::Resubmit { in_port, table } => {
            head(NXAST_RESUBMIT_TABLE);
            let port = in_port.and_then(narrow_port);
            out.u16(port.unwrap_or(OFPP_IN_PORT as u16));
            out.u8(table.unwrap_or(OFPTT_ALL));
            out.zeros(3);
        }
        Action::Note(note) => {
            head(NXAST_NOTE);
            out.put(note);
        }
        Action::Controller { max_len, controller_id, reason } => {
            head(NXAST_CONTROLLER);
            out.u16(*max_len);
            out.u16(*controller_id);
            out.u8(*reason);
            out.zeros(1);
        }
        _ => {}
    }
}

/// Reads the body of an experimenter action.
pub(crate) fn decode(body: &mut Reader<'_>) -> Result<Action, DecodeError> {
    if body.u32()? != NICIRA_EXPERIMENTER {
        return Err(DecodeError::new(
            ErrorCode::OFPBAC_BAD_EXPERIMENTER,
            "actions of this experimenter are not supported",
        ));
    }
    Ok(match body.u16()? {
        NXAST_RESUBMIT => {
            let in_port = resubmit_port(body)?;
            body.skip(4)?;
            Action::Resubmit { in_port, table: None }
        }
        NXAST_RESUBMIT_TABLE => {
            let in_port = resubmit_port(body)?;
            let table = Some(body.u8()?).filter(|table| *table != OFPTT_ALL);
            body.skip(3)?;
            Action::Resubmit { in_port, table }
        }
        NXAST_REG_MOVE => reg_move(body)?,
        NXAST_REG_LOAD => {
            let offset_bits = body.u16()?;
            let header = body.u32()?;
            let dst = SubField::from_wire(header, offset_bits >> 6, (offset_bits & 0x3f) + 1)?;
            Action::RegLoad { dst, value: body.u64()? }
        }
        NXAST_REG_LOAD2 => {
            let field = OxmField::decode_to_set(body)?;
            // What follows is padding.
            body.rest();
            Action::SetField(field)
        }
        NXAST_NOTE => Action::Note(body.rest().into()),
        NXAST_CONTROLLER => {
            let (max_len, controller_id, reason) = (body.u16()?, body.u16()?, body.u8()?);
            body.skip(1)?;
            match (controller_id, reason) {
                // What an output says as well, and is said so from here on.
                (0, OFPR_ACTION) => Action::Output { port: OFPP_CONTROLLER, max_len },
                _ => Action::Controller { max_len, controller_id, reason },
            }
        }
        _ => {
            return Err(DecodeError::new(
                ErrorCode::OFPBAC_BAD_EXP_TYPE,
                "this action of Nicira's is not supported",
            ));
        }
    })
}

fn resubmit_port(body: &mut Reader<'_>) -> Result<Option<u32>, DecodeError> {
    Ok(Some(widen_port(body.u16()?)).filter(|port| *port != OFPP_IN_PORT))
}

fn reg_move(body: &mut Reader<'_>) -> Result<Action, DecodeError> {
    let bits = body.u16()?;
    let (src_offset, dst_offset) = (body.u16()?, body.u16()?);
    let (src_header, dst_header) = (body.u32()?, body.u32()?);
    Ok(Action::RegMove {
        src: SubField::from_wire(src_header, src_offset, bits)?,
        dst: SubField::from_wire(dst_header, dst_offset, bits)?,
    })
}
