//! Who hears of what happens on a bridge, and what becomes of it when he does not listen.

use std::time::Duration;

use tollgate_openflow::controller::{AsyncConfig, AsyncMasks, OFPCR_ROLE_SLAVE, Role};
use tollgate_openflow::event::{PacketIn, PortStatus};
use tollgate_openflow::message::SwitchConfig;
use tollgate_openflow::port::{OFP_NO_BUFFER, PortDesc};
use tollgate_openflow::{Field, Match, Message, OxmField};
use tollgate_packet::PortIndex;
use tollgate_policy::TenantIndex;
use tollgate_switchd::limits::{NOTICES_QUEUED_MAX, PACKET_INS_QUEUED_MAX};
use tollgate_switchd::openflow::Timing;
use tollgate_switchd::pipeline::{
    Event, FlowRemovedEvent, FlowRemovedReason, PacketInEvent, PacketInReason, PortInfo,
    PortReason, PortStatusEvent,
};

use crate::peer;
use crate::server::{Client, Server, eventually};

fn packet(cookie: u64) -> PacketInEvent {
    PacketInEvent {
        reason: PacketInReason::Action,
        table_id: 3,
        cookie,
        matcher: Match::from_fields([OxmField::exact(Field::InPort, 7_u32)]).unwrap(),
        data: (0..200).collect(),
        controller_id: 0,
    }
}

fn port_status(ofport: u32) -> Event {
    let port = PortInfo {
        uplink: false,
        name: format!("vm{ofport}"),
        ofport,
        index: PortIndex(0),
        tenant: TenantIndex(1),
        config: 0,
    };
    Event::PortStatus(PortStatusEvent { reason: PortReason::Modify, port })
}

fn flow_removed(cookie: u64, reason: FlowRemovedReason) -> Event {
    Event::FlowRemoved(FlowRemovedEvent {
        reason,
        cookie,
        priority: 9,
        table_id: 2,
        duration: Duration::from_millis(1500),
        idle_timeout_s: 3,
        hard_timeout_s: 4,
        packet_count: 5,
        byte_count: 6,
        matcher: Match::any(),
    })
}

/// What the client has been sent before the answer to this echo: the cookies of packets and flows,
/// the numbers of ports.
fn heard(client: &mut Client) -> Vec<(&'static str, u64)> {
    client.send(77, &Message::EchoRequest(Vec::new()));
    let mut heard = Vec::new();
    loop {
        heard.push(match client.receive() {
            (77, Message::EchoReply(_)) => return heard,
            (0, Message::PacketIn(packet)) => ("packet", packet.cookie),
            (0, Message::FlowRemoved(flow)) => ("flow", flow.cookie),
            (0, Message::PortStatus(status)) => ("port", u64::from(status.port.port_no)),
            other => panic!("{other:?}"),
        });
    }
}

fn tell_all(server: &Server) {
    server.audience.tell(Event::PacketIn(packet(1)));
    server.audience.tell(flow_removed(2, FlowRemovedReason::IdleTimeout));
    server.audience.tell(port_status(3));
}

const ALL: [(&str, u64); 3] = [("packet", 1), ("flow", 2), ("port", 3)];

#[test]
fn a_controller_hears_of_everything_and_a_tool_once_it_has_asked() {
    let server = Server::start();
    let (mut controller, mut tool) = (server.controller(), server.greeted());
    tell_all(&server);
    assert_eq!(heard(&mut controller), ALL);
    assert_eq!(heard(&mut tool), []);
    tool.send(2, &Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 64 }));
    tool.assert_alive();
    tell_all(&server);
    assert_eq!(heard(&mut tool), ALL);
    assert_eq!(heard(&mut controller), ALL);
}

#[test]
fn nobody_hears_of_anything_before_the_greeting() {
    let server = Server::start();
    server.controller();
    let path = server.dir.path().join("controllers");
    let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    let mut client = Client(stream);
    client.receive();
    tell_all(&server);
    let mut client = crate::server::greet(client);
    assert_eq!(heard(&mut client), []);
}

#[test]
fn messages_carry_what_happened() {
    let server = Server::start();
    let mut client = server.controller();
    server.audience.tell(Event::PacketIn(packet(8)));
    let expected = PacketIn {
        buffer_id: OFP_NO_BUFFER,
        total_len: 200,
        reason: 1,
        table_id: 3,
        cookie: 8,
        matcher: packet(8).matcher,
        data: packet(8).data,
    };
    assert_eq!(client.receive(), (0, Message::PacketIn(Box::new(expected))));

    server.audience.tell(port_status(4));
    let port = PortDesc { port_no: 4, name: "vm4".to_owned(), ..PortDesc::default() };
    let expected = Message::PortStatus(Box::new(PortStatus { reason: 2, port }));
    assert_eq!(client.receive(), (0, expected));

    // There is no such reason in OpenFlow 1.3.
    server.audience.tell(flow_removed(5, FlowRemovedReason::Eviction));
    let (_, message) = client.receive();
    let Message::FlowRemoved(flow) = message else { panic!("{message:?}") };
    assert_eq!((flow.reason, flow.cookie, flow.priority, flow.table_id), (2, 5, 9, 2));
    assert_eq!((flow.duration.as_millis(), flow.packet_count, flow.byte_count), (1500, 5, 6));
    assert_eq!((flow.idle_timeout_s, flow.hard_timeout_s), (3, 4));
}

#[test]
fn everybody_chooses_for_himself() {
    let server = Server::start();
    let (mut chooser, mut other) = (server.controller(), server.controller());
    chooser.send(2, &Message::GetAsyncRequest);
    assert_eq!(chooser.receive(), (2, Message::GetAsyncReply(AsyncConfig::default())));
    let chosen = AsyncConfig {
        master: AsyncMasks { packet_in: 0b100, port_status: 0b100, flow_removed: 0b10 },
        slave: AsyncMasks { packet_in: 0b10, port_status: 0, flow_removed: 0 },
    };
    chooser.send(3, &Message::SetAsync(chosen));
    chooser.send(4, &Message::GetAsyncRequest);
    assert_eq!(chooser.receive(), (4, Message::GetAsyncReply(chosen)));

    tell_all(&server);
    server.audience.tell(flow_removed(4, FlowRemovedReason::HardTimeout));
    server
        .audience
        .tell(Event::PacketIn(PacketInEvent { reason: PacketInReason::InvalidTtl, ..packet(5) }));
    assert_eq!(heard(&mut chooser), [("port", 3), ("flow", 4), ("packet", 5)]);
    assert_eq!(heard(&mut other), [ALL[0], ALL[1], ALL[2], ("flow", 4)]);

    let slave = Message::RoleRequest(Role { role: OFPCR_ROLE_SLAVE, generation_id: 1 });
    for client in [&mut chooser, &mut other] {
        client.send(5, &slave);
        assert!(matches!(client.receive(), (5, Message::RoleReply(_))));
    }
    tell_all(&server);
    assert_eq!(heard(&mut chooser), [("packet", 1)]);
    assert_eq!(heard(&mut other), [("port", 3)]);
}

#[test]
fn a_packet_for_one_controller_id_goes_to_those_that_have_it() {
    let server = Server::start();
    let (mut seventh, mut any) = (server.controller(), server.controller());
    // NXT_SET_CONTROLLER_ID.
    let body = [&[0, 0, 0x23, 0x20, 0, 0, 0, 20][..], &[0; 6], &[0, 7]].concat();
    seventh.send(2, &Message::Unknown { message_type: 4, body });
    seventh.assert_alive();
    server.audience.tell(Event::PacketIn(packet(1)));
    server.audience.tell(Event::PacketIn(PacketInEvent { controller_id: 7, ..packet(2) }));
    assert_eq!(heard(&mut seventh), [("packet", 2)]);
    assert_eq!(heard(&mut any), [("packet", 1)]);
}

#[test]
fn whoever_does_not_read_loses_packets_and_others_lose_none() {
    let server = Server::start();
    let (mut slow, mut quick) = (server.controller(), server.controller());
    let rounds: u64 = 100;
    let burst = PACKET_INS_QUEUED_MAX as u64 / 2;
    for round in 0..rounds {
        let told = round * burst..(round + 1) * burst;
        told.clone().for_each(|cookie| server.audience.tell(Event::PacketIn(packet(cookie))));
        assert_eq!(heard(&mut quick), told.map(|cookie| ("packet", cookie)).collect::<Vec<_>>());
    }
    // Packets take no room from what must not be missed.
    server.audience.tell(port_status(3));
    server.audience.tell(flow_removed(4, FlowRemovedReason::Delete));
    let lost = server.openflow.controllers()[0].packet_ins_lost;
    assert!(lost > 0);
    let heard = heard(&mut slow);
    let (packets, notices) = heard.split_at(heard.len() - 2);
    assert_eq!(packets.len() as u64 + lost, rounds * burst);
    assert!(packets.is_sorted());
    assert_eq!(notices, [("port", 3), ("flow", 4)]);
}

#[test]
fn notices_are_many_but_bounded() {
    let server = Server::start();
    let mut slow = server.controller();
    let told = NOTICES_QUEUED_MAX as u64 * 2;
    for cookie in 0..told {
        server.audience.tell(flow_removed(cookie, FlowRemovedReason::Delete));
    }
    let heard = heard(&mut slow).len() as u64;
    let lost = server.openflow.controllers()[0].notices_lost;
    assert!(heard >= NOTICES_QUEUED_MAX as u64 && lost > 0, "{heard} heard, {lost} lost");
    assert_eq!(heard + lost, told);
}

#[test]
fn a_connection_that_never_reads_is_closed() {
    let send_stall = Duration::from_millis(200);
    let server = Server::with_timing(Timing { send_stall, ..Timing::default() });
    let slow = server.controller();
    let connections = || server.openflow.controllers()[0].connections;
    assert_eq!(connections(), 1);
    eventually("the slow connection is closed", || {
        server.audience.tell(flow_removed(1, FlowRemovedReason::Delete));
        connections() == 0
    });
    drop(slow);
    server.controller().assert_alive();
}

#[test]
fn ovs_ofctl_monitors() {
    use std::process::{Command, Stdio};
    let server = Server::start();
    if peer::run(Command::new("ovs-ofctl").arg("--version")).is_none() {
        return;
    }
    let output = server.dir.path().join("output");
    let file = std::fs::File::create(&output).unwrap();
    let command = Command::new("ovs-ofctl")
        .args(["-O", "OpenFlow13", "monitor"])
        .arg(format!("unix:{}", server.path.display()))
        .arg("65534")
        // Where it makes a control socket.
        .env("OVS_RUNDIR", server.dir.path())
        .stderr(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _monitor = Ended(command);
    let printed = || std::fs::read_to_string(&output).unwrap();
    let kinds = ["OFPT_PACKET_IN", "OFPT_FLOW_REMOVED", "OFPT_PORT_STATUS"];
    // It does not say when it is ready.
    eventually("ovs-ofctl prints all kinds of events", || {
        tell_all(&server);
        kinds.iter().all(|kind| printed().contains(kind))
    });
    assert!(!printed().contains("decode error"), "{}", printed());
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
