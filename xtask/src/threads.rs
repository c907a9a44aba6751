//! CPU time of some threads of a process.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::process::{Pid, setpriority_process};

/// What the threads of process `pid` whose names begin with one of `names` have used.
///
/// # Errors
/// The process is gone, or this kernel keeps no `schedstat`.
pub(crate) fn cpu_time(pid: u32, names: &[&str]) -> anyhow::Result<Duration> {
    let directory = format!("/proc/{pid}/task");
    let mut total = Duration::ZERO;
    for thread in fs::read_dir(&directory).with_context(|| format!("no {directory}"))? {
        let thread = thread?.path();
        // A thread may end while it is looked at.
        let Ok(name) = fs::read_to_string(thread.join("comm")) else { continue };
        if !names.iter().any(|wanted| name.starts_with(wanted)) {
            continue;
        }
        let stat = thread.join("schedstat");
        let Ok(stat) = fs::read_to_string(&stat) else { continue };
        // Nanoseconds on a CPU come first (Documentation/scheduler/sched-stats.rst).
        let time = stat.split_whitespace().next().and_then(|time| time.parse().ok());
        total += Duration::from_nanos(time.context("a schedstat without its first number")?);
    }
    Ok(total)
}

/// Sets the nice value of the threads of process `pid` but for those whose names begin with `spared`.
///
/// # Errors
/// The process is gone, or this user may not.
pub(crate) fn set_nice(pid: u32, spared: &str, nice: i32) -> anyhow::Result<()> {
    let directory = format!("/proc/{pid}/task");
    for thread in fs::read_dir(&directory).with_context(|| format!("no {directory}"))? {
        let thread = thread?;
        let Ok(name) = fs::read_to_string(thread.path().join("comm")) else { continue };
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        let Some(id) = id.filter(|_| !name.starts_with(spared)) else { continue };
        match setpriority_process(Some(id), nice) {
            // It has ended meanwhile.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error).with_context(|| format!("nice {nice} for {name}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_works_is_counted_and_others_are_not() -> anyhow::Result<()> {
        let (end, ended) = mpsc::channel::<()>();
        let worker = thread::Builder::new().name("worker-7".to_owned());
        let worker = worker.spawn(move || {
            let started = std::time::Instant::now();
            while started.elapsed() < Duration::from_millis(20) {}
            // Stays, so that it can be looked at.
            let _ = ended.recv();
        })?;
        let pid = std::process::id();
        while cpu_time(pid, &["worker"])? < Duration::from_micros(100) {
            thread::yield_now();
        }
        assert_eq!(cpu_time(pid, &["slow-path"])?, Duration::ZERO);
        set_nice(pid, "", 19)?;
        assert!(set_nice(u32::MAX, "", 19).is_err());
        drop(end);
        let _ = worker.join();
        assert!(cpu_time(u32::MAX, &[""]).is_err());
        Ok(())
    }
}
