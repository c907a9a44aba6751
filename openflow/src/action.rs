//! Actions (OF 1.3.5 §7.2.5).

use crate::error::{DecodeError, ErrorCode};
use crate::field::{Field, OFPVID_PRESENT};
use crate::limits::ACTIONS_MAX;
use crate::oxm::OxmField;
use crate::port::{OFPP_ANY, OFPP_IN_PORT, OFPP_MAX};
use crate::wire::{Pad, Reader, Writer};

/// What is done to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send it out of a port, physical or reserved.
    Output {
        /// OpenFlow port number.
        port: u32,
        /// Bytes sent to the controller; meaningful for `OFPP_CONTROLLER` only.
        max_len: u16,
    },
    /// Overwrite a field; always exact.
    SetField(OxmField),
    /// Push a tag with this Ethernet type, 0x8100 or 0x88a8.
    PushVlan(u16),
    /// Remove the outer tag.
    PopVlan,
    /// Decrement the TTL or hop limit; a packet at 1 or less is not forwarded.
    DecNwTtl,
    /// Process by a group.
    Group(u32),
}

const OFPAT_OUTPUT: u16 = 0;
const OFPAT_PUSH_VLAN: u16 = 17;
const OFPAT_POP_VLAN: u16 = 18;
const OFPAT_GROUP: u16 = 22;
const OFPAT_DEC_NW_TTL: u16 = 24;
const OFPAT_SET_FIELD: u16 = 25;
const OFPAT_EXPERIMENTER: u16 = 0xffff;

/// Ethernet types that a pushed VLAN tag can have.
pub const VLAN_TPIDS: [u16; 2] = [0x8100, 0x88a8];

impl Action {
    fn encode(&self, out: &mut Writer) {
        let kind = match self {
            Action::Output { .. } => OFPAT_OUTPUT,
            Action::SetField(_) => OFPAT_SET_FIELD,
            Action::PushVlan(_) => OFPAT_PUSH_VLAN,
            Action::PopVlan => OFPAT_POP_VLAN,
            Action::DecNwTtl => OFPAT_DEC_NW_TTL,
            Action::Group(_) => OFPAT_GROUP,
        };
        out.element(kind, Pad::Counted, |out| match self {
            Action::Output { port, max_len } => {
                out.u32(*port);
                out.u16(*max_len);
            }
            Action::SetField(field) => field.encode(out),
            Action::PushVlan(tpid) => out.u16(*tpid),
            Action::PopVlan | Action::DecNwTtl => {}
            Action::Group(group) => out.u32(*group),
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
            OFPAT_DEC_NW_TTL => {
                body.skip(4)?;
                Action::DecNwTtl
            }
            OFPAT_GROUP => Action::Group(body.u32()?),
            OFPAT_EXPERIMENTER => {
                return Err(DecodeError::new(
                    ErrorCode::OFPBAC_BAD_EXPERIMENTER,
                    "experimenter actions are not supported",
                ));
            }
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
        action.check()?;
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
            Action::SetField(field) if !field.is_exact() || !field.field().info().settable => {
                Err(CANNOT_SET)
            }
            Action::SetField(field)
                if field.field() == Field::VlanVid
                    && field.value() & u128::from(OFPVID_PRESENT) == 0 =>
            {
                Err(DecodeError::new(
                    ErrorCode::OFPBAC_BAD_SET_ARGUMENT,
                    "vlan_vid set without its present bit",
                ))
            }
            _ => Ok(()),
        }
    }
}

const CANNOT_SET: DecodeError =
    DecodeError::new(ErrorCode::OFPBAC_BAD_SET_TYPE, "field cannot be set, or not in part");

fn set_field(mut body: Reader<'_>) -> Result<Action, DecodeError> {
    let refused = |error: DecodeError| match error.code {
        ErrorCode::OFPBMC_BAD_LEN => DecodeError::new(ErrorCode::OFPBAC_BAD_SET_LEN, error.detail),
        ErrorCode::OFPBMC_BAD_VALUE | ErrorCode::OFPBMC_BAD_WILDCARDS => {
            DecodeError::new(ErrorCode::OFPBAC_BAD_SET_ARGUMENT, error.detail)
        }
        ErrorCode::OFPBAC_BAD_LEN => error,
        _ => DecodeError::new(ErrorCode::OFPBAC_BAD_SET_TYPE, error.detail),
    };
    let field = OxmField::decode(&mut body).map_err(refused)?;
    let action = Action::SetField(field.ok_or(CANNOT_SET)?);
    action.check()?;
    if body.len() >= 8 {
        return Err(DecodeError::new(ErrorCode::OFPBAC_BAD_LEN, "set_field longer than its field"));
    }
    Ok(action)
}

/// A list of at most [`ACTIONS_MAX`] actions, in the order of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Actions(Vec<Action>);

impl Actions {
    /// Checks the length and each action's arguments.
    pub fn new(actions: Vec<Action>) -> Result<Actions, DecodeError> {
        if actions.len() > ACTIONS_MAX {
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
        Ok(Actions(actions))
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
