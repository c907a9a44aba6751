//! Groups, as far as a switch without them must understand: OFPT_GROUP_MOD (OF 1.3.5 §7.3.4.2) and
//! what is asked about them (§7.3.5.9 to §7.3.5.11).

use crate::error::{DecodeError, ErrorCode};
use crate::wire::{Reader, Writer};

/// All groups, in deletions and requests.
pub const OFPG_ALL: u32 = 0xffff_fffc;

/// What a group-mod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupCommand {
    /// A new group.
    Add = 0,
    /// Replace a group.
    Modify = 1,
    /// Remove a group, or all.
    Delete = 2,
}

/// OFPT_GROUP_MOD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// What to do.
    pub command: GroupCommand,
    /// `OFPGT_*`.
    pub group_type: u8,
    /// Which group, or [`OFPG_ALL`] in deletions.
    pub group_id: u32,
    /// The buckets, as they stand on the wire.
    pub buckets: Vec<u8>,
}

impl GroupMod {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u16(self.command as u16);
        out.u8(self.group_type);
        out.zeros(1);
        out.u32(self.group_id);
        out.put(&self.buckets);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<GroupMod, DecodeError> {
        let command = match input.u16()? {
            0 => GroupCommand::Add,
            1 => GroupCommand::Modify,
            2 => GroupCommand::Delete,
            _ => {
                return Err(DecodeError::new(
                    ErrorCode::OFPGMFC_BAD_COMMAND,
                    "unknown group-mod command",
                ));
            }
        };
        let group_type = input.u8()?;
        input.skip(1)?;
        let group_id = input.u32()?;
        Ok(GroupMod { command, group_type, group_id, buckets: input.rest().to_vec() })
    }
}

/// What groups the switch can have; all zero for a switch without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Bit n: groups of type n.
    pub types: u32,
    /// `OFPGFC_*` bits.
    pub capabilities: u32,
    /// How many of each type.
    pub max_groups: [u32; 4],
    /// For each type, bit n: actions of type n.
    pub actions: [u32; 4],
}

impl GroupFeatures {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.types);
        out.u32(self.capabilities);
        self.max_groups.iter().chain(&self.actions).for_each(|value| out.u32(*value));
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<GroupFeatures, DecodeError> {
        let types = input.u32()?;
        let capabilities = input.u32()?;
        let mut four = || Ok([input.u32()?, input.u32()?, input.u32()?, input.u32()?]);
        Ok(GroupFeatures { types, capabilities, max_groups: four()?, actions: four()? })
    }
}
