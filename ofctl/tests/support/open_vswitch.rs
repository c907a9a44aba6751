//! A real Open vSwitch that runs as an ordinary user on dummy devices.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::{TempDir, tempdir};

use super::{Outcome, ofctl};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A bridge `br0` with ports p1, p2 and vm-3.
pub(crate) struct OpenVswitch {
    pub(crate) dir: TempDir,
    daemons: Vec<Child>,
}

impl OpenVswitch {
    /// `None` when it is not installed.
    pub(crate) fn start() -> Option<OpenVswitch> {
        let installed = |program: &str| {
            Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
        };
        let programs = ["ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl"];
        let missing = programs.iter().find(|program| !installed(program));
        if let Some(missing) = missing.copied().or((!Path::new(SCHEMA).exists()).then_some(SCHEMA))
        {
            assert!(
                std::env::var_os("REQUIRE_PEERS").is_none_or(|value| value != "1"),
                "REQUIRE_PEERS=1, but {missing} is missing"
            );
            println!("SKIP {missing} is not installed");
            return None;
        }
        let mut ovs = OpenVswitch { dir: tempdir().unwrap(), daemons: Vec::new() };
        ovs.launch();
        Some(ovs)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.dir.path());
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.dir.path());
        }
        command
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Outcome {
        self.command(program, arguments).output().unwrap().into()
    }

    fn daemon(&mut self, program: &str, arguments: &[&str], socket: &str) {
        let log = File::create(self.path(&format!("{program}.out"))).unwrap();
        let mut command = self.command(program, arguments);
        self.daemons.push(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.path(socket).exists() {
            assert!(Instant::now() < deadline, "{program} does not come up");
            sleep(Duration::from_millis(20));
        }
    }

    fn launch(&mut self) {
        self.run("ovsdb-tool", &["create", "conf.db", SCHEMA]).success();
        self.daemon(
            "ovsdb-server",
            &["conf.db", "--remote=punix:db.sock", "--unixctl=db.ctl"],
            "db.sock",
        );
        let db = format!("--db=unix:{}", self.path("db.sock").display());
        self.run("ovs-vsctl", &[&db, "--no-wait", "init"]).success();
        let remote = format!("unix:{}", self.path("db.sock").display());
        self.daemon(
            "ovs-vswitchd",
            &[&remote, "--enable-dummy=override", "--disable-system", "--unixctl=switch.ctl"],
            "switch.ctl",
        );
        let setup = "add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure \
                     protocols=OpenFlow13";
        let port = |(name, number): (&str, u32)| {
            format!(
                "-- add-port br0 {name} -- set Interface {name} type=dummy ofport_request={number}"
            )
        };
        let ports = [("p1", 1), ("p2", 2), ("vm-3", 3)].map(port).join(" ");
        let setup = format!("{db} {setup} {ports}");
        let setup: Vec<&str> = setup.split_whitespace().collect();
        self.run("ovs-vsctl", &setup).success();
    }

    pub(crate) fn ovs_ofctl(&self, arguments: &[&str]) -> Outcome {
        self.run("ovs-ofctl", &[&["-O", "OpenFlow13"], arguments].concat())
    }

    pub(crate) fn ofctl(&self, arguments: &[&str]) -> Outcome {
        ofctl(self.dir.path(), arguments)
    }
}

impl Drop for OpenVswitch {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// What changes from one dump to the next.
pub(crate) fn without_times(text: &str) -> String {
    let word = |word: &str| !word.starts_with("duration=") && !word.starts_with("(xid=");
    let line = |line: &str| line.split(' ').filter(|w| word(w)).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
