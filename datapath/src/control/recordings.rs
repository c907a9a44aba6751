//! What a running PMD's scheduler is told and says, noted for a replay. The memory is taken and freed
//! here; the PMD only fills it.

use tollgate_policy::Recording;

use super::{ControlError, Datapath};
use crate::limits::MAX_TENANTS;
use crate::mail::Mail;

impl Datapath {
    /// Has a PMD note what its scheduler is told and says from now on: `events` of it at most, and
    /// until a tenant, a knob or the protection is changed.
    ///
    /// # Errors
    /// When there is no such PMD, it has a recording already, or there is no room for so many.
    pub fn recording_start(&self, pmd: usize, events: u64) -> Result<(), ControlError> {
        let handle = self.pmds.get(pmd).ok_or(ControlError::NoSuchPmd(pmd))?;
        let recording = Box::new(Recording::new(MAX_TENANTS as u16, events)?);
        let returned = handle.mailbox.call([Mail::RecordingStart(recording)])?;
        match returned.recording {
            None => Ok(()),
            Some(_) => Err(ControlError::Recording(pmd)),
        }
    }

    /// Ends a PMD's recording, if it has not ended by itself, and hands it out.
    ///
    /// # Errors
    /// When there is no such PMD, or it has none.
    pub fn recording_read(&self, pmd: usize) -> Result<Recording, ControlError> {
        let handle = self.pmds.get(pmd).ok_or(ControlError::NoSuchPmd(pmd))?;
        let returned = handle.mailbox.call([Mail::RecordingStop])?;
        returned.recording.map(|recording| *recording).ok_or(ControlError::NotRecording(pmd))
    }
}
