//! What FLOW_MOD commands select, change and refuse.

use tollgate_openflow::port::{OFPP_LOCAL, OFPP_TABLE, OFPTT_ALL};
use tollgate_openflow::{
    Action, Actions, ErrorCode, Field, FlowCommand, FlowMod, Instruction, Instructions, OxmField,
};

use super::frames::Frame;
use super::sim::{NOWHERE, Sim, parsed};
use crate::pipeline::limits::TABLES;

/// Four rules, told apart by their priorities.
fn four_rules() -> Sim {
    let sim = Sim::new(4);
    sim.add("cookie=0x1,priority=1,ip,actions=output:2");
    sim.add("cookie=0x2,priority=2,ip,nw_dst=10.0.0.0/24,actions=output:3");
    sim.add("cookie=0x12,priority=3,tcp,nw_dst=10.0.0.1,tp_dst=80,actions=output:2");
    sim.add("table=2,cookie=0x2,priority=4,ip,nw_dst=10.0.0.0/24,actions=write_actions(output:2)");
    sim
}

fn priorities(sim: &Sim) -> Vec<u16> {
    let mut priorities: Vec<u16> = sim.flows().iter().map(|flow| flow.priority).collect();
    priorities.sort_unstable();
    priorities
}

fn left_after_delete(flow: &str) -> Vec<u16> {
    let sim = four_rules();
    sim.flow_mod(&parsed(FlowCommand::Delete, flow));
    priorities(&sim)
}

fn left_after_strict_delete(flow: &str) -> Vec<u16> {
    let sim = four_rules();
    sim.flow_mod(&parsed(FlowCommand::DeleteStrict, flow));
    priorities(&sim)
}

#[test]
fn a_loose_delete_takes_what_is_no_wider() {
    assert_eq!(left_after_delete(""), [0_u16; 0]);
    assert_eq!(left_after_delete("ip"), [0_u16; 0]);
    assert_eq!(left_after_delete("ip,nw_dst=10.0.0.0/24"), [1]);
    assert_eq!(left_after_delete("table=0,ip,nw_dst=10.0.0.0/24"), [1, 4]);
    assert_eq!(left_after_delete("ip,nw_dst=10.0.0.0/25"), [1, 2, 4]);
    assert_eq!(left_after_delete("udp"), [1, 2, 3, 4]);
    assert_eq!(left_after_delete("ipv6"), [1, 2, 3, 4]);
}

#[test]
fn a_strict_delete_takes_the_one_with_this_priority_and_match() {
    assert_eq!(left_after_strict_delete("priority=2,ip,nw_dst=10.0.0.0/24"), [1, 3, 4]);
    assert_eq!(left_after_strict_delete("priority=1,ip,nw_dst=10.0.0.0/24"), [1, 2, 3, 4]);
    assert_eq!(left_after_strict_delete("priority=2,ip"), [1, 2, 3, 4]);
    assert_eq!(left_after_strict_delete("table=2,priority=2,ip,nw_dst=10.0.0.0/24"), [1, 2, 3, 4]);
}

#[test]
fn deletes_are_restricted_by_cookie_and_output() {
    assert_eq!(left_after_delete("cookie=0x2/-1"), [1, 3]);
    assert_eq!(left_after_delete("cookie=0x2/0xf"), [1]);
    assert_eq!(left_after_delete("out_port=2"), [2]);
    assert_eq!(left_after_delete("out_port=2,table=0"), [2, 4]);
    assert_eq!(left_after_strict_delete("priority=1,ip,out_port=3"), [1, 2, 3, 4]);
}

#[test]
fn a_modify_changes_actions_and_nothing_else() {
    let mut sim = four_rules();
    sim.advance_ms(1500);
    let modify = parsed(
        FlowCommand::Modify,
        "cookie=0x77,idle_timeout=9,ip,nw_dst=10.0.0.0/24,actions=output:4",
    );
    sim.flow_mod(&modify);
    let flows = sim.flows();
    let changed: Vec<_> =
        flows.iter().filter(|flow| flow.instructions == modify.instructions).collect();
    assert_eq!(changed.iter().map(|flow| flow.priority).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(changed[1].cookie, 2);
    assert_eq!((changed[1].idle_timeout_s, changed[1].duration.as_millis()), (0, 1500));
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 1).build()), [4]);
    // Nothing to modify is no error and adds nothing.
    sim.flow_mod(&parsed(FlowCommand::ModifyStrict, "priority=99,ip,actions=output:4"));
    assert_eq!(priorities(&sim), [1, 2, 3, 4]);
    sim.flow_mod(&parsed(FlowCommand::ModifyStrict, "priority=1,ip,actions=drop"));
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), NOWHERE);
}

#[test]
fn an_addition_replaces_the_rule_of_the_same_priority_and_match() {
    let mut sim = four_rules();
    sim.advance_ms(1000);
    sim.add("cookie=0x9,priority=1,ip,actions=output:4");
    let flow = sim.flows().into_iter().find(|flow| flow.priority == 1).unwrap();
    assert_eq!((flow.cookie, flow.duration.as_millis()), (9, 0));
    assert_eq!(sim.flows().len(), 4);
    assert_eq!(sim.ports_reached(1, &Frame::udp(1, 2).build()), [4]);
}

fn refusal(sim: &Sim, flow_mod: &FlowMod) -> ErrorCode {
    let before = sim.flows();
    let error = sim.core.flow_mod(sim.bridge, flow_mod).unwrap_err();
    assert_eq!(sim.flows(), before, "a refused flow-mod changed something");
    error.code
}

#[test]
fn check_overlap_refuses_a_possible_tie_and_only_that() {
    let sim = four_rules();
    let overlapping =
        parsed(FlowCommand::Add, "check_overlap,priority=2,ip,nw_src=10.0.0.1,actions=drop");
    assert_eq!(refusal(&sim, &overlapping), ErrorCode::OFPFMFC_OVERLAP);
    sim.add("check_overlap,priority=5,ip,nw_src=10.0.0.1,actions=drop");
    sim.add("check_overlap,priority=2,ip,nw_dst=10.0.1.0/24,actions=drop");
    sim.add("check_overlap,priority=2,ip,nw_dst=10.0.0.0/24,actions=drop");
}

fn with(instructions: Vec<Instruction>) -> FlowMod {
    FlowMod {
        instructions: Instructions::new(instructions).unwrap(),
        ..FlowMod::new(FlowCommand::Add)
    }
}

fn applying(actions: Vec<Action>) -> FlowMod {
    with(vec![Instruction::ApplyActions(Actions::new(actions).unwrap())])
}

#[test]
fn what_is_not_supported_is_refused_with_its_code() {
    let sim = four_rules();
    let output = |port| Action::Output { port, max_len: 0 };
    let set = |field: Field, value: u32| Action::SetField(OxmField::exact(field, value));
    let resubmit = |table| Action::Resubmit { in_port: None, table: Some(table) };
    for (flow_mod, code) in [
        (applying(vec![output(OFPP_TABLE)]), ErrorCode::OFPBAC_BAD_OUT_PORT),
        (applying(vec![output(OFPP_LOCAL)]), ErrorCode::OFPBAC_BAD_OUT_PORT),
        (applying(vec![output(0xff00)]), ErrorCode::OFPBAC_BAD_OUT_PORT),
        (applying(vec![Action::Group(1)]), ErrorCode::OFPBAC_BAD_OUT_GROUP),
        (applying(vec![resubmit(TABLES)]), ErrorCode::OFPBAC_BAD_ARGUMENT),
        (applying(vec![set(Field::Ipv4Src, 1)]), ErrorCode::OFPBAC_MATCH_INCONSISTENT),
        (applying(vec![Action::PopVlan]), ErrorCode::OFPBAC_MATCH_INCONSISTENT),
        (applying(vec![Action::PushVlan(0x8100); 3]), ErrorCode::OFPBAC_BAD_TAG),
        (with(vec![Instruction::Meter(1)]), ErrorCode::OFPMMFC_INVALID_METER),
        (with(vec![Instruction::GotoTable(TABLES)]), ErrorCode::OFPBIC_BAD_TABLE_ID),
        (
            FlowMod { table_id: 2, ..with(vec![Instruction::GotoTable(2)]) },
            ErrorCode::OFPBIC_BAD_TABLE_ID,
        ),
        (
            FlowMod { table_id: 2, ..with(vec![Instruction::GotoTable(1)]) },
            ErrorCode::OFPBIC_BAD_TABLE_ID,
        ),
        (FlowMod { table_id: TABLES, ..with(vec![]) }, ErrorCode::OFPFMFC_BAD_TABLE_ID),
        (FlowMod { table_id: OFPTT_ALL, ..with(vec![]) }, ErrorCode::OFPFMFC_BAD_TABLE_ID),
        (
            FlowMod { table_id: TABLES, ..FlowMod::new(FlowCommand::Delete) },
            ErrorCode::OFPFMFC_BAD_TABLE_ID,
        ),
        (FlowMod { buffer_id: 7, ..with(vec![]) }, ErrorCode::OFPBRC_BUFFER_UNKNOWN),
    ] {
        assert_eq!(refusal(&sim, &flow_mod), code, "{flow_mod:?}");
    }
}

#[test]
fn a_port_may_come_after_the_rule_that_names_it() {
    let mut sim = Sim::new(1);
    sim.add("in_port=1,actions=output:2");
    let frame = Frame::udp(1, 2).build();
    assert_eq!(sim.ports_reached(1, &frame), NOWHERE);
    sim.attach(2);
    assert_eq!(sim.ports_reached(1, &frame), [2]);
    sim.detach(2);
    assert_eq!(sim.ports_reached(1, &frame), NOWHERE);
}

#[test]
fn outputs_to_the_ingress_port_take_in_port() {
    let mut sim = Sim::new(3);
    let frame = Frame::udp(1, 2).build();
    sim.add("actions=output:1,output:2,IN_PORT,FLOOD,ALL");
    assert_eq!(sim.ports_reached(1, &frame), [2, 1, 2, 3, 2, 3]);
}
