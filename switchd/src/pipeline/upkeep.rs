//! What falls due with time: counts, idle decisions, silent stations, rules' timeouts.

use super::core::Core;
use super::limits::SHADOW_CHUNK;

impl Core {
    /// Brings the counters of rules and tables, and the ages of stations, up to date with what
    /// PMDs have forwarded so far.
    pub(super) fn collect(&self) {
        let ms_of_tsc = |tsc| self.ms_of_tsc(tsc);
        self.in_chunks(|from| {
            let state = self.read();
            let mut heard = Vec::new();
            let more = self.shadow().collect(from, SHADOW_CHUNK, ms_of_tsc, |counts| {
                state.count(&counts);
                let stations = counts.learned.iter();
                heard.extend(stations.map(|s| (counts.bridge, *s, counts.used_ms)));
            });
            for (bridge, (station, ofport), used_ms) in heard {
                if let Some(bridge) = state.bridges.get(&bridge) {
                    bridge.fdb().refresh(station, ofport, used_ms);
                }
            }
            more
        });
        let uncached = self.shadow().uncached_len();
        for _ in 0..uncached.div_ceil(SHADOW_CHUNK) {
            let state = self.read();
            let mut shadow = self.shadow();
            shadow.forget_uncached(SHADOW_CHUNK, ms_of_tsc, |counts| state.count(&counts));
        }
    }

    /// Does all of it. The PMDs are still to be told.
    pub(super) fn sweep(&self) {
        self.collect();
        let now_ms = self.now_ms();
        self.in_chunks(|from| self.shadow().expire(now_ms, from, SHADOW_CHUNK));
        for (id, bridge) in &self.read().bridges {
            let mut fdb = bridge.fdb();
            let silent = fdb.expire(now_ms);
            self.shadow().stations_changed(*id, &silent);
        }
        while self.expire_some_rules(now_ms) {}
    }
}
