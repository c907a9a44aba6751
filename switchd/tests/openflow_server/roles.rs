//! Masters, slaves and equals.

use tollgate_openflow::bundle::{BundleCommand, BundleControl};
use tollgate_openflow::controller::{
    OFPCR_ROLE_EQUAL, OFPCR_ROLE_MASTER, OFPCR_ROLE_NOCHANGE, OFPCR_ROLE_SLAVE, Role,
};
use tollgate_openflow::group::{GroupCommand, GroupMod};
use tollgate_openflow::meter::{MeterCommand, MeterMod};
use tollgate_openflow::multipart::MultipartRequest;
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::OFP_NO_BUFFER;
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::{Actions, ErrorCode, FlowCommand, FlowMod, Message};
use tollgate_switchd::openflow::Bridge as _;

use crate::server::{Client, Server};

fn ask(client: &mut Client, role: u32, generation_id: u64) -> Result<Role, ErrorCode> {
    client.send(3, &Message::RoleRequest(Role { role, generation_id }));
    match client.receive() {
        (3, Message::RoleReply(role)) => Ok(role),
        (3, Message::Error(error)) => Err(error.code),
        other => panic!("{other:?}"),
    }
}

fn role(client: &mut Client) -> u32 {
    ask(client, OFPCR_ROLE_NOCHANGE, 0).unwrap().role
}

#[test]
fn a_new_master_makes_the_old_one_a_slave() {
    let server = Server::start();
    let [mut first, mut second, mut third] = [(); 3].map(|()| server.controller());
    let none_yet = Role { role: OFPCR_ROLE_EQUAL, generation_id: u64::MAX };
    assert_eq!(ask(&mut first, OFPCR_ROLE_NOCHANGE, 0), Ok(none_yet));
    let master = Role { role: OFPCR_ROLE_MASTER, generation_id: 5 };
    assert_eq!(ask(&mut first, OFPCR_ROLE_MASTER, 5), Ok(master));
    assert_eq!(ask(&mut second, OFPCR_ROLE_MASTER, 5), Ok(master));
    assert_eq!(role(&mut first), OFPCR_ROLE_SLAVE);
    assert_eq!(role(&mut third), OFPCR_ROLE_EQUAL);
    // An equal is nobody's rival, and a master may step back.
    assert_eq!(ask(&mut second, OFPCR_ROLE_EQUAL, 0).unwrap().role, OFPCR_ROLE_EQUAL);
    assert_eq!(role(&mut first), OFPCR_ROLE_SLAVE);
}

#[test]
fn an_old_generation_is_refused_also_across_the_end_of_the_numbers() {
    let server = Server::start();
    let mut client = server.controller();
    ask(&mut client, OFPCR_ROLE_SLAVE, u64::MAX - 1).unwrap();
    for (role, generation_id, outcome) in [
        (OFPCR_ROLE_MASTER, u64::MAX - 2, Err(ErrorCode::OFPRRFC_STALE)),
        (OFPCR_ROLE_SLAVE, u64::MAX - 2, Err(ErrorCode::OFPRRFC_STALE)),
        // Neither needs one.
        (OFPCR_ROLE_EQUAL, 0, Ok(OFPCR_ROLE_EQUAL)),
        (OFPCR_ROLE_NOCHANGE, 0, Ok(OFPCR_ROLE_EQUAL)),
        (OFPCR_ROLE_MASTER, 3, Ok(OFPCR_ROLE_MASTER)),
        (OFPCR_ROLE_MASTER, u64::MAX, Err(ErrorCode::OFPRRFC_STALE)),
        (4, 9, Err(ErrorCode::OFPRRFC_BAD_ROLE)),
        (OFPCR_ROLE_NOCHANGE, 0, Ok(OFPCR_ROLE_MASTER)),
    ] {
        let answer = ask(&mut client, role, generation_id).map(|role| role.role);
        assert_eq!(answer, outcome, "{role} {generation_id}");
    }
}

#[test]
fn a_slave_reads_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.controller();
    ask(&mut client, OFPCR_ROLE_SLAVE, 1).unwrap();
    let control = |command| BundleControl { bundle_id: 1, command, flags: 0 };
    for change in [
        Message::FlowMod(Box::new(FlowMod::new(FlowCommand::Add))),
        Message::PacketOut(Box::new(PacketOut {
            buffer_id: OFP_NO_BUFFER,
            in_port: 1,
            actions: Actions::default(),
            data: vec![0; 60],
        })),
        Message::GroupMod(Box::new(GroupMod {
            command: GroupCommand::Delete,
            group_type: 0,
            group_id: 1,
            buckets: Vec::new(),
        })),
        Message::PortMod(PortMod { port_no: 1, hw_addr: [0; 6], config: 0, mask: 0, advertise: 0 }),
        Message::MeterMod(Box::new(MeterMod {
            command: MeterCommand::Add,
            flags: 1,
            meter_id: 1,
            bands: Vec::new(),
        })),
        Message::BundleControl(control(BundleCommand::OpenRequest)),
        Message::BundleControl(control(BundleCommand::CommitRequest)),
        Message::MultipartRequest(MultipartRequest::TableFeatures(server.bridge.table_features())),
    ] {
        client.send(7, &change);
        let (xid, error) = client.error();
        assert_eq!((xid, error.code), (7, ErrorCode::OFPBRC_IS_SLAVE), "{change:?}");
    }
    assert!(server.bridge.flows.lock().unwrap().is_empty());
    assert!(server.bridge.packets.lock().unwrap().is_empty());
    for (request, kind) in [
        (Message::FeaturesRequest, "FeaturesReply"),
        (Message::BarrierRequest, "BarrierReply"),
        (Message::GetConfigRequest, "GetConfigReply"),
        (Message::MultipartRequest(MultipartRequest::PortDesc), "MultipartReply"),
        (Message::MultipartRequest(MultipartRequest::Flow(Default::default())), "MultipartReply"),
    ] {
        client.send(8, &request);
        let (_, reply) = client.receive();
        assert!(format!("{reply:?}").starts_with(kind), "{reply:?}");
    }
    // No longer a slave, it may.
    ask(&mut client, OFPCR_ROLE_EQUAL, 0).unwrap();
    client.send(9, &Message::FlowMod(Box::new(FlowMod::new(FlowCommand::Add))));
    client.assert_alive();
    assert_eq!(server.bridge.flows.lock().unwrap().len(), 1);
}
