//! Which CPUs the polling threads get, and keeping everything else off them.

use anyhow::{Context as _, bail};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

/// The CPUs to poll on: those configured, or the last one that the process may use.
///
/// # Errors
/// When one was configured that the process may not use; the error names those it may.
pub(crate) fn choose(configured: &[usize]) -> anyhow::Result<Vec<usize>> {
    let allowed = list(&sched_getaffinity(None)?);
    if let Some(core) = configured.iter().find(|core| !allowed.contains(core)) {
        bail!("`pmd.cores`: this process cannot run on CPU {core}; it may use {allowed:?}");
    }
    match allowed.last() {
        Some(last) if configured.is_empty() => Ok(vec![*last]),
        _ => Ok(configured.to_vec()),
    }
}

/// Keeps this thread, and those it will start, off `polled` unless nothing else is left.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn stay_off(polled: &[usize]) -> anyhow::Result<()> {
    let mut others = sched_getaffinity(None)?;
    for core in polled {
        others.unset(*core);
    }
    if others.count() == 0 {
        tracing::warn!("no CPU is left for management: it shares one with a PMD");
    } else {
        sched_setaffinity(None, &others)?;
    }
    Ok(())
}

/// The CPUs that this thread may run on and that are not `polled`; all of them where none is left.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn others(polled: &[usize]) -> anyhow::Result<Vec<usize>> {
    let allowed = list(&sched_getaffinity(None)?);
    let others: Vec<usize> = allowed.iter().copied().filter(|cpu| !polled.contains(cpu)).collect();
    Ok(if others.is_empty() { allowed } else { others })
}

/// Runs `start` so that the threads it starts are pinned to `core` and have this nice value.
///
/// # Errors
/// When the kernel refuses either, or `start` fails.
pub(crate) fn run_on<T: Send>(
    core: Option<usize>,
    nice: Option<i32>,
    start: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    // Both are properties of a thread that its children inherit, so a passing one sets them.
    let passing = move || {
        if let Some(core) = core {
            let mut only = CpuSet::new();
            if core >= CpuSet::MAX_CPU {
                bail!("`slow_path.core`: there is no CPU {core}");
            }
            only.set(core);
            sched_setaffinity(None, &only)
                .with_context(|| format!("`slow_path.core`: cannot run on CPU {core}"))?;
        }
        if let Some(nice) = nice {
            setpriority_process(Some(gettid()), nice)
                .with_context(|| format!("`slow_path.nice`: cannot set {nice}"))?;
        }
        start()
    };
    std::thread::scope(|scope| scope.spawn(passing).join())
        .unwrap_or_else(|_| bail!("a starting thread failed"))
}

fn list(cpus: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_last_allowed_cpu_and_others_are_refused_by_name() {
        let allowed = list(&sched_getaffinity(None).unwrap());
        assert_eq!(choose(&[]).unwrap(), [*allowed.last().unwrap()]);
        assert_eq!(choose(&allowed).unwrap(), allowed);
        let error = choose(&[CpuSet::MAX_CPU]).unwrap_err().to_string();
        assert!(error.contains("pmd.cores"), "{error}");
    }

    #[test]
    fn other_threads_leave_the_polled_cpus() {
        std::thread::spawn(|| {
            let allowed = list(&sched_getaffinity(None).unwrap());
            stay_off(&allowed).unwrap();
            assert_eq!(list(&sched_getaffinity(None).unwrap()), allowed);
            let (last, rest) = allowed.split_last().unwrap();
            if !rest.is_empty() {
                stay_off(&[*last]).unwrap();
                assert_eq!(list(&sched_getaffinity(None).unwrap()), rest);
            }
        })
        .join()
        .unwrap();
    }
}
