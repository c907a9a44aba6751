//! From OpenFlow's instructions to a [`Program`]: what is not supported is refused here, with the
//! error that the specification has for it.

use tollgate_openflow::field::Prerequisite;
use tollgate_openflow::flow_mod::check_consistency;
use tollgate_openflow::port::{OFPP_ALL, OFPP_FLOOD, OFPP_IN_PORT, OFPP_NORMAL};
use tollgate_openflow::{Action, ErrorCode, Field, Instructions, Match, OxmField};
use tollgate_packet::edit::Edit;
use tollgate_packet::limits::MAX_VLAN_TAGS;

use super::error::FlowError;
use super::limits::TABLES;
use super::matching::header_field;
use super::program::{Program, Step, Target};
use crate::limits::MAX_OFPORT;

/// Compiles the instructions of a rule in `table` with this match.
pub(super) fn compile(
    table: u8,
    matcher: &Match,
    instructions: &Instructions,
) -> Result<Program, FlowError> {
    if instructions.meter().is_some() {
        return Err(FlowError::new(ErrorCode::OFPBIC_UNSUP_INST, "meters are not supported"));
    }
    check_consistency(table, matcher, instructions)?;
    check_tags(matcher, instructions)?;
    let goto_table = instructions.goto_table();
    if goto_table.is_some_and(|next| next >= TABLES) {
        return Err(FlowError::new(ErrorCode::OFPBIC_BAD_TABLE_ID, "there is no such table"));
    }
    Ok(Program {
        apply: steps(instructions.apply_actions())?,
        clear: instructions.clears_actions(),
        write: steps(instructions.write_actions())?,
        metadata: instructions.write_metadata(),
        goto_table,
    })
}

/// Refuses lists that would give every packet of the match more tags than it can carry.
fn check_tags(matcher: &Match, instructions: &Instructions) -> Result<(), FlowError> {
    let mut tags = usize::from(Prerequisite::Vlan.satisfied_by(matcher));
    for action in instructions.apply_actions().iter().chain(instructions.write_actions()) {
        match action {
            Action::PopVlan => tags = tags.saturating_sub(1),
            Action::PushVlan(_) => tags += 1,
            _ => {}
        }
        if tags > MAX_VLAN_TAGS {
            return Err(FlowError::new(ErrorCode::OFPBAC_BAD_TAG, "too many VLAN tags"));
        }
    }
    Ok(())
}

fn steps(actions: &[Action]) -> Result<Box<[Step]>, FlowError> {
    actions.iter().map(step).collect()
}

fn step(action: &Action) -> Result<Step, FlowError> {
    Ok(match action {
        Action::Output { port, .. } => Step::Output(target(*port)?),
        Action::SetField(field) => Step::Edit(set_field(field)?),
        Action::PushVlan(tpid) => Step::Edit(Edit::PushVlan { tpid: *tpid }),
        Action::PopVlan => Step::Edit(Edit::PopVlan),
        Action::DecNwTtl => Step::Edit(Edit::DecTtl),
        Action::SetNwTtl(ttl) => Step::Edit(set_field(&OxmField::exact(Field::NwTtl, *ttl))?),
        Action::RegLoad { .. }
        | Action::RegMove { .. }
        | Action::Resubmit { .. }
        | Action::Note(_)
        | Action::Controller { .. } => {
            return Err(FlowError::new(
                ErrorCode::OFPBAC_BAD_TYPE,
                "this action is not supported yet",
            ));
        }
        Action::Group(_) => {
            return Err(FlowError::new(
                ErrorCode::OFPBAC_BAD_OUT_GROUP,
                "groups are not supported",
            ));
        }
    })
}

/// A port that is not there yet is accepted, as OVS does: it may come, and the rule waits for it.
fn target(port: u32) -> Result<Target, FlowError> {
    match port {
        OFPP_IN_PORT => Ok(Target::InPort),
        OFPP_NORMAL => Ok(Target::Normal),
        OFPP_FLOOD | OFPP_ALL => Ok(Target::Flood),
        1..=MAX_OFPORT => Ok(Target::Port(port)),
        _ => Err(FlowError::new(
            ErrorCode::OFPBAC_BAD_OUT_PORT,
            "output goes to a port number, IN_PORT, ALL, FLOOD or NORMAL",
        )),
    }
}

/// Whether actions can set the field.
pub(super) fn can_set(field: Field) -> bool {
    field.info().settable && header_field(field).is_some()
}

/// A VLAN id has its present bit with it, which is not the field's to set.
fn set_field(field: &OxmField) -> Result<Edit, FlowError> {
    let (Some(header_field), true) = (header_field(field.field()), can_set(field.field())) else {
        return Err(FlowError::new(ErrorCode::OFPBAC_BAD_SET_TYPE, "this field cannot be set"));
    };
    if field.field() == Field::ArpOp && field.value() > u128::from(u8::MAX) {
        return Err(FlowError::new(
            ErrorCode::OFPBAC_BAD_SET_ARGUMENT,
            "ARP opcodes beyond 255 cannot be set",
        ));
    }
    Ok(Edit::Set { field: header_field, value: field.value(), mask: field.mask() })
}
