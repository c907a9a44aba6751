//! What operators look at: cached decisions and learned stations.

use tollgate_frame::DropReason;
use tollgate_packet::{FlowKey, FlowMatch, MacAddr};
use tollgate_policy::TenantIndex;

use super::bridge::{Bridge, BridgeId};
use super::core::Core;
use super::fdb::Station;
use super::limits::SHADOW_CHUNK;
use super::shadow::Listed;
use super::texts::Names;
use super::walk::with_port;

/// A decision that PMDs have cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MegaflowInfo {
    /// Whose packets it decides.
    pub bridge: BridgeId,
    /// The port that they enter by.
    pub port: String,
    /// Who pays for them.
    pub owner: TenantIndex,
    /// Which packets, in flow text.
    pub matched: String,
    /// What is done with them.
    pub actions: Vec<String>,
    /// Why they are dropped, if they are.
    pub drop_reason: Option<DropReason>,
    /// How many there were.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Milliseconds since the last one.
    pub idle_ms: u64,
}

/// A station that a bridge has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StationInfo {
    /// The port behind which it is.
    pub port: String,
    /// Its VLAN; 0 for frames without a tag.
    pub vlan: u16,
    /// Its address.
    pub mac: MacAddr,
    /// Milliseconds since it was last heard.
    pub age_ms: u64,
}

/// A port's name, or its number if it has just gone.
fn port_name(bridge: &Bridge, ofport: u32) -> String {
    bridge.port(ofport).map_or_else(|| ofport.to_string(), |port| port.name.clone())
}

impl Core {
    /// The cached decisions of one bridge, or of all; at most `count`, and whether there are more.
    pub(super) fn megaflows(
        &self,
        only: Option<BridgeId>,
        count: usize,
    ) -> (Vec<MegaflowInfo>, bool) {
        self.collect();
        let mut listed = Vec::new();
        let mut is_more = false;
        self.in_chunks(|from| {
            let more = self.shadow().list(from, SHADOW_CHUNK, |entry| {
                if only.is_none_or(|only| entry.bridge == only) {
                    is_more |= listed.len() == count;
                    if !is_more {
                        listed.push(entry);
                    }
                }
            });
            more && !is_more
        });
        let now_ms = self.now_ms();
        (listed.iter().filter_map(|entry| self.describe(entry, now_ms)).collect(), is_more)
    }

    fn describe(&self, entry: &Listed, now_ms: u64) -> Option<MegaflowInfo> {
        let state = self.read();
        let bridge = state.bridges.get(&entry.bridge)?;
        let names = Names(bridge);
        let port = |ofport: u32| port_name(bridge, ofport);
        let megaflow = &entry.megaflow;
        let matcher: FlowMatch = with_port(&megaflow.matcher, entry.ofport);
        let key: &FlowKey = matcher.key();
        let drops = megaflow.ops.iter().all(|op| !super::walk::sends(op));
        Some(MegaflowInfo {
            bridge: entry.bridge,
            port: port(entry.ofport),
            owner: megaflow.owner,
            matched: names.decision(&matcher),
            actions: names.steps(&megaflow.ops, &entry.meters, key),
            drop_reason: drops.then_some(megaflow.drop_reason),
            packets: megaflow.stats.packets(),
            bytes: megaflow.stats.bytes(),
            idle_ms: now_ms.saturating_sub(entry.used_ms),
        })
    }

    /// The stations that a bridge has learned, by VLAN and address. Their ages count the packets
    /// of cached decisions.
    pub(super) fn stations(&self, id: BridgeId) -> Option<Vec<StationInfo>> {
        self.collect();
        let state = self.read();
        let bridge = state.bridges.get(&id)?;
        let now_ms = self.now_ms();
        let mut stations: Vec<_> = bridge.fdb().iter().collect();
        stations.sort_unstable_by_key(|(station, _)| *station);
        let describe = |(station, location): &(Station, super::fdb::Location)| StationInfo {
            port: port_name(bridge, location.ofport),
            vlan: station.vlan,
            mac: station.mac,
            age_ms: now_ms.saturating_sub(location.seen_ms),
        };
        Some(stations.iter().map(describe).collect())
    }

    /// Has a bridge forget what it has learned. Says how many stations it knew; the PMDs are still
    /// to be told.
    pub(super) fn forget_stations(&self, id: BridgeId) -> Option<usize> {
        let state = self.read();
        let mut fdb = state.bridges.get(&id)?.fdb();
        let forgotten = fdb.forget_all();
        self.shadow().stations_changed(id, &forgotten);
        Some(forgotten.len())
    }
}
