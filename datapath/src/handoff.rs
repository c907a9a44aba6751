//! Frames whose output port is polled by another PMD: a ring of owned bytes for every ordered pair
//! of PMDs, so that no ring of a guest is ever touched by two threads.

use tollgate_frame::Segment;
use tollgate_packet::PortIndex;
use tollgate_packet::limits::MAX_FRAME_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::byte_ring::{RecordConsumer, RecordProducer, byte_ring};
use crate::limits::HANDOFF_BYTES;
use crate::pmd::copy_frame;

/// What stands in front of a handed-over frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HandoffHead {
    flow_hash: u64,
    in_port: u16,
    out_port: u16,
    reserved: u32,
}

/// A PMD's rings towards its peers.
#[derive(Debug)]
pub(crate) struct HandoffOut {
    to: Vec<Option<RecordProducer>>,
    frame: Box<[u8]>,
}

/// A PMD's rings from its peers.
#[derive(Debug)]
pub(crate) struct HandoffIn {
    from: Vec<RecordConsumer>,
    next: usize,
    record: Vec<u8>,
}

/// A frame from another PMD.
#[derive(Debug)]
pub(crate) struct HandedFrame<'a> {
    pub(crate) in_port: PortIndex,
    pub(crate) out_port: PortIndex,
    pub(crate) flow_hash: u64,
    pub(crate) frame: &'a [u8],
}

/// Makes the ends of every PMD, in their order.
pub(crate) fn handoff_mesh(pmds: usize) -> Vec<(HandoffOut, HandoffIn)> {
    let mut outs: Vec<Vec<Option<RecordProducer>>> = (0..pmds).map(|_| Vec::new()).collect();
    let mut ins: Vec<Vec<RecordConsumer>> = (0..pmds).map(|_| Vec::new()).collect();
    for (source, out) in outs.iter_mut().enumerate() {
        for (destination, inward) in ins.iter_mut().enumerate() {
            out.push((source != destination).then(|| {
                let (producer, consumer) = byte_ring(HANDOFF_BYTES);
                inward.push(consumer);
                producer
            }));
        }
    }
    let frame_bytes = MAX_FRAME_BYTES as usize;
    let ends = outs.into_iter().zip(ins).map(|(to, from)| {
        let record = Vec::with_capacity(size_of::<HandoffHead>() + frame_bytes);
        (HandoffOut { to, frame: vec![0; frame_bytes].into() }, HandoffIn { from, next: 0, record })
    });
    ends.collect()
}

impl HandoffOut {
    /// Copies a frame into the ring to `pmd`; `false` when there is no room.
    #[must_use]
    pub(crate) fn push(
        &mut self,
        pmd: usize,
        (in_port, out_port): (PortIndex, PortIndex),
        flow_hash: u64,
        header: &[u8],
        payload: &[Segment<'_>],
    ) -> bool {
        let Some(ring) = self.to.get_mut(pmd).and_then(Option::as_mut) else { return false };
        let len = copy_frame(header, payload, &mut self.frame);
        let head = HandoffHead { flow_hash, in_port: in_port.0, out_port: out_port.0, reserved: 0 };
        ring.push(head.as_bytes(), self.frame.get(..len).unwrap_or_default())
    }
}

impl HandoffIn {
    /// Whether no peer has handed anything over.
    pub(crate) fn is_empty(&self) -> bool {
        self.from.iter().all(RecordConsumer::is_empty)
    }

    /// The next frame; peers take turns.
    pub(crate) fn pop(&mut self) -> Option<HandedFrame<'_>> {
        for _ in 0..self.from.len() {
            let at = self.next % self.from.len();
            self.next = at + 1;
            if self.from.get_mut(at)?.pop(&mut self.record) {
                let (head, frame) = HandoffHead::ref_from_prefix(&self.record).ok()?;
                return Some(HandedFrame {
                    in_port: PortIndex(head.in_port),
                    out_port: PortIndex(head.out_port),
                    flow_hash: head.flow_hash,
                    frame,
                });
            }
        }
        None
    }
}
