//! OFPT_FLOW_MOD (OF 1.3.5 §7.3.4.1).

use crate::action::Action;
use crate::error::{DecodeError, ErrorCode};
use crate::field::{Field, OFPVID_PRESENT, Prerequisite};
use crate::instruction::Instructions;
use crate::limits::VLAN_TAGS_MAX;
use crate::oxm::{Match, OxmField};
use crate::port::{OFP_NO_BUFFER, OFPG_ANY, OFPP_ANY, OFPTT_ALL};
use crate::wire::{Reader, Writer};

/// What a flow-mod does to the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowCommand {
    /// Add, replacing a flow of the same priority and match.
    Add = 0,
    /// Change the actions of all flows that the match covers.
    Modify = 1,
    /// Change the actions of the one flow of the same priority and match.
    ModifyStrict = 2,
    /// Delete all flows that the match covers.
    Delete = 3,
    /// Delete the one flow of the same priority and match.
    DeleteStrict = 4,
}

impl FlowCommand {
    fn from_wire(value: u8) -> Result<FlowCommand, DecodeError> {
        [
            FlowCommand::Add,
            FlowCommand::Modify,
            FlowCommand::ModifyStrict,
            FlowCommand::Delete,
            FlowCommand::DeleteStrict,
        ]
        .into_iter()
        .find(|command| *command as u8 == value)
        .ok_or(DecodeError::new(ErrorCode::OFPFMFC_BAD_COMMAND, "unknown flow-mod command"))
    }

    /// Whether flows are deleted; priority, actions and timeouts then do not matter (priority
    /// does to a strict deletion).
    pub fn is_delete(self) -> bool {
        matches!(self, FlowCommand::Delete | FlowCommand::DeleteStrict)
    }
}

/// `OFPFF_*`: the flags of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowFlags(u16);

impl FlowFlags {
    /// Send OFPT_FLOW_REMOVED when the flow goes.
    pub const SEND_FLOW_REM: FlowFlags = FlowFlags(1);
    /// Refuse an addition that overlaps a flow of the same priority.
    pub const CHECK_OVERLAP: FlowFlags = FlowFlags(1 << 1);
    /// Reset the counters on an addition or modification.
    pub const RESET_COUNTS: FlowFlags = FlowFlags(1 << 2);
    /// Packets need not be counted.
    pub const NO_PACKET_COUNTS: FlowFlags = FlowFlags(1 << 3);
    /// Bytes need not be counted.
    pub const NO_BYTE_COUNTS: FlowFlags = FlowFlags(1 << 4);

    /// The flags and their names in flow text.
    pub const NAMES: [(FlowFlags, &'static str); 5] = [
        (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
        (FlowFlags::CHECK_OVERLAP, "check_overlap"),
        (FlowFlags::RESET_COUNTS, "reset_counts"),
        (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts"),
        (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts"),
    ];

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: FlowFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those that the flow keeps, without those that concern its adding alone.
    pub fn lasting(self) -> FlowFlags {
        FlowFlags(self.0 & !(FlowFlags::CHECK_OVERLAP.0 | FlowFlags::RESET_COUNTS.0))
    }

    /// The wire representation.
    pub fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_wire(bits: u16) -> Result<FlowFlags, DecodeError> {
        if bits & !0x1f != 0 {
            return Err(DecodeError::new(ErrorCode::OFPFMFC_BAD_FLAGS, "unknown flow flag"));
        }
        Ok(FlowFlags(bits))
    }
}

impl std::ops::BitOr for FlowFlags {
    type Output = FlowFlags;

    fn bitor(self, other: FlowFlags) -> FlowFlags {
        FlowFlags(self.0 | other.0)
    }
}

/// Priority of a flow that names none.
pub const DEFAULT_PRIORITY: u16 = 0x8000;

/// A change of the flow tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// The flow's cookie; on modify and delete the value that `cookie_mask` selects by.
    pub cookie: u64,
    /// On modify and delete: bits of the cookie that must match. Zero: no restriction.
    pub cookie_mask: u64,
    /// Table, or [`OFPTT_ALL`] in deletions.
    pub table_id: u8,
    /// What to do.
    pub command: FlowCommand,
    /// Seconds without a packet after which the flow goes; 0 = never.
    pub idle_timeout_s: u16,
    /// Seconds after which the flow goes; 0 = never.
    pub hard_timeout_s: u16,
    /// Priority; higher wins.
    pub priority: u16,
    /// Buffered packet to apply the flow to, or `OFP_NO_BUFFER`.
    pub buffer_id: u32,
    /// Deletions: only flows that output to this port; `OFPP_ANY`: no restriction.
    pub out_port: u32,
    /// Deletions: only flows that output to this group; `OFPG_ANY`: no restriction.
    pub out_group: u32,
    /// Flags.
    pub flags: FlowFlags,
    /// What it matches.
    pub matcher: Match,
    /// What it does.
    pub instructions: Instructions,
}

impl FlowMod {
    /// A flow-mod of `command` in table 0 (deletions: all tables), everything else at its
    /// default.
    pub fn new(command: FlowCommand) -> FlowMod {
        FlowMod {
            cookie: 0,
            cookie_mask: 0,
            table_id: if command.is_delete() { OFPTT_ALL } else { 0 },
            command,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            priority: DEFAULT_PRIORITY,
            buffer_id: OFP_NO_BUFFER,
            out_port: OFPP_ANY,
            out_group: OFPG_ANY,
            flags: FlowFlags::default(),
            matcher: Match::any(),
            instructions: Instructions::default(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u64(self.cookie);
        out.u64(self.cookie_mask);
        out.u8(self.table_id);
        out.u8(self.command as u8);
        out.u16(self.idle_timeout_s);
        out.u16(self.hard_timeout_s);
        out.u16(self.priority);
        out.u32(self.buffer_id);
        out.u32(self.out_port);
        out.u32(self.out_group);
        out.u16(self.flags.0);
        out.zeros(2);
        self.matcher.encode(out);
        self.instructions.encode(out);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<FlowMod, DecodeError> {
        let cookie = input.u64()?;
        let cookie_mask = input.u64()?;
        let table_id = input.u8()?;
        let command = FlowCommand::from_wire(input.u8()?)?;
        let mut flow_mod = FlowMod { cookie, cookie_mask, table_id, ..FlowMod::new(command) };
        flow_mod.idle_timeout_s = input.u16()?;
        flow_mod.hard_timeout_s = input.u16()?;
        flow_mod.priority = input.u16()?;
        flow_mod.buffer_id = input.u32()?;
        flow_mod.out_port = input.u32()?;
        flow_mod.out_group = input.u32()?;
        flow_mod.flags = FlowFlags::from_wire(input.u16()?)?;
        input.skip(2)?;
        flow_mod.matcher = Match::decode(input)?;
        let instructions = Reader::new(input.rest(), ErrorCode::OFPBIC_BAD_LEN);
        flow_mod.instructions = Instructions::decode(instructions)?;
        if !command.is_delete() {
            check_consistency(table_id, &flow_mod.matcher, &flow_mod.instructions)?;
        }
        Ok(flow_mod)
    }
}

/// Whether the instructions can be executed on every packet that the match admits: a field is
/// set at once only where it exists, a tag is popped only where there is one, and the pipeline
/// only goes forward.
pub fn check_consistency(
    table_id: u8,
    matcher: &Match,
    instructions: &Instructions,
) -> Result<(), DecodeError> {
    if instructions.goto_table().is_some_and(|next| next <= table_id || next == OFPTT_ALL) {
        return Err(DecodeError::new(
            ErrorCode::OFPBIC_BAD_TABLE_ID,
            "goto_table must name a later table",
        ));
    }
    let (apply, write) = (instructions.apply_actions(), instructions.write_actions());
    let inconsistent = first_inconsistent(matcher, apply).is_some()
        || first_inconsistent_in_set(matcher, apply, write).is_some();
    if inconsistent {
        return Err(DecodeError::new(
            ErrorCode::OFPBAC_MATCH_INCONSISTENT,
            "the match does not guarantee what an action needs",
        ));
    }
    Ok(())
}

/// The first action whose prerequisite the match does not guarantee, with the prerequisite.
pub fn first_inconsistent(matcher: &Match, actions: &[Action]) -> Option<(usize, Prerequisite)> {
    let mut frame = Guaranteed::by(matcher);
    let mut lacking = actions.iter().enumerate().filter_map(|(i, a)| Some((i, frame.lacks(a)?)));
    lacking.next()
}

/// The same for the actions that are `written` to the action set after others were `applied`. As
/// in Open vSwitch, those that do nothing to a packet without a tag or a TTL are let pass: what the
/// set is executed on may have come through other tables.
pub fn first_inconsistent_in_set(
    matcher: &Match,
    applied: &[Action],
    written: &[Action],
) -> Option<(usize, Prerequisite)> {
    let mut frame = Guaranteed::by(matcher);
    applied.iter().for_each(|action| _ = frame.lacks(action));
    let mut lacking = written.iter().enumerate().filter_map(|(index, action)| {
        let lacks = frame.lacks(action);
        match action {
            Action::PopVlan | Action::DecNwTtl | Action::SetNwTtl(_) => None,
            _ => Some((index, lacks?)),
        }
    });
    lacking.next()
}

/// What is known about every packet of a match while actions are done to it.
struct Guaranteed<'a> {
    matcher: &'a Match,
    /// Tags, as far as the match can say: none or one, and those pushed.
    tags: u32,
}

impl Guaranteed<'_> {
    fn by(matcher: &Match) -> Guaranteed<'_> {
        Guaranteed { matcher, tags: u32::from(Prerequisite::Vlan.satisfied_by(matcher)) }
    }

    fn meets(&self, needed: Prerequisite) -> bool {
        match needed {
            Prerequisite::Vlan => self.tags > 0,
            other => other.satisfied_by(self.matcher),
        }
    }

    /// What an action needs that is not guaranteed; then it is taken to be done.
    fn lacks(&mut self, action: &Action) -> Option<Prerequisite> {
        let needed = match action {
            Action::PopVlan => [Prerequisite::Vlan; 2],
            Action::DecNwTtl | Action::SetNwTtl(_) => [Prerequisite::Ip; 2],
            Action::SetField(field) => [needed_to_write(field.field()); 2],
            Action::RegLoad { dst, .. } => [needed_to_write(dst.field()); 2],
            Action::RegMove { src, dst } => {
                [src.field().info().prerequisite, needed_to_write(dst.field())]
            }
            Action::PushVlan(_)
            | Action::Output { .. }
            | Action::Group(_)
            | Action::Resubmit { .. }
            | Action::Note(_)
            | Action::Controller { .. } => [Prerequisite::None; 2],
        };
        let lacking = needed.into_iter().find(|needed| !self.meets(*needed));
        match action {
            Action::PushVlan(_) => self.tags += 1,
            Action::PopVlan => self.tags = self.tags.saturating_sub(1),
            _ => {}
        }
        lacking
    }
}

/// Whether the actions would give every packet of the match more than [`VLAN_TAGS_MAX`] tags.
pub fn pushes_too_many_tags<'a>(
    matcher: &Match,
    actions: impl IntoIterator<Item = &'a Action>,
) -> bool {
    let mut frame = Guaranteed::by(matcher);
    actions.into_iter().any(|action| {
        frame.lacks(action);
        frame.tags > VLAN_TAGS_MAX
    })
}

/// What must be matched for a field to be there to write to. (An untagged packet has a VLAN id to
/// match, but none to set.)
fn needed_to_write(field: Field) -> Prerequisite {
    match field {
        Field::VlanVid => Prerequisite::Vlan,
        _ => field.info().prerequisite,
    }
}

/// `vlan_vid` of a tagged packet with this VLAN id.
pub fn tagged_vid(vid: u16) -> OxmField {
    OxmField::exact(Field::VlanVid, vid & 0xfff | OFPVID_PRESENT)
}
