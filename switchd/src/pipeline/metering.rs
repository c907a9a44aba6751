//! METER_MOD: meters come, change and go with the rules that use them.

use tollgate_openflow::meter::{MeterCommand, MeterConfig, MeterMod, MeterStats, OFPM_ALL};

use super::bridge::{Bridge, BridgeId};
use super::changes::Changes;
use super::core::Core;
use super::error::FlowError;
use super::events::FlowRemovedReason;

impl Core {
    pub(super) fn meter_mod(&self, id: BridgeId, request: &MeterMod) -> Result<(), FlowError> {
        let clock = self.meter_clock();
        let _changing = self.changing();
        match request.command {
            MeterCommand::Add => {
                self.change(id, |bridge, now_ms, _| bridge.meters.add(request, clock, now_ms))
            }
            MeterCommand::Modify => {
                let mut state = self.write();
                state.bridge_mut(id)?.meters.modify(request, clock)?;
                self.shadow().meter_changed(id, request.meter_id);
                Ok(())
            }
            MeterCommand::Delete => self.change(id, |bridge, _, changes| {
                remove_users(bridge, request.meter_id, changes);
                bridge.meters.remove(request.meter_id);
                Ok(())
            }),
        }
    }

    /// The configuration of one meter, or of all.
    pub(super) fn meter_configs(
        &self,
        id: BridgeId,
        meter: u32,
    ) -> Result<Vec<MeterConfig>, FlowError> {
        self.read().bridge(id)?.meters.configs(meter)
    }

    /// The counters of one meter, or of all.
    pub(super) fn meter_stats(
        &self,
        id: BridgeId,
        meter: u32,
    ) -> Result<Vec<MeterStats>, FlowError> {
        self.read().bridge(id)?.meters.stats(meter, self.now_ms())
    }
}

/// Removes the rules that use a meter (OpenFlow 1.3.5, section 6.4).
fn remove_users(bridge: &mut Bridge, meter: u32, changes: &mut Changes) {
    if bridge.meters.flows(meter) == 0 {
        return;
    }
    let mut users = Vec::new();
    for (_, table) in bridge.tables() {
        let uses = |used: u32| meter == OFPM_ALL || used == meter;
        users.extend(table.iter().filter(|rule| rule.program().meter.is_some_and(uses)).cloned());
    }
    users.iter().for_each(|rule| changes.remove(bridge, rule, FlowRemovedReason::MeterDelete));
}
