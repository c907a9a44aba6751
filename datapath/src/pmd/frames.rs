//! What an action list works on: a burst out of a ring, or one frame back from the slow path.

use tollgate_frame::{Buffer, Burst, Packet, Segment, payload_len};
use tollgate_packet::PortIndex;
use tollgate_packet::parse::parse_into;

/// Packets whose headers can be edited and whose payloads can be delivered.
pub(crate) trait Frames {
    fn packet(&self, at: usize) -> Option<&Packet>;
    fn packet_mut(&mut self, at: usize) -> Option<&mut Packet>;
    fn payload(&self, at: usize) -> &[Segment<'_>];
    /// The buffer that a packet lies in, if it can change hands: its payload is not asked for again.
    fn take_buffer(&self, at: usize) -> Option<Buffer>;
}

/// Fills in key and layout from the header copy.
#[inline]
pub(crate) fn parse_packet(packet: &mut Packet, in_port: PortIndex) {
    let Packet { header, key, layout, frame_len, .. } = packet;
    parse_into(header.bytes(), *frame_len, in_port, key, layout);
}

impl Frames for Burst {
    #[inline]
    fn packet(&self, at: usize) -> Option<&Packet> {
        self.packet(at)
    }

    #[inline]
    fn packet_mut(&mut self, at: usize) -> Option<&mut Packet> {
        self.packet_mut(at)
    }

    #[inline]
    fn payload(&self, at: usize) -> &[Segment<'_>] {
        self.payload(at)
    }

    #[inline]
    fn take_buffer(&self, at: usize) -> Option<Buffer> {
        self.take_buffer(at)
    }
}

/// Puts a frame together; what does not fit is left out. Returns its length.
pub(crate) fn copy_frame(header: &[u8], payload: &[Segment<'_>], to: &mut [u8]) -> usize {
    let total = (header.len() + payload_len(payload)).min(to.len());
    let (head, mut rest) = to.split_at_mut(header.len().min(total));
    head.iter_mut().zip(header).for_each(|(to, from)| *to = *from);
    for segment in payload {
        let copied = segment.copy_to(rest);
        rest = rest.get_mut(copied..).unwrap_or_default();
    }
    total
}

/// One frame whose bytes the switch owns.
#[derive(Debug)]
pub(crate) struct OwnedFrame<'a> {
    packet: &'a mut Packet,
    payload: [Segment<'a>; 1],
}

impl<'a> OwnedFrame<'a> {
    /// `frame`, with `packet` as the place for its header.
    pub(crate) fn new(packet: &'a mut Packet, frame: &'a [u8]) -> Self {
        let payload = [packet.fill_from_frame(frame)];
        Self { packet, payload }
    }

    /// One that was taken apart before: a header, maybe edited, and its payload.
    pub(crate) fn as_left(packet: &'a mut Packet, payload: &'a [u8]) -> Self {
        Self { packet, payload: [Segment::from_slice(payload)] }
    }

    /// The same, ready for edits.
    pub(crate) fn parsed(packet: &'a mut Packet, frame: &'a [u8], in_port: PortIndex) -> Self {
        let owned = Self::new(packet, frame);
        parse_packet(owned.packet, in_port);
        owned
    }
}

impl Frames for OwnedFrame<'_> {
    fn packet(&self, at: usize) -> Option<&Packet> {
        (at == 0).then_some(&*self.packet)
    }

    fn packet_mut(&mut self, at: usize) -> Option<&mut Packet> {
        (at == 0).then_some(&mut *self.packet)
    }

    fn payload(&self, at: usize) -> &[Segment<'_>] {
        if at == 0 { &self.payload } else { &[] }
    }

    fn take_buffer(&self, _at: usize) -> Option<Buffer> {
        None
    }
}
