//! The daemon as a process: its run directory from start to end, whatever end it comes to.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;

use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity};
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

fn allowed_cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Name, nice value and allowed CPUs of a daemon's threads.
fn threads(daemon: &Daemon) -> Vec<(String, i64, String)> {
    let field = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().to_owned()
    };
    // A thread gives itself its name when it first runs, which may be after the daemon is ready.
    let task = format!("/proc/{}/task", daemon.pid());
    let named = |name: &str| {
        let mut threads = fs::read_dir(&task).unwrap().map(|thread| thread.unwrap().path());
        threads
            .any(|thread| fs::read_to_string(thread.join("comm")).is_ok_and(|n| n.trim() == name))
    };
    while !(named("slow-path") && named("pmd-0")) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    fs::read_dir(&task)
        .unwrap()
        .map(|thread| {
            let thread = thread.unwrap().path();
            let status = fs::read_to_string(thread.join("status")).unwrap();
            let stat = fs::read_to_string(thread.join("stat")).unwrap();
            // proc_pid_stat(5): nice is field 19, and the name in field 2 may have spaces.
            let nice = stat.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap();
            let name = field(&status, "Name:");
            (name, nice.parse().unwrap(), field(&status, "Cpus_allowed_list:"))
        })
        .collect()
}

/// Whether a list like "0-2,7" includes `cpu`.
fn includes(list: &str, cpu: &str) -> bool {
    let number = |text: &str| text.parse::<usize>().unwrap();
    list.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (number(first)..=number(last)).contains(&number(cpu))
    })
}

#[test]
fn threads_are_where_the_configuration_puts_them() {
    let dir = directory();
    let default = Daemon::start(dir.path(), TWO_PORTS);
    let found = threads(&default);
    let pmd_cpus = &found.iter().find(|(name, ..)| name == "pmd-0").unwrap().2;
    let nice_of_others: Vec<i64> = found
        .iter()
        .filter(|(name, ..)| name == "switchd" || name == "management" || name == "pmd-0")
        .map(|(_, nice, _)| *nice)
        .collect();
    assert!(nice_of_others.iter().all(|nice| *nice == nice_of_others[0]), "{found:?}");
    let slow_path = found.iter().find(|(name, ..)| name == "slow-path").unwrap();
    assert_eq!(slow_path.1, nice_of_others[0], "the daemon's own by default");
    if allowed_cpus().len() > 1 {
        let beside: Vec<_> = found
            .iter()
            .filter(|(name, _, cpus)| name != "pmd-0" && includes(cpus, pmd_cpus))
            .collect();
        assert!(beside.is_empty(), "{beside:?} may run on the CPU of {pmd_cpus}");
    }
    default.stop();

    let cpu = allowed_cpus()[0];
    let config =
        format!("[pmd]\ncores = [{cpu}]\n[slow_path]\ncore = {cpu}\nnice = 18\n{TWO_PORTS}");
    let chosen = Daemon::start(dir.path(), &config);
    let found = threads(&chosen);
    let slow_path = found.iter().find(|(name, ..)| name == "slow-path").expect("a slow path");
    assert_eq!((slow_path.1, slow_path.2.as_str()), (18, cpu.to_string().as_str()));
    chosen.stop();
}

#[test]
fn one_pmd_for_each_core_and_ports_where_they_were_asked_for() {
    let dir = directory();
    let [first, second, ..] = allowed_cpus()[..] else { return };
    let config = format!("[pmd]\ncores = [{second}, {first}]\n{TWO_PORTS}pmd = 1\n");
    let daemon = Daemon::start(dir.path(), &config);
    let stats = daemon.call("pmd_stats", json!({}));
    let cores = stats["pmds"].as_array().unwrap().iter().map(|pmd| pmd["core"].clone());
    assert_eq!(cores.collect::<Vec<_>>(), [json!(second), json!(first)]);
    let ports = daemon.call("port_list", json!({}));
    assert_eq!((&ports[0]["pmd"], &ports[1]["pmd"]), (&json!(0), &json!(1)));
    let tenant = daemon.call("tenant_get", json!({"tenant": "vm1"}));
    assert_eq!(tenant["credit_cycles"].as_array().unwrap().len(), 2);
    daemon.stop();
}
