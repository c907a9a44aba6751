//! The data side: frames from one port's transmit rings to the other's receive rings.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::backend::{Device, Ring};
use super::{Behaviour, Counters, Fault, bits};

/// Frames taken from a ring in one go.
const BURST: usize = 32;

pub(crate) struct Wire {
    devices: [Arc<Mutex<Device>>; 2],
    counters: Arc<Counters>,
    behaviour: Behaviour,
    frames: u64,
    /// The frame that [`Fault::Swap`] holds back, and the port it goes to.
    held: Option<(usize, Vec<u8>)>,
    last: Vec<u8>,
    /// Frames by port and pair that wait for receive buffers: nothing is lost for want of them.
    waiting: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
}

impl Wire {
    pub(crate) fn new(
        devices: [Arc<Mutex<Device>>; 2],
        counters: Arc<Counters>,
        behaviour: Behaviour,
    ) -> Self {
        Self {
            devices,
            counters,
            behaviour,
            frames: 0,
            held: None,
            last: Vec::new(),
            waiting: HashMap::new(),
        }
    }

    pub(crate) fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let mut moved = 0;
            for from in 0..2 {
                for pair in 0..self.behaviour.queue_pairs as usize {
                    let frames =
                        if self.waiting.is_empty() { self.take(from, pair) } else { Vec::new() };
                    moved += frames.len();
                    self.forward(from, pair, frames);
                }
            }
            if moved == 0 {
                // The control threads need the locks, and one CPU must be enough for all.
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }

    fn take(&self, port: usize, pair: usize) -> Vec<Vec<u8>> {
        let mut device = self.devices[port].lock().unwrap();
        let Some((header, queue, ring, memory)) = running(&mut device, 2 * pair + 1) else {
            return Vec::new();
        };
        if self.behaviour.kicked {
            if ring.kick.as_ref().is_none_or(|kick| kick.read().is_err()) {
                return Vec::new();
            }
            Counters::add(&self.counters.kicks, 1);
        } else {
            queue.disable_notification(&memory).unwrap();
        }
        let mut frames = Vec::new();
        loop {
            frames.extend(self.take_burst(queue, &memory, header));
            // A kicked device must look again after it has asked for the next kick.
            if !self.behaviour.kicked || !queue.enable_notification(&memory).unwrap() {
                break;
            }
        }
        self.call(queue, &ring, &memory);
        frames
    }

    fn take_burst(
        &self,
        queue: &mut Queue,
        memory: &GuestMemoryMmap,
        header: usize,
    ) -> Vec<Vec<u8>> {
        let (mut frames, mut heads) = (Vec::new(), Vec::new());
        while heads.len() < BURST
            && let Some(chain) = queue.pop_descriptor_chain(memory)
        {
            let head = chain.head_index();
            let indirect = {
                let at = GuestAddress(queue.desc_table() + u64::from(head) * 16 + 12);
                memory.read_obj::<u16>(at).unwrap() & 4 != 0
            };
            let mut bytes = Vec::new();
            let mut descriptors = 0;
            for descriptor in chain {
                assert!(!descriptor.is_write_only(), "transmit buffers are for reading");
                let start = bytes.len();
                bytes.resize(start + descriptor.len() as usize, 0);
                memory.read_slice(&mut bytes[start..], descriptor.addr()).unwrap();
                descriptors += 1;
            }
            assert!(bytes[..header].iter().all(|byte| *byte == 0), "no offload was negotiated");
            frames.push(bytes.split_off(header));
            heads.push(head);
            Counters::add(&self.counters.chains, 1);
            Counters::add(&self.counters.chain_descriptors, descriptors);
            Counters::add(&self.counters.indirect_chains, u64::from(indirect));
        }
        if self.behaviour.reverse_used {
            heads.reverse();
        }
        for head in heads {
            queue.add_used(memory, head, 0).unwrap();
        }
        frames
    }

    /// Interrupts the guest if it asked for it.
    fn call(&self, queue: &mut Queue, ring: &RingEvents<'_>, memory: &GuestMemoryMmap) {
        // virtio-queue does not look at this flag.
        let flags: u16 = memory.read_obj(GuestAddress(queue.avail_ring())).unwrap();
        let quiet = !queue.event_idx_enabled() && flags & 1 != 0;
        if queue.needs_notification(memory).unwrap()
            && !quiet
            && let Some(call) = ring.call
        {
            Counters::add(&self.counters.calls, 1);
            call.write(1).unwrap();
        }
    }

    /// Applies faults and delivers.
    fn forward(&mut self, from: usize, pair: usize, frames: Vec<Vec<u8>>) {
        let mut out: [Vec<Vec<u8>>; 2] = Default::default();
        let to = 1 - from;
        for mut frame in frames {
            self.frames += 1;
            if self.behaviour.check_frames && !is_valid_udp(&frame) {
                Counters::add(&self.counters.invalid_frames, 1);
            }
            let faulty = self.behaviour.fault != Fault::None
                && self.frames.is_multiple_of(self.behaviour.fault_every);
            let copy = frame.clone();
            let mut target = to;
            if faulty {
                Counters::add(&self.counters.faults, 1);
                match self.behaviour.fault {
                    Fault::None | Fault::BadHeader => {}
                    Fault::Drop => continue,
                    Fault::Duplicate => out[to].push(frame.clone()),
                    Fault::Corrupt => *frame.last_mut().unwrap() ^= 1,
                    Fault::Truncate => drop(frame.pop()),
                    Fault::StalePayload => frame = with_payload_of(&frame, &self.last),
                    Fault::Swap => {
                        self.held = Some((to, frame));
                        continue;
                    }
                    Fault::Misdeliver => target = from,
                    Fault::Mark => mark_congestion(&mut frame),
                }
            }
            self.last = copy;
            out[target].push(frame);
            if let Some((port, _)) = self.held
                && port == to
            {
                out[to].extend(self.held.take().map(|(_, frame)| frame));
            }
        }
        for (port, frames) in out.into_iter().enumerate() {
            let mut frames: VecDeque<Vec<u8>> = frames.into();
            if let Some(mut waiting) = self.waiting.remove(&(port, pair)) {
                waiting.append(&mut frames);
                frames = waiting;
            }
            self.deliver(port, pair, &mut frames);
            if !frames.is_empty() {
                self.waiting.insert((port, pair), frames);
            }
        }
    }

    /// Delivers what there are buffers for; what cannot be delivered at all is dropped.
    fn deliver(&self, port: usize, pair: usize, frames: &mut VecDeque<Vec<u8>>) {
        if frames.is_empty() {
            return;
        }
        let mut device = self.devices[port].lock().unwrap();
        let mergeable = device.features & bits::MRG_RXBUF != 0;
        // A guest with fewer queue pairs gets everything on its first.
        let pair = if device.rings[2 * pair].started { pair } else { 0 };
        let Some((header, queue, ring, memory)) = running(&mut device, 2 * pair) else {
            Counters::add(&self.counters.no_ring, frames.len() as u64);
            frames.clear();
            return;
        };
        while let Some(frame) = frames.front() {
            let mut bytes = vec![0; header];
            if self.behaviour.fault == Fault::BadHeader {
                bytes[0] = 1;
            }
            bytes.extend_from_slice(frame);
            if !place(queue, &memory, bytes, header, mergeable) {
                break;
            }
            Counters::add(&self.counters.forwarded, 1);
            frames.pop_front();
        }
        self.call(queue, &ring, &memory);
    }
}

/// A ring's event files.
pub(crate) struct RingEvents<'r> {
    kick: Option<&'r vmm_sys_util::eventfd::EventFd>,
    call: Option<&'r vmm_sys_util::eventfd::EventFd>,
}

/// A ring that may be touched, with the header length and the memory to do it in.
fn running<'d>(
    device: &'d mut MutexGuard<'_, Device>,
    index: usize,
) -> Option<(usize, &'d mut Queue, RingEvents<'d>, GuestMemoryMmap)> {
    let modern = device.features & (bits::VERSION_1 | bits::MRG_RXBUF) != 0;
    let memory = device.memory.clone()?;
    let Ring { queue, kick, call, enabled, started } = device.rings.get_mut(index)?;
    if !*enabled || !*started {
        return None;
    }
    let events = RingEvents { kick: kick.as_ref(), call: call.as_ref() };
    Some((if modern { 12 } else { 10 }, queue.as_mut()?, events, memory))
}

/// Puts header and frame into as many buffers as needed; false (and nothing used) when they do not
/// suffice.
fn place(
    queue: &mut Queue,
    memory: &GuestMemoryMmap,
    mut bytes: Vec<u8>,
    header: usize,
    mergeable: bool,
) -> bool {
    let mut heads: Vec<(u16, u32)> = Vec::new();
    let mut cuts: Vec<(GuestAddress, usize, usize)> = Vec::new();
    let mut placed = 0;
    let before = queue.next_avail();
    while placed < bytes.len() {
        let fits = mergeable || heads.is_empty();
        let Some(chain) = fits.then(|| queue.pop_descriptor_chain(memory)).flatten() else {
            queue.set_next_avail(before);
            return false;
        };
        let head = chain.head_index();
        let start = placed;
        for descriptor in chain {
            assert!(descriptor.is_write_only(), "receive buffers are for writing");
            let part = (descriptor.len() as usize).min(bytes.len() - placed);
            cuts.push((descriptor.addr(), placed, part));
            placed += part;
        }
        heads.push((head, (placed - start) as u32));
    }
    if header == 12 {
        bytes[10..12].copy_from_slice(&(heads.len() as u16).to_le_bytes());
    }
    for (address, at, part) in cuts {
        memory.write_slice(&bytes[at..at + part], address).unwrap();
    }
    // The buffers of one frame must become visible together, which add_used alone does not do; the
    // driver has to cope with frames that are half there.
    for (head, length) in heads {
        queue.add_used(memory, head, length).unwrap();
    }
    true
}

/// ECN's CE in an ECN-capable IPv4 frame without tags, with a checksum that fits.
fn mark_congestion(frame: &mut [u8]) {
    if !matches!(frame[15] & 3, 1 | 2) {
        return;
    }
    let (mut ip, _) = etherparse::Ipv4Header::from_slice(&frame[14..]).unwrap();
    ip.ecn = etherparse::IpEcn::CongestionExperienced;
    ip.header_checksum = ip.calc_header_checksum();
    frame[14..34].copy_from_slice(&ip.to_bytes());
}

/// `frame` with the UDP payload behind the stamp of `other`, and a UDP checksum that fits.
fn with_payload_of(frame: &[u8], other: &[u8]) -> Vec<u8> {
    const PATTERN: usize = 14 + 20 + 8 + 16;
    let mut mixed = frame.to_vec();
    if other.len() != frame.len() {
        return mixed;
    }
    mixed[PATTERN..].copy_from_slice(&other[PATTERN..]);
    let checksum = {
        let parsed = etherparse::SlicedPacket::from_ethernet(&mixed).unwrap();
        let Some(etherparse::NetSlice::Ipv4(ip)) = &parsed.net else { panic!("not IPv4") };
        let (source, destination) = (ip.header().source(), ip.header().destination());
        let Some(etherparse::TransportSlice::Udp(udp)) = &parsed.transport else {
            panic!("not UDP")
        };
        udp.to_header().calc_checksum_ipv4_raw(source, destination, udp.payload()).unwrap()
    };
    mixed[40..42].copy_from_slice(&checksum.to_be_bytes());
    mixed
}

/// Whether `frame` is UDP over IPv4 with lengths and checksums that are right.
fn is_valid_udp(frame: &[u8]) -> bool {
    let Ok(parsed) = etherparse::SlicedPacket::from_ethernet(frame) else { return false };
    let Some(etherparse::NetSlice::Ipv4(ip)) = &parsed.net else { return false };
    let Some(etherparse::TransportSlice::Udp(udp)) = &parsed.transport else { return false };
    let header = ip.header().to_header();
    let checksum = udp.to_header().calc_checksum_ipv4(&header, udp.payload());
    header.header_checksum == header.calc_header_checksum()
        && checksum == Ok(udp.checksum())
        && usize::from(header.total_len) + if frame[12] == 0x81 { 18 } else { 14 } == frame.len()
        && usize::from(udp.length()) == udp.payload().len() + 8
}
