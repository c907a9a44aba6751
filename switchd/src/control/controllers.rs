//! The controllers of a bridge.

use super::{Refusal, Switch};
use crate::limits::MAX_CONTROLLERS;
use crate::openflow::{ControllerSummary, Target};

impl Switch {
    /// Gives a bridge exactly these controllers; connections to those that it has already go on.
    ///
    /// # Errors
    /// When there is no such bridge, there are too many, or one cannot be listened for.
    pub fn controller_set(&self, bridge: &str, targets: &[Target]) -> Result<(), Refusal> {
        let _change = self.change()?;
        let registry = self.registry();
        let entry =
            registry.bridges.get(bridge).ok_or_else(|| Refusal::unknown("bridge", bridge))?;
        if targets.len() > MAX_CONTROLLERS {
            return Err(Refusal::TooManyControllers);
        }
        Ok(entry.server.set_controllers(targets)?)
    }

    /// The controllers of a bridge.
    ///
    /// # Errors
    /// When there is no such bridge.
    pub fn controllers(&self, bridge: &str) -> Result<Vec<ControllerSummary>, Refusal> {
        let registry = self.registry();
        let entry =
            registry.bridges.get(bridge).ok_or_else(|| Refusal::unknown("bridge", bridge))?;
        Ok(entry.server.controllers())
    }
}
