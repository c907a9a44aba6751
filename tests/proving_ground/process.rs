//! Child processes that end with their owner, by their own process id, on every way out.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// How often a condition that nothing signals is looked at again.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A child process with its output in a file.
///
/// It gets SIGTERM when dropped, SIGKILL if that does not end it, and SIGTERM from the kernel should
/// its owner be killed outright. The thread that started it must therefore live as long as the child.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    child: Child,
    output: PathBuf,
    grace: Duration,
}

impl Supervised {
    /// Starts `command` with standard output and error in `output` (created or emptied) and standard
    /// input a pipe.
    pub fn spawn(name: &str, command: &mut Command, output: &Path) -> anyhow::Result<Self> {
        let file = File::create(output).with_context(|| format!("cannot write {output:?}"))?;
        command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        end_with_parent(command);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let grace = Duration::from_secs(5);
        Ok(Self { name: name.to_owned(), child, output: output.to_owned(), grace })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the process has written so far.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The process's standard input.
    pub fn stdin(&mut self) -> Option<&mut ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Waits until `ready` yields something. Fails early when the process ends, and with the
    /// process's own output when it ends or `limit` passes.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut ready: impl FnMut(&str) -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            // Asked before the output is read: what a process wrote before it ended still counts.
            let ended = self.child.try_wait()?;
            if let Some(value) = ready(&self.output()) {
                return Ok(value);
            }
            let name = &self.name;
            if let Some(status) = ended {
                bail!("{name} ended ({status}) before {what}; it said:\n{}", self.output());
            }
            if Instant::now() > deadline {
                bail!("{name}: no {what} within {limit:?}; it said:\n{}", self.output());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the process to end by itself; `None` if it has not within `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends `signal`. A process that has already ended is not an error.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // Only while the child has not been waited for: until then its id is not reused.
        if self.child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.child), signal)?;
        }
        Ok(())
    }

    /// SIGTERM, then SIGKILL if the process has not ended in its grace time.
    pub fn terminate(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        // One that was stopped would never see it.
        self.signal(Signal::CONT)?;
        if let Some(status) = self.wait(self.grace)? {
            return Ok(status);
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // Nobody is left to tell; the kernel's SIGTERM at our own end is the second net.
        let _ = self.terminate();
    }
}

/// Makes the kernel end the child should this process die without running its destructors.
fn end_with_parent(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe work is allowed;
    // it makes a single prctl system call, allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

/// Runs a short command to its end and returns its standard output.
///
/// # Errors
/// The command cannot be started, or ended with a failure; the error quotes what it said.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {shown}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    bail!("{shown}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Looks again every few milliseconds until `ready` yields something.
///
/// # Errors
/// Nothing came within `limit`.
pub fn eventually<T>(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        ensure!(Instant::now() <= deadline, "no {what} within {limit:?}");
        thread::sleep(POLL_INTERVAL);
    }
}
