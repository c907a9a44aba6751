//! A switch without polling threads: frames go in, frames come out, decisions are cached and
//! counted as a PMD would.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tollgate_datapath::{Megaflow, Op, Verdict};
use tollgate_openflow::multipart::{FlowStats, FlowStatsRequest};
use tollgate_openflow::text::{self, PortNames};
use tollgate_openflow::{FlowCommand, FlowMod};
use tollgate_packet::edit::{EditError, apply};
use tollgate_packet::parse::parse;
use tollgate_packet::{FlowKey, FlowMatch, HeaderBuf, PortIndex};
use tollgate_policy::TenantIndex;

use crate::pipeline::bridge::{BridgeId, PortInfo, TableLimits};
use crate::pipeline::clock::Clock;
use crate::pipeline::core::{Answer, Caches, Core};
use crate::pipeline::events::{Event, EventSink};
use crate::pipeline::walk::{Walk, walk};

/// Cycles per millisecond of the simulated counter.
const CYCLES_PER_MS: u64 = 1000;
/// Datapath numbers differ from OpenFlow numbers, so that mixing them up shows.
const INDEX_OFFSET: u16 = 10;

/// What meters take a frame for that is given by its key only.
const FRAME_BYTES: u32 = 64;

/// No port is reached.
pub(super) const NOWHERE: [u32; 0] = [];

pub(super) fn index_of(ofport: u32) -> PortIndex {
    PortIndex(ofport as u16 + INDEX_OFFSET)
}

/// The OpenFlow number of a port of the datapath.
pub(super) fn ofport_of(index: u32) -> u32 {
    index - u32::from(INDEX_OFFSET)
}

/// A frame that left, and the OpenFlow number of the port by which it did.
pub(super) type Sent = (u32, Vec<u8>);

/// What a PMD caches.
#[derive(Debug, Default)]
pub(super) struct FakePmd(Mutex<FakeCache>);

#[derive(Debug, Default)]
struct FakeCache {
    min_generation: u64,
    megaflows: HashMap<FlowMatch, Arc<Megaflow>>,
    homeward: Vec<Arc<Megaflow>>,
}

impl Caches for FakePmd {
    fn tables_changed(&self, generation: u64, stale: &[Arc<Megaflow>]) {
        let mut cache = self.0.lock().unwrap();
        cache.min_generation = cache.min_generation.max(generation);
        for megaflow in stale {
            let removed = cache.megaflows.remove(&megaflow.matcher);
            cache.homeward.extend(removed);
        }
    }
}

impl FakePmd {
    pub(super) fn megaflows(&self) -> Vec<Arc<Megaflow>> {
        self.0.lock().unwrap().megaflows.values().cloned().collect()
    }

    fn lookup(&self, key: &FlowKey) -> Option<Arc<Megaflow>> {
        let cache = self.0.lock().unwrap();
        let mut matching = cache.megaflows.values().filter(|m| m.matcher.matches(key));
        matching.next().cloned()
    }

    pub(super) fn install(&self, megaflow: Arc<Megaflow>) {
        let mut cache = self.0.lock().unwrap();
        let refused = megaflow.generation < cache.min_generation
            || cache.megaflows.contains_key(&megaflow.matcher);
        if refused {
            cache.homeward.push(megaflow);
        } else {
            cache.megaflows.insert(megaflow.matcher, megaflow);
        }
    }

    /// Evicts some megaflows, as a full cache would.
    pub(super) fn evict(&self, count: usize) {
        let mut cache = self.0.lock().unwrap();
        let victims: Vec<_> = cache.megaflows.keys().take(count).copied().collect();
        for victim in victims {
            let removed = cache.megaflows.remove(&victim);
            cache.homeward.extend(removed);
        }
    }
}

/// The switch.
pub(super) struct Sim {
    pub(super) core: Arc<Core>,
    pub(super) pmd: Arc<FakePmd>,
    pub(super) bridge: BridgeId,
    now_tsc: Arc<AtomicU64>,
    heard: Arc<Heard>,
    pub(super) walks: usize,
}

/// What a controller heard.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Event>>);

impl EventSink for Heard {
    fn event(&self, _bridge: BridgeId, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

struct Numbers;

impl PortNames for Numbers {
    fn number(&self, name: &str) -> Option<u32> {
        name.strip_prefix('p')?.parse().ok()
    }

    fn name(&self, _number: u32) -> Option<&str> {
        None
    }
}

/// A flow-mod in ovs-ofctl's words.
pub(super) fn parsed(command: FlowCommand, flow: &str) -> FlowMod {
    try_parsed(command, flow).unwrap()
}

/// A flow-mod in ovs-ofctl's words, or what is wrong with them.
pub(super) fn try_parsed(command: FlowCommand, flow: &str) -> Result<FlowMod, String> {
    text::parse_flow(flow, command, &Numbers).map_err(|error| format!("{flow}: {error}"))
}

impl Sim {
    /// A bridge with ports 1 to `ports`; each is its own tenant.
    pub(super) fn new(ports: u32) -> Self {
        Self::with_limits(ports, TableLimits::default())
    }

    /// As [`new`](Self::new), with tables of that size.
    pub(super) fn with_limits(ports: u32, limits: TableLimits) -> Self {
        let now_tsc = Arc::new(AtomicU64::new(1));
        let counter = Arc::clone(&now_tsc);
        let clock = Clock::new(CYCLES_PER_MS * 1000, move || counter.load(Ordering::Relaxed));
        let pmd = Arc::new(FakePmd::default());
        let caches = Arc::clone(&pmd) as Arc<dyn Caches>;
        let heard = Arc::new(Heard::default());
        let events = Arc::clone(&heard) as Arc<dyn EventSink>;
        let core = Arc::new(Core::new(caches, clock, events, usize::MAX));
        let bridge = core.bridge_add("br0", limits).unwrap();
        let sim = Self { core, pmd, bridge, now_tsc, heard, walks: 0 };
        (1..=ports).for_each(|ofport| sim.attach(ofport));
        sim
    }

    pub(super) fn attach(&self, ofport: u32) {
        let port = PortInfo {
            uplink: false,
            name: format!("p{ofport}"),
            ofport,
            index: index_of(ofport),
            tenant: TenantIndex(ofport as u16),
            config: 0,
        };
        self.core.port_attach(self.bridge, port).unwrap();
        self.core.tell_pmds();
    }

    pub(super) fn detach(&self, ofport: u32) {
        self.core.port_detach(index_of(ofport)).unwrap();
        self.core.tell_pmds();
    }

    pub(super) fn advance_ms(&self, ms: u64) {
        self.now_tsc.fetch_add(ms * CYCLES_PER_MS, Ordering::Relaxed);
    }

    /// Carries out a flow-mod and waits for the PMD.
    pub(super) fn flow_mod(&self, flow_mod: &FlowMod) {
        self.core.flow_mod(self.bridge, flow_mod).unwrap();
        self.core.tell_pmds();
    }

    /// Adds a flow in ovs-ofctl's words.
    pub(super) fn add(&self, flow: &str) {
        self.flow_mod(&parsed(FlowCommand::Add, flow));
    }

    pub(super) fn sweep(&self) {
        self.take_home();
        self.core.sweep();
        self.core.tell_pmds();
        self.take_home();
    }

    /// Gives back what the PMD has evicted.
    pub(super) fn take_home(&self) {
        let homeward = std::mem::take(&mut self.pmd.0.lock().unwrap().homeward);
        homeward.iter().for_each(|megaflow| self.core.evicted(megaflow));
    }

    /// The decision for a packet now, without any cache.
    pub(super) fn fresh_walk(&self, ofport: u32, key: &FlowKey) -> Walk {
        let state = self.core.read();
        let bridge = state.bridge(self.bridge).unwrap();
        let fdb = bridge.fdb();
        walk(bridge, &fdb, bridge.port(ofport).unwrap(), key)
    }

    /// The answer to a miss.
    pub(super) fn answer(&self, ofport: u32, key: &FlowKey) -> Answer {
        self.core.answer(index_of(ofport), key, FRAME_BYTES)
    }

    /// Sends a frame into a port and gives what comes out.
    pub(super) fn send(&mut self, ofport: u32, frame: &[u8]) -> Vec<Sent> {
        let key = key_of(ofport, frame);
        let now_tsc = self.now_tsc.load(Ordering::Relaxed);
        let count = |megaflow: &Megaflow| megaflow.stats.add(1, frame.len() as u64, now_tsc);
        if let Some(megaflow) = self.pmd.lookup(&key) {
            count(&megaflow);
            if megaflow.ops.contains(&Op::Punt) {
                let (bridge, copies) = self.core.copies_of(index_of(ofport), &key).unwrap();
                self.core.send_copies(bridge, &copies, frame);
            }
            return run(&megaflow.ops, frame, index_of(ofport));
        }
        self.walks += 1;
        let answer = self.answer(ofport, &key);
        let Verdict { megaflow, install } = answer.verdict;
        if let Some((bridge, copies)) = answer.copies {
            self.core.send_copies(bridge, &copies, frame);
        }
        count(&megaflow);
        let sent = run(&megaflow.ops, frame, index_of(ofport));
        if install {
            self.pmd.install(megaflow);
        }
        if answer.stale {
            self.core.tell_pmds();
        }
        sent
    }

    /// As [`send`](Self::send), but only where to.
    pub(super) fn ports_reached(&mut self, ofport: u32, frame: &[u8]) -> Vec<u32> {
        self.send(ofport, frame).into_iter().map(|(ofport, _)| ofport).collect()
    }

    /// What controllers heard since they were last asked.
    pub(super) fn events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.heard.0.lock().unwrap())
    }

    pub(super) fn flows(&self) -> Vec<FlowStats> {
        self.core.flow_dump(self.bridge, &FlowStatsRequest::default()).unwrap().all()
    }
}

/// The key under which a frame is looked up.
pub(super) fn key_of(ofport: u32, frame: &[u8]) -> FlowKey {
    let header = HeaderBuf::from_frame(frame);
    parse(header.bytes(), frame.len() as u32, index_of(ofport)).key
}

/// Runs an action list on a frame, as the PMD does.
pub(super) fn run(ops: &[Op], frame: &[u8], ingress: PortIndex) -> Vec<Sent> {
    run_until_refused(ops, frame, ingress).0
}

/// As [`run`], also saying which edit the frame did not bear, if one ended its way.
pub(super) fn run_until_refused(
    ops: &[Op],
    frame: &[u8],
    ingress: PortIndex,
) -> (Vec<Sent>, Option<EditError>) {
    let mut header = HeaderBuf::from_frame(frame);
    let payload = frame.get(header.len()..).unwrap_or_default();
    let parsed = parse(header.bytes(), frame.len() as u32, ingress);
    let mut layout = parsed.layout;
    let mut sent = Vec::new();
    for op in ops {
        match op {
            Op::Output(port) => {
                let bytes = [header.bytes(), payload].concat();
                sent.push((u32::from(port.0 - INDEX_OFFSET), bytes));
            }
            Op::Edit(edit) => {
                if let Err(error) = apply(edit, &mut header, &mut layout, &parsed.key) {
                    return (sent, Some(error));
                }
            }
            // A copy for the controller is no output; meters here have room.
            Op::Meter(_) | Op::Punt => {}
            Op::Burn(_) => unreachable!("no rule compiles to it"),
        }
    }
    (sent, None)
}
