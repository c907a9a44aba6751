//! What would become of a packet, and why.

use tollgate_classifier::ExtraKey;
use tollgate_datapath::Op;
use tollgate_frame::DropReason;
use tollgate_openflow::Match;
use tollgate_openflow::field::{ETH_TYPE_IPV4, ETH_TYPE_IPV6};
use tollgate_openflow::text;
use tollgate_packet::edit::Edit;
use tollgate_packet::limits::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};
use tollgate_packet::{FlowKey, MacAddr};
use tollgate_policy::TenantIndex;

use super::bridge::{Bridge, BridgeId};
use super::compose::compose;
use super::core::{Core, owner_of};
use super::describe::key_of;
use super::matching;
use super::packet_in::edited;
use super::texts::Names;
use super::walk::{Record, Recorded, Start, Walk, walk_from, with_port};

/// TTL and addresses of a traced packet for which nobody asked.
const TRACE_TTL: u8 = 64;
const TRACE_ETH_SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const TRACE_ETH_DST: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A packet to be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceRequest {
    /// Any packet with these fields, in flow text: `in_port=vm1,tcp,nw_dst=10.0.0.2`. What is not
    /// named is zero, but for the TTL, which is 64, and the Ethernet addresses: a packet that has
    /// the same one twice would not leave a learning switch.
    Flow(String),
    /// This one.
    Frame {
        /// The port it enters by, a name or an OpenFlow number.
        in_port: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
}

/// Why there is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The bridge is gone.
    #[error("the bridge has been removed")]
    NoBridge,
    /// The flow is not understood.
    #[error("{0}")]
    Flow(String),
    /// No packet has these fields.
    #[error("no packet has these fields: the nearest one is {0}")]
    Impossible(String),
    /// Nothing enters by such a port.
    #[error("the bridge has no port {0:?}")]
    NoPort(String),
    /// The flow names no port.
    #[error("the flow must say where the packet enters: in_port=PORT")]
    NoInPort,
    /// The packet is no frame.
    #[error("a frame has {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES} bytes, not {0}")]
    Length(usize),
}

/// One look-up and what was done then, or a list that is no rule's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// Resubmits that led here and are not finished.
    pub depth: usize,
    /// The table; `None` for the action set.
    pub table: Option<u8>,
    /// What was found: its priority and match. `None` for a table miss and the action set.
    pub rule: Option<String>,
    /// The rule's cookie.
    pub cookie: u64,
    /// What was executed.
    pub actions: Vec<String>,
}

/// A packet that would leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOutput {
    /// By which port.
    pub port: String,
    /// As it is then.
    pub bytes: Vec<u8>,
}

/// What would become of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The look-ups in order.
    pub steps: Vec<TraceStep>,
    /// The packet's fields as they are at the end.
    pub final_flow: String,
    /// The packets that are decided alike.
    pub megaflow: String,
    /// What a PMD does with each of them.
    pub datapath_actions: Vec<String>,
    /// What leaves.
    pub outputs: Vec<TraceOutput>,
    /// What happens, in a few words.
    pub verdict: String,
    /// Who pays for such packets.
    pub owner: TenantIndex,
}

impl Core {
    /// Walks a packet without any consequence.
    pub(super) fn trace(&self, id: BridgeId, request: &TraceRequest) -> Result<Trace, TraceError> {
        let state = self.read();
        let bridge = state.bridges.get(&id).ok_or(TraceError::NoBridge)?;
        let names = Names(bridge);
        let (in_port, extra, frame) = match request {
            TraceRequest::Flow(flow) => packet_of(&names, flow)?,
            TraceRequest::Frame { in_port, bytes } => {
                let ofport = text::parse_port(in_port, &names);
                let ofport = ofport.ok_or_else(|| TraceError::NoPort(in_port.clone()))?;
                (ofport, ExtraKey::ZERO, bytes.clone())
            }
        };
        let carried = MIN_FRAME_BYTES as usize..=MAX_FRAME_BYTES as usize;
        if !carried.contains(&frame.len()) {
            return Err(TraceError::Length(frame.len()));
        }
        let port = bridge.port(in_port);
        let port = port.ok_or_else(|| TraceError::NoPort(in_port.to_string()))?;
        let key = key_of(&frame);
        let mut record = Record::Everything(Vec::new());
        let fdb = bridge.fdb();
        let start = Start { extra, ..Start::table_0(port.into(), &key) };
        let walk = walk_from(bridge, &fdb, start, &mut record);
        drop(fdb);
        let Record::Everything(entries) = record else { return Err(TraceError::NoBridge) };
        let packet = FlowKey { in_port, ..key };
        Ok(Trace {
            steps: entries.iter().map(|entry| step(&names, entry)).collect(),
            final_flow: names.packet(&walk.last_key, &walk.last_extra),
            megaflow: names.decision(&with_port(&walk.matcher, in_port)),
            datapath_actions: names.steps(&walk.ops, &walk.dependencies.meters, &packet),
            outputs: outputs(bridge, &walk.ops, &frame),
            verdict: verdict(&walk),
            owner: owner_of(bridge, port, &walk),
        })
    }
}

/// The smallest packet with the fields that a flow text names, and where it enters.
fn packet_of(names: &Names<'_>, flow: &str) -> Result<(u32, ExtraKey, Vec<u8>), TraceError> {
    let request = text::parse_flow_stats_request(flow, names)
        .map_err(|error| TraceError::Flow(error.to_string()))?;
    let matcher: &Match = &request.matcher;
    let (wanted, extra) =
        matching::compile(matcher).map_err(|error| TraceError::Flow(error.detail.to_owned()))?;
    let mut key = *wanted.key();
    if wanted.mask().0.in_port == 0 {
        return Err(TraceError::NoInPort);
    }
    let named = &wanted.mask().0;
    if named.ip_ttl == 0 && matches!(key.eth_type, ETH_TYPE_IPV4 | ETH_TYPE_IPV6) {
        key.ip_ttl = TRACE_TTL;
    }
    if named.eth_src.0 == [0; 6] {
        key.eth_src = TRACE_ETH_SRC;
    }
    if named.eth_dst.0 == [0; 6] {
        key.eth_dst = TRACE_ETH_DST;
    }
    let frame = compose(&key);
    let composed = FlowKey { in_port: key.in_port, ..key_of(&frame) };
    if !wanted.matches(&composed) {
        return Err(TraceError::Impossible(names.packet(&composed, &ExtraKey::ZERO)));
    }
    Ok((key.in_port, *extra.key(), frame))
}

fn step(names: &Names<'_>, entry: &Recorded) -> TraceStep {
    TraceStep {
        depth: entry.depth,
        table: entry.table,
        rule: entry.rule.as_ref().map(|rule| names.rule(rule)),
        cookie: entry.rule.as_ref().map_or(0, |rule| rule.cookie),
        actions: entry.done.iter().map(|done| names.instruction(done)).collect(),
    }
}

fn outputs(bridge: &Bridge, ops: &[Op], frame: &[u8]) -> Vec<TraceOutput> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut outputs = Vec::new();
    for op in ops {
        match op {
            Op::Edit(edit) => edits.push(*edit),
            Op::Output(index) => {
                let bytes = edited(frame, &edits);
                let port = bridge.ports().find(|port| port.index == *index);
                outputs.extend(port.map(|port| TraceOutput { port: port.name.clone(), bytes }));
            }
            Op::Meter(_) | Op::Punt | Op::Burn(_) => {}
        }
    }
    outputs
}

fn verdict(walk: &Walk) -> String {
    let outputs = walk.ops.iter().filter(|op| matches!(op, Op::Output(_))).count();
    let sent = match outputs {
        0 => None,
        1 => Some("sent to 1 port".to_owned()),
        count => Some(format!("sent to {count} ports")),
    };
    let copied = (!walk.punts.is_empty()).then(|| "copied to the controller".to_owned());
    let is_lost = outputs == 0 && (copied.is_none() || walk.drop_reason == DropReason::TtlExpired);
    let dropped = is_lost.then(|| format!("dropped: {}", walk.drop_reason.as_str()));
    let happened: Vec<String> = sent.into_iter().chain(dropped).chain(copied).collect();
    happened.join(", ")
}
