//! The real daemon in a private run directory.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binaries;
use crate::process::{Supervised, eventually, run};
use crate::rpc::Client;

/// How long a daemon may take to answer its first call; a debug build on a busy machine is slow.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long a guest that has been started may take to attach.
const ATTACH_LIMIT: Duration = Duration::from_secs(60);

/// How a daemon is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Text of the configuration file.
    pub config: String,
    /// Runs the daemon at this nice value. Below zero needs root; without it the value is left alone.
    pub nice: Option<i32>,
}

impl Options {
    /// One PMD on `core` that others do not push aside, the rest by the daemon's own defaults.
    ///
    /// With root, the slow path is not pushed aside either: on a machine with two cores it shares
    /// one with a guest that spins, and by its default nice value it would get nothing for seconds.
    pub fn on_core(core: usize) -> Self {
        let mut config = format!("[pmd]\ncores = [{core}]\n");
        if geteuid().is_root() {
            config.push_str("[slow_path]\nnice = -20\n");
        }
        Self { config, nice: Some(-20) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::on_core(0)
    }
}

/// A running switch. Ended by SIGTERM when dropped; its run directory goes with it.
///
/// There is one at a time for each target directory, whatever runs the tests: a polling thread
/// leaves no room for another on its core.
#[derive(Debug)]
pub struct Switch {
    process: Supervised,
    run_dir: TempDir,
    options: Options,
    _turn: File,
}

impl Switch {
    /// Starts the daemon and waits until it answers `version`.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        let turn = take_turn()?;
        let run_dir = tempfile::Builder::new().prefix("tollgate-").tempdir()?;
        let process = launch(run_dir.path(), &options)?;
        Ok(Self { process, run_dir, options, _turn: turn })
    }

    /// The directory with the switch's sockets.
    pub fn run_dir(&self) -> &Path {
        self.run_dir.path()
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What the daemon has logged.
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// A new connection to the management socket.
    pub fn rpc(&self) -> anyhow::Result<Client> {
        Client::connect(&self.run_dir().join("rpc.sock"))
    }

    /// One call on a connection of its own.
    pub fn call(&self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.rpc()?.call(method, params)
    }

    /// Adds the bridge `name`.
    pub fn add_bridge(&self, name: &str) -> anyhow::Result<()> {
        self.call("bridge_add", json!({"name": name})).map(drop)
    }

    /// Adds a port to `br0` whose socket the switch listens on; returns the socket's path.
    pub fn add_port(&self, name: &str, tenant: &str) -> anyhow::Result<PathBuf> {
        self.add_port_with(name, json!({"tenant": tenant, "mode": "listen"}))
    }

    /// Adds a port to `br0` with further parameters of `port_add`; returns the socket's path.
    pub fn add_port_with(&self, name: &str, further: Value) -> anyhow::Result<PathBuf> {
        let socket = self.run_dir().join(format!("vhost/{name}"));
        let mut params = json!({"bridge": "br0", "name": name, "socket": socket});
        if let (Some(params), Some(further)) = (params.as_object_mut(), further.as_object()) {
            params.extend(further.clone());
        }
        self.call("port_add", params)?;
        Ok(socket)
    }

    /// The `port_list` entry of one port.
    pub fn port(&self, name: &str) -> anyhow::Result<Value> {
        let ports = self.call("port_list", json!({}))?;
        let port = ports.as_array().and_then(|all| all.iter().find(|port| port["name"] == name));
        port.cloned().with_context(|| format!("no port {name} in {ports}"))
    }

    /// Waits until a guest has started `rings` rings on the port: two for each queue pair.
    pub fn wait_running(&self, name: &str, rings: usize) -> anyhow::Result<Value> {
        let running = eventually(&format!("guest with {rings} rings"), ATTACH_LIMIT, || {
            let port = self.port(name)?;
            let listed = port["rings"].as_array().map_or(&[][..], Vec::as_slice);
            let started = listed.iter().filter(|ring| ring["started"] == true).count();
            Ok((started >= rings).then_some(port))
        });
        running.with_context(|| format!("{:?}\nswitchd said:\n{}", self.port(name), self.log()))
    }

    /// Our own `ofctl`, to be run against this switch.
    pub fn ofctl_command(&self) -> anyhow::Result<Command> {
        let mut ofctl = binaries::command("ofctl")?;
        ofctl.env("TOLLGATE_RUNDIR", self.run_dir());
        Ok(ofctl)
    }

    /// Runs our own `ofctl` against this switch.
    pub fn ofctl<S: AsRef<str>>(&self, arguments: &[S]) -> anyhow::Result<String> {
        let mut ofctl = self.ofctl_command()?;
        ofctl.args(arguments.iter().map(AsRef::as_ref));
        run(&mut ofctl)
    }

    /// Installs flows, each in ovs-ofctl's grammar, by running `ofctl add-flow br0 FLOW`.
    pub fn add_flows(&self, flows: &[&str]) -> anyhow::Result<()> {
        for flow in flows {
            self.ofctl(&["add-flow", "br0", flow])?;
        }
        Ok(())
    }

    /// Where a bridge answers OpenFlow, as `ovs-ofctl` wants it named: `unix:RUNDIR/BRIDGE.mgmt`.
    pub fn bridge_address(&self, bridge: &str) -> String {
        format!("unix:{}", self.run_dir().join(format!("{bridge}.mgmt")).display())
    }

    /// Sends the daemon a signal.
    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        Ok(self.process.signal(signal)?)
    }

    /// Ends the daemon by SIGTERM.
    ///
    /// # Errors
    /// It did not end with success, or left a socket behind.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let status = self.process.terminate()?;
        ensure!(status.success(), "switchd ended with {status}:\n{}", self.log());
        let left = sockets_under(self.run_dir())?;
        ensure!(left.is_empty(), "switchd left sockets behind: {left:?}");
        Ok(())
    }

    /// Kills the daemon outright, as a crash would, and starts another in the same run directory.
    pub fn crash_and_restart(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait(Duration::from_secs(5))?;
        self.process = launch(self.run_dir.path(), &self.options)?;
        Ok(())
    }
}

/// Waits until no other switch runs; the turn lasts as long as the file is open.
fn take_turn() -> anyhow::Result<File> {
    let directory = binaries::target_directory()?.join("proving-ground");
    fs::create_dir_all(&directory)?;
    let turn = File::create(directory.join("switch.lock"))?;
    flock(&turn, FlockOperation::LockExclusive)?;
    Ok(turn)
}

fn launch(run_dir: &Path, options: &Options) -> anyhow::Result<Supervised> {
    let config = run_dir.join("tollgate.toml");
    fs::write(&config, &options.config)?;
    let mut command = binaries::command_at_nice("switchd", options.nice)?;
    command.arg("--run-dir").arg(run_dir).arg("--config").arg(&config);
    // Its own grace is for a machine that is not busy with compiling.
    command.args(["--shutdown-timeout-ms", "4000"]);
    let mut process = Supervised::spawn("switchd", &mut command, &run_dir.join("switchd.log"))?;
    process.wait_until("answer on rpc.sock", START_LIMIT, |_| {
        Client::connect(&run_dir.join("rpc.sock")).ok()?.call("version", json!({})).ok()
    })?;
    Ok(process)
}

/// All sockets in a directory and below.
fn sockets_under(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(sockets_under(&entry.path())?);
        } else if kind.is_socket() {
            found.push(entry.path());
        }
    }
    Ok(found)
}
