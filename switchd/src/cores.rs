//! Which CPUs the polling threads get, and keeping everything else off them.

use anyhow::bail;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

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
