//! From a decision to the destination's ring: action lists, outputs grouped by port, one copy each.

use tollgate_accel::tsc;
use tollgate_frame::{DropReason, Packet, payload_len};
use tollgate_packet::edit::{self, Edit};
use tollgate_packet::parse::Layout;
use tollgate_packet::{HeaderBuf, PortIndex};
use tollgate_policy::TenantIndex;
use tollgate_vhost::Notifier;

use crate::counters::PortCounters;
use crate::handoff::HandoffOut;
use crate::limits::{
    HEADER_SNAPSHOTS, MAX_PORTS, MAX_QUEUE_PAIRS, OPS_PER_LOOK, PENDING_BYTES, PENDING_OUTPUTS,
};
use crate::megaflow::{Megaflow, Op};
use crate::pmd::ends::Outlet;
use crate::pmd::frames::Frames;
use crate::pmd::ports::{PortSlot, PortTable, RingRef};
use crate::pmd::progress::{Progress, Ran};
use crate::pmd::stopwatch::Stopwatch;
use crate::stages::Stage;

/// A copy that waits to be delivered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    port: PortIndex,
    packet: u8,
    /// The header to send with it: the packet's own, or a snapshot.
    snapshot: Option<u8>,
    /// Nothing else is made of the packet, so what it lies in can go with it.
    is_only: bool,
    flow_hash: u64,
}

/// A header as it was at one output, or is after edits that follow one.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    header: HeaderBuf,
    layout: Layout,
}

/// The outputs of one task.
#[derive(Debug)]
pub(crate) struct Egress {
    /// This PMD; ports of others are reached by handing frames over.
    pmd: usize,
    handoff: HandoffOut,
    pending: Vec<Pending>,
    pending_bytes: u64,
    snapshots: Box<[Snapshot]>,
    snapshots_used: usize,
    /// The header as received of the last packet that was punted after edits.
    received: HeaderBuf,
    received_kept: bool,
    /// Receive rings with frames that their guests cannot see yet.
    unpublished: Vec<RingRef>,
    /// Tenants whose guests were interrupted, once for each interrupt.
    interrupted: Vec<TenantIndex>,
    /// What receivers owe for the layout of their buffers.
    receivers_pay: Vec<(TenantIndex, u64)>,
    pub(crate) notifications: u64,
    /// Kept here because outputs are delivered from within action lists as well.
    pub(crate) stopwatch: Stopwatch,
}

impl Egress {
    pub(crate) fn new(pmd: usize, handoff: HandoffOut) -> Self {
        Self {
            pmd,
            handoff,
            pending: Vec::with_capacity(PENDING_OUTPUTS),
            pending_bytes: 0,
            snapshots: vec![Snapshot::default(); HEADER_SNAPSHOTS].into(),
            snapshots_used: 0,
            received: HeaderBuf::default(),
            received_kept: false,
            // Every ring there can be: the lists never grow on a PMD.
            unpublished: Vec::with_capacity(MAX_PORTS * MAX_QUEUE_PAIRS),
            interrupted: Vec::with_capacity(MAX_PORTS * MAX_QUEUE_PAIRS + 1),
            receivers_pay: Vec::with_capacity(MAX_PORTS * MAX_QUEUE_PAIRS),
            notifications: 0,
            stopwatch: Stopwatch::new(),
        }
    }

    /// Whose it is.
    pub(crate) fn pmd(&self) -> usize {
        self.pmd
    }

    /// One of a port's receive rings, to be published later.
    #[inline]
    pub(crate) fn open<'a>(&mut self, slot: &'a mut PortSlot, pair: u8) -> Option<&'a mut Outlet> {
        open(slot, pair, &mut self.unpublished)
    }

    /// Runs a megaflow's actions on one packet, from where it has got to. Its outputs are delivered at
    /// the latest by the next [`flush`](Self::flush), or, if the list is cut, by now: then it is to be
    /// run again with the packet as it is left, and in between the packet is the caller's to keep. A
    /// copy that is to go to the slow path, as the progress says in the end, the caller sees to and
    /// counts.
    #[inline]
    pub(crate) fn run<F: Frames>(
        &mut self,
        megaflow: &Megaflow,
        frames: &mut F,
        at: usize,
        ports: &mut PortTable,
        source: Source<'_>,
        progress: &mut Progress,
    ) -> Ran {
        let mut current = CurrentHeader { packet: at, snapshot: None, referenced: false };
        let mut lost = None;
        let first = progress.next_op;
        if first == 0 {
            self.received_kept = false;
        }
        for (index, op) in megaflow.ops.iter().enumerate().skip(first) {
            // Whoever is run gets on, however late it is; and what is left is done at once if it is no
            // more than what was done, as another turn would cost more than it spares others.
            let may_cut = index != first && megaflow.ops.len() - index > index - first;
            if may_cut && index.is_multiple_of(OPS_PER_LOOK) {
                self.flush(frames, ports, source);
                current.referenced = false;
                if tsc::now() >= source.deadline_tsc {
                    return self.cut(index, &current, frames, source, progress);
                }
            }
            match op {
                Op::Output(port) => {
                    if self.pending.len() == PENDING_OUTPUTS || self.pending_bytes > PENDING_BYTES {
                        self.flush(frames, ports, source);
                        current.referenced = false;
                        if may_cut && tsc::now() >= source.deadline_tsc {
                            return self.cut(index, &current, frames, source, progress);
                        }
                    }
                    progress.outputs += 1;
                    let is_last = index + 1 == megaflow.ops.len();
                    let is_only = is_last && progress.outputs == 1 && !progress.punts;
                    self.push(*port, &current, is_only, progress.flow_hash, frames);
                    current.referenced = true;
                }
                Op::Edit(edit) => {
                    if !progress.edited {
                        progress.edited = true;
                        self.keep_received(megaflow, frames.packet(at));
                    }
                    if current.referenced {
                        self.leave_header_as_sent(&mut current, frames, ports, source);
                    }
                    if !self.edit(edit, &current, frames) {
                        lost = Some(DropReason::EditFailed);
                        break;
                    }
                }
                Op::Meter(index) => {
                    let meter = megaflow.meters.get(usize::from(*index));
                    let frame_bytes = frames.packet(at).map_or(0, |packet| packet.frame_len);
                    if !meter.is_some_and(|meter| meter.admit(frame_bytes, source.now_tsc)) {
                        lost = Some(DropReason::Meter);
                        break;
                    }
                }
                Op::Punt => progress.punts = true,
                Op::Burn(cycles) => burn(u64::from(*cycles)),
            }
        }
        progress.account(megaflow.drop_reason, lost, source.counters);
        Ran::Finished
    }

    /// Ends for now before the action at `index`, everything pending being delivered.
    #[cold]
    fn cut<F: Frames>(
        &mut self,
        index: usize,
        current: &CurrentHeader,
        frames: &mut F,
        source: Source<'_>,
        progress: &mut Progress,
    ) -> Ran {
        let snapshot = current.snapshot.and_then(|index| self.snapshots.get(usize::from(index)));
        if let Some(packet) = frames.packet_mut(current.packet)
            && let Some(latest) = snapshot
        {
            packet.header.clone_from_header(&latest.header);
            packet.layout = latest.layout;
        }
        progress.next_op = index;
        progress.account_cut(source.counters);
        Ran::Cut
    }

    /// Keeps the header as received before the first edit of a packet that has its copy punted.
    #[inline]
    fn keep_received(&mut self, megaflow: &Megaflow, packet: Option<&Packet>) {
        if megaflow.ops.contains(&Op::Punt)
            && let Some(packet) = packet
        {
            self.received.clone_from_header(&packet.header);
            self.received_kept = true;
        }
    }

    /// The header of the packet that was [`run`](Self::run) last, as it was received.
    pub(crate) fn received_header<'a>(&'a self, packet: &'a Packet) -> &'a HeaderBuf {
        if self.received_kept { &self.received } else { &packet.header }
    }

    /// What [`received_header`](Self::received_header) is to say when a packet is run on: the header
    /// that was kept, if one was.
    pub(crate) fn restore_received(&mut self, kept: Option<&HeaderBuf>) {
        self.received_kept = kept.is_some();
        if let Some(kept) = kept {
            self.received.clone_from_header(kept);
        }
    }

    /// The header as received that was kept of the packet that was run last, if that was edited.
    pub(crate) fn kept_received(&self) -> Option<&HeaderBuf> {
        self.received_kept.then_some(&self.received)
    }

    #[inline]
    fn push<F: Frames>(
        &mut self,
        port: PortIndex,
        current: &CurrentHeader,
        is_only: bool,
        flow_hash: u64,
        frames: &F,
    ) {
        self.pending_bytes += frames.packet(current.packet).map_or(0, |p| u64::from(p.frame_len));
        self.pending.push(Pending {
            port,
            packet: current.packet as u8,
            snapshot: current.snapshot,
            is_only,
            flow_hash,
        });
    }

    /// A pending output names the current header: edits go to a copy of it. Without room for one,
    /// what is pending is delivered, and then nothing names the header any more.
    fn leave_header_as_sent<F: Frames>(
        &mut self,
        current: &mut CurrentHeader,
        frames: &F,
        ports: &mut PortTable,
        source: Source<'_>,
    ) {
        current.referenced = false;
        if self.snapshots_used == self.snapshots.len() {
            return self.flush(frames, ports, source);
        }
        let next = self.snapshots_used;
        let (older, newer) = self.snapshots.split_at_mut(next);
        let Some(copy) = newer.first_mut() else { return };
        match current.snapshot.and_then(|index| older.get(usize::from(index))) {
            Some(sent) => {
                copy.header.clone_from_header(&sent.header);
                copy.layout = sent.layout;
            }
            None => {
                let Some(packet) = frames.packet(current.packet) else { return };
                copy.header.clone_from_header(&packet.header);
                copy.layout = packet.layout;
            }
        }
        self.snapshots_used += 1;
        current.snapshot = Some(next as u8);
    }

    #[inline]
    fn edit<F: Frames>(&mut self, edit: &Edit, current: &CurrentHeader, frames: &mut F) -> bool {
        let Some(packet) = frames.packet_mut(current.packet) else { return false };
        let snapshot =
            current.snapshot.and_then(|index| self.snapshots.get_mut(usize::from(index)));
        let outcome = match snapshot {
            Some(copy) => edit::apply(edit, &mut copy.header, &mut copy.layout, &packet.key),
            None => edit::apply(edit, &mut packet.header, &mut packet.layout, &packet.key),
        };
        outcome.is_ok()
    }

    /// Delivers the frame at 0 to one port.
    pub(crate) fn send<F: Frames>(
        &mut self,
        port: PortIndex,
        flow_hash: u64,
        frames: &F,
        ports: &mut PortTable,
        source: Source<'_>,
    ) {
        let header = CurrentHeader { packet: 0, snapshot: None, referenced: false };
        self.push(port, &header, true, flow_hash, frames);
        self.flush(frames, ports, source);
    }

    /// Whether enough is pending that delivering it takes a good part of a quantum.
    #[inline]
    pub(crate) fn is_heavy(&self) -> bool {
        self.pending.len() * 2 >= PENDING_OUTPUTS || self.pending_bytes > PENDING_BYTES
    }

    /// Copies everything pending into the destinations' rings, port by port. The guests see it only
    /// after [`publish`](Self::publish).
    pub(crate) fn flush<F: Frames>(
        &mut self,
        frames: &F,
        ports: &mut PortTable,
        source: Source<'_>,
    ) {
        self.stopwatch.lap(Stage::Actions, 0);
        let mut delivered = 0_u64;
        for first in 0..self.pending.len() {
            delivered += self.deliver_group(first, frames, ports, source);
        }
        source.counters.forwarded(delivered);
        self.stopwatch.lap(Stage::Deliver, self.pending.len());
        self.pending.clear();
        self.pending_bytes = 0;
    }

    /// Delivers, in order, the pending outputs to the port of entry `first` that no earlier group
    /// has delivered, and marks them so.
    #[inline]
    fn deliver_group<F: Frames>(
        &mut self,
        first: usize,
        frames: &F,
        ports: &mut PortTable,
        source: Source<'_>,
    ) -> u64 {
        let Some(port) = self.pending.get(first).map(|pending| pending.port) else { return 0 };
        if port == DELIVERED {
            return 0;
        }
        let mut slot = ports.get_mut(port);
        let (mut frames_out, mut bytes_out, mut refused, mut handed) = (0_u64, 0_u64, 0_u64, 0_u64);
        let Some(group) = self.pending.get_mut(first..) else { return 0 };
        if let Some(slot) = slot.as_deref_mut() {
            slot.prefetch(group.iter().filter(|pending| pending.port == port).count());
        }
        for pending in group.iter_mut().filter(|pending| pending.port == port) {
            pending.port = DELIVERED;
            let at = usize::from(pending.packet);
            let snapshot =
                pending.snapshot.and_then(|index| self.snapshots.get(usize::from(index)));
            let header = match snapshot {
                Some(copy) => copy.header.bytes(),
                None => frames.packet(at).map_or(&[][..], |packet| packet.header.bytes()),
            };
            let payload = frames.payload(at);
            let outcome = match slot.as_deref_mut() {
                None => Err(DropReason::NoSuchPort),
                Some(slot) if slot.home != self.pmd => {
                    let ends = (source.port, port);
                    let hash = pending.flow_hash;
                    let pushed = self.handoff.push(slot.home, ends, hash, header, payload);
                    handed += u64::from(pushed);
                    if pushed { continue } else { Err(DropReason::HandoffFull) }
                }
                Some(slot) => {
                    let pair = slot.pick_guest_rx(pending.flow_hash);
                    let outlet = pair.and_then(|pair| open(slot, pair, &mut self.unpublished));
                    // A packet that goes elsewhere too, or to a controller, is copied.
                    let take = || if pending.is_only { frames.take_buffer(at) } else { None };
                    match outlet {
                        Some(outlet) => outlet.deliver_from(take, header, payload),
                        None => Err(DropReason::TxNoQueue),
                    }
                }
            };
            match outcome {
                Ok(()) => {
                    frames_out += 1;
                    bytes_out += (header.len() + payload_len(payload)) as u64;
                }
                Err(reason) => {
                    refused += 1;
                    source.counters.dropped(reason, 1);
                }
            }
        }
        if let Some(slot) = slot {
            let unsent = slot.end_run();
            if unsent.frames > 0 {
                frames_out -= unsent.frames;
                bytes_out -= unsent.bytes;
                refused += unsent.frames;
                source.counters.dropped(DropReason::TxRingFull, unsent.frames);
            }
            source.counters.handed_out(handed);
            slot.counters.transmitted(frames_out, bytes_out);
            slot.counters.refused(refused);
        }
        frames_out
    }

    /// Shows the guests what was delivered, each ring once, and interrupts those that ask for it.
    /// The header snapshots are free again.
    pub(crate) fn publish(&mut self, ports: &mut PortTable, notifier: &mut Notifier) {
        for at in &self.unpublished {
            let Some(slot) = ports.get_mut(at.port) else { continue };
            let tenant = slot.tenant;
            slot.clear_unpublished(at.pair);
            let Some(outlet) = slot.guest_rx(at.pair) else { continue };
            let cycles = outlet.take_receiver_cycles();
            if cycles > 0 {
                self.receivers_pay.push((tenant, cycles));
            }
            if let Some(call) = outlet.publish() {
                notifier.queue(call);
                self.interrupted.push(tenant);
            }
        }
        self.unpublished.clear();
        self.snapshots_used = 0;
    }

    /// What receivers owe beyond what delivery to them usually costs; each once.
    pub(crate) fn take_receivers_pay(&mut self, mut pay: impl FnMut(&[(TenantIndex, u64)])) {
        if !self.receivers_pay.is_empty() {
            pay(&self.receivers_pay);
            self.receivers_pay.clear();
        }
    }

    /// Interrupts the transmitting guest too.
    pub(crate) fn interrupt_sender(&mut self, tenant: TenantIndex) {
        self.interrupted.push(tenant);
    }

    /// The receivers of the interrupts queued since the last call, who pay for them.
    pub(crate) fn take_interrupted(&mut self, mut pay: impl FnMut(&[TenantIndex])) {
        if !self.interrupted.is_empty() {
            self.notifications += self.interrupted.len() as u64;
            pay(&self.interrupted);
            self.interrupted.clear();
        }
    }
}

/// One of a port's receive rings, noted among those to be published.
#[inline]
fn open<'a>(
    slot: &'a mut PortSlot,
    pair: u8,
    unpublished: &mut Vec<RingRef>,
) -> Option<&'a mut Outlet> {
    if slot.mark_unpublished(pair) {
        unpublished.push(RingRef { port: slot.index, pair });
    }
    slot.guest_rx(pair)
}

/// Where the packets of a task came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) port: PortIndex,
    pub(crate) counters: &'a PortCounters,
    /// The time for meters: the task's last boundary.
    pub(crate) now_tsc: u64,
    /// When a long action list is to be cut.
    pub(crate) deadline_tsc: u64,
}

/// Marks a pending output as delivered. No port has this index ([`MAX_PORTS`](crate::limits::MAX_PORTS)).
const DELIVERED: PortIndex = PortIndex(u16::MAX);

/// Which header the next action sees, and whether a pending output names it.
struct CurrentHeader {
    packet: usize,
    snapshot: Option<u8>,
    referenced: bool,
}

fn burn(cycles: u64) {
    let until = tsc::now().saturating_add(cycles);
    while tsc::now() < until {
        std::hint::spin_loop();
    }
}
