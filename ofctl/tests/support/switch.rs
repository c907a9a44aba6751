//! An OpenFlow switch of one table of flows, without packets.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tollgate_openflow::bundle::{BundleAdd, BundleCommand, BundleControl};
use tollgate_openflow::message::{Features, HEADER_BYTES, Header, Hello, SwitchConfig};
use tollgate_openflow::multipart::{
    AggregateStats, DescStats, FlowStats, MultipartReply, MultipartRequest, PortStats,
};
use tollgate_openflow::port::{OFPP_ANY, OFPP_LOCAL, OFPPS_LIVE, PortDesc};
use tollgate_openflow::{ErrorCode, FlowCommand, FlowMod, Message};

/// How the switch behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Behaviour {
    /// Refuse flows of this priority.
    pub(crate) refused_priority: Option<u16>,
    /// Send an echo request before every answer.
    pub(crate) probes: bool,
    /// Answer with a HELLO of OpenFlow 1.0 only.
    pub(crate) speaks_1_0: bool,
    /// Close the connection instead of answering a barrier.
    pub(crate) dies_at_barrier: bool,
    /// Send an error that is about no message before a barrier is answered.
    pub(crate) errs_by_itself: bool,
    /// Refuse what is added to a bundle at once, not when it is committed.
    pub(crate) refuses_while_adding: bool,
}

/// The flow-mods that were accepted, in order.
pub(crate) type FlowMods = Arc<Mutex<Vec<FlowMod>>>;

/// Serves `RUNDIR/br0.mgmt` until the test ends.
pub(crate) fn serve(run_dir: &Path, behaviour: Behaviour) -> FlowMods {
    let listener = UnixListener::bind(run_dir.join("br0.mgmt")).unwrap();
    let flow_mods = FlowMods::default();
    let shared = Arc::clone(&flow_mods);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let flow_mods = Arc::clone(&shared);
            let peer = Peer { stream: stream.unwrap(), flow_mods, behaviour, bundle: Vec::new() };
            thread::spawn(move || peer.run());
        }
    });
    flow_mods
}

struct Peer {
    stream: UnixStream,
    flow_mods: FlowMods,
    behaviour: Behaviour,
    /// The flow-mods of the open bundle, with their bytes and xids.
    bundle: Vec<(u32, FlowMod, Vec<u8>)>,
}

impl Peer {
    fn run(mut self) {
        let mut hello = Message::Hello(Hello::OURS).encode(99);
        if self.behaviour.speaks_1_0 {
            hello = vec![1, 0, 0, 8, 0, 0, 0, 99];
        }
        self.stream.write_all(&hello).unwrap();
        while let Some((header, message, bytes)) = self.receive() {
            if self.behaviour.dies_at_barrier && message == Message::BarrierRequest {
                return;
            }
            if self.behaviour.errs_by_itself && message == Message::BarrierRequest {
                let stray = Message::error(ErrorCode::OFPBRC_EPERM, &[]).encode(0);
                self.stream.write_all(&stray).unwrap();
            }
            let Some(answer) = self.answer(header.xid, message, &bytes) else { continue };
            if self.behaviour.probes {
                let probe = Message::EchoRequest(b"are you there".to_vec()).encode(0xffff_0000);
                self.stream.write_all(&probe).unwrap();
            }
            if self.stream.write_all(&answer.encode(header.xid)).is_err() {
                return;
            }
        }
    }

    fn receive(&mut self) -> Option<(Header, Message, Vec<u8>)> {
        let mut bytes = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut bytes).ok()?;
        let header = Header::decode(*bytes.first_chunk().unwrap()).unwrap();
        bytes.resize(header.length.into(), 0);
        self.stream.read_exact(&mut bytes[HEADER_BYTES..]).ok()?;
        let (header, message) = Message::decode(&bytes).unwrap();
        Some((header, message, bytes))
    }

    fn answer(&mut self, xid: u32, message: Message, bytes: &[u8]) -> Option<Message> {
        match message {
            Message::BundleControl(control) => Some(self.control(control, bytes)),
            Message::BundleAdd(BundleAdd { message, .. }) => {
                let Message::FlowMod(flow) = *message else { panic!("{message:?}") };
                if self.behaviour.refuses_while_adding && self.refuses(&flow) {
                    return Some(Message::error(ErrorCode::OFPFMFC_TABLE_FULL, bytes));
                }
                self.bundle.push((xid, *flow, bytes.to_vec()));
                None
            }
            Message::EchoRequest(data) => Some(Message::EchoReply(data)),
            Message::FeaturesRequest => Some(Message::FeaturesReply(Features {
                datapath_id: 0xabc,
                n_tables: 2,
                capabilities: 7,
                ..Features::default()
            })),
            Message::GetConfigRequest => Some(Message::GetConfigReply(SwitchConfig::default())),
            Message::BarrierRequest => Some(Message::BarrierReply),
            Message::FlowMod(flow) if self.refuses(&flow) => {
                Some(Message::error(ErrorCode::OFPFMFC_TABLE_FULL, bytes))
            }
            Message::FlowMod(flow) => {
                self.flow_mods.lock().unwrap().push(*flow);
                None
            }
            Message::MultipartRequest(request) => {
                Some(Message::MultipartReply { reply: self.describe(request), more: false })
            }
            _ => None,
        }
    }

    fn refuses(&self, flow: &FlowMod) -> bool {
        Some(flow.priority) == self.behaviour.refused_priority
    }

    /// Refuses a commit as Open vSwitch does: the flow that cannot be, then the commit.
    fn control(&mut self, control: BundleControl, bytes: &[u8]) -> Message {
        use BundleCommand as C;
        let command = match control.command {
            C::OpenRequest => C::OpenReply,
            C::CommitRequest => {
                let bundle = std::mem::take(&mut self.bundle);
                if let Some((xid, _, refused)) = bundle.iter().find(|(_, f, _)| self.refuses(f)) {
                    let refusal = Message::error(ErrorCode::OFPFMFC_TABLE_FULL, refused);
                    self.stream.write_all(&refusal.encode(*xid)).unwrap();
                    return Message::error(ErrorCode::OFPBFC_MSG_FAILED, bytes);
                }
                self.flow_mods.lock().unwrap().extend(bundle.into_iter().map(|(_, flow, _)| flow));
                C::CommitReply
            }
            other => panic!("{other:?}"),
        };
        Message::BundleControl(BundleControl { command, ..control })
    }

    fn describe(&self, request: MultipartRequest) -> MultipartReply {
        match request {
            MultipartRequest::PortDesc => MultipartReply::PortDesc(vec![
                port(OFPP_LOCAL, "br0"),
                port(2, "vm-2"),
                port(1, "vm1"),
            ]),
            MultipartRequest::PortStats { port_no } => {
                let known = [1, 2].into_iter().filter(|n| [OFPP_ANY, *n].contains(&port_no));
                MultipartReply::PortStats(known.map(port_stats).collect())
            }
            MultipartRequest::Flow(request) => {
                let flows = self.flows().into_iter();
                MultipartReply::Flow(
                    flows.filter(|f| [255, f.table_id].contains(&request.table_id)).collect(),
                )
            }
            MultipartRequest::Aggregate(_) => MultipartReply::Aggregate(AggregateStats {
                packet_count: 3,
                byte_count: 4,
                flow_count: self.flows().len().try_into().unwrap(),
            }),
            MultipartRequest::Desc => MultipartReply::Desc(DescStats {
                mfr_desc: "Acme".to_owned(),
                ..DescStats::default()
            }),
            other => panic!("{other:?}"),
        }
    }

    /// The flows that were added and not deleted since (as a whole).
    fn flows(&self) -> Vec<FlowStats> {
        let mut flows = Vec::new();
        for flow in self.flow_mods.lock().unwrap().iter() {
            match flow.command {
                FlowCommand::Add => flows.push(stats(flow)),
                FlowCommand::Delete => flows.clear(),
                _ => {}
            }
        }
        flows
    }
}

fn stats(flow: &FlowMod) -> FlowStats {
    FlowStats {
        table_id: flow.table_id,
        duration: Duration::from_millis(1500),
        priority: flow.priority,
        idle_timeout_s: flow.idle_timeout_s,
        hard_timeout_s: flow.hard_timeout_s,
        flags: flow.flags,
        cookie: flow.cookie,
        packet_count: 10,
        byte_count: 640,
        matcher: flow.matcher.clone(),
        instructions: flow.instructions.clone(),
    }
}

fn port(port_no: u32, name: &str) -> PortDesc {
    PortDesc {
        port_no,
        hw_addr: [2, 0, 0, 0, 0, 1],
        name: name.to_owned(),
        state: OFPPS_LIVE,
        ..PortDesc::default()
    }
}

fn port_stats(port_no: u32) -> PortStats {
    PortStats {
        port_no,
        rx_packets: 1,
        rx_bytes: 60,
        rx_crc_err: u64::MAX,
        duration: Duration::from_secs(9),
        ..PortStats::default()
    }
}
