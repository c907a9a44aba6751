//! Two Linux guests in QEMU: ping, and a file over TCP that must arrive unharmed.

use std::time::Duration;

use anyhow::ensure;
use proving_ground::require;
use proving_ground::vm::{Options, Role, Task, Vm};
use serde_json::json;

use crate::switch;

/// The file that one guest fetches from the other.
const FILE_BYTES: u64 = 20 << 20;

const PINGS: u32 = 20;

/// A guest boots in 3 to 15 s where nothing else runs; emulation on a busy machine takes longer.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

#[test]
fn linux_guests_talk_when_qemu_connects() -> anyhow::Result<()> {
    guests_talk(Role::Connects)
}

#[test]
fn linux_guests_talk_when_the_switch_connects() -> anyhow::Result<()> {
    guests_talk(Role::Listens)
}

fn guests_talk(role: Role) -> anyhow::Result<()> {
    let image = require!(Vm::available());
    let switch = switch()?;
    let mode = if role == Role::Listens { "connect" } else { "listen" };
    let tasks = [
        Task::Serve { bytes: FILE_BYTES },
        Task::Fetch { peer: "10.1.0.1".to_owned(), pings: PINGS },
    ];
    let mut guests = Vec::new();
    for (number, task) in (1..).zip(tasks) {
        let name = format!("vm{number}");
        let options = Options {
            socket: switch.add_port_with(&name, json!({"mode": mode}))?,
            role,
            mac: format!("02:00:00:00:01:{number:02}"),
            address: format!("10.1.0.{number}/24"),
            task,
            device: String::new(),
            core: 1,
            name,
        };
        guests.push(Vm::boot(&image, &options, switch.run_dir())?);
    }
    switch.add_flows(&["in_port=vm1,actions=output:vm2", "in_port=vm2,actions=output:vm1"])?;

    let [server, client] = guests.as_mut_slice() else { unreachable!("two guests were booted") };
    server.report("up", BOOT_LIMIT)?;
    client.report("up", BOOT_LIMIT)?;
    let features = switch.wait_running("vm1", 2)?["features"].to_string();
    for name in ["event_idx", "mrg_rxbuf", "version_1"] {
        ensure!(features.contains(name), "Linux takes {name} where it is offered: {features}");
    }
    let ping = client.report("ping", BOOT_LIMIT)?;
    ensure!(ping.contains(" 0% packet loss"), "ping: {ping}\n{}", client.console());
    let fetched = client.report("fetched", BOOT_LIMIT)?;
    ensure!(fetched == format!("{FILE_BYTES} bytes"), "the client fetched {fetched}");
    let sums = [server.report("sha256", BOOT_LIMIT)?, client.report("sha256", BOOT_LIMIT)?];
    ensure!(sums[0] == sums[1], "the file changed on its way: {sums:?}");

    let port = switch.port("vm1")?;
    ensure!(
        port["rx_bytes"].as_u64() > Some(FILE_BYTES),
        "the switch did not carry the file: {port}"
    );
    drop(guests);
    switch.stop()
}
