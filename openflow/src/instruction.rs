//! Instructions (OF 1.3.5 §7.2.4).

use crate::action::{Action, Actions, TOO_MANY};
use crate::error::{DecodeError, ErrorCode};
use crate::limits::ACTIONS_MAX;
use crate::wire::{Pad, Reader, Writer};

/// One step of what a matching flow does. The variants stand in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Apply a meter, which may drop the packet.
    Meter(u32),
    /// Execute actions at once.
    ApplyActions(Actions),
    /// Empty the action set.
    ClearActions,
    /// Merge actions into the action set.
    WriteActions(Actions),
    /// Write the bits of `mask` into the metadata register.
    WriteMetadata {
        /// New value of the bits.
        metadata: u64,
        /// Bits that are written.
        mask: u64,
    },
    /// Continue in a later table.
    GotoTable(u8),
}

const OFPIT_GOTO_TABLE: u16 = 1;
const OFPIT_WRITE_METADATA: u16 = 2;
const OFPIT_WRITE_ACTIONS: u16 = 3;
const OFPIT_APPLY_ACTIONS: u16 = 4;
const OFPIT_CLEAR_ACTIONS: u16 = 5;
const OFPIT_METER: u16 = 6;
const OFPIT_EXPERIMENTER: u16 = 0xffff;

impl Instruction {
    /// Place in the order of execution (OF 1.3.5 §5.9).
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Instruction::Meter(_) => 0,
            Instruction::ApplyActions(_) => 1,
            Instruction::ClearActions => 2,
            Instruction::WriteActions(_) => 3,
            Instruction::WriteMetadata { .. } => 4,
            Instruction::GotoTable(_) => 5,
        }
    }

    fn encode(&self, out: &mut Writer) {
        let kind = match self {
            Instruction::Meter(_) => OFPIT_METER,
            Instruction::ApplyActions(_) => OFPIT_APPLY_ACTIONS,
            Instruction::ClearActions => OFPIT_CLEAR_ACTIONS,
            Instruction::WriteActions(_) => OFPIT_WRITE_ACTIONS,
            Instruction::WriteMetadata { .. } => OFPIT_WRITE_METADATA,
            Instruction::GotoTable(_) => OFPIT_GOTO_TABLE,
        };
        out.element(kind, Pad::Counted, |out| match self {
            Instruction::Meter(meter) => out.u32(*meter),
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                out.zeros(4);
                actions.encode(out);
            }
            Instruction::ClearActions => out.zeros(4),
            Instruction::WriteMetadata { metadata, mask } => {
                out.zeros(4);
                out.u64(*metadata);
                out.u64(*mask);
            }
            Instruction::GotoTable(table) => out.u8(*table),
        });
    }

    fn decode(kind: u16, mut body: Reader<'_>) -> Result<Instruction, DecodeError> {
        let instruction = match kind {
            OFPIT_METER => Instruction::Meter(body.u32()?),
            OFPIT_APPLY_ACTIONS | OFPIT_WRITE_ACTIONS => {
                body.skip(4)?;
                let actions = Actions::decode(Reader::new(body.rest(), ErrorCode::OFPBAC_BAD_LEN))?;
                match kind {
                    OFPIT_APPLY_ACTIONS => Instruction::ApplyActions(actions),
                    _ => Instruction::WriteActions(actions),
                }
            }
            OFPIT_CLEAR_ACTIONS => {
                body.skip(4)?;
                Instruction::ClearActions
            }
            OFPIT_WRITE_METADATA => {
                body.skip(4)?;
                Instruction::WriteMetadata { metadata: body.u64()?, mask: body.u64()? }
            }
            OFPIT_GOTO_TABLE => {
                let table = body.u8()?;
                body.skip(3)?;
                Instruction::GotoTable(table)
            }
            OFPIT_EXPERIMENTER => {
                return Err(DecodeError::new(
                    ErrorCode::OFPBIC_BAD_EXPERIMENTER,
                    "experimenter instructions are not supported",
                ));
            }
            _ => {
                return Err(DecodeError::new(
                    ErrorCode::OFPBIC_UNKNOWN_INST,
                    "unknown instruction type",
                ));
            }
        };
        if !body.is_empty() {
            return Err(DecodeError::new(ErrorCode::OFPBIC_BAD_LEN, "instruction too long"));
        }
        Ok(instruction)
    }
}

/// What a flow does: at most one instruction of each type, in the order of execution, with at
/// most [`ACTIONS_MAX`] actions together. Empty: the packet is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions(Vec<Instruction>);

impl Instructions {
    /// Sorts the instructions and checks them.
    pub fn new(mut instructions: Vec<Instruction>) -> Result<Instructions, DecodeError> {
        instructions.sort_by_key(Instruction::rank);
        if instructions.windows(2).any(|p| matches!(p, [a, b] if a.rank() == b.rank())) {
            return Err(DecodeError::new(
                ErrorCode::OFPBIC_DUP_INST,
                "an instruction type comes twice",
            ));
        }
        let instructions = Instructions(instructions);
        if instructions.apply_actions().len() + instructions.write_actions().len() > ACTIONS_MAX {
            return Err(TOO_MANY);
        }
        if !instructions.write_actions().iter().all(Action::may_be_in_a_set) {
            return Err(DecodeError::new(
                ErrorCode::OFPBAC_BAD_TYPE,
                "an action that cannot be in an action set",
            ));
        }
        Ok(instructions)
    }

    /// The instructions, in the order of execution.
    pub fn iter(&self) -> std::slice::Iter<'_, Instruction> {
        self.0.iter()
    }

    /// The actions to execute at once; empty when there is no such instruction.
    pub fn apply_actions(&self) -> &[Action] {
        self.find(|i| if let Instruction::ApplyActions(a) = i { Some(&**a) } else { None })
            .unwrap_or_default()
    }

    /// The actions to merge into the action set; empty when there is no such instruction.
    pub fn write_actions(&self) -> &[Action] {
        self.find(|i| if let Instruction::WriteActions(a) = i { Some(&**a) } else { None })
            .unwrap_or_default()
    }

    /// Whether the action set is emptied first.
    pub fn clears_actions(&self) -> bool {
        self.0.contains(&Instruction::ClearActions)
    }

    /// Metadata to write: (value, mask).
    pub fn write_metadata(&self) -> Option<(u64, u64)> {
        self.find(|i| match i {
            Instruction::WriteMetadata { metadata, mask } => Some((*metadata, *mask)),
            _ => None,
        })
    }

    /// The table to continue in.
    pub fn goto_table(&self) -> Option<u8> {
        self.find(|i| if let Instruction::GotoTable(table) = i { Some(*table) } else { None })
    }

    /// The meter to apply.
    pub fn meter(&self) -> Option<u32> {
        self.find(|i| if let Instruction::Meter(meter) = i { Some(*meter) } else { None })
    }

    fn find<'a, T>(&'a self, pick: impl Fn(&'a Instruction) -> Option<T>) -> Option<T> {
        self.0.iter().find_map(pick)
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        self.0.iter().for_each(|instruction| instruction.encode(out));
    }

    /// Reads instructions until the end of `input`.
    pub(crate) fn decode(input: Reader<'_>) -> Result<Instructions, DecodeError> {
        let mut input = input.reporting(ErrorCode::OFPBIC_BAD_LEN);
        let mut instructions = Vec::new();
        while !input.is_empty() {
            let (kind, body) = input.element(Pad::Counted)?;
            if (body.len() + 4) % 8 != 0 {
                return Err(DecodeError::new(
                    ErrorCode::OFPBIC_BAD_LEN,
                    "instruction length not a multiple of 8",
                ));
            }
            instructions.push(Instruction::decode(kind, body)?);
        }
        Instructions::new(instructions)
    }
}
