//! A frontend that enables rings before it acknowledges features, as QEMU does.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use tollgate_vhost::mock::MockHost;
use tollgate_vhost::{PortStatus, SessionConfig, SessionEnd, serve};

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;

const PLAIN: u32 = 1;
const NEED_REPLY: u32 = 1 | 8;
const REPLY_ACK: u64 = 1 << 3;

fn send(stream: &mut UnixStream, request: u32, flags: u32, payload: &[u8]) {
    let size = u32::try_from(payload.len()).unwrap();
    let mut message: Vec<u8> =
        [request, flags, size].iter().flat_map(|word| word.to_le_bytes()).collect();
    message.extend_from_slice(payload);
    stream.write_all(&message).unwrap();
}

/// The request and the value that were answered.
fn answer(stream: &mut UnixStream) -> (u32, u64) {
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    let request = u32::from_le_bytes(reply[..4].try_into().unwrap());
    (request, u64::from_le_bytes(reply[12..].try_into().unwrap()))
}

fn enable(index: u32, enable: u32) -> [u8; 8] {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&index.to_le_bytes());
    payload[4..].copy_from_slice(&enable.to_le_bytes());
    payload
}

/// Runs a session and talks to it up to its protocol features; returns how it ended.
fn session(talk: impl FnOnce(&mut UnixStream, u64)) -> SessionEnd {
    let (mut frontend, backend) = UnixStream::pair().unwrap();
    let status = Arc::new(PortStatus::new());
    let serving = thread::spawn(move || {
        let config = SessionConfig { name: "vm1".to_owned(), queue_pairs_max: 1 };
        serve(backend, &config, &MockHost::new(), &status)
    });
    send(&mut frontend, GET_FEATURES, PLAIN, &[]);
    let (_, features) = answer(&mut frontend);
    send(&mut frontend, GET_PROTOCOL_FEATURES, PLAIN, &[]);
    answer(&mut frontend);
    send(&mut frontend, SET_PROTOCOL_FEATURES, PLAIN, &REPLY_ACK.to_le_bytes());
    talk(&mut frontend, features);
    drop(frontend);
    serving.join().unwrap()
}

#[test]
fn rings_may_be_enabled_before_features_are_acknowledged() {
    let end = session(|frontend, features| {
        send(frontend, SET_VRING_ENABLE, PLAIN, &enable(0, 1));
        send(frontend, SET_VRING_ENABLE, NEED_REPLY, &enable(1, 1));
        assert_eq!(answer(frontend), (SET_VRING_ENABLE, 0));
        send(frontend, SET_FEATURES, NEED_REPLY, &features.to_le_bytes());
        assert_eq!(answer(frontend), (SET_FEATURES, 0));
        // And from then on the dispatcher does it.
        send(frontend, SET_VRING_ENABLE, NEED_REPLY, &enable(1, 0));
        assert_eq!(answer(frontend), (SET_VRING_ENABLE, 0));
    });
    assert!(matches!(end, SessionEnd::Disconnected), "{end:?}");
}

#[test]
fn an_early_message_is_checked_like_a_late_one() {
    for (payload, reason) in
        [(enable(2, 1), "ring 2: this port has 2 rings"), (enable(0, 2), "parameters")]
    {
        let end = session(|frontend, _| {
            send(frontend, SET_VRING_ENABLE, NEED_REPLY, &payload);
            assert_eq!(answer(frontend), (SET_VRING_ENABLE, 1));
        });
        let SessionEnd::Refused(said) = end else { panic!("{end:?}") };
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn half_an_early_message_is_the_end() {
    let end = session(|frontend, _| {
        frontend.write_all(&SET_VRING_ENABLE.to_le_bytes()).unwrap();
    });
    assert!(matches!(end, SessionEnd::Refused(_)), "{end:?}");
    let end = session(|frontend, _| {
        send(frontend, SET_VRING_ENABLE, PLAIN, &[]);
    });
    assert!(matches!(end, SessionEnd::Refused(_)), "{end:?}");
}
