//! A burst of packets and the segments of their payloads, in memory allocated once.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use tollgate_packet::{FlowKey, HeaderBuf, Layout};

use crate::buffer::Buffer;
use crate::copy;
use crate::limits::{BURST_PACKETS, BURST_SEGMENTS};
use crate::segment::{Segment, payload_len};

/// What a burst holds on to until it is cleared, so that its segments stay mapped.
pub type Mapping = Arc<dyn Any + Send + Sync>;

/// One frame in flight. Whoever fetched it has filled `header` and `frame_len`; the rest belongs to
/// whoever parses it and is left over from an earlier packet until then.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// The first bytes of the frame, copied.
    pub header: HeaderBuf,
    /// Where in the header things are; for the parser to fill.
    pub layout: Layout,
    /// What the header says; for the parser to fill.
    pub key: FlowKey,
    /// Bytes of the frame as received, without FCS: header and payload.
    pub frame_len: u32,
    segments_first: u32,
    segments_count: u32,
}

impl Packet {
    /// An empty packet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes this the packet of `frame`, whose bytes beyond the header copy are returned: they are
    /// its payload, for the caller to keep and to deliver from.
    pub fn fill_from_frame<'a>(&mut self, frame: &'a [u8]) -> Segment<'a> {
        let (header, payload) = frame.split_at(self.header.reset(frame.len()).len());
        self.header.bytes_mut().copy_from_slice(header);
        self.frame_len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        self.segments_first = 0;
        self.segments_count = 0;
        Segment::from_slice(payload)
    }
}

/// Up to [`BURST_PACKETS`] packets. Its memory is allocated once and never zeroed between bursts
/// (9 KB of zeroing were measured at 0.45 us a burst).
pub struct Burst {
    packets: Box<[Packet]>,
    len: usize,
    /// Valid below `segments_len`, and only as long as `mappings` holds their memory: the
    /// lifetime is not really 'static and never leaves this module as such.
    segments: Box<[Segment<'static>]>,
    segments_len: usize,
    mappings: Vec<Mapping>,
    /// Of a burst out of a network card: the buffer of each packet, until somebody takes it.
    buffers: Vec<Cell<Option<Buffer>>>,
}

impl Burst {
    /// An empty burst; allocates all that it will ever use.
    pub fn new() -> Self {
        Self {
            packets: vec![Packet::new(); BURST_PACKETS].into_boxed_slice(),
            len: 0,
            segments: vec![Segment::from_slice(&[]); BURST_SEGMENTS].into_boxed_slice(),
            segments_len: 0,
            mappings: Vec::with_capacity(BURST_PACKETS),
            buffers: Vec::with_capacity(BURST_PACKETS),
        }
    }

    /// Packets in the burst.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packets that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.packets.len() - self.len
    }

    /// Segments that still fit.
    #[inline]
    pub fn segments_room(&self) -> usize {
        self.segments.len() - self.segments_len
    }

    /// All packets.
    #[inline]
    pub fn packets(&self) -> &[Packet] {
        self.packets.get(..self.len).unwrap_or_default()
    }

    /// All packets, to be changed.
    #[inline]
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        self.packets.get_mut(..self.len).unwrap_or_default()
    }

    /// One packet.
    #[inline]
    pub fn packet(&self, index: usize) -> Option<&Packet> {
        self.packets().get(index)
    }

    /// One packet, to be changed.
    #[inline]
    pub fn packet_mut(&mut self, index: usize) -> Option<&mut Packet> {
        self.packets_mut().get_mut(index)
    }

    /// The payload of packet `index`: what of its frame follows the header copy as fetched.
    #[inline]
    pub fn payload(&self, index: usize) -> &[Segment<'_>] {
        let range = self.packet(index).map(segment_range).unwrap_or_default();
        live(&self.segments, self.segments_len, range)
    }

    /// Packets with their payloads, from `first` on.
    #[inline]
    pub fn frames_from(&self, first: usize) -> impl Iterator<Item = (&Packet, &[Segment<'_>])> {
        let packets = self.packets().get(first..).unwrap_or_default();
        packets
            .iter()
            .map(|packet| (packet, live(&self.segments, self.segments_len, segment_range(packet))))
    }

    /// One packet, to be changed, and its payload.
    #[inline]
    pub fn packet_and_payload(&mut self, index: usize) -> Option<(&mut Packet, &[Segment<'_>])> {
        let packet = self.packets.get_mut(..self.len)?.get_mut(index)?;
        let payload = live(&self.segments, self.segments_len, segment_range(packet));
        Some((packet, payload))
    }

    /// Forgets all packets and lets go of the memory of their payloads. Buffers that were lent and not
    /// taken back would be lost.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.segments_len = 0;
        self.mappings.clear();
        self.buffers.clear();
    }

    /// Lends the burst the buffer that its last packet, as many as there are buffers then, lies in. A
    /// source lends all of its packets' or none.
    #[inline]
    pub fn lend(&mut self, buffer: Buffer) {
        debug_assert_eq!(self.buffers.len() + 1, self.len, "one for each packet");
        self.buffers.push(Cell::new(Some(buffer)));
    }

    /// Takes the buffer that packet `index` lies in, if it lies in one that was not taken before. Its
    /// payload stays as it is as long as the taker leaves that be; what is asked for later must not
    /// depend on it.
    #[inline]
    pub fn take_buffer(&self, index: usize) -> Option<Buffer> {
        self.buffers.get(index)?.take()
    }

    /// Appends the packet of a frame that lies in one piece in `mapping`: the start of it is copied,
    /// the rest is its payload.
    ///
    /// # Errors
    /// When the burst has no room; nothing is changed.
    ///
    /// # Safety
    /// `frame_len` bytes at `frame` stay mapped and readable as long as `mapping` is held.
    #[inline]
    pub unsafe fn push_contiguous(
        &mut self,
        frame: *const u8,
        frame_len: u32,
        mapping: &Mapping,
    ) -> Result<(), BurstFull> {
        let packet = self.packets.get_mut(self.len).ok_or(BurstFull)?;
        let header = packet.header.reset(frame_len as usize);
        let copied = header.len() as u32;
        packet.frame_len = frame_len;
        packet.segments_first = self.segments_len as u32;
        packet.segments_count = 0;
        // SAFETY: `reset` gives no more than the `frame_len` bytes that the caller vouches for.
        unsafe { copy::copy_in(frame, header) };
        if copied < frame_len {
            let slot = self.segments.get_mut(self.segments_len).ok_or(BurstFull)?;
            // SAFETY: the rest of the same bytes. The mapping outlives the segment, see
            // `PacketWriter::push_segment`: it is held before the segment can be seen.
            *slot = unsafe {
                Segment::from_raw(frame.wrapping_add(copied as usize), frame_len - copied)
            };
            packet.segments_count = 1;
            self.segments_len += 1;
            self.hold(mapping);
        }
        self.len += 1;
        Ok(())
    }

    /// Keeps `mapping` until the burst is cleared.
    #[inline]
    fn hold(&mut self, mapping: &Mapping) {
        if !self.mappings.last().is_some_and(|held| Arc::ptr_eq(held, mapping)) {
            // At most one entry per packet, and as many were allocated: this never grows.
            self.mappings.push(Arc::clone(mapping));
        }
    }

    /// Starts a packet whose segments will lie in `mapping`; `None` when the burst is full.
    /// Nothing is added until [`PacketWriter::commit`].
    #[inline]
    pub fn begin<'a>(&'a mut self, mapping: &'a Mapping) -> Option<PacketWriter<'a>> {
        if self.room() == 0 {
            return None;
        }
        let segments_len = self.segments_len;
        Some(PacketWriter { burst: self, mapping, segments_len })
    }
}

#[inline]
fn segment_range(packet: &Packet) -> std::ops::Range<usize> {
    let first = packet.segments_first as usize;
    first..first + packet.segments_count as usize
}

/// Only what is below `segments_len` is mapped: a packet moved here from elsewhere may name more.
#[inline]
fn live<'a>(
    segments: &'a [Segment<'static>],
    segments_len: usize,
    range: std::ops::Range<usize>,
) -> &'a [Segment<'a>] {
    segments.get(..segments_len).and_then(|live| live.get(range)).unwrap_or_default()
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Burst({} packets, {} segments)", self.len, self.segments_len)
    }
}

/// A packet being added to a burst. Dropped without [`commit`](Self::commit), it leaves no trace.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    burst: &'a mut Burst,
    mapping: &'a Mapping,
    segments_len: usize,
}

/// The burst has no room for another packet or segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstFull;

impl PacketWriter<'_> {
    /// The header, to be filled.
    #[inline]
    pub fn header(&mut self) -> &mut HeaderBuf {
        // `begin` checked that there is room, so the slot exists; a scratch header would only be
        // another branch to get wrong.
        let last = self.burst.packets.len() - 1;
        let slot = self.burst.len.min(last);
        #[expect(clippy::indexing_slicing, reason = "slot <= last < packets.len(), just above")]
        &mut self.burst.packets[slot].header
    }

    /// Adds a piece of payload.
    ///
    /// # Errors
    /// When the burst has no room for another segment.
    ///
    /// # Safety
    /// The bytes stay mapped and readable as long as the mapping given to [`Burst::begin`] is held.
    #[inline]
    pub unsafe fn push_segment(&mut self, address: *const u8, len: u32) -> Result<(), BurstFull> {
        let slot = self.burst.segments.get_mut(self.segments_len).ok_or(BurstFull)?;
        // SAFETY: the mapping outlives the segment: `commit` makes the burst hold it before the
        // segment can be seen, and `Burst::payload` hands segments out with the lifetime of a
        // borrow of the burst, which `clear` (the only place that lets mappings go, needing
        // `&mut`) cannot overlap.
        *slot = unsafe { Segment::from_raw(address, len) };
        self.segments_len += 1;
        Ok(())
    }

    /// Adds the packet: header and segments as they are now.
    #[inline]
    pub fn commit(mut self) {
        let first = self.burst.segments_len;
        let payload = self.burst.segments.get(first..self.segments_len).unwrap_or_default();
        let payload_len = payload_len(payload);
        let frame_len = self.header().len() + payload_len;
        let Self { burst, mapping, segments_len } = self;
        if segments_len > first {
            burst.hold(mapping);
        }
        if let Some(packet) = burst.packets.get_mut(burst.len) {
            packet.frame_len = u32::try_from(frame_len).unwrap_or(u32::MAX);
            packet.segments_first = first as u32;
            packet.segments_count = (segments_len - first) as u32;
            burst.segments_len = segments_len;
            burst.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_PACKET_SEGMENTS;

    fn mapping(bytes: Vec<u8>) -> (Mapping, *const u8) {
        let bytes = Arc::new(bytes);
        let address = bytes.as_ptr();
        (bytes, address)
    }

    #[test]
    fn packets_keep_their_payload_and_its_memory_until_cleared() {
        let (memory, address) = mapping(b"payload".to_vec());
        let mut burst = Burst::new();
        for header in [b"first!".as_slice(), b"second"] {
            let mut writer = burst.begin(&memory).unwrap();
            writer.header().reset(6).copy_from_slice(header);
            // SAFETY: both ranges lie in the vector that `memory` holds.
            unsafe { writer.push_segment(address, 3) }.unwrap();
            // SAFETY: as above.
            unsafe { writer.push_segment(address.wrapping_add(3), 4) }.unwrap();
            writer.commit();
        }
        assert_eq!(Arc::strong_count(&memory), 2, "held once for both packets");
        let (packet, payload) = burst.packet_and_payload(1).unwrap();
        assert_eq!((packet.header.bytes(), packet.frame_len), (b"second".as_slice(), 13));
        let mut bytes = [0; 4];
        assert_eq!(payload[1].copy_to(&mut bytes), 4);
        assert_eq!(&bytes, b"load");
        burst.clear();
        assert!(burst.is_empty() && burst.payload(0).is_empty());
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn a_packet_moved_from_another_burst_reaches_no_stale_segment() {
        let (memory, address) = mapping(vec![0; 8]);
        let mut bursts = [Burst::new(), Burst::new()];
        for burst in &mut bursts {
            let mut writer = burst.begin(&memory).unwrap();
            // SAFETY: inside the vector that `memory` holds.
            unsafe { writer.push_segment(address, 8) }.unwrap();
            writer.commit();
        }
        let [one, other] = &mut bursts;
        let moved = one.packet(0).unwrap().clone();
        other.clear();
        other.begin(&memory).unwrap().commit();
        *other.packet_mut(0).unwrap() = moved;
        assert!(other.payload(0).is_empty());
    }

    #[test]
    fn an_abandoned_packet_leaves_no_trace() {
        let (memory, address) = mapping(vec![0; 8]);
        let mut burst = Burst::new();
        {
            let mut abandoned = burst.begin(&memory).unwrap();
            // SAFETY: inside the vector that `memory` holds.
            unsafe { abandoned.push_segment(address, 8) }.unwrap();
        }
        assert_eq!((burst.len(), burst.segments_room()), (0, BURST_SEGMENTS));
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn a_full_burst_takes_no_more() {
        let (memory, address) = mapping(vec![0; 8]);
        let mut burst = Burst::new();
        for _ in 0..BURST_PACKETS {
            assert!(burst.segments_room() >= MAX_PACKET_SEGMENTS);
            burst.begin(&memory).unwrap().commit();
        }
        assert!(burst.begin(&memory).is_none());
        burst.clear();
        let mut writer = burst.begin(&memory).unwrap();
        for _ in 0..BURST_SEGMENTS {
            // SAFETY: inside the vector that `memory` holds.
            unsafe { writer.push_segment(address, 8) }.unwrap();
        }
        // SAFETY: as above.
        assert_eq!(unsafe { writer.push_segment(address, 8) }, Err(BurstFull));
    }

    #[test]
    fn a_lent_buffer_is_taken_once() {
        let (memory, address) = mapping(vec![0; 8]);
        let mbuf = std::ptr::NonNull::new(address.cast_mut()).unwrap().cast();
        let mut burst = Burst::new();
        burst.begin(&memory).unwrap().commit();
        assert!(burst.take_buffer(0).is_none(), "none was lent");
        // SAFETY: nobody takes it for an mbuf.
        burst.lend(unsafe { Buffer::from_raw(mbuf) });
        assert_eq!(burst.take_buffer(1), None);
        assert_eq!(burst.take_buffer(0).map(Buffer::into_raw), Some(mbuf));
        assert_eq!(burst.take_buffer(0), None);
        burst.clear();
        burst.begin(&memory).unwrap().commit();
        assert_eq!(burst.take_buffer(0), None);
    }

    #[test]
    fn an_owned_frame_becomes_a_packet_and_its_rest() {
        let frame: Vec<u8> = (0..=255).collect();
        let mut packet = Packet::new();
        let payload = packet.fill_from_frame(&frame);
        assert_eq!(packet.frame_len, 256);
        assert_eq!(packet.header.len() + payload.len(), 256);
        let mut first = [0];
        payload.copy_to(&mut first);
        assert_eq!(usize::from(first[0]), packet.header.len());
    }
}
