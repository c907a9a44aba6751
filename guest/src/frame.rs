//! The frames of the generator: UDP over IPv4 with right checksums, a stamp, and a pattern that the
//! receiver knows.

use std::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::flows::{FlowFields, mix};
use crate::queue::{RxFrame, TxBuffer};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;
const ETHERNET_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const IPV4_TTL: u8 = 64;
/// Offsets in the IPv4 header, and of the ports and the UDP checksum from it on.
const IPV4_CHECKSUM: usize = 10;
const IPV4_SOURCE: usize = 12;
const IPV4_DESTINATION: usize = 16;
const UDP_PORTS: usize = IPV4_BYTES;
const UDP_LENGTH: usize = IPV4_BYTES + 4;
const UDP_CHECKSUM: usize = IPV4_BYTES + 6;
const PAYLOAD: usize = IPV4_BYTES + UDP_BYTES;
/// ECN in the second byte of the IPv4 header (RFC 3168): capable of it, and congested.
const ECN_CAPABLE: u8 = 0b10;
const ECN_CONGESTED: u16 = 0b11;
/// The stamp: two big-endian 64-bit words at the start of the payload.
const STAMP_BYTES: usize = 16;
const MAGIC: u16 = 0x5467;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One way.
    OneWay,
    /// To be answered.
    Request,
    /// The answer.
    Reply,
}

impl Kind {
    fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::OneWay),
            1 => Some(Self::Request),
            2 => Some(Self::Reply),
            _ => None,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::OneWay => 0,
            Self::Request => 1,
            Self::Reply => 2,
        }
    }
}

/// Phases are told apart modulo this: 6 bits of the stamp.
pub(crate) const PHASES: u8 = 64;

/// What each frame carries about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The pair's number in its phase.
    pub(crate) pair: u8,
    /// What it is for.
    pub(crate) kind: Kind,
    /// The phase, modulo [`PHASES`].
    pub(crate) phase: u8,
    /// Number in its pair.
    pub(crate) seq: u32,
    /// When it was to be sent, in TSC cycles.
    pub(crate) intended: u64,
}

impl Stamp {
    #[inline]
    fn first_word(self) -> u64 {
        let kind = (self.kind.bits() << 6) | (self.phase % PHASES);
        u64::from(MAGIC) << 48
            | u64::from(self.pair) << 40
            | u64::from(kind) << 32
            | u64::from(self.seq)
    }

    #[inline]
    fn from_words(first: u64, intended: u64) -> Option<Self> {
        if (first >> 48) as u16 != MAGIC {
            return None;
        }
        let kind = (first >> 32) as u8;
        Some(Self {
            pair: (first >> 40) as u8,
            kind: Kind::from_bits(kind >> 6)?,
            phase: kind % PHASES,
            seq: first as u32,
            intended,
        })
    }

    /// The stamp of a received frame, if it is one of ours: IPv4 without options, UDP, at most two
    /// VLAN tags.
    #[inline]
    pub(crate) fn of(frame: &RxFrame<'_>) -> Option<Self> {
        let l3 = udp_l3(frame)?;
        let first = u64::from_be(frame.get(l3 + PAYLOAD)?);
        let second = u64::from_be(frame.get(l3 + PAYLOAD + 8)?);
        Self::from_words(first, second)
    }
}

/// Where the IPv4 header of a UDP frame starts.
#[inline]
fn udp_l3(frame: &RxFrame<'_>) -> Option<usize> {
    let mut l3 = ETHERNET_BYTES;
    let mut ethertype = u16::from_be(frame.get(l3 - 2)?);
    while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ)
        && l3 < ETHERNET_BYTES + 2 * VLAN_BYTES
    {
        l3 += VLAN_BYTES;
        ethertype = u16::from_be(frame.get(l3 - 2)?);
    }
    let ttl_protocol = u16::from_be(frame.get(l3 + 8)?);
    if ethertype != ETHERTYPE_IPV4 || ttl_protocol as u8 != PROTOCOL_UDP {
        return None;
    }
    Some(l3)
}

/// Whether somebody on the way has marked the frame (ECN's CE).
#[inline]
pub(crate) fn is_congested(frame: &RxFrame<'_>) -> bool {
    let ecn = || Some(u16::from_be(frame.get(udp_l3(frame)?)?) & ECN_CONGESTED);
    ecn() == Some(ECN_CONGESTED)
}

/// What all frames of a pair have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSpec {
    /// Ethernet source.
    pub(crate) smac: [u8; 6],
    /// Ethernet destination.
    pub(crate) dmac: [u8; 6],
    /// VLAN id, for a tagged frame.
    pub(crate) vlan: Option<u16>,
    /// Whether they say that their sender heeds ECN.
    pub(crate) ecn: bool,
    /// Bytes on the ring, without FCS.
    pub(crate) bytes: usize,
    /// Decides the payload's pattern.
    pub(crate) pattern_seed: u64,
}

impl FrameSpec {
    /// Smallest frame that holds the stamp: 60 bytes, or 64 with a VLAN tag.
    pub(crate) fn bytes_min(vlan: bool) -> usize {
        crate::limits::FRAME_BYTES_MIN + if vlan { VLAN_BYTES } else { 0 }
    }

    fn l3(&self) -> usize {
        ETHERNET_BYTES + if self.vlan.is_some() { VLAN_BYTES } else { 0 }
    }
}

/// Frames of one pair, prepared so that a single one costs a few stores.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// A whole frame with flow fields, stamp and both checksums zero.
    bytes: Vec<u8>,
    l3: usize,
    ipv4_sum: Sum,
    udp_sum: Sum,
    /// Tells this template's frames from others' in transmit buffers.
    id: u32,
}

impl Template {
    /// Prepares the frames of `spec`; `id` (not 0) must differ from other templates' that use the
    /// same transmit queue.
    pub(crate) fn new(spec: &FrameSpec, id: u32) -> Self {
        let l3 = spec.l3();
        let ip_bytes = spec.bytes.saturating_sub(l3);
        let mut bytes = Vec::with_capacity(spec.bytes);
        bytes.extend_from_slice(&spec.dmac);
        bytes.extend_from_slice(&spec.smac);
        if let Some(vid) = spec.vlan {
            bytes.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            bytes.extend_from_slice(&vid.to_be_bytes());
        }
        bytes.extend_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        bytes.extend_from_slice(&[0x45, if spec.ecn { ECN_CAPABLE } else { 0 }]);
        bytes.extend_from_slice(&(ip_bytes as u16).to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, IPV4_TTL, PROTOCOL_UDP, 0, 0]);
        bytes.extend_from_slice(&[0; IPV4_BYTES - IPV4_SOURCE]);
        let udp_bytes = (ip_bytes.saturating_sub(IPV4_BYTES)) as u16;
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&udp_bytes.to_be_bytes());
        bytes.extend_from_slice(&[0; 2 + STAMP_BYTES]);
        let pattern = bytes.len();
        bytes.resize(spec.bytes, 0);
        fill_pattern(bytes.get_mut(pattern..).unwrap_or_default(), spec.pattern_seed);
        let part = |range: std::ops::Range<usize>| Sum::of(bytes.get(range).unwrap_or_default());
        let ipv4_sum = part(l3..l3 + IPV4_BYTES);
        let udp_sum =
            part(l3 + IPV4_BYTES..spec.bytes).add_u16(udp_bytes).add_u16(u16::from(PROTOCOL_UDP));
        Self { bytes, l3, ipv4_sum, udp_sum, id }
    }

    /// Bytes of each frame.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Offset of the line that every frame changes, for prefetching.
    pub(crate) fn stamp_offset(&self) -> usize {
        self.l3 + PAYLOAD
    }

    /// Writes a frame into a transmit buffer: all of it when the buffer held something else, the
    /// changing fields otherwise.
    #[inline]
    pub(crate) fn write(&self, buffer: &mut TxBuffer<'_>, fields: &FlowFields, stamp: Stamp) {
        if *buffer.content != self.id {
            buffer.write(0, &self.bytes);
            *buffer.content = self.id;
        }
        let (sip, dip) = (u32::from(fields.sip), u32::from(fields.dip));
        let ports = u32::from(fields.sport) << 16 | u32::from(fields.dport);
        let addresses = Sum::default().add_u32(sip).add_u32(dip);
        let first = stamp.first_word();
        let udp = self.udp_sum.add(addresses).add_u32(ports).add_u64(first).add_u64(stamp.intended);
        buffer.put(self.l3 + IPV4_CHECKSUM, self.ipv4_sum.add(addresses).finish().to_be());
        buffer.put(self.l3 + IPV4_SOURCE, sip.to_be());
        buffer.put(self.l3 + IPV4_DESTINATION, dip.to_be());
        buffer.put(self.l3 + UDP_PORTS, ports.to_be());
        buffer.put(self.l3 + UDP_CHECKSUM, udp_checksum(udp).to_be());
        buffer.put(self.l3 + PAYLOAD, first.to_be());
        buffer.put(self.l3 + PAYLOAD + 8, stamp.intended.to_be());
    }

    /// Writes a frame whose pattern is its own (see [`pattern_seed`]) into a transmit buffer,
    /// building it in `scratch`.
    pub(crate) fn write_fresh(
        &self,
        buffer: &mut TxBuffer<'_>,
        fields: &FlowFields,
        stamp: Stamp,
        scratch: &mut Vec<u8>,
    ) {
        scratch.clear();
        scratch.extend_from_slice(&self.bytes);
        let (sip, dip) = (fields.sip.octets(), fields.dip.octets());
        put(scratch, self.l3 + IPV4_SOURCE, &sip);
        put(scratch, self.l3 + IPV4_DESTINATION, &dip);
        put(scratch, self.l3 + UDP_PORTS, &fields.sport.to_be_bytes());
        put(scratch, self.l3 + UDP_PORTS + 2, &fields.dport.to_be_bytes());
        put(scratch, self.l3 + PAYLOAD, &stamp.first_word().to_be_bytes());
        put(scratch, self.l3 + PAYLOAD + 8, &stamp.intended.to_be_bytes());
        let pattern = self.l3 + PAYLOAD + STAMP_BYTES;
        fill_pattern(scratch.get_mut(pattern..).unwrap_or_default(), pattern_seed(stamp));
        let addresses = Sum::of(&sip).add(Sum::of(&dip));
        put(scratch, self.l3 + IPV4_CHECKSUM, &self.ipv4_sum.add(addresses).finish().to_be_bytes());
        set_udp_checksum(scratch, self.l3);
        buffer.write(0, scratch);
        *buffer.content = 0;
    }
}

/// The pattern of a frame that has its own: no two frames of a phase share one, so a payload that
/// was left over from an earlier frame is noticed.
pub(crate) fn pattern_seed(stamp: Stamp) -> u64 {
    u64::from(stamp.pair) << 32 | u64::from(stamp.seq)
}

/// Turns a received request into its reply: addresses and ports change places, as they came (so
/// that a switch that translates them is no obstacle), and the kind becomes a reply.
pub(crate) fn make_reply(frame: &mut [u8], stamp: Stamp) {
    let Some(l3) = l3_of(frame) else { return };
    swap(frame, 0, 6, 6);
    swap(frame, l3 + IPV4_SOURCE, l3 + IPV4_DESTINATION, 4);
    swap(frame, l3 + UDP_PORTS, l3 + UDP_PORTS + 2, 2);
    let reply = Stamp { kind: Kind::Reply, ..stamp };
    put(frame, l3 + PAYLOAD, &reply.first_word().to_be_bytes());
    set_udp_checksum(frame, l3);
}

/// A gratuitous ARP request, which teaches a learning switch where `mac` is.
pub(crate) fn announcement(mac: [u8; 6], ip: Ipv4Addr) -> [u8; 60] {
    let mut frame = [0; 60];
    put(&mut frame, 0, &[0xff; 6]);
    put(&mut frame, 6, &mac);
    put(&mut frame, 12, &ETHERTYPE_ARP.to_be_bytes());
    // Hardware Ethernet, protocol IPv4, their lengths, operation request (RFC 826).
    put(&mut frame, 14, &[0, 1, 8, 0, 6, 4, 0, 1]);
    put(&mut frame, 22, &mac);
    put(&mut frame, 28, &ip.octets());
    put(&mut frame, 38, &ip.octets());
    frame
}

/// What is wrong with a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Corruption {
    /// Not as long as it was sent, or its length fields lie.
    Length,
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum,
    /// The UDP checksum is wrong or missing.
    UdpChecksum,
    /// The payload is not the pattern.
    Pattern,
}

/// Checks a whole frame of `spec`: lengths, both checksums, and the pattern of `pattern_seed`.
/// Header fields may have been rewritten and VLAN tags pushed or popped, if checksums are right.
///
/// # Errors
/// The first thing found wrong.
pub(crate) fn verify(frame: &[u8], spec: &FrameSpec, pattern_seed: u64) -> Result<(), Corruption> {
    let l3 = l3_of(frame).ok_or(Corruption::Length)?;
    let ip_bytes = spec.bytes - spec.l3();
    let ip = frame.get(l3..).ok_or(Corruption::Length)?;
    // A frame that lost its tag may have been padded to the minimum.
    let padded = ip.len() > ip_bytes && frame.len() <= crate::limits::FRAME_BYTES_MIN;
    if word(ip, 2) != Some(ip_bytes as u16) || (ip.len() != ip_bytes && !padded) {
        return Err(Corruption::Length);
    }
    let (header, udp) = ip.split_at_checked(IPV4_BYTES).ok_or(Corruption::Length)?;
    let udp_bytes = ip_bytes - IPV4_BYTES;
    let udp = udp.get(..udp_bytes).ok_or(Corruption::Length)?;
    if word(udp, UDP_LENGTH - IPV4_BYTES) != Some(udp_bytes as u16) {
        return Err(Corruption::Length);
    }
    if Sum::of(header).finish() != 0 {
        return Err(Corruption::Ipv4Checksum);
    }
    let addresses = Sum::of(header.get(IPV4_SOURCE..).unwrap_or_default());
    let pseudo = addresses.add_u16(u16::from(PROTOCOL_UDP)).add_u16(udp_bytes as u16);
    let present = word(udp, UDP_CHECKSUM - IPV4_BYTES) != Some(0);
    if !present || Sum::of(udp).add(pseudo).finish() != 0 {
        return Err(Corruption::UdpChecksum);
    }
    let payload = udp.get(UDP_BYTES + STAMP_BYTES..).unwrap_or_default();
    if holds_pattern(payload, pattern_seed) { Ok(()) } else { Err(Corruption::Pattern) }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// Where the IPv4 header starts.
fn l3_of(frame: &[u8]) -> Option<usize> {
    let mut l3 = ETHERNET_BYTES;
    while matches!(word(frame, l3 - 2)?, ETHERTYPE_VLAN | ETHERTYPE_QINQ) {
        l3 += VLAN_BYTES;
    }
    (word(frame, l3 - 2)? == ETHERTYPE_IPV4).then_some(l3)
}

fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(target) = frame.get_mut(at..at + bytes.len()) {
        target.copy_from_slice(bytes);
    }
}

/// Exchanges `count` bytes at `first` with those at `second`, which lie behind them.
fn swap(frame: &mut [u8], first: usize, second: usize, count: usize) {
    if let Some((low, high)) = frame.split_at_mut_checked(second)
        && let (Some(low), Some(high)) = (low.get_mut(first..first + count), high.get_mut(..count))
    {
        low.swap_with_slice(high);
    }
}

/// A UDP checksum of zero would mean that there is none (RFC 768).
#[inline]
fn udp_checksum(sum: Sum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        checksum => checksum,
    }
}

fn set_udp_checksum(frame: &mut [u8], l3: usize) {
    put(frame, l3 + UDP_CHECKSUM, &[0, 0]);
    let addresses = Sum::of(frame.get(l3 + IPV4_SOURCE..l3 + IPV4_BYTES).unwrap_or_default());
    let length = word(frame, l3 + UDP_LENGTH).unwrap_or_default();
    let udp = frame.get(l3 + IPV4_BYTES..l3 + IPV4_BYTES + usize::from(length));
    let sum = Sum::of(udp.unwrap_or_default()).add(addresses);
    let checksum = udp_checksum(sum.add_u16(u16::from(PROTOCOL_UDP)).add_u16(length));
    put(frame, l3 + UDP_CHECKSUM, &checksum.to_be_bytes());
}

/// The pattern, eight bytes at a time.
fn pattern_words(seed: u64) -> impl Iterator<Item = [u8; 8]> {
    let start = mix(seed ^ 0x546f_6c6c_6761_7465);
    let word = move |index| start.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0u64..).map(move |index| word(index).to_le_bytes())
}

fn fill_pattern(payload: &mut [u8], seed: u64) {
    let mut pattern = pattern_words(seed);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for (word, expected) in words.iter_mut().zip(pattern.by_ref()) {
        *word = expected;
    }
    for (byte, expected) in rest.iter_mut().zip(pattern.next().unwrap_or_default()) {
        *byte = expected;
    }
}

fn holds_pattern(payload: &[u8], seed: u64) -> bool {
    let mut pattern = pattern_words(seed);
    let (words, rest) = payload.as_chunks::<8>();
    // No early end: frames that differ are rare, and a loop without exits is quicker.
    let differ = words.iter().zip(pattern.by_ref()).fold(0, |differ, (word, expected)| {
        differ | (u64::from_le_bytes(*word) ^ u64::from_le_bytes(expected))
    });
    let last = pattern.next().unwrap_or_default();
    differ == 0 && rest.iter().zip(last).all(|(byte, expected)| *byte == expected)
}
