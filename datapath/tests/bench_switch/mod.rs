//! A datapath with ports and a slow path that answers from a closure: everything but the daemon.
#![allow(unreachable_pub, dead_code, reason = "each test binary uses its part")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollgate_accel::tsc;
use tollgate_datapath::{
    Datapath, DatapathConfig, Evicted, InjectError, Megaflow, Meter, Miss, MissKind, Op,
    PmdSnapshot, PortHandle, PortSettings, PortSnapshot, SlowPathEnd, TenantSettings, Verdict,
};
use tollgate_frame::DropReason;
use tollgate_guest::generator::Generator;
use tollgate_guest::port::PortConfig;
use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};
use tollgate_policy::{TenantIndex, Weight};
use tollgate_vhost::{PortSocket, PortStatus, SessionConfig, SocketMode};

/// What the slow path says to a miss: actions for all packets of its port.
pub type Rules = Box<dyn Fn(&Miss) -> (Vec<Op>, DropReason) + Send>;

pub type Given = Arc<Mutex<Vec<Arc<Megaflow>>>>;

/// A packet that the controller was told of: why, and the frame.
pub type Told = Arc<Mutex<Vec<(MissKind, PortIndex, Vec<u8>)>>>;

/// What a controller wants sent, and where to say how that went.
pub struct PacketOut {
    pub ingress: Option<PortIndex>,
    pub frame: Vec<u8>,
    pub ops: Vec<Op>,
    pub outcome: mpsc::Sender<Result<(), InjectError>>,
}

pub struct BenchSwitch {
    pub datapath: Arc<Datapath>,
    pub ports: Vec<PortHandle>,
    pub tenants: Vec<TenantIndex>,
    /// What the slow path stamps its decisions with.
    pub generation: Arc<AtomicU64>,
    /// Every decision that it has given out.
    pub given: Given,
    /// What the controller was told.
    pub told: Told,
    packet_outs: mpsc::Sender<PacketOut>,
    sockets: Vec<PortSocket>,
    paths: Vec<PathBuf>,
    slow: Option<JoinHandle<SlowPathLog>>,
    stop: Arc<AtomicBool>,
    _directory: tempfile::TempDir,
}

/// What the slow path has seen.
#[derive(Debug, Default)]
pub struct SlowPathLog {
    pub walks: u64,
    pub followers: u64,
    pub evicted: Vec<Evicted>,
}

impl BenchSwitch {
    /// One port for each weight, each of a tenant of its own.
    pub fn start(config: &DatapathConfig, weights: &[f64], rules: Rules) -> Self {
        Self::start_metered(config, weights, vec![], rules)
    }

    /// The same, with meters for [`Op::Meter`].
    pub fn start_metered(
        config: &DatapathConfig,
        weights: &[f64],
        meters: Vec<Arc<Meter>>,
        rules: Rules,
    ) -> Self {
        Self::start_with(config, weights, &[], meters, rules)
    }

    /// The same, with settings of the first ports.
    pub fn start_with(
        config: &DatapathConfig,
        weights: &[f64],
        port_settings: &[PortSettings],
        meters: Vec<Arc<Meter>>,
        rules: Rules,
    ) -> Self {
        let (datapath, slow_end) = Datapath::start(config).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (mut ports, mut sockets, mut tenants, mut paths) = (vec![], vec![], vec![], vec![]);
        for (index, weight) in weights.iter().enumerate() {
            let weight = Weight::try_from(*weight).unwrap();
            let tenant =
                datapath.tenant_add(TenantSettings { weight, ..Default::default() }).unwrap();
            let settings = port_settings.get(index).copied().unwrap_or_default();
            let port = datapath.port_add(tenant, settings).unwrap();
            let path = directory.path().join(format!("p{index}"));
            let config = SessionConfig { name: format!("p{index}"), queue_pairs_max: 1 };
            let host = datapath.ring_host(port.index).unwrap();
            let status = Arc::new(PortStatus::new());
            let socket = PortSocket::spawn(&path, SocketMode::Listen, config, host, status);
            sockets.push(socket.unwrap());
            ports.push(port);
            tenants.push(tenant);
            paths.push(path);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let generation = Arc::new(AtomicU64::new(1));
        let (given, told) = (Given::default(), Told::default());
        let (packet_outs, packets_out) = mpsc::channel();
        let slow = SlowPath {
            end: slow_end,
            rules,
            generation: Arc::clone(&generation),
            given: Arc::clone(&given),
            told: Arc::clone(&told),
            meters,
            packets_out,
        };
        let slow = slow.spawn(Arc::clone(&stop));
        let slow = Some(slow);
        Self {
            datapath,
            ports,
            tenants,
            generation,
            given,
            told,
            packet_outs,
            sockets,
            paths,
            slow,
            stop,
            _directory: directory,
        }
    }

    /// A generator attached to all ports.
    pub fn attach(&self, adjust: impl Fn(&mut PortConfig)) -> Generator {
        self.attach_to(0..self.paths.len(), adjust)
    }

    /// A generator attached to some ports only.
    pub fn attach_to(
        &self,
        ports: impl IntoIterator<Item = usize>,
        adjust: impl Fn(&mut PortConfig),
    ) -> Generator {
        let configs = ports.into_iter().map(|index| {
            let path = &self.paths[index];
            let mut config = PortConfig::new(&format!("p{index}"), path);
            config.mac = [2, 0, 0, 0, 0, index as u8];
            config.ip = [10, 0, 0, index as u8];
            adjust(&mut config);
            config
        });
        Generator::attach(configs.collect()).unwrap()
    }

    /// Sends a frame as a controller does; waits until it is queued.
    pub fn packet_out(
        &self,
        ingress: Option<PortIndex>,
        frame: &[u8],
        ops: Vec<Op>,
    ) -> Result<(), InjectError> {
        let (outcome, queued) = mpsc::channel();
        self.packet_outs.send(PacketOut { ingress, frame: frame.to_vec(), ops, outcome }).unwrap();
        queued.recv().unwrap()
    }

    pub fn pmd(&self) -> PmdSnapshot {
        self.datapath.pmd_snapshots().remove(0)
    }

    /// The port's counters once nothing is under way.
    pub fn quiet_counters(&self, port: usize) -> PortSnapshot {
        let mut last = self.ports[port].counters();
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(30));
            let now = self.ports[port].counters();
            if now == last && now.queued == 0 {
                break;
            }
            last = now;
        }
        last
    }

    /// Ends everything in the daemon's order and gives the slow path's log.
    pub fn stop(mut self) -> SlowPathLog {
        self.sockets.drain(..).for_each(PortSocket::shutdown);
        self.stop.store(true, Ordering::Relaxed);
        let log = self.slow.take().unwrap().join().unwrap();
        self.datapath.stop();
        log
    }
}

impl Drop for BenchSwitch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct SlowPath {
    end: SlowPathEnd,
    rules: Rules,
    generation: Arc<AtomicU64>,
    given: Given,
    told: Told,
    meters: Vec<Arc<Meter>>,
    packets_out: mpsc::Receiver<PacketOut>,
}

impl SlowPath {
    fn spawn(mut self, stop: Arc<AtomicBool>) -> JoinHandle<SlowPathLog> {
        std::thread::spawn(move || {
            let mut log = SlowPathLog::default();
            let mut waiting = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                self.end.waiting(|tenant| waiting.push(tenant));
                for tenant in waiting.drain(..) {
                    while let Some(miss) = self.end.take(tenant) {
                        self.answer(miss, &mut log);
                    }
                }
                while let Some(evicted) = self.end.take_evicted() {
                    log.evicted.push(evicted);
                }
                while let Ok(packet_out) = self.packets_out.try_recv() {
                    self.inject(packet_out);
                }
                self.end.wait(Duration::from_millis(1));
            }
            while let Some(evicted) = self.end.take_evicted() {
                log.evicted.push(evicted);
            }
            log
        })
    }

    fn answer(&mut self, mut miss: Miss, log: &mut SlowPathLog) {
        let (ops, drop_reason) = (self.rules)(&miss);
        if ops.contains(&Op::Punt) && self.end.admits_punt(&mut miss, tsc::now()) {
            let frame = self.end.frame(&mut miss).to_vec();
            self.told.lock().unwrap().push((miss.kind, miss.port, frame));
        }
        if miss.kind == MissKind::Punt {
            return;
        }
        log.walks += 1;
        log.followers += u64::from(miss.follower);
        let megaflow = self.megaflow(&miss.key, miss.tenant, ops, drop_reason);
        self.given.lock().unwrap().push(Arc::clone(&megaflow));
        let install = !miss.follower;
        self.end.reply(miss, Verdict { megaflow, install });
    }

    fn inject(&mut self, packet_out: PacketOut) {
        let PacketOut { ingress, frame, ops, outcome } = packet_out;
        let key = FlowKey::default();
        let megaflow = self.megaflow(&key, TenantIndex::SYSTEM, ops, DropReason::RuleDrop);
        let _ = outcome.send(self.end.inject(ingress, frame, megaflow));
    }

    fn megaflow(
        &self,
        key: &FlowKey,
        owner: TenantIndex,
        ops: Vec<Op>,
        drop_reason: DropReason,
    ) -> Arc<Megaflow> {
        let generation = self.generation.load(Ordering::SeqCst);
        let mut megaflow = megaflow(key, owner, ops, drop_reason, generation);
        megaflow.meters = self.meters.clone().into();
        Arc::new(megaflow)
    }
}

/// A decision for every packet of the key's port.
pub fn megaflow(
    key: &FlowKey,
    owner: TenantIndex,
    ops: Vec<Op>,
    drop_reason: DropReason,
    generation: u64,
) -> Megaflow {
    let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
    Megaflow {
        matcher: FlowMatch::new(key, mask),
        ops: ops.into(),
        meters: Box::default(),
        drop_reason,
        owner,
        generation,
        stats: Default::default(),
    }
}

/// A datapath small enough for a test, its PMD on the first core.
pub fn config() -> DatapathConfig {
    DatapathConfig { megaflows_max: 4096, exact_entries: 4096, ..DatapathConfig::default() }
}
