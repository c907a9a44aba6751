//! The daemon's own life: start, stop, crash, a second one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, ensure};
use proving_ground::process::run;
use proving_ground::switch::Options;
use proving_ground::{Switch, binaries};
use serde_json::json;

use proving_ground::lab::{Lab, udp};

#[test]
fn sigterm_and_sigint_end_it_with_success_and_without_sockets() -> anyhow::Result<()> {
    // stop() sends SIGTERM and checks the status and the run directory.
    let lab = Lab::new(&["vm1"])?;
    lab.switch.stop()?;
    let mut lab = Lab::new(&["vm1"])?;
    lab.switch.signal(rustix::process::Signal::INT)?;
    lab.switch.stop()
}

#[test]
fn a_crashed_daemons_sockets_are_replaced() -> anyhow::Result<()> {
    let mut switch = Switch::start(Options::default())?;
    switch.add_bridge("br0")?;
    switch.add_port("vm1", "vm1")?;
    let left = switch.run_dir().join("vhost/vm1");
    switch.crash_and_restart()?;
    ensure!(left.exists(), "a crash leaves its sockets; the test would prove nothing");
    switch.add_bridge("br0")?;
    switch.add_port("vm1", "vm1")?;
    switch.stop()
}

#[test]
fn a_live_daemons_run_directory_is_refused() -> anyhow::Result<()> {
    let switch = Switch::start(Options::default())?;
    let mut second = binaries::command("switchd")?;
    let refusal = run(second.arg("--run-dir").arg(switch.run_dir()));
    let Err(error) = refusal else { bail!("a second daemon started in the same directory") };
    let message = format!("{error:#}");
    ensure!(message.contains("another"), "the message does not say why: {message}");
    // And the first is none the worse for it.
    switch.call("version", json!({}))?;
    switch.stop()
}

#[test]
fn unknown_configuration_keys_are_refused_by_name() -> anyhow::Result<()> {
    let config = "[pmd]\ncores = [0]\npolling_zeal = 3\n".to_owned();
    let Err(error) = Switch::start(Options { config, nice: None }) else {
        bail!("an unknown key was accepted")
    };
    let message = format!("{error:#}");
    ensure!(message.contains("polling_zeal"), "the key is not named: {message}");
    Ok(())
}

#[test]
fn guests_come_back_after_a_restart_of_the_switch() -> anyhow::Result<()> {
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    lab.switch.crash_and_restart()?;
    lab.switch.add_bridge("br0")?;
    for name in ["vm1", "vm2"] {
        lab.switch.add_port(name, name)?;
        lab.port(name)?.reconnect(tollgate_guest::port::Resume::Fresh)?;
        lab.switch.wait_running(name, 2)?;
    }
    lab.switch.add_flows(&["in_port=vm1,actions=output:vm2"])?;
    let frame = udp(1, 2, 7, 60);
    ensure!(lab.port("vm1")?.send(&frame, 1), "no room");
    let arrived = proving_ground::process::eventually("frame", proving_ground::lab::LIMIT, || {
        let got = lab.collect()?;
        Ok((!got.is_empty()).then_some(got))
    })?;
    ensure!(arrived.get("vm2") == Some(&vec![frame]), "{arrived:02x?}");
    lab.switch.stop()
}

#[test]
fn runs_as_an_ordinary_user() -> anyhow::Result<()> {
    // Root's own rights are given up for the daemon only; without root it is an ordinary user anyhow.
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let program = readable_copy(directory.path())?;
    let run_dir = directory.path().join("run");
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        use std::os::unix::process::CommandExt as _;
        command.uid(65534).gid(65534);
    }
    command.arg("--run-dir").arg(&run_dir);
    let log = directory.path().join("log");
    let mut daemon = proving_ground::process::Supervised::spawn("switchd", &mut command, &log)?;
    daemon.wait_until("answer", proving_ground::lab::LIMIT, |_| {
        let mut client = proving_ground::rpc::Client::connect(&run_dir.join("rpc.sock")).ok()?;
        client.call("bridge_add", json!({"name": "br0"})).ok()
    })?;
    let status = daemon.terminate()?;
    ensure!(status.success(), "{status}: {}", daemon.output());
    Ok(())
}

/// The build directory may be closed to others.
fn readable_copy(directory: &Path) -> anyhow::Result<std::path::PathBuf> {
    let copy = directory.join("switchd");
    fs::copy(binaries::directory()?.join("switchd"), &copy)?;
    Ok(copy)
}
