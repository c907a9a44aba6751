//! PACKET_OUT (OpenFlow 1.3.5, section 7.3.7): a controller's packet is walked like any other, by the
//! thread that walks all of them, and sent by a PMD.

use std::sync::{Arc, mpsc};

use tollgate_datapath::{InjectError, Megaflow, MegaflowStats, SlowPathEnd};
use tollgate_openflow::packet_out::PacketOut;
use tollgate_openflow::port::{OFP_NO_BUFFER, OFPP_ANY, OFPP_CONTROLLER, OFPP_LOCAL};
use tollgate_openflow::{Actions, ErrorCode};
use tollgate_packet::limits::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};
use tollgate_packet::{FlowKey, PortIndex};
use tollgate_policy::TenantIndex;

use super::bridge::BridgeId;
use super::compile::compile_list;
use super::core::Core;
use super::describe::{key_of, packet_match};
use super::error::FlowError;
use super::program::{Item, Step};
use super::shadow::Collected;
use super::walk::{Ingress, Record, Start, walk_from};
use crate::limits::MAX_OFPORT;

/// What controllers ask of the slow path.
#[derive(Debug)]
pub(super) enum Errand {
    Send(Box<Outgoing>),
    /// An answer is expected when all before it is done.
    Fence(mpsc::Sender<()>),
}

/// A packet to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    bridge: BridgeId,
    in_port: u32,
    key: FlowKey,
    actions: Actions,
    steps: Box<[Step]>,
    frame: Vec<u8>,
}

impl Outgoing {
    /// Checks a request as far as it can be without a walk.
    pub(super) fn new(bridge: BridgeId, request: &PacketOut) -> Result<Self, FlowError> {
        let refused = |code, detail| Err(FlowError::new(code, detail));
        if request.buffer_id != OFP_NO_BUFFER {
            return refused(ErrorCode::OFPBRC_BUFFER_UNKNOWN, "no packets are buffered");
        }
        let in_port = request.in_port;
        let from_nowhere = [OFPP_CONTROLLER, OFPP_ANY, OFPP_LOCAL].contains(&in_port);
        if !from_nowhere && !(1..=MAX_OFPORT).contains(&in_port) {
            return refused(ErrorCode::OFPBRC_BAD_PORT, "no packet comes in by such a port");
        }
        let frame = &request.data;
        let carried = MIN_FRAME_BYTES as usize..=MAX_FRAME_BYTES as usize;
        if !carried.contains(&frame.len()) {
            return refused(
                ErrorCode::OFPBRC_BAD_LEN,
                "the packet is shorter than an Ethernet header or longer than any frame",
            );
        }
        let key = key_of(frame);
        let steps = compile_list(&packet_match(&key, &Default::default()), &request.actions)?;
        let (actions, frame) = (request.actions.clone(), frame.clone());
        Ok(Self { bridge, in_port, key, actions, steps, frame })
    }

    fn list(&self) -> Vec<Item<'_>> {
        let mut items = Vec::new();
        for (step, action) in self.steps.iter().zip(self.actions.iter()) {
            items.push(Item { step: *step, action });
        }
        items
    }
}

/// What became of a controller's packet.
#[derive(Debug)]
pub(super) struct Sent {
    /// At whose expense.
    pub(super) tenant: TenantIndex,
    pub(super) outcome: Result<(), InjectError>,
    /// Decisions have become stale: the PMDs should be told soon.
    pub(super) stale: bool,
}

/// What to do with a controller's packet.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) ingress: Option<PortIndex>,
    pub(super) megaflow: Megaflow,
    /// Decisions have become stale.
    pub(super) stale: bool,
}

impl Core {
    /// Walks a controller's packet and has it sent.
    pub(super) fn send_out(&self, outgoing: Outgoing, end: &mut SlowPathEnd) -> Sent {
        let Some(Decided { ingress, megaflow, stale }) = self.decide_out(&outgoing) else {
            return Sent { tenant: TenantIndex::SYSTEM, outcome: Ok(()), stale: false };
        };
        let tenant = megaflow.owner;
        let outcome = end.inject(ingress, outgoing.frame, Arc::new(megaflow));
        Sent { tenant, outcome, stale }
    }

    /// The decision, which is for this packet only. Nothing if the bridge has gone meanwhile.
    pub(super) fn decide_out(&self, outgoing: &Outgoing) -> Option<Decided> {
        let state = self.read();
        let bridge = state.bridges.get(&outgoing.bridge)?;
        let port = bridge.port(outgoing.in_port);
        let ingress = Ingress { ofport: outgoing.in_port, port };
        let mut fdb = bridge.fdb();
        let start = Start { list: Some(outgoing.list()), ..Start::table_0(ingress, &outgoing.key) };
        let walk = walk_from(bridge, &fdb, start, &mut Record::Nothing);
        let now_ms = self.now_ms();
        let learned = walk.learned.iter();
        let moved: Vec<_> =
            learned.flat_map(|(station, ofport)| fdb.learn(*station, *ofport, now_ms)).collect();
        let stale = self.shadow().stations_changed(outgoing.bridge, &moved);
        drop(fdb);
        // Counted here: the decision is cached nowhere.
        state.count(&Collected {
            bridge: outgoing.bridge,
            visits: &walk.visits,
            learned: &[],
            packets: 1,
            bytes: outgoing.frame.len() as u64,
            used_ms: now_ms,
        });
        self.send_copies(outgoing.bridge, &walk.punts, &outgoing.frame);
        let megaflow = Megaflow {
            matcher: walk.matcher,
            ops: walk.ops.into(),
            meters: walk.meters.into(),
            drop_reason: walk.drop_reason,
            owner: port.map_or(TenantIndex::SYSTEM, |port| port.tenant),
            generation: self.shadow().generation(),
            stats: MegaflowStats::default(),
        };
        Some(Decided { ingress: port.map(|port| port.index), megaflow, stale })
    }
}
