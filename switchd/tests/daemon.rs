//! The daemon as a process: its run directory from start to end, whatever end it comes to.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;

use rustix::process::Signal;
use serde_json::json;
use support::{Daemon, TWO_PORTS, command, directory, sockets};

#[test]
fn it_starts_with_what_is_configured_and_leaves_no_socket() {
    let dir = directory();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut daemon = Daemon::start(dir.path(), TWO_PORTS);
        let run = daemon.run_dir().to_owned();
        let expected = ["br0.mgmt", "rpc.sock", "vhost/vm1", "vhost/vm2"];
        assert_eq!(sockets(&run), expected.map(|socket| run.join(socket)));
        assert_eq!(fs::metadata(&run).unwrap().mode() & 0o777, 0o750);
        assert_eq!(fs::metadata(run.join("vhost")).unwrap().mode() & 0o777, 0o750);
        daemon.signal(signal);
        let status = daemon.wait();
        assert!(status.success(), "{status}: {}", daemon.log());
        assert_eq!(sockets(&run), Vec::<std::path::PathBuf>::new());
        assert!(!run.join("switchd.pid").exists());
    }
}

#[test]
fn a_second_daemon_is_refused_and_the_first_not_disturbed() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    let second = command(dir.path(), "").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let message = String::from_utf8_lossy(&second.stderr);
    assert!(message.contains("another switchd (pid "), "{message}");
    assert!(message.contains("--run-dir"), "{message}");
    assert_eq!(daemon.call("port_list", json!({})).as_array().unwrap().len(), 2);
    daemon.stop();
}

#[test]
fn the_sockets_of_a_killed_daemon_are_replaced() {
    let dir = directory();
    let mut daemon = Daemon::start(dir.path(), TWO_PORTS);
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert_eq!(sockets(daemon.run_dir()).len(), 4);
    // A bridge that the next one does not have leaves no socket either.
    let config = TWO_PORTS.replace("br0", "br1");
    let daemon = Daemon::start(dir.path(), &config);
    let run = daemon.run_dir().to_owned();
    let expected = ["br1.mgmt", "rpc.sock", "vhost/vm1", "vhost/vm2"];
    assert_eq!(sockets(&run), expected.map(|socket| run.join(socket)));
    daemon.stop();
}

#[test]
fn a_live_socket_in_its_place_is_refused_by_name_and_survives() {
    let dir = directory();
    let path = dir.path().join("taken");
    let _listener = UnixListener::bind(&path).unwrap();
    let port = format!(
        "{TWO_PORTS}[[ports]]\nbridge = 'br0'\nname = 'vm3'\nsocket = '{}'\n",
        path.display()
    );
    let output = command(dir.path(), &port).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("vm3") && message.contains("taken"), "{message}");
    assert!(path.exists());
    // What had begun was undone.
    assert_eq!(sockets(&dir.path().join("run")), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_wrong_configuration_is_explained_and_nothing_is_left() {
    let dir = directory();
    let output = command(dir.path(), "[pmd]\ncors = [0]\n").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("switchd.toml: line 2: `pmd.cors`"), "{message}");
    assert!(!dir.path().join("run").exists());

    let output = command(dir.path(), "[pmd]\ncores = [1000000]\n").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("pmd.cores") && message.contains("1000000"), "{message}");

    let output = command(dir.path(), TWO_PORTS).arg("--check").output().unwrap();
    assert!(output.status.success());
    assert!(!dir.path().join("run").exists());
}

#[test]
fn a_run_dir_that_cannot_be_made_is_named() {
    let dir = directory();
    let output =
        command(dir.path(), "").args(["--run-dir", "/nonexistent/tollgate"]).output().unwrap();
    // The option was given twice.
    assert!(!output.status.success());

    let output = std::process::Command::new(env!("CARGO_BIN_EXE_switchd"))
        .env("TOLLGATE_RUNDIR", "/nonexistent/tollgate")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("/nonexistent/tollgate"), "{message}");
}

#[test]
fn shutdown_does_not_wait_for_idle_or_stuck_clients() {
    let dir = directory();
    let daemon = Daemon::start(dir.path(), TWO_PORTS);
    let run = daemon.run_dir().to_owned();
    let mut clients = Vec::new();
    for socket in ["rpc.sock", "br0.mgmt", "vhost/vm1"] {
        let mut client = std::os::unix::net::UnixStream::connect(run.join(socket)).unwrap();
        std::io::Write::write_all(&mut client, b"{\"half\"").unwrap();
        clients.push(client);
    }
    daemon.stop();
}
