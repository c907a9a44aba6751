//! Ctrl-C and SIGTERM as a question to ask, so that every destructor runs on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Set once somebody wants us to end.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the two signals over for the rest of the process's life.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // A second one ends us at once: the kernel then ends our children.
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
            flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// An error if somebody wants us to end.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.0.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    /// Sleeps, telling `progress` the time that has passed, until `duration` is over.
    pub(crate) fn sleep(
        &self,
        duration: Duration,
        mut progress: impl FnMut(Duration),
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < duration {
            self.check()?;
            progress(start.elapsed());
            let left = duration.saturating_sub(start.elapsed());
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        Ok(())
    }
}
