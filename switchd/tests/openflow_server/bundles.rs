//! Bundles: together or not at all, with Open vSwitch's errors.

use tollgate_openflow::bundle::{
    BundleAdd, BundleCommand, BundleControl, OFPBF_ATOMIC, OFPBF_ORDERED,
};
use tollgate_openflow::{ErrorCode, FlowCommand, FlowMod, Message};

use crate::peer::text;
use crate::server::{Client, Server};

const FLAGS: u16 = OFPBF_ATOMIC | OFPBF_ORDERED;

fn flow_mod(priority: u16) -> Message {
    Message::FlowMod(Box::new(FlowMod { priority, ..FlowMod::new(FlowCommand::Add) }))
}

fn send_control(client: &mut Client, command: BundleCommand, flags: u16) {
    let control = BundleControl { bundle_id: 1, command, flags };
    client.send(40, &Message::BundleControl(control));
}

fn control(client: &mut Client, command: BundleCommand, flags: u16) -> Result<(), ErrorCode> {
    send_control(client, command, flags);
    match client.receive() {
        (40, Message::BundleControl(reply)) => {
            assert_eq!((reply.bundle_id, reply.command as u16), (1, command as u16 + 1));
            Ok(())
        }
        (40, Message::Error(error)) => Err(error.code),
        other => panic!("{other:?}"),
    }
}

fn add(client: &mut Client, xid: u32, flags: u16, message: Message) {
    let message = Box::new(message);
    client.send(xid, &Message::BundleAdd(BundleAdd { bundle_id: 1, flags, message }));
}

fn priorities(server: &Server) -> Vec<u16> {
    server.bridge.flows.lock().unwrap().iter().map(|flow| flow.priority).collect()
}

use BundleCommand::{CloseRequest, CommitRequest, DiscardRequest, OpenRequest};

#[test]
fn a_bundle_takes_effect_when_it_is_committed_and_not_before() {
    let server = Server::start();
    let mut client = server.greeted();
    // The last one is neither opened nor closed by name, as the extension allows.
    for (flags, by_name) in [(0, true), (OFPBF_ATOMIC, true), (FLAGS, true), (0, false)] {
        server.bridge.flows.lock().unwrap().clear();
        if by_name {
            assert_eq!(control(&mut client, OpenRequest, flags), Ok(()));
        }
        (0..2000).for_each(|priority| add(&mut client, 5, flags, flow_mod(priority + 1000)));
        if by_name {
            assert_eq!(control(&mut client, CloseRequest, flags), Ok(()));
        }
        client.assert_alive();
        assert!(priorities(&server).is_empty());
        assert_eq!(control(&mut client, CommitRequest, flags), Ok(()));
        assert_eq!(priorities(&server), (1000..3000).collect::<Vec<_>>());
        assert_eq!(control(&mut client, CommitRequest, flags), Err(ErrorCode::OFPBFC_BAD_ID));
    }
}

#[test]
fn a_failing_message_is_named_and_nothing_is_changed() {
    let server = Server::start();
    let mut client = server.greeted();
    client.send(2, &flow_mod(1));
    control(&mut client, OpenRequest, FLAGS).unwrap();
    add(&mut client, 50, FLAGS, flow_mod(2));
    add(&mut client, 51, FLAGS, flow_mod(666));
    add(&mut client, 52, FLAGS, flow_mod(3));
    send_control(&mut client, CommitRequest, FLAGS);
    let (xid, error) = client.error();
    assert_eq!((xid, error.code), (51, ErrorCode::OFPFMFC_TABLE_FULL));
    assert!(flow_mod(666).encode(51).starts_with(&error.data));
    let (xid, error) = client.error();
    assert_eq!((xid, error.code), (40, ErrorCode::OFPBFC_MSG_FAILED));
    // An experimenter's error says whose it is before it quotes.
    assert_eq!(error.data[..4], 0x4f4e_4600_u32.to_be_bytes());
    assert_eq!(priorities(&server), [1]);
    client.assert_alive();
}

#[test]
fn a_discarded_bundle_and_one_whose_connection_ends_are_forgotten() {
    let server = Server::start();
    let mut client = server.greeted();
    add(&mut client, 5, 0, flow_mod(1));
    assert_eq!(control(&mut client, DiscardRequest, 0), Ok(()));
    assert_eq!(control(&mut client, CommitRequest, 0), Err(ErrorCode::OFPBFC_BAD_ID));
    add(&mut client, 5, 0, flow_mod(1));
    drop(client);
    let mut other = server.greeted();
    assert_eq!(control(&mut other, CommitRequest, 0), Err(ErrorCode::OFPBFC_BAD_ID));
    assert!(priorities(&server).is_empty());
}

#[test]
fn what_is_out_of_order_is_refused_with_its_code() {
    let server = Server::start();
    let mut client = server.greeted();
    let open = |client: &mut Client, flags| control(client, OpenRequest, flags).unwrap();
    open(&mut client, 0);
    assert_eq!(control(&mut client, OpenRequest, 0), Err(ErrorCode::OFPBFC_BAD_ID));
    assert_eq!(control(&mut client, CloseRequest, 0), Err(ErrorCode::OFPBFC_BAD_ID));
    assert_eq!(control(&mut client, DiscardRequest, 0), Err(ErrorCode::OFPBFC_BAD_ID));

    open(&mut client, 0);
    assert_eq!(control(&mut client, CloseRequest, FLAGS), Err(ErrorCode::OFPBFC_BAD_FLAGS));
    open(&mut client, 0);
    control(&mut client, CloseRequest, 0).unwrap();
    assert_eq!(control(&mut client, CloseRequest, 0), Err(ErrorCode::OFPBFC_BUNDLE_CLOSED));
    open(&mut client, 0);
    assert_eq!(control(&mut client, CommitRequest, FLAGS), Err(ErrorCode::OFPBFC_BAD_FLAGS));

    open(&mut client, 0);
    control(&mut client, CloseRequest, 0).unwrap();
    add(&mut client, 6, 0, flow_mod(1));
    assert_eq!(client.error().1.code, ErrorCode::OFPBFC_BUNDLE_CLOSED);
    open(&mut client, 0);
    add(&mut client, 6, FLAGS, flow_mod(1));
    assert_eq!(client.error().1.code, ErrorCode::OFPBFC_BAD_FLAGS);

    for reply in [BundleCommand::OpenReply, BundleCommand::CommitReply] {
        assert_eq!(control_refusal(&mut client, reply), ErrorCode::OFPBFC_BAD_TYPE);
    }
    for bundle_id in 0..4 {
        let control = BundleControl { bundle_id, command: OpenRequest, flags: 0 };
        client.send(41, &Message::BundleControl(control));
        assert!(matches!(client.receive(), (41, Message::BundleControl(_))));
    }
    let control = BundleControl { bundle_id: 9, command: OpenRequest, flags: 0 };
    client.send(41, &Message::BundleControl(control));
    assert_eq!(client.error().1.code, ErrorCode::OFPBFC_OUT_OF_BUNDLES);
}

fn control_refusal(client: &mut Client, command: BundleCommand) -> ErrorCode {
    send_control(client, command, 0);
    client.error().1.code
}

#[test]
fn a_message_that_cannot_be_bundled_is_refused() {
    let server = Server::start();
    let mut client = server.greeted();
    add(&mut client, 6, 0, Message::BarrierRequest);
    assert_eq!(client.error().1.code, ErrorCode::OFPBFC_MSG_UNSUP);
    let message = Box::new(flow_mod(1));
    let good = Message::BundleAdd(BundleAdd { bundle_id: 1, flags: 0, message }).encode(6);
    let mut other_xid = good.clone();
    other_xid[24 + 7] = 9;
    client.send_bytes(&other_xid);
    assert_eq!(client.error().1.code, ErrorCode::OFPBFC_MSG_BAD_XID);
    let mut too_long = good.clone();
    too_long[24 + 3] += 8;
    client.send_bytes(&too_long);
    client.error();
    let mut malformed = good;
    malformed[24 + 8 + 17] = 77;
    client.send_bytes(&malformed);
    assert_eq!(client.error().1.code, ErrorCode::OFPFMFC_BAD_COMMAND);
    assert_eq!(control(&mut client, CommitRequest, 0), Err(ErrorCode::OFPBFC_BAD_ID));
    client.assert_alive();
}

#[test]
fn ovs_ofctl_bundles() {
    let server = Server::start();
    let flows = server.dir.path().join("flows");
    let lines: String = (1..=500).map(|flow| format!("priority={flow},actions=drop\n")).collect();
    std::fs::write(&flows, lines).unwrap();
    let args = ["--bundle", flows.to_str().unwrap()];
    let Some(added) = server.ovs_ofctl("add-flows", &args) else { return };
    text(&added);
    assert_eq!(priorities(&server), (1..=500).collect::<Vec<_>>());

    std::fs::write(&flows, "priority=600,actions=drop\npriority=666,actions=drop\n").unwrap();
    let refused = server.ovs_ofctl("add-flows", &args).unwrap();
    assert!(!refused.status.success());
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("OFPFMFC_TABLE_FULL"), "{error}");
    assert_eq!(priorities(&server).len(), 500);
}
