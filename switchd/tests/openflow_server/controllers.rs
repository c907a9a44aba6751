//! The controllers of a bridge: connections that are kept up, and places where they come to us.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tollgate_openflow::Message;
use tollgate_openflow::message::Hello;
use tollgate_switchd::limits::MAX_CONTROLLER_CONNECTIONS;
use tollgate_switchd::openflow::{LinkState, Role, Target, Timing};

use crate::server::{Client, Server, eventually, greet};

const SOON: Duration = Duration::from_millis(10);

/// Impatient, so that tests need not be patient.
fn impatient() -> Timing {
    Timing { reconnect_min: SOON, reconnect_max: SOON * 2, ..Timing::default() }
}

fn tcp_listener() -> (TcpListener, Target) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    (listener, target)
}

/// The next connection that the switch makes.
fn accept(listener: &TcpListener) -> Client<TcpStream> {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut client = Client(stream);
    assert_eq!(client.receive(), (0, Message::Hello(Hello::OURS)));
    client
}

#[test]
fn a_connection_is_kept_up() {
    let server = Server::with_timing(impatient());
    let (listener, target) = tcp_listener();
    server.openflow.set_controllers(std::slice::from_ref(&target)).unwrap();
    let state = || server.openflow.controllers()[0].clone();
    for _ in 0..3 {
        let mut controller = greet(accept(&listener));
        let summary = state();
        assert_eq!((summary.state, summary.connections), (LinkState::Active, 1));
        assert_eq!(summary.role, Some(Role::Equal));
        controller.send(2, &Message::FeaturesRequest);
        assert!(matches!(controller.receive(), (2, Message::FeaturesReply(_))));
        drop(controller);
        eventually("the loss is noticed", || state().connections == 0);
        assert!(state().last_error.is_some());
    }
    // Nobody there, and then somebody again.
    drop(listener);
    eventually("nobody answers", || {
        state().last_error.is_some_and(|error| error.contains("refused"))
    });
    let Target::Tcp(address) = target else { panic!() };
    let listener = TcpListener::bind(address).unwrap();
    greet(accept(&listener)).assert_alive();
}

#[test]
fn a_controller_of_another_version_is_told_and_tried_again() {
    let server = Server::with_timing(impatient());
    let (listener, target) = tcp_listener();
    server.openflow.set_controllers(&[target]).unwrap();
    for _ in 0..2 {
        let mut controller = accept(&listener);
        let mut hello = Message::Hello(Hello { versions: Some(1 << 1) }).encode(1);
        hello[0] = 1;
        controller.send_bytes(&hello);
        let (_, error) = controller.error();
        assert!(String::from_utf8_lossy(&error.data).contains("1.3"));
        controller.assert_closed();
    }
    assert_eq!(server.openflow.controllers()[0].connections, 0);
}

#[test]
fn a_controller_that_falls_silent_is_asked_and_given_up() {
    let timing = Timing { controller_probe: Duration::from_millis(50), ..impatient() };
    let server = Server::with_timing(timing);
    let (listener, target) = tcp_listener();
    server.openflow.set_controllers(&[target]).unwrap();
    let mut controller = greet(accept(&listener));
    for _ in 0..3 {
        assert_eq!(controller.receive(), (0, Message::EchoRequest(Vec::new())));
        controller.send(0, &Message::EchoReply(Vec::new()));
    }
    assert_eq!(controller.receive(), (0, Message::EchoRequest(Vec::new())));
    // No answer.
    controller.assert_closed();
    greet(accept(&listener));
}

#[test]
fn controllers_connect_where_the_switch_listens() {
    let server = Server::start();
    let (listener, Target::Tcp(address)) = tcp_listener() else { panic!() };
    drop(listener);
    let path = server.dir.path().join("c.sock");
    let targets = [Target::PassiveTcp(address), Target::PassiveUnix(path.clone())];
    server.openflow.set_controllers(&targets).unwrap();
    let connect = || {
        let mut client = Client(TcpStream::connect(address).unwrap());
        client.receive();
        greet(client)
    };
    let first = connect();
    let summary = || server.openflow.controllers()[0].clone();
    assert_eq!((summary().connections, summary().role), (1, Some(Role::Equal)));
    let mut rest: Vec<_> = (1..MAX_CONTROLLER_CONNECTIONS).map(|_| connect()).collect();
    assert_eq!((summary().connections, summary().role), (MAX_CONTROLLER_CONNECTIONS, None));
    rest.iter_mut().for_each(Client::assert_alive);
    // One too many is told so.
    let mut refused = Client(TcpStream::connect(address).unwrap());
    refused.receive();
    assert!(String::from_utf8_lossy(&refused.error().1.data).contains("connections"));
    drop((first, rest));
    eventually("all have left", || summary().connections == 0);
    assert_eq!(summary().state, LinkState::Listening);

    let mut over_unix = Client(std::os::unix::net::UnixStream::connect(&path).unwrap());
    over_unix.receive();
    greet(over_unix);
    server.openflow.set_controllers(&[]).unwrap();
    eventually("nobody listens", || TcpStream::connect(address).is_err());
    assert!(!path.exists());
}

#[test]
fn the_switch_connects_to_unix_sockets_as_well() {
    let server = Server::with_timing(impatient());
    let path = server.dir.path().join("controller");
    let listener = UnixListener::bind(&path).unwrap();
    server.openflow.set_controllers(&[Target::Unix(path)]).unwrap();
    let mut client = Client(listener.accept().unwrap().0);
    client.receive();
    greet(client);
}

#[test]
fn a_change_of_controllers_leaves_those_alone_that_stay() {
    let server = Server::with_timing(impatient());
    let [(kept_listener, kept), (gone_listener, gone), (new_listener, new)] =
        [(); 3].map(|()| tcp_listener());
    server.openflow.set_controllers(&[gone, kept.clone()]).unwrap();
    let mut kept_client = greet(accept(&kept_listener));
    let mut gone_client = greet(accept(&gone_listener));
    server.openflow.set_controllers(&[new.clone(), kept.clone(), new.clone()]).unwrap();
    gone_client.assert_closed();
    greet(accept(&new_listener));
    kept_client.assert_alive();
    let targets: Vec<_> =
        server.openflow.controllers().into_iter().map(|known| known.target).collect();
    assert_eq!(targets, [new, kept.clone()]);

    // What cannot be listened on is refused, and nothing is changed.
    let Target::Tcp(taken) = kept else { panic!() };
    let error = server.openflow.set_controllers(&[Target::PassiveTcp(taken)]).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    kept_client.assert_alive();
    assert_eq!(server.openflow.controllers().len(), 2);
}
