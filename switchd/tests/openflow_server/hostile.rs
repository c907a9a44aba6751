//! Whoever sends nonsense, halves or floods hurts himself.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_openflow::message::Hello;
use tollgate_openflow::{FlowCommand, FlowMod, Message};
use tollgate_switchd::openflow::Timing;

use crate::server::Server;

/// Sends `bytes` after a greeting, and reads whatever comes until the switch hangs up.
fn throw(server: &Server, bytes: &[u8]) {
    let mut stream = UnixStream::connect(&server.path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&Message::Hello(Hello::OURS).encode(1)).unwrap();
    // It may have been closed on us.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answers = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answers) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

/// Bytes that look like messages as far as the header goes.
fn any_messages() -> impl Strategy<Value = Vec<u8>> {
    let message = (any::<u8>(), 0..32_u8, any::<i8>(), prop::collection::vec(any::<u8>(), 0..200));
    let message = message.prop_map(|(version, kind, lie, body)| {
        let version = if version < 200 { 4 } else { version };
        let lie = if lie > 100 { i16::from(lie) } else { 0 };
        let length = (8 + body.len() as i16 + lie).to_be_bytes();
        [&[version, kind, length[0], length[1], 0, 0, 0, 1], &body[..]].concat()
    });
    prop::collection::vec(message, 0..8).prop_map(|messages| messages.concat())
}

#[test]
fn nonsense_is_answered_or_ends_its_connection() {
    let server = Server::start();
    let bystander = RefCell::new(server.greeted());
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let any_bytes = prop::collection::vec(any::<u8>(), 0..600);
    runner
        .run(&prop_oneof![any_bytes, any_messages()], |bytes| {
            throw(&server, &bytes);
            bystander.borrow_mut().assert_alive();
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_mutated_conversation_is_answered_or_ends() {
    let server = Server::start();
    let mut bystander = server.greeted();
    let mut good = Vec::new();
    for message in [
        Message::FlowMod(Box::new(FlowMod::new(FlowCommand::Add))),
        Message::BarrierRequest,
        Message::GetAsyncRequest,
        Message::MultipartRequest(tollgate_openflow::multipart::MultipartRequest::PortDesc),
        Message::MultipartRequest(tollgate_openflow::multipart::MultipartRequest::MeterFeatures),
    ] {
        good.extend(message.encode(5));
    }
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            throw(&server, &bytes);
        }
    }
    bystander.assert_alive();
}

#[test]
fn a_message_that_never_ends_ends_its_connection() {
    let receive_stall = Duration::from_millis(100);
    let server = Server::with_timing(Timing { receive_stall, ..Timing::default() });
    let mut patient = server.greeted();
    // As long as a message can be, a part of a header, and no greeting at all.
    for bytes in [&[4, 14, 0xff, 0xff, 0, 0, 0, 1, 9][..], &[4, 14, 0], &[]] {
        let mut client = if bytes.is_empty() { server.connect() } else { server.greeted() };
        client.send_bytes(bytes);
        client.assert_closed();
    }
    patient.assert_alive();
}

#[test]
fn a_flood_without_reading_stops_being_read() {
    let server = Server::start();
    let mut flooder = server.greeted();
    let mut bystander = server.greeted();
    flooder.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let echoes = Message::EchoRequest(vec![0; 1000]).encode(1).repeat(64);
    let mut accepted = 0;
    // Everything is answered with as many bytes, and nobody reads the answers.
    loop {
        match flooder.0.write(&echoes) {
            Ok(length) => accepted += length,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                break;
            }
        }
        assert!(accepted < 64 << 20, "a flood is taken in without end");
        bystander.assert_alive();
    }
    bystander.assert_alive();
}

#[test]
fn floods_of_changes_do_not_keep_others_out() {
    let server = Server::start();
    let add = Message::FlowMod(Box::new(FlowMod::new(FlowCommand::Add))).encode(1);
    let flood = add.repeat(20_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| throw(&server, &flood));
        }
        for _ in 0..200 {
            server.greeted().assert_alive();
        }
    });
    assert_eq!(server.bridge.flows.lock().unwrap().len(), 80_000);
    let batches = server.bridge.batches.lock().unwrap();
    // Some read brings less than a batch, but few do.
    assert!(batches.len() < 80_000 / 20, "{} batches", batches.len());
}
