//! From OpenFlow's instructions to a [`Program`]: what is not supported is refused here, with the
//! error that the specification has for it.

use tollgate_openflow::event::OFPR_ACTION;
use tollgate_openflow::field::Prerequisite;
use tollgate_openflow::flow_mod::{check_consistency, first_inconsistent};
use tollgate_openflow::port::{
    OFPP_ALL, OFPP_CONTROLLER, OFPP_FLOOD, OFPP_IN_PORT, OFPP_NORMAL, OFPP_TABLE,
};
use tollgate_openflow::{Action, ErrorCode, Field, Instructions, Match};
use tollgate_packet::limits::MAX_VLAN_TAGS;

use super::error::FlowError;
use super::limits::TABLES;
use super::program::{Program, Step, Target};
use crate::limits::MAX_OFPORT;

/// Compiles the instructions of a rule in `table` with this match. Whether the meter is there is
/// still to be seen.
pub(super) fn compile(
    table: u8,
    matcher: &Match,
    instructions: &Instructions,
) -> Result<Program, FlowError> {
    check_consistency(table, matcher, instructions)?;
    check_tags(matcher, instructions.apply_actions().iter().chain(instructions.write_actions()))?;
    let goto_table = instructions.goto_table();
    if goto_table.is_some_and(|next| next >= TABLES) {
        return Err(FlowError::new(ErrorCode::OFPBIC_BAD_TABLE_ID, "there is no such table"));
    }
    Ok(Program {
        meter: instructions.meter(),
        apply: steps(instructions.apply_actions())?,
        clear: instructions.clears_actions(),
        write: steps(instructions.write_actions())?,
        metadata: instructions.write_metadata(),
        goto_table,
    })
}

/// Compiles the list of a packet-out; `matcher` is what is known of the packet.
pub(super) fn compile_list(matcher: &Match, actions: &[Action]) -> Result<Box<[Step]>, FlowError> {
    if first_inconsistent(matcher, actions).is_some() {
        return Err(FlowError::new(
            ErrorCode::OFPBAC_MATCH_INCONSISTENT,
            "the packet does not have what an action needs",
        ));
    }
    check_tags(matcher, actions.iter())?;
    let in_list = |action: &Action| match action {
        Action::Output { port: OFPP_TABLE, .. } => Ok(Step::Output(Target::Table)),
        action => step(action),
    };
    actions.iter().map(in_list).collect()
}

/// Refuses lists that would give every packet of the match more tags than it can carry.
fn check_tags<'a>(
    matcher: &Match,
    actions: impl Iterator<Item = &'a Action>,
) -> Result<(), FlowError> {
    let mut tags = usize::from(Prerequisite::Vlan.satisfied_by(matcher));
    for action in actions {
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
        // The packet is not buffered, so all of it is sent.
        Action::Output { port: OFPP_CONTROLLER, .. } => {
            Step::Controller { controller_id: 0, reason: OFPR_ACTION }
        }
        Action::Output { port, .. } => Step::Output(target(*port)?),
        Action::SetField(field) => set(field.field(), field.value(), field.mask())?,
        Action::RegLoad { dst, value } => {
            set(dst.field(), u128::from(*value) << dst.offset(), dst.mask())?
        }
        Action::RegMove { src, dst } => Step::Move { src: *src, dst: *dst },
        Action::PushVlan(tpid) => Step::PushVlan { tpid: *tpid },
        Action::PopVlan => Step::PopVlan,
        Action::DecNwTtl => Step::DecTtl,
        Action::SetNwTtl(ttl) => set(Field::NwTtl, (*ttl).into(), Field::NwTtl.full_mask())?,
        Action::Resubmit { table: Some(table), .. } if *table >= TABLES => {
            return Err(FlowError::new(
                ErrorCode::OFPBAC_BAD_ARGUMENT,
                "a resubmit names a table that is not there",
            ));
        }
        Action::Resubmit { in_port, table } => Step::Resubmit { in_port: *in_port, table: *table },
        Action::Note(_) => Step::Note,
        Action::Controller { controller_id, reason, .. } => {
            Step::Controller { controller_id: *controller_id, reason: *reason }
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
            "output goes to a port number, IN_PORT, ALL, FLOOD, NORMAL or CONTROLLER",
        )),
    }
}

/// A VLAN id has its present bit with it, which is not the field's to set.
fn set(field: Field, value: u128, mask: u128) -> Result<Step, FlowError> {
    let refused = |code, detail| Err(FlowError::new(code, detail));
    match field {
        Field::ArpOp if value & mask > u128::from(u8::MAX) => {
            refused(ErrorCode::OFPBAC_BAD_SET_ARGUMENT, "ARP opcodes beyond 255 cannot be set")
        }
        field if !field.info().settable => {
            refused(ErrorCode::OFPBAC_BAD_SET_TYPE, "this field cannot be set")
        }
        Field::VlanVid => Ok(Step::Set { field, value: value & 0xfff, mask: mask & 0xfff }),
        field => Ok(Step::Set { field, value, mask }),
    }
}
