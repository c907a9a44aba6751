//! A little OpenFlow switch and a little JSON-RPC server to run `ofctl` against.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod open_vswitch;
pub(crate) mod rpc;
pub(crate) mod switch;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ok: bool,
    /// Exit status.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        Outcome {
            ok: output.status.success(),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Outcome {
    /// The output of a command that must have succeeded.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert!(self.ok, "failed: {}", self.err);
        assert_eq!(self.err, "", "success is silent on standard error");
        self.out
    }

    /// The message of a command that must have failed: one line.
    #[track_caller]
    pub(crate) fn failure(self) -> String {
        assert!(!self.ok, "succeeded: {}", self.out);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err.trim_end().to_owned()
    }
}

/// `ofctl` with this run directory.
pub(crate) fn ofctl(run_dir: &Path, arguments: &[&str]) -> Outcome {
    command(run_dir, arguments).output().unwrap().into()
}

/// `ofctl`, fed from standard input.
pub(crate) fn ofctl_with_input(run_dir: &Path, arguments: &[&str], input: &str) -> Outcome {
    use std::io::Write;
    let mut child = command(run_dir, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// `ofctl`, not yet started.
pub(crate) fn command(run_dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ofctl"));
    command.env("TOLLGATE_RUNDIR", run_dir).args(arguments);
    command
}
