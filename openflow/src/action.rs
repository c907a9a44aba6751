//! Actions (OF 1.3.5 §7.2.5).

use crate::error::{DecodeError, ErrorCode};
use crate::event::{OFPR_ACTION, OFPR_INVALID_TTL};
use crate::field::{Field, OFPVID_PRESENT};
use crate::limits::{ACTIONS_MAX, NOTES_MAX_BYTES};
use crate::nicira;
use crate::oxm::OxmField;
use crate::port::{OFPP_ANY, OFPP_IN_PORT, OFPP_MAX, OFPTT_ALL, narrow_port};
use crate::subfield::SubField;
use crate::wire::{Pad, Reader, Writer};

/// What is done to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send it out of a port, physical or reserved.
    Output {
        /// OpenFlow port number.
        port: u32,
        /// Bytes sent to the controller; meaningful for `OFPP_CONTROLLER` only.
        max_len: u16,
    },
    /// Overwrite a field, or the bits of the mask (`NXAST_REG_LOAD2`).
    SetField(OxmField),
    /// Push a tag with this Ethernet type, 0x8100 or 0x88a8.
    PushVlan(u16),
    /// Remove the outer tag.
    PopVlan,
    /// Decrement the TTL or hop limit; a packet at 1 or less is not forwarded.
    DecNwTtl,
    /// Overwrite the TTL or hop limit.
    SetNwTtl(u8),
    /// Process by a group.
    Group(u32),
    /// Overwrite bits of a field with a number (`NXAST_REG_LOAD`).
    RegLoad {
        /// Where to; at most 64 bits.
        dst: SubField,
        /// What, in the low bits.
        value: u64,
    },
    /// Copy bits of one field to as many of another (`NXAST_REG_MOVE`).
    RegMove {
        /// Where from.
        src: SubField,
        /// Where to.
        dst: SubField,
    },
    /// Look the packet up again and do as that says, then go on (`NXAST_RESUBMIT_TABLE`). At
    /// least one of the two is given.
    Resubmit {
        /// The ingress port during the lookup, if not the packet's own.
        in_port: Option<u32>,
        /// The table, if not the present one.
        table: Option<u8>,
    },
    /// Does nothing (`NXAST_NOTE`). The wire has room for 6 bytes, 14, 22 ...: see
    /// [`Action::note`].
    Note(Box<[u8]>),
    /// Send to the controllers of one id (`NXAST_CONTROLLER`).
    Controller {
        /// Bytes sent.
        max_len: u16,
        /// Which controllers; 0 is what they all have at first.
        controller_id: u16,
        /// `OFPR_*`: the reason given to the controller.
        reason: u8,
    },
}

const OFPAT_OUTPUT: u16 = 0;
const OFPAT_PUSH_VLAN: u16 = 17;
const OFPAT_POP_VLAN: u16 = 18;
const OFPAT_GROUP: u16 = 22;
const OFPAT_SET_NW_TTL: u16 = 23;
const OFPAT_DEC_NW_TTL: u16 = 24;
const OFPAT_SET_FIELD: u16 = 25;
const OFPAT_EXPERIMENTER: u16 = 0xffff;

/// Ethernet types that a pushed VLAN tag can have.
pub const VLAN_TPIDS: [u16; 2] = [0x8100, 0x88a8];

impl Action {
    fn encode(&self, out: &mut Writer) {
        let kind = match self {
            Action::Output { .. } => OFPAT_OUTPUT,
            Action::SetField(field) if field.is_exact() => OFPAT_SET_FIELD,
            Action::SetField(_)
            | Action::RegLoad { .. }
            | Action::RegMove { .. }
            | Action::Resubmit { .. }
            | Action::Note(_)
            | Action::Controller { .. } => OFPAT_EXPERIMENTER,
            Action::PushVlan(_) => OFPAT_PUSH_VLAN,
            Action::PopVlan => OFPAT_POP_VLAN,
            Action::SetNwTtl(_) => OFPAT_SET_NW_TTL,
            Action::DecNwTtl => OFPAT_DEC_NW_TTL,
            Action::Group(_) => OFPAT_GROUP,
        };
        out.element(kind, Pad::Counted, |out| match self {
            Action::Output { port, max_len } => {
                out.u32(*port);
                out.u16(*max_len);
            }
            Action::SetField(field) if field.is_exact() => field.encode_to_set(out),
            Action::PushVlan(tpid) => out.u16(*tpid),
            Action::PopVlan | Action::DecNwTtl => {}
            Action::SetNwTtl(ttl) => out.u8(*ttl),
            Action::Group(group) => out.u32(*group),
            Action::SetField(_)
            | Action::RegLoad { .. }
            | Action::RegMove { .. }
            | Action::Resubmit { .. }
            | Action::Note(_)
            | Action::Controller { .. } => nicira::encode(self, out),
        });
    }

    fn decode(kind: u16, mut body: Reader<'_>) -> Result<Action, DecodeError> {
        let action = match kind {
            OFPAT_OUTPUT => {
                let action = Action::Output { port: body.u32()?, max_len: body.u16()? };
                body.skip(6)?;
                action
            }
            OFPAT_SET_FIELD => return set_field(body),
            OFPAT_PUSH_VLAN => {
                let action = Action::PushVlan(body.u16()?);
                body.skip(2)?;
                action
            }
            OFPAT_POP_VLAN => {
                body.skip(4)?;
                Action::PopVlan
            }
            OFPAT_SET_NW_TTL => {
                let action = Action::SetNwTtl(body.u8()?);
                body.skip(3)?;
                action
            }
            OFPAT_DEC_NW_TTL => {
                body.skip(4)?;
                Action::DecNwTtl
            }
            OFPAT_GROUP => Action::Group(body.u32()?),
            OFPAT_EXPERIMENTER => nicira::decode(&mut body)?,
            _ => {
                return Err(DecodeError::new(
                    ErrorCode::OFPBAC_BAD_TYPE,
                    "unsupported action type",
                ));
            }
        };
        if !body.is_empty() {
            return Err(DecodeError::new(ErrorCode::OFPBAC_BAD_LEN, "action longer than its type"));
        }
        Ok(action)
    }

    /// Whether the arguments make sense by themselves.
    fn check(&self) -> Result<(), DecodeError> {
        match self {
            Action::Output { port, .. }
                if *port == 0
                    || *port == OFPP_ANY
                    || (OFPP_MAX + 1..OFPP_IN_PORT).contains(port) =>
            {
                Err(DecodeError::new(ErrorCode::OFPBAC_BAD_OUT_PORT, "no such output port"))
            }
            Action::PushVlan(tpid) if !VLAN_TPIDS.contains(tpid) => Err(DecodeError::new(
                ErrorCode::OFPBAC_BAD_ARGUMENT,
                "a VLAN tag has type 0x8100 or 0x88a8",
            )),
            Action::SetField(field) => check_set_field(field),
            Action::RegLoad { dst, value } => {
                dst.check_writable()?;
                let fits = dst.bits() >= 64 || value >> dst.bits() == 0;
                if dst.bits() <= 64 && fits { Ok(()) } else { Err(LOAD_TOO_WIDE) }
            }
            Action::RegMove { src, dst } if src.bits() != dst.bits() => Err(MOVE_WIDTHS),
            Action::RegMove { dst, .. } => dst.check_writable(),
            Action::Resubmit { in_port: None, table: None } => Err(RESUBMIT_TO_NOTHING),
            Action::Resubmit { table: Some(OFPTT_ALL), .. }
            | Action::Resubmit { in_port: Some(OFPP_IN_PORT), .. } => Err(RESUBMIT_TO_NOTHING),
            Action::Resubmit { in_port: Some(port), .. } if narrow_port(*port).is_none() => {
                Err(DecodeError::new(ErrorCode::OFPBAC_BAD_ARGUMENT, "no such ingress port"))
            }
            Action::Controller { controller_id: 0, reason: OFPR_ACTION, .. } => {
                Err(DecodeError::new(ErrorCode::OFPBAC_BAD_ARGUMENT, "an output says this"))
            }
            Action::Controller { reason, .. } if *reason > OFPR_INVALID_TTL => {
                Err(DecodeError::new(ErrorCode::OFPBAC_BAD_ARGUMENT, "no such reason"))
            }
            Action::Note(note) if note.len() % 8 != 6 => {
                Err(DecodeError::new(ErrorCode::OFPBAC_BAD_LEN, "a note of no possible length"))
            }
            _ => Ok(()),
        }
    }
}

const CANNOT_SET: DecodeError =
    DecodeError::new(ErrorCode::OFPBAC_BAD_SET_TYPE, "field cannot be set");
const LOAD_TOO_WIDE: DecodeError = DecodeError::new(
    ErrorCode::OFPBAC_BAD_ARGUMENT,
    "a value has more bits than are loaded, or these are more than 64",
);
const MOVE_WIDTHS: DecodeError = DecodeError::new(
    ErrorCode::OFPBAC_BAD_ARGUMENT,
    "source and destination of a move differ in width",
);
const RESUBMIT_TO_NOTHING: DecodeError = DecodeError::new(
    ErrorCode::OFPBAC_BAD_ARGUMENT,
    "a resubmit names neither a port nor a table, or no such table",
);

fn check_set_field(field: &OxmField) -> Result<(), DecodeError> {
    if !field.field().info().settable || field.mask() == 0 {
        return Err(CANNOT_SET);
    }
    let present = u128::from(OFPVID_PRESENT);
    if field.field() == Field::VlanVid
        && field.mask() & present != 0
        && field.value() & present == 0
    {
        return Err(DecodeError::new(
            ErrorCode::OFPBAC_BAD_SET_ARGUMENT,
            "vlan_vid set without its present bit",
        ));
    }
    Ok(())
}

impl Action {
    /// Whether it can wait in an action set (as in Open vSwitch).
    pub fn may_be_in_a_set(&self) -> bool {
        !matches!(self, Action::Note(_) | Action::Controller { .. })
    }

    /// A note, padded with zeros to a length that the wire can carry.
    pub fn note(bytes: &[u8]) -> Action {
        let mut note = bytes.to_vec();
        note.resize(bytes.len() + (6_usize.wrapping_sub(bytes.len()) & 7), 0);
        Action::Note(note.into())
    }
}

fn set_field(mut body: Reader<'_>) -> Result<Action, DecodeError> {
    let field = OxmField::decode_to_set(&mut body)?;
    if !field.is_exact() {
        return Err(CANNOT_SET);
    }
    if body.len() >= 8 {
        return Err(DecodeError::new(ErrorCode::OFPBAC_BAD_LEN, "set_field longer than its field"));
    }
    Ok(Action::SetField(field))
}

/// A list of at most [`ACTIONS_MAX`] actions, in the order of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Actions(Vec<Action>);

impl Actions {
    /// Checks the length and each action's arguments.
    pub fn new(actions: Vec<Action>) -> Result<Actions, DecodeError> {
        let note_bytes = |action: &Action| match action {
            Action::Note(note) => note.len(),
            _ => 0,
        };
        let notes: usize = actions.iter().map(note_bytes).sum();
        if actions.len() > ACTIONS_MAX || notes > NOTES_MAX_BYTES {
            return Err(TOO_MANY);
        }
        actions.iter().try_for_each(Action::check)?;
        Ok(Actions(actions))
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        self.0.iter().for_each(|action| action.encode(out));
    }

    /// Reads actions until the end of `input`.
    pub(crate) fn decode(input: Reader<'_>) -> Result<Actions, DecodeError> {
        let mut input = input.reporting(ErrorCode::OFPBAC_BAD_LEN);
        let mut actions = Vec::new();
        while !input.is_empty() {
            if actions.len() == ACTIONS_MAX {
                return Err(TOO_MANY);
            }
            let (kind, body) = input.element(Pad::Counted)?;
            if (body.len() + 4) % 8 != 0 {
                return Err(DecodeError::new(
                    ErrorCode::OFPBAC_BAD_LEN,
                    "action length not a multiple of 8",
                ));
            }
            actions.push(Action::decode(kind, body)?);
        }
        Actions::new(actions)
    }
}

pub(crate) const TOO_MANY: DecodeError =
    DecodeError::new(ErrorCode::OFPBAC_TOO_MANY, "too many actions");

impl std::ops::Deref for Actions {
    type Target = [Action];

    fn deref(&self) -> &[Action] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Actions {
    type Item = &'a Action;
    type IntoIter = std::slice::Iter<'a, Action>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
