//! Recordings of schedulers.

use tollgate_policy::Recording;

use super::{Refusal, Switch};

impl Switch {
    /// Has a PMD record its scheduler's calls.
    ///
    /// # Errors
    /// When it has a recording already.
    pub fn recording_start(&self, pmd: usize, events: u64) -> Result<(), Refusal> {
        // One at a time: each takes some megabytes even if it is refused.
        let _change = self.change()?;
        Ok(self.datapath.recording_start(pmd, events)?)
    }

    /// Takes a PMD's recording.
    ///
    /// # Errors
    /// When it has none.
    pub fn recording_read(&self, pmd: usize) -> Result<Recording, Refusal> {
        Ok(self.datapath.recording_read(pmd)?)
    }

    /// The tenants by the numbers that the datapath knows them by.
    pub fn tenant_indices(&self) -> Vec<(u16, String)> {
        let registry = self.registry();
        registry.tenants.iter().map(|(name, entry)| (entry.index.0, name.clone())).collect()
    }
}
