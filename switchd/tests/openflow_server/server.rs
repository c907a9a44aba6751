//! A bridge's OpenFlow server over a bridge that only remembers, and a client of it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate_openflow::message::{
    ErrorMessage, Features, HEADER_BYTES, Header, Hello, OFPC_FLOW_STATS,
};
use tollgate_openflow::meter::{
    MeterBandStats, MeterConfig, MeterFeatures, MeterMod, MeterStats, OFPM_ALL,
};
use tollgate_openflow::multipart::{
    AggregateStats, DescStats, FlowStats, FlowStatsRequest, PortStats, TableStats,
};
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::PortDesc;
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::table_features::{PipelineFeatures, TableFeatures};
use tollgate_openflow::{ErrorCode, Field, FlowCommand, FlowMod, Message};
use tollgate_switchd::openflow::{Audience, Bridge, BridgeServer, FlowCursor, Target, Timing};
use tollgate_switchd::pipeline::{FlowError, PortInfo};
use tollgate_switchd::rundir::BoundSocket;

use crate::peer;

/// A bridge that remembers its flow-mods. Only additions are understood; priority 666 is refused.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) flows: Mutex<Vec<FlowStats>>,
    /// How many flow-mods came together.
    pub(crate) batches: Mutex<Vec<usize>>,
    pub(crate) barriers: AtomicUsize,
    pub(crate) packets: Mutex<Vec<PacketOut>>,
    pub(crate) port_mods: Mutex<Vec<PortMod>>,
    pub(crate) meters: Mutex<Vec<MeterConfig>>,
}

impl Memory {
    fn flow_mod(&self, flow_mod: &FlowMod) -> Result<(), FlowError> {
        if flow_mod.priority == 666 || flow_mod.command != FlowCommand::Add {
            return Err(FlowError { code: ErrorCode::OFPFMFC_TABLE_FULL, detail: "full" });
        }
        self.flows.lock().unwrap().push(FlowStats {
            table_id: flow_mod.table_id,
            duration: Duration::from_secs(1),
            priority: flow_mod.priority,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            flags: flow_mod.flags,
            cookie: flow_mod.cookie,
            packet_count: 0,
            byte_count: 0,
            matcher: flow_mod.matcher.clone(),
            instructions: flow_mod.instructions.clone(),
        });
        Ok(())
    }
}

/// Flows that are given out from the start.
struct Remembered(Vec<FlowStats>);

impl FlowCursor for Remembered {
    fn next(&mut self, count: usize) -> Vec<FlowStats> {
        let rest = self.0.split_off(self.0.len().min(count));
        std::mem::replace(&mut self.0, rest)
    }
}

impl Bridge for Memory {
    fn name(&self) -> &str {
        "br0"
    }

    fn features(&self) -> Features {
        Features {
            datapath_id: 0xabc,
            n_tables: 2,
            capabilities: OFPC_FLOW_STATS,
            ..Features::default()
        }
    }

    fn description(&self) -> DescStats {
        DescStats { mfr_desc: "Tollgate".to_owned(), ..DescStats::default() }
    }

    fn ports(&self) -> Vec<PortDesc> {
        let port = |port_no, name: &str| PortDesc {
            port_no,
            name: name.to_owned(),
            ..PortDesc::default()
        };
        vec![port(1, "vm1"), port(2, "vm2")]
    }

    fn port_desc(&self, port: &PortInfo) -> PortDesc {
        PortDesc { port_no: port.ofport, name: port.name.clone(), ..PortDesc::default() }
    }

    fn port_stats(&self) -> Vec<PortStats> {
        let port = |port_no| PortStats { port_no, rx_packets: 7, ..PortStats::default() };
        vec![port(1), port(2)]
    }

    fn flow_mods(&self, flow_mods: &[FlowMod]) -> Vec<Result<(), FlowError>> {
        self.batches.lock().unwrap().push(flow_mods.len());
        flow_mods.iter().map(|flow_mod| self.flow_mod(flow_mod)).collect()
    }

    fn flow_mods_atomic(
        &self,
        flow_mods: &mut dyn Iterator<Item = FlowMod>,
    ) -> Result<(), (usize, FlowError)> {
        let before = self.flows.lock().unwrap().clone();
        for (place, flow_mod) in flow_mods.enumerate() {
            if let Err(error) = self.flow_mod(&flow_mod) {
                *self.flows.lock().unwrap() = before;
                return Err((place, error));
            }
        }
        Ok(())
    }

    fn packet_out(&self, packet: &PacketOut) -> Result<(), FlowError> {
        if packet.in_port == 666 {
            return Err(FlowError { code: ErrorCode::OFPBRC_BAD_PORT, detail: "no such port" });
        }
        self.packets.lock().unwrap().push(packet.clone());
        Ok(())
    }

    fn port_mod(&self, port_mod: &PortMod) -> Result<(), FlowError> {
        if port_mod.port_no == 666 {
            return Err(FlowError { code: ErrorCode::OFPPMFC_BAD_PORT, detail: "no such port" });
        }
        self.port_mods.lock().unwrap().push(*port_mod);
        Ok(())
    }

    fn meter_mod(&self, meter_mod: &MeterMod) -> Result<(), FlowError> {
        if meter_mod.meter_id == 666 {
            return Err(FlowError { code: ErrorCode::OFPMMFC_METER_EXISTS, detail: "is there" });
        }
        let MeterMod { meter_id, flags, ref bands, .. } = *meter_mod;
        self.meters.lock().unwrap().push(MeterConfig { meter_id, flags, bands: bands.clone() });
        Ok(())
    }

    fn meters(&self, meter_id: u32) -> Result<Vec<MeterConfig>, FlowError> {
        let mut meters = self.meters.lock().unwrap().clone();
        meters.retain(|meter| meter_id == OFPM_ALL || meter.meter_id == meter_id);
        if meters.is_empty() && meter_id != OFPM_ALL {
            return Err(FlowError {
                code: ErrorCode::OFPMMFC_UNKNOWN_METER,
                detail: "no such meter",
            });
        }
        Ok(meters)
    }

    fn meter_stats(&self, meter_id: u32) -> Result<Vec<MeterStats>, FlowError> {
        let stats = |meter: MeterConfig| MeterStats {
            meter_id: meter.meter_id,
            bands: vec![MeterBandStats::default(); meter.bands.len()],
            ..MeterStats::default()
        };
        Ok(self.meters(meter_id)?.into_iter().map(stats).collect())
    }

    fn meter_features(&self) -> MeterFeatures {
        MeterFeatures { max_meter: 7, ..MeterFeatures::default() }
    }

    fn barrier(&self) {
        self.barriers.fetch_add(1, Ordering::SeqCst);
    }

    fn flows(&self, _: &FlowStatsRequest) -> Result<Box<dyn FlowCursor>, FlowError> {
        Ok(Box::new(Remembered(self.flows.lock().unwrap().clone())))
    }

    fn aggregate(&self, _: &FlowStatsRequest) -> Result<AggregateStats, FlowError> {
        let flow_count = u32::try_from(self.flows.lock().unwrap().len()).unwrap();
        Ok(AggregateStats { flow_count, ..AggregateStats::default() })
    }

    fn tables(&self) -> Vec<TableStats> {
        vec![TableStats::default(), TableStats { table_id: 1, ..TableStats::default() }]
    }

    fn table_features(&self) -> Vec<TableFeatures> {
        let pipeline = PipelineFeatures {
            tables: 2,
            max_entries: 1000,
            instructions: &[1, 4],
            actions: &[0, 25],
            match_fields: &[Field::InPort, Field::EthDst],
            set_fields: &[Field::EthDst],
            metadata: u64::MAX,
        };
        (0..2).map(|table| pipeline.table(table, &format!("table{table}"))).collect()
    }
}

/// The server of a [`Memory`], on a socket of its own.
pub(crate) struct Server {
    pub(crate) bridge: Arc<Memory>,
    pub(crate) audience: Arc<Audience>,
    pub(crate) openflow: BridgeServer,
    pub(crate) path: PathBuf,
    pub(crate) dir: TempDir,
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with_timing(Timing::default())
    }

    pub(crate) fn with_timing(timing: Timing) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("br0.mgmt");
        let (socket, listener) = BoundSocket::listen(&path).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let bridge = Arc::new(Memory::default());
        let audience = Arc::<Audience>::default();
        let server = BridgeServer::start(
            runtime.handle().clone(),
            (socket, listener),
            Arc::clone(&bridge) as Arc<dyn Bridge>,
            Arc::clone(&audience),
            timing,
        );
        let openflow = server.unwrap();
        Self { bridge, audience, openflow, path, dir, _runtime: runtime }
    }

    pub(crate) fn connect(&self) -> Client {
        connected(UnixStream::connect(&self.path).unwrap())
    }

    pub(crate) fn greeted(&self) -> Client {
        greet(self.connect())
    }

    /// A connection as a controller: not to the bridge's own socket, but where it listens for
    /// controllers.
    pub(crate) fn controller(&self) -> Client {
        let path = self.dir.path().join("controllers");
        let target = Target::PassiveUnix(path.clone());
        if self.openflow.controllers().is_empty() {
            self.openflow.set_controllers(&[target]).unwrap();
        }
        greet(connected(UnixStream::connect(path).unwrap()))
    }

    /// Runs `ovs-ofctl -O OpenFlow13 ARGS`, or says that it is not installed.
    pub(crate) fn ovs_ofctl(&self, verb: &str, rest: &[&str]) -> Option<Output> {
        let target = format!("unix:{}", self.path.display());
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", "OpenFlow13", "-t", "20", verb, &target]).args(rest);
        peer::run(&mut command)
    }
}

/// The far end of a new connection, which the switch has greeted.
fn connected(stream: UnixStream) -> Client {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client(stream);
    assert_eq!(client.receive(), (0, Message::Hello(Hello::OURS)));
    client
}

/// Greets the switch.
pub(crate) fn greet<S: Read + Write>(mut client: Client<S>) -> Client<S> {
    client.send(1, &Message::Hello(Hello::OURS));
    client.assert_alive();
    client
}

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so that nothing tells of.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The far end of a connection.
pub(crate) struct Client<S = UnixStream>(pub(crate) S);

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, xid: u32, message: &Message) {
        self.send_bytes(&message.encode(xid));
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub(crate) fn receive(&mut self) -> (u32, Message) {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact(&mut header).unwrap();
        let mut bytes = header.to_vec();
        bytes.resize(usize::from(Header::decode(header).unwrap().length), 0);
        self.0.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
        let (header, message) = Message::decode(&bytes).unwrap();
        (header.xid, message)
    }

    pub(crate) fn error(&mut self) -> (u32, ErrorMessage) {
        match self.receive() {
            (xid, Message::Error(error)) => (xid, error),
            other => panic!("{other:?} instead of an error"),
        }
    }

    pub(crate) fn assert_alive(&mut self) {
        self.send(99, &Message::EchoRequest(b"ping".to_vec()));
        assert_eq!(self.receive(), (99, Message::EchoReply(b"ping".to_vec())));
    }

    pub(crate) fn assert_closed(&mut self) {
        assert_eq!(self.0.read(&mut [0; 8]).unwrap(), 0);
    }
}
