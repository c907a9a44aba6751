//! A `switchd` process of a test's own.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod peer;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Far beyond what anything here takes on a busy machine: reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bridge with two ports.
pub(crate) const TWO_PORTS: &str = r#"
[[bridges]]
name = "br0"
[[ports]]
bridge = "br0"
name = "vm1"
[[ports]]
bridge = "br0"
name = "vm2"
"#;

/// A running daemon, killed when the test is over.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: Child,
    run_dir: PathBuf,
    log: PathBuf,
}

/// A directory for a daemon's run dir, configuration and log.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The command that starts a daemon in `dir`.
pub(crate) fn command(dir: &Path, config: &str) -> Command {
    let path = dir.join("switchd.toml");
    fs::write(&path, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchd"));
    command.arg("--config").arg(path).arg("--run-dir").arg(dir.join("run"));
    // A machine that is busy with other tests is no reason to fail.
    command.args(["--shutdown-timeout-ms", "50000"]);
    command.stdin(Stdio::null());
    command
}

impl Daemon {
    /// Starts one in `dir` and waits until it answers.
    pub(crate) fn start(dir: &Path, config: &str) -> Self {
        let log = dir.join("log");
        let file = fs::File::options().create(true).append(true).open(&log).unwrap();
        let process = command(dir, config).stderr(file).spawn().unwrap();
        let mut daemon = Self { process, run_dir: dir.join("run"), log };
        daemon.wait_until("it answers", |daemon| {
            let ended = daemon.process.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", daemon.log());
            UnixStream::connect(daemon.rpc_socket()).is_ok()
        });
        daemon
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    pub(crate) fn rpc_socket(&self) -> PathBuf {
        self.run_dir.join("rpc.sock")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Bytes of memory in use.
    pub(crate) fn resident_bytes(&self) -> usize {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.process.id())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    pub(crate) fn wait_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "waited in vain until {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The result of a call that must succeed.
    pub(crate) fn call(&self, method: &str, params: Value) -> Value {
        let mut reply = self.ask(method, params);
        assert!(reply.get("error").is_none(), "{method}: {reply}");
        reply["result"].take()
    }

    /// Code and message of a call that must fail.
    pub(crate) fn refusal(&self, method: &str, params: Value) -> (i64, String) {
        let reply = self.ask(method, params);
        let error = &reply["error"];
        (error["code"].as_i64().expect("an error"), error["message"].as_str().unwrap().to_owned())
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        let mut stream = UnixStream::connect(self.rpc_socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(stream, "{request}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        self.wait_until("it ends", |daemon| {
            status = daemon.process.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Ends it and checks that it ended in order (an end that took too long has status 1).
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.log());
        assert_eq!(sockets(&self.run_dir), Vec::<PathBuf>::new());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// The sockets in `dir` and below.
pub(crate) fn sockets(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            found.extend(sockets(&path));
        } else if kind.is_socket() {
            found.push(path);
        }
    }
    found.sort();
    found
}
