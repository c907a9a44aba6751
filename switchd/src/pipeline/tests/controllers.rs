//! Copies for controllers, and packets from them.

use tollgate_datapath::Op;
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::{
    OFP_NO_BUFFER, OFPP_ANY, OFPP_CONTROLLER, OFPP_LOCAL, OFPPC_NO_PACKET_IN,
};
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::{Actions, ErrorCode, Field, FlowCommand, Match};

use super::frames::Frame;
use super::sim::{NOWHERE, Sent, Sim, parsed, run};
use crate::pipeline::events::{Event, PacketInEvent, PacketInReason};
use crate::pipeline::packet_out::Outgoing;

fn packet_ins(sim: &Sim) -> Vec<PacketInEvent> {
    let packet_in = |event| match event {
        Event::PacketIn(packet_in) => Some(packet_in),
        _ => None,
    };
    sim.events().into_iter().filter_map(packet_in).collect()
}

fn fields(matcher: &Match) -> Vec<(Field, u128)> {
    matcher.iter().map(|field| (field.field(), field.value())).collect()
}

#[test]
fn a_controller_gets_the_packet_as_it_is_then_with_what_it_carries() {
    let mut sim = Sim::new(3);
    sim.add("cookie=0x11,priority=5,ip,actions=load:7->NXM_NX_REG3[],output:2,dec_ttl,CONTROLLER:80,write_metadata:0x9,goto_table:4");
    sim.add("table=4,cookie=0x12,priority=5,actions=push_vlan:0x8100,CONTROLLER:65535,output:3");
    let frame = Frame::udp(1, 2).build();
    // The second packet finds the decision cached.
    for walks in [1, 1] {
        assert_eq!(sim.ports_reached(1, &frame), [2, 3]);
        assert_eq!(sim.walks, walks);
        let [first, second] = &packet_ins(&sim)[..] else { panic!("two copies") };
        assert_eq!((first.table_id, first.cookie), (0, 0x11));
        assert_eq!((second.table_id, second.cookie), (4, 0x12));
        assert_eq!(first.reason, PacketInReason::Action);
        assert_eq!(fields(&first.matcher), [(Field::InPort, 1), (Field::Reg3, 7)]);
        assert_eq!(
            fields(&second.matcher),
            [(Field::InPort, 1), (Field::Reg3, 7), (Field::Metadata, 9)]
        );
        let mut expected = frame.clone();
        expected[14 + 8] -= 1;
        assert_eq!(first.data.len(), frame.len(), "what is not buffered is sent whole");
        assert_eq!(first.data[14 + 8], expected[14 + 8]);
        assert_eq!(second.data[12..16], [0x81, 0, 0, 0]);
        assert_eq!(second.data.len(), frame.len() + 4);
    }
}

#[test]
fn a_table_miss_rule_says_no_match() {
    let mut sim = Sim::new(2);
    sim.add("priority=0,actions=CONTROLLER:128");
    sim.add("table=1,priority=0,in_port=1,actions=CONTROLLER:128");
    let frame = Frame::udp(1, 2).build();
    let reason = |sim: &mut Sim| {
        sim.events();
        sim.send(1, &frame);
        packet_ins(sim).iter().map(|packet_in| packet_in.reason).collect::<Vec<_>>()
    };
    assert_eq!(reason(&mut sim), [PacketInReason::NoMatch]);
    // A rule that matches something is none, whatever its priority.
    sim.add("priority=0,actions=goto_table:1");
    assert_eq!(reason(&mut sim), [PacketInReason::Action]);
    sim.add("priority=1,actions=CONTROLLER:128");
    assert_eq!(reason(&mut sim), [PacketInReason::Action]);
    // An action set's copy is no miss.
    sim.add("priority=1,actions=write_actions(CONTROLLER:128)");
    assert_eq!(reason(&mut sim), [PacketInReason::Action]);
}

#[test]
fn a_port_may_send_no_misses_to_the_controller() {
    let mut sim = Sim::new(2);
    sim.add("priority=0,actions=CONTROLLER:128");
    sim.add("priority=9,arp,actions=CONTROLLER:128");
    sim.core.port_mod(sim.bridge, &configured(1, OFPPC_NO_PACKET_IN)).unwrap();
    sim.core.tell_pmds();
    sim.events();
    sim.send(1, &Frame::udp(1, 2).build());
    assert_eq!(packet_ins(&sim), []);
    sim.send(2, &Frame::udp(1, 2).build());
    assert_eq!(packet_ins(&sim).len(), 1);
}

fn configured(port_no: u32, config: u32) -> PortMod {
    PortMod { port_no, hw_addr: [0; 6], config, mask: 0x65, advertise: 0 }
}

#[test]
fn an_expired_packet_is_told_of() {
    let mut sim = Sim::new(2);
    sim.add("ip,actions=dec_ttl,output:2");
    let mut old = Frame::udp(1, 2).build();
    old[14 + 8] = 1;
    for _ in 0..2 {
        assert_eq!(sim.ports_reached(1, &old), NOWHERE);
        let [told] = &packet_ins(&sim)[..] else { panic!("one copy") };
        assert_eq!((told.reason, &told.data), (PacketInReason::InvalidTtl, &old));
    }
    assert_eq!(sim.walks, 1);
}

#[test]
fn an_action_may_choose_the_controllers_and_the_reason() {
    let mut sim = Sim::new(2);
    sim.add("actions=controller(max_len=60,id=5,reason=invalid_ttl)");
    sim.send(1, &Frame::udp(1, 2).build());
    let [told] = &packet_ins(&sim)[..] else { panic!("one copy") };
    assert_eq!(told.controller_id, 5);
    assert_eq!(told.reason, PacketInReason::InvalidTtl);
}

/// However many controllers, a packet is copied to the slow path once.
#[test]
fn a_decision_copies_a_packet_to_the_slow_path_once() {
    let mut sim = Sim::new(2);
    sim.add("actions=CONTROLLER,CONTROLLER,output:2,set_field:02:00:00:00:00:05->eth_src");
    sim.send(1, &Frame::udp(1, 2).build());
    let [megaflow] = &sim.pmd.megaflows()[..] else { panic!("one decision") };
    assert_eq!(megaflow.ops[0], Op::Punt);
    assert_eq!(megaflow.ops.len(), 2, "and what nobody sees is not done");
    assert_eq!(packet_ins(&sim).len(), 2);
}

fn request(sim: &Sim, in_port: u32, actions: &str, data: Vec<u8>) -> Result<Outgoing, ErrorCode> {
    let flow = parsed(FlowCommand::Add, &format!("actions={actions}"));
    let actions = Actions::new(flow.instructions.apply_actions().to_vec()).unwrap();
    let packet_out = PacketOut { buffer_id: OFP_NO_BUFFER, in_port, actions, data };
    Outgoing::new(sim.bridge, &packet_out).map_err(|error| error.code)
}

fn sent_out(sim: &Sim, in_port: u32, actions: &str, frame: &[u8]) -> Vec<Sent> {
    let outgoing = request(sim, in_port, actions, frame.to_vec()).unwrap();
    let decided = sim.core.decide_out(&outgoing).unwrap();
    run(&decided.megaflow.ops, frame, super::sim::index_of(1))
}

fn ports_reached(sim: &Sim, in_port: u32, actions: &str) -> Vec<u32> {
    let sent = sent_out(sim, in_port, actions, &Frame::udp(1, 2).build());
    sent.into_iter().map(|(port, _)| port).collect()
}

#[test]
fn a_controllers_packet_is_sent_as_it_says() {
    let sim = Sim::new(3);
    assert_eq!(ports_reached(&sim, OFPP_CONTROLLER, "output:2"), [2]);
    assert_eq!(ports_reached(&sim, OFPP_CONTROLLER, "FLOOD"), [1, 2, 3]);
    assert_eq!(ports_reached(&sim, OFPP_ANY, "ALL"), [1, 2, 3]);
    assert_eq!(ports_reached(&sim, 2, "ALL"), [1, 3]);
    assert_eq!(ports_reached(&sim, 2, "IN_PORT"), [2]);
    assert_eq!(ports_reached(&sim, OFPP_CONTROLLER, "IN_PORT"), NOWHERE);
    assert_eq!(ports_reached(&sim, 2, "output:2,output:3"), [3]);
    assert_eq!(ports_reached(&sim, OFPP_CONTROLLER, "drop"), NOWHERE);
    let frame = Frame::udp(1, 2).build();
    let sent = sent_out(
        &sim,
        OFPP_LOCAL,
        "output:1,set_field:02:00:00:00:00:07->eth_src,output:2",
        &frame,
    );
    assert_eq!(sent[0], (1, frame.clone()));
    assert_eq!((sent[1].0, sent[1].1[11]), (2, 7));
}

#[test]
fn a_controllers_packet_may_go_through_the_tables_and_is_counted() {
    let sim = Sim::new(3);
    sim.add("priority=5,in_port=1,actions=output:3");
    sim.add("priority=4,actions=output:2,CONTROLLER:99");
    assert_eq!(ports_reached(&sim, 1, "TABLE"), [3]);
    assert_eq!(ports_reached(&sim, OFPP_CONTROLLER, "TABLE"), [2]);
    assert_eq!(ports_reached(&sim, OFPP_CONTROLLER, "resubmit(1,0)"), [3]);
    let counts: Vec<_> = sim.flows().iter().map(|f| (f.packet_count, f.byte_count)).collect();
    assert_eq!(counts, [(2, 128), (1, 64)]);
    let told = packet_ins(&sim);
    assert_eq!(told.len(), 1);
    assert_eq!(fields(&told[0].matcher), [(Field::InPort, OFPP_CONTROLLER.into())]);
    assert_eq!(sim.core.shadow().len(), 0, "nothing is cached");
}

#[test]
fn a_controllers_packet_teaches_only_what_a_port_could() {
    let mut sim = Sim::new(3);
    sim.add("actions=NORMAL");
    assert_eq!(ports_reached(&sim, OFPP_CONTROLLER, "NORMAL"), [1, 2, 3]);
    assert_eq!(sim.ports_reached(2, &Frame::udp(2, 1).build()), [1, 3], "1 was not learned");
    assert_eq!(ports_reached(&sim, 3, "NORMAL"), [2]);
    sim.core.tell_pmds();
    assert_eq!(sim.ports_reached(2, &Frame::udp(2, 1).build()), [3], "1 is behind 3 now");
}

#[test]
fn a_controllers_packet_that_cannot_be_is_refused() {
    let sim = Sim::new(2);
    let frame = || Frame::udp(1, 2).build();
    let refused = |in_port, actions: &str, data| request(&sim, in_port, actions, data).unwrap_err();
    assert_eq!(refused(0, "output:1", frame()), ErrorCode::OFPBRC_BAD_PORT);
    assert_eq!(refused(0xffff_ff00, "output:1", frame()), ErrorCode::OFPBRC_BAD_PORT);
    assert_eq!(refused(1, "output:1", vec![0; 13]), ErrorCode::OFPBRC_BAD_LEN);
    assert_eq!(refused(1, "output:1", vec![0; 10_000]), ErrorCode::OFPBRC_BAD_LEN);
    let buffered =
        PacketOut { buffer_id: 3, in_port: 1, actions: Actions::default(), data: Vec::new() };
    let error = Outgoing::new(sim.bridge, &buffered).unwrap_err();
    assert_eq!(error.code, ErrorCode::OFPBRC_BUFFER_UNKNOWN);
    // The packet must have what its actions need.
    let flow = parsed(FlowCommand::Add, "tcp,actions=set_field:9->tcp_dst,output:1");
    let actions = Actions::new(flow.instructions.apply_actions().to_vec()).unwrap();
    let packet = PacketOut { buffer_id: OFP_NO_BUFFER, in_port: 1, actions, data: frame() };
    let error = Outgoing::new(sim.bridge, &packet).unwrap_err();
    assert_eq!(error.code, ErrorCode::OFPBAC_MATCH_INCONSISTENT);
}
