//! Which station was last seen at which port: the memory of NORMAL forwarding, one per bridge.
//!
//! Pure: time is an argument. Every change names the stations whose answer changed, so that the
//! caller can drop exactly the cached decisions that asked about them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tollgate_packet::MacAddr;

use super::limits::FDB_AGEING_MS;

/// A MAC address in a VLAN (IEEE 802.1Q-2018, 8.8); VLAN 0 stands for frames without a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Station {
    /// VLAN identifier, 0 to 4095.
    pub(super) vlan: u16,
    /// The station's address.
    pub(super) mac: MacAddr,
}

/// Where a station is and when it was last heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// OpenFlow number of the port behind which it is.
    pub(super) ofport: u32,
    /// When its last packet was seen, in milliseconds of the pipeline's clock.
    pub(super) seen_ms: u64,
}

/// The forwarding database of one bridge.
#[derive(Debug)]
pub(super) struct Fdb {
    capacity: usize,
    stations: HashMap<Station, Location>,
    /// Each port's stations, longest unheard first.
    by_port: BTreeMap<u32, BTreeSet<(u64, Station)>>,
}

impl Fdb {
    /// An empty database of at most `capacity` stations.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), stations: HashMap::new(), by_port: BTreeMap::new() }
    }

    /// The port behind which `station` was last seen.
    pub(super) fn lookup(&self, station: Station) -> Option<u32> {
        self.stations.get(&station).map(|location| location.ofport)
    }

    /// Notes that `station` was heard at `ofport`. Gives the stations whose [`lookup`](Self::lookup)
    /// changed: this one if it is new or has moved, and the one that had to make room for it.
    ///
    /// A full database evicts the longest unheard station of the port with the most: whoever floods
    /// it with addresses loses its own. Group addresses are never learned.
    pub(super) fn learn(&mut self, station: Station, ofport: u32, now_ms: u64) -> Vec<Station> {
        if station.mac.is_multicast() {
            return Vec::new();
        }
        let known = self.stations.get(&station).copied();
        let mut changed = Vec::new();
        if known.is_none() && self.stations.len() >= self.capacity {
            changed.extend(self.evict());
        }
        if let Some(known) = known {
            self.unlink(station, known);
        }
        self.link(station, Location { ofport, seen_ms: now_ms });
        if known.is_none_or(|known| known.ofport != ofport) {
            changed.push(station);
        }
        changed
    }

    /// A cached decision that learned `station` at `ofport` carried packets until `seen_ms`: keeps
    /// the station from ageing. Nothing happens if it is elsewhere by now, or gone.
    pub(super) fn refresh(&mut self, station: Station, ofport: u32, seen_ms: u64) {
        let known = self.stations.get(&station).copied();
        if let Some(known) = known.filter(|l| l.ofport == ofport && l.seen_ms < seen_ms) {
            self.unlink(station, known);
            self.link(station, Location { ofport, seen_ms });
        }
    }

    /// Forgets the stations not heard for [`FDB_AGEING_MS`], and gives them.
    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<Station> {
        let expired: Vec<Station> = self
            .by_port
            .values()
            .flat_map(|aged| {
                aged.iter().take_while(|(seen_ms, _)| seen_ms + FDB_AGEING_MS <= now_ms)
            })
            .map(|(_, station)| *station)
            .collect();
        expired.iter().for_each(|station| self.forget(*station));
        expired
    }

    /// Forgets the stations behind a port, and gives them.
    pub(super) fn forget_port(&mut self, ofport: u32) -> Vec<Station> {
        let gone = self.by_port.remove(&ofport).unwrap_or_default();
        gone.into_iter()
            .map(|(_, station)| {
                self.stations.remove(&station);
                station
            })
            .collect()
    }

    /// Forgets all stations, and gives them.
    pub(super) fn forget_all(&mut self) -> Vec<Station> {
        self.by_port.clear();
        self.stations.drain().map(|(station, _)| station).collect()
    }

    /// All stations, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Station, Location)> {
        self.stations.iter().map(|(station, location)| (*station, *location))
    }

    fn evict(&mut self) -> Option<Station> {
        let fullest = self.by_port.values().max_by_key(|aged| aged.len())?;
        let (_, station) = *fullest.first()?;
        self.forget(station);
        Some(station)
    }

    fn forget(&mut self, station: Station) {
        if let Some(location) = self.stations.remove(&station) {
            self.unlink(station, location);
        }
    }

    fn link(&mut self, station: Station, location: Location) {
        self.stations.insert(station, location);
        self.by_port.entry(location.ofport).or_default().insert((location.seen_ms, station));
    }

    fn unlink(&mut self, station: Station, location: Location) {
        if let Some(aged) = self.by_port.get_mut(&location.ofport) {
            aged.remove(&(location.seen_ms, station));
            if aged.is_empty() {
                self.by_port.remove(&location.ofport);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn station(n: u8) -> Station {
        Station { vlan: u16::from(n % 3), mac: MacAddr([2, 0, 0, 0, 0, n]) }
    }

    #[test]
    fn a_station_is_found_where_it_was_last_heard() {
        let mut fdb = Fdb::new(8);
        assert_eq!(fdb.learn(station(1), 5, 0), [station(1)]);
        assert_eq!(fdb.learn(station(1), 5, 10), []);
        assert_eq!(fdb.learn(station(1), 6, 20), [station(1)]);
        assert_eq!(fdb.lookup(station(1)), Some(6));
        assert_eq!(fdb.lookup(Station { vlan: 9, ..station(1) }), None);
    }

    #[test]
    fn a_group_address_is_not_a_station() {
        let mut fdb = Fdb::new(8);
        assert_eq!(fdb.learn(Station { vlan: 0, mac: MacAddr::BROADCAST }, 5, 0), []);
        assert!(fdb.stations.is_empty());
    }

    #[test]
    fn who_floods_the_database_loses_its_own_oldest() {
        let mut fdb = Fdb::new(4);
        fdb.learn(station(1), 1, 0);
        for n in 10..13 {
            fdb.learn(station(n), 2, u64::from(n));
        }
        assert_eq!(fdb.learn(station(20), 2, 20), [station(10), station(20)]);
        assert_eq!(fdb.lookup(station(1)), Some(1));
        assert_eq!(fdb.stations.len(), 4);
    }

    #[test]
    fn a_station_ages_from_its_last_packet_cached_hits_included() {
        let mut fdb = Fdb::new(8);
        fdb.learn(station(1), 1, 0);
        fdb.learn(station(2), 1, 0);
        fdb.refresh(station(1), 1, 1000);
        fdb.refresh(station(2), 9, 1000);
        assert_eq!(fdb.expire(FDB_AGEING_MS - 1), []);
        assert_eq!(fdb.expire(FDB_AGEING_MS), [station(2)]);
        assert_eq!(fdb.expire(FDB_AGEING_MS + 1000), [station(1)]);
    }

    #[test]
    fn a_port_that_leaves_takes_its_stations() {
        let mut fdb = Fdb::new(8);
        fdb.learn(station(1), 1, 0);
        fdb.learn(station(2), 2, 0);
        assert_eq!(fdb.forget_port(1), [station(1)]);
        assert_eq!((fdb.lookup(station(1)), fdb.lookup(station(2))), (None, Some(2)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Learn(u8, u32),
        Refresh(u8, u32),
        Expire,
        Forget(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
        let step = prop_oneof![
            4 => (0..20u8, 0..4u32).prop_map(|(n, port)| Step::Learn(n, port)),
            2 => (0..20u8, 0..4u32).prop_map(|(n, port)| Step::Refresh(n, port)),
            1 => Just(Step::Expire),
            1 => (0..4u32).prop_map(Step::Forget),
        ];
        prop::collection::vec((step, 0..FDB_AGEING_MS / 2), 0..80)
    }

    proptest! {
        /// Whatever happens, the changes that are reported are exactly those that a look-up sees,
        /// and the two indexes agree.
        #[test]
        fn every_changed_answer_is_reported(steps in steps()) {
            let mut fdb = Fdb::new(8);
            let mut now_ms = 0;
            for (step, pause_ms) in steps {
                now_ms += pause_ms;
                let before: Vec<_> = (0..20).map(|n| fdb.lookup(station(n))).collect();
                let mut reported = match step {
                    Step::Learn(n, port) => fdb.learn(station(n), port, now_ms),
                    Step::Refresh(n, port) => { fdb.refresh(station(n), port, now_ms); Vec::new() }
                    Step::Expire => fdb.expire(now_ms),
                    Step::Forget(port) => fdb.forget_port(port),
                };
                let mut changed: Vec<_> = (0..20)
                    .filter(|n| fdb.lookup(station(*n)) != before[usize::from(*n)])
                    .map(station)
                    .collect();
                changed.sort();
                reported.sort();
                prop_assert_eq!(reported, changed);
                prop_assert!(fdb.stations.len() <= 8);
                let linked: usize = fdb.by_port.values().map(BTreeSet::len).sum();
                prop_assert_eq!(linked, fdb.stations.len());
            }
        }
    }
}
