//! Threads of another process, stopped one by one: SIGSTOP would stop the PMD with them.

use std::fs;

use anyhow::{Context as _, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Names of threads that are not held begin so.
const PMD: &str = "pmd-";

/// Stopped threads; they go on when this is dropped, or when the tracing thread ends.
#[derive(Debug)]
pub(super) struct Held {
    process: u32,
    threads: Vec<Pid>,
    began_ns: u64,
}

impl Held {
    /// Stops every thread of `process` but its PMDs.
    pub(super) fn hold(process: u32) -> anyhow::Result<Self> {
        let mut held = Self { process, threads: Vec::new(), began_ns: 0 };
        for entry in fs::read_dir(format!("/proc/{process}/task"))? {
            let entry = entry?;
            if fs::read_to_string(entry.path().join("comm"))?.starts_with(PMD) {
                continue;
            }
            let thread = Pid::from_raw(entry.file_name().to_string_lossy().parse()?);
            let cannot = || format!("thread {thread} of the switch cannot be traced");
            ptrace::seize(thread, ptrace::Options::empty()).with_context(cannot)?;
            held.threads.push(thread);
            ptrace::interrupt(thread).with_context(cannot)?;
            // Its stop is heard of here, not by whoever waits for the process's end.
            waitpid(thread, Some(WaitPidFlag::__WALL)).with_context(cannot)?;
        }
        ensure!(!held.threads.is_empty(), "the switch has no thread but its PMDs");
        held.began_ns = held.ran_ns()?;
        Ok(held)
    }

    /// Lets them go on; how many there were, and for how long they ran meanwhile (not at all).
    pub(super) fn release(self) -> anyhow::Result<(usize, u64)> {
        Ok((self.threads.len(), self.ran_ns()? - self.began_ns))
    }

    fn ran_ns(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for thread in &self.threads {
            let path = format!("/proc/{}/task/{thread}/schedstat", self.process);
            let text = fs::read_to_string(&path).with_context(|| path.clone())?;
            sum += text.split_whitespace().next().context("an empty schedstat")?.parse::<u64>()?;
        }
        Ok(sum)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for thread in &self.threads {
            // One that has ended needs no release.
            let _ = ptrace::detach(*thread, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::Held;

    /// A process of one thread that would use up a core.
    struct Busy(Child);

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_is_held_does_not_run_and_goes_on_afterwards() -> anyhow::Result<()> {
        let busy = Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
        let ran = || -> anyhow::Result<u64> {
            let text = std::fs::read_to_string(format!("/proc/{}/schedstat", busy.0.id()))?;
            Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
        };
        while ran()? == 0 {
            std::thread::yield_now();
        }
        let held = Held::hold(busy.0.id())?;
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(held.release()?, (1, 0));
        let then = ran()?;
        while ran()? == then {
            std::thread::yield_now();
        }
        Ok(())
    }
}
