//! Sockets in both modes.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_vhost::mock::MockHost;
use tollgate_vhost::{PortSocket, PortStatus, SessionConfig, SocketError, SocketMode};
use vhost::VhostBackend;
use vhost::vhost_user::Frontend;

struct Port {
    socket: PortSocket,
    status: Arc<PortStatus>,
}

fn spawn(path: &Path, mode: SocketMode) -> Result<Port, SocketError> {
    let status = Arc::new(PortStatus::new());
    let config = SessionConfig { name: "test".to_owned(), queue_pairs_max: 1 };
    let host = Arc::new(MockHost::new());
    let socket = PortSocket::spawn(path, mode, config, host, Arc::clone(&status))?;
    Ok(Port { socket, status })
}

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("port");
    (directory, path)
}

/// Waits for what another thread is about to bring about.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn talk(stream: UnixStream) -> Frontend {
    let frontend = Frontend::from_stream(stream, 2);
    assert_ne!(frontend.get_features().unwrap(), 0);
    frontend
}

#[test]
fn frontends_come_and_go_on_a_listening_port() {
    let (_directory, path) = directory();
    let port = spawn(&path, SocketMode::Listen).unwrap();
    for round in 1..=20 {
        let frontend = talk(UnixStream::connect(&path).unwrap());
        assert_eq!(port.status.sessions(), round);
        drop(frontend);
    }
    eventually("the last one has left", || !port.status.is_connected());
    assert_eq!(port.status.session_errors(), 0);
    port.socket.shutdown();
    assert!(!path.exists());
}

#[test]
fn a_second_frontend_waits_for_the_first() {
    let (_directory, path) = directory();
    let port = spawn(&path, SocketMode::Listen).unwrap();
    let first = talk(UnixStream::connect(&path).unwrap());
    let second = UnixStream::connect(&path).unwrap();
    let waiting = std::thread::spawn(move || talk(second));
    first.get_features().unwrap();
    assert_eq!(port.status.sessions(), 1);
    drop(first);
    drop(waiting.join().unwrap());
    assert_eq!(port.status.sessions(), 2);
}

#[test]
fn a_connecting_port_keeps_trying_and_comes_back() {
    let (_directory, path) = directory();
    let port = spawn(&path, SocketMode::Connect).unwrap();
    eventually("says why", || port.status.last_error().is_some());
    assert!(port.status.last_error().unwrap().contains("No such file"));
    for round in 1..=3 {
        let listener = UnixListener::bind(&path).unwrap();
        let frontend = talk(listener.accept().unwrap().0);
        assert_eq!(port.status.sessions(), round);
        drop(listener);
        drop(frontend);
        std::fs::remove_file(&path).unwrap();
    }
    let start = Instant::now();
    port.socket.shutdown();
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn shutdown_ends_a_session_and_a_wait_alike() {
    for (mode, connected) in
        [(SocketMode::Listen, true), (SocketMode::Listen, false), (SocketMode::Connect, false)]
    {
        let (_directory, path) = directory();
        let port = spawn(&path, mode).unwrap();
        let frontend = connected.then(|| talk(UnixStream::connect(&path).unwrap()));
        port.socket.shutdown();
        assert!(!port.status.is_connected() && !path.exists());
        drop(frontend);
    }
}

#[test]
fn shutdown_does_not_wait_for_a_listener_that_never_accepts() {
    let (_directory, path) = directory();
    let listener = UnixListener::bind(&path).unwrap();
    // Fill its backlog.
    let mut waiting = Vec::new();
    while let Ok(stream) = connect_nonblocking(&path) {
        waiting.push(stream);
    }
    let port = spawn(&path, SocketMode::Connect).unwrap();
    eventually("sees it", || port.status.last_error().is_some());
    port.socket.shutdown();
    assert!(matches!(spawn(&path, SocketMode::Listen), Err(SocketError::InUse(_))));
    drop(listener);
}

fn connect_nonblocking(path: &Path) -> rustix::io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let (_directory, path) = directory();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let port = spawn(&path, SocketMode::Listen).unwrap();
    drop(talk(UnixStream::connect(&path).unwrap()));
    let Err(error @ SocketError::InUse(_)) = spawn(&path, SocketMode::Listen) else {
        panic!("a live socket was taken")
    };
    assert!(error.to_string().ends_with("is in use by a running process"));
    drop(talk(UnixStream::connect(&path).unwrap()));
    port.socket.shutdown();

    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(spawn(&path, SocketMode::Listen), Err(SocketError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn shutdown_leaves_somebody_elses_socket_alone() {
    let (_directory, path) = directory();
    let port = spawn(&path, SocketMode::Listen).unwrap();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    port.socket.shutdown();
    assert!(path.exists());
    drop(other);
}

#[test]
fn vu_07_a_storm_of_connections_passes() {
    let (_directory, path) = directory();
    let port = spawn(&path, SocketMode::Listen).unwrap();
    for _ in 0..1000 {
        drop(UnixStream::connect(&path).unwrap());
    }
    drop(talk(UnixStream::connect(&path).unwrap()));
    assert_eq!(port.status.session_errors(), 0);
}
