//! Stages are timed on a PMD as long as somebody wants to know, however many those are.
#![allow(clippy::disallowed_methods)] // control side

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mail::{Mail, Mailbox, PmdGone};

/// Those who want a PMD's stages timed.
#[derive(Debug)]
pub(crate) struct StageSamplers {
    mailbox: Arc<Mailbox>,
    count: Mutex<usize>,
}

impl StageSamplers {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, count: Mutex::new(0) }
    }

    fn enter(&self) -> Result<(), PmdGone> {
        let mut count = self.count();
        if *count == 0 {
            self.mailbox.call([Mail::Stages(true)])?;
        }
        *count += 1;
        Ok(())
    }

    fn leave(&self) {
        let mut count = self.count();
        *count -= 1;
        if *count == 0 {
            // An error means that the PMD has stopped.
            let _ = self.mailbox.call([Mail::Stages(false)]);
        }
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, PMDs time the stages of some of their tasks.
#[derive(Debug)]
#[must_use = "sampling ends when it is dropped"]
pub struct StageSampling {
    entered: Vec<Arc<StageSamplers>>,
}

impl StageSampling {
    /// Sampling is on, on each of them, when it returns.
    pub(crate) fn start<'a>(
        pmds: impl Iterator<Item = &'a Arc<StageSamplers>>,
    ) -> Result<Self, PmdGone> {
        let mut sampling = Self { entered: Vec::new() };
        for samplers in pmds {
            samplers.enter()?;
            sampling.entered.push(Arc::clone(samplers));
        }
        Ok(sampling)
    }
}

impl Drop for StageSampling {
    fn drop(&mut self) {
        self.entered.iter().for_each(|samplers| samplers.leave());
    }
}
