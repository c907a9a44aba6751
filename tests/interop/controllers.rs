//! Real controllers: os-ken's learning switch and Faucet pass traffic between two guests.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use proving_ground::lab::{Lab, mac};
use proving_ground::process::{Supervised, eventually};
use proving_ground::skip::python_with;
use proving_ground::{require, skip::Missing};
use serde_json::json;

/// Far beyond anything but a hang: an interpreter that starts on a busy machine takes its time.
const LIMIT: Duration = Duration::from_secs(90);

const RUNNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/python/controller.py");

/// A controller in a process of its own, and where it listens.
struct Controller {
    process: Supervised,
    port: u16,
}

impl Controller {
    /// Runs os-ken `application` with `environment`.
    fn start(
        python: &Path,
        application: &str,
        directory: &Path,
        environment: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        // Free a moment ago, and hardly anybody asks for ports here.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new(python);
        command.args([RUNNER, &port.to_string(), application]).current_dir(directory);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let output = directory.join("controller.log");
        let process = Supervised::spawn(application, &mut command, &output)?;
        Ok(Self { process, port })
    }

    /// Makes it the controller of `br0` and waits until they talk.
    fn take_over(&mut self, lab: &Lab) -> anyhow::Result<()> {
        let target = format!("tcp:127.0.0.1:{}", self.port);
        lab.switch.call("controller_set", json!({"bridge": "br0", "targets": [target]}))?;
        self.process.wait_until("connection to the switch", LIMIT, |_| {
            let listed = lab.switch.call("controller_get", json!({"bridge": "br0"})).ok()?;
            (listed[0]["connected"] == true).then_some(())
        })
    }
}

/// A broadcast ARP request, and the reply, so that a controller sees both stations.
fn arp(operation: u8, from: u8, to: u8) -> Vec<u8> {
    let destination = if operation == 1 { [0xff; 6] } else { mac(to) };
    let target = if operation == 1 { [0; 6] } else { mac(to) };
    let mut frame =
        [&destination[..], &mac(from), &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend([&mac(from)[..], &[10, 0, 0, from], &target, &[10, 0, 0, to]].concat());
    frame.resize(60, 0);
    frame
}

/// Sends until the frame arrives at `to`: what comes before the controller is ready may be lost.
fn send_until_there(lab: &mut Lab, from: &str, to: &str, frame: &[u8]) -> anyhow::Result<()> {
    eventually(&format!("frame from {from} to {to}"), LIMIT, || {
        let _ = lab.collect()?;
        ensure!(lab.port(from)?.send(frame, 1), "{from} has no room for a frame");
        // The controller answers some milliseconds after the switch has nothing left to do.
        for _ in 0..20 {
            let arrived = lab.collect()?;
            if arrived.get(to).is_some_and(|frames| frames.iter().any(|got| got == frame)) {
                return Ok(Some(()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(None)
    })
}

/// Two guests find each other through the controller, and then without it.
fn talk(lab: &mut Lab, controller: &mut Controller) -> anyhow::Result<()> {
    let talked = (|| {
        send_until_there(lab, "vm1", "vm2", &arp(1, 1, 2))?;
        send_until_there(lab, "vm2", "vm1", &arp(2, 2, 1))?;
        send_until_there(lab, "vm1", "vm2", &proving_ground::lab::udp(1, 2, 7, 200))?;
        send_until_there(lab, "vm2", "vm1", &proving_ground::lab::udp(2, 1, 7, 200))
    })();
    talked.with_context(|| {
        let flows = lab.switch.ofctl(&["dump-flows", "br0"]).unwrap_or_default();
        let said = controller.process.output();
        format!(
            "flows:\n{flows}\nthe controller said:\n{said}\nswitchd said:\n{}",
            lab.switch.log()
        )
    })?;
    // It has left flows for both directions: what follows needs no controller.
    controller.process.terminate()?;
    for (from, to, numbers) in [("vm1", "vm2", (1, 2)), ("vm2", "vm1", (2, 1))] {
        lab.settle()?;
        let _ = lab.collect()?;
        let frame = proving_ground::lab::udp(numbers.0, numbers.1, 9, 300);
        let arrived = lab.deliver(from, &frame)?;
        ensure!(arrived.get(to) == Some(&vec![frame]), "without its controller: {arrived:02x?}");
    }
    Ok(())
}

#[test]
fn os_kens_learning_switch_connects_two_guests() -> anyhow::Result<()> {
    let python = require!(python_with("os_ken", "os-ken"));
    require!(has_application(&python, "simple_switch_13"));
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    let directory = tempfile::tempdir()?;
    let application = "os_ken.app.simple_switch_13";
    let mut controller = Controller::start(&python, application, directory.path(), &[])?;
    controller.take_over(&lab)?;
    talk(&mut lab, &mut controller)?;
    lab.switch.stop()
}

/// Whether the runner will find an application of os-ken's.
fn has_application(python: &Path, name: &str) -> Result<(), Missing> {
    let mut command = Command::new(python);
    let found = command.args([RUNNER, "--find", name]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(Missing(format!(
        "{} has no os-ken application {name} (of os-ken 1.4.0; see .ci/run)",
        python.display()
    )))
}

#[test]
fn faucet_connects_two_guests_of_a_vlan() -> anyhow::Result<()> {
    let python = require!(python_with("faucet.faucet", "faucet"));
    let mut lab = Lab::new(&["vm1", "vm2"])?;
    let directory = tempfile::tempdir()?;
    let bridges = lab.switch.call("bridge_list", json!({}))?;
    let datapath_id = bridges[0]["datapath_id"].as_str().context("no datapath id")?;
    let config = directory.path().join("faucet.yaml");
    std::fs::write(
        &config,
        format!(
            "vlans: {{office: {{vid: 100}}}}\n\
             dps:\n  tollgate:\n    dp_id: 0x{datapath_id}\n    hardware: Open vSwitch\n    \
             interfaces:\n      1: {{native_vlan: office}}\n      2: {{native_vlan: office}}\n"
        ),
    )?;
    let within = |name: &str| directory.path().join(name).display().to_string();
    let prometheus = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let environment = [
        ("FAUCET_CONFIG", config.display().to_string()),
        ("FAUCET_LOG", within("faucet.log")),
        ("FAUCET_EXCEPTION_LOG", within("faucet_exception.log")),
        ("FAUCET_PROMETHEUS_ADDR", "127.0.0.1".to_owned()),
        ("FAUCET_PROMETHEUS_PORT", prometheus.to_string()),
    ];
    let mut controller =
        Controller::start(&python, "faucet.faucet", directory.path(), &environment)?;
    controller.take_over(&lab)?;
    let outcome = talk(&mut lab, &mut controller);
    let log = |name: &str| std::fs::read_to_string(within(name)).unwrap_or_default();
    outcome.with_context(|| format!("{}\n{}", log("faucet.log"), log("faucet_exception.log")))?;
    let refused = log("faucet.log").lines().filter(|line| line.contains("OFPError")).count();
    ensure!(refused == 0, "the switch refused something:\n{}", log("faucet.log"));
    lab.switch.stop()
}
