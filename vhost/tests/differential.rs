//! The rings against the reference implementation, `virtio-queue`: on the same memory, valid or
//! hostile, both devices take the same frames, deliver the same bytes and write the same used
//! entries.
//!
//! `virtio-queue` yields descriptors and leaves it to the device what to make of them; the device
//! over it here is written from the specification, a descriptor at a time, without the fast paths,
//! staging and scratch memory of the real one.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_frame::{Burst, DropReason, Segment};
use tollgate_vhost::mock::{self, Descriptor, Driver, FROM_GUEST, Layout, Ram, TO_GUEST, frame};
use tollgate_vhost::{Features, FetchStats};
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

const SIZE: u16 = 16;
const RAM: u64 = 0x10000;
const RAM_BYTES: usize = 0x10000;
/// Where the second region begins: buffers and tables may lie across.
const SEAM: u64 = RAM + 0x8000;
/// Indirect tables, 32 entries apart.
const TABLES: u64 = RAM + 0x7f00;
const BUFFERS: u64 = RAM + 0x9000;
const HEADER: usize = 12;
const BLOCK: usize = 64;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// What a device makes of the next chain.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Frame(Vec<u8>),
    Drop,
    Quarantine,
    /// To the guest, a loop may be found or its buffers may suffice before.
    Loop,
}

/// Everything that a driver has written.
#[derive(Clone, Debug)]
struct Scene {
    descriptors: Vec<Descriptor>,
    tables: Vec<Vec<Descriptor>>,
    heads: Vec<u16>,
    features: Features,
}

impl Scene {
    fn build(&self) -> (Ram, Driver) {
        let ram =
            Ram::new(&[(RAM, (SEAM - RAM) as usize), (SEAM, RAM_BYTES - (SEAM - RAM) as usize)]);
        // Most buffers begin with what is a good virtio-net header.
        let mut content = frame(0x6000, 9);
        content.chunks_mut(BLOCK).for_each(|block| block[..HEADER].fill(0));
        ram.write(BUFFERS, &content);
        let mut driver = Driver::new(&ram, Layout::packed_at(RAM, SIZE, 64), SIZE, 0);
        for (index, descriptor) in self.descriptors.iter().enumerate() {
            driver.describe(index as u16, *descriptor);
        }
        for (table, entries) in self.tables.iter().enumerate() {
            for (index, entry) in entries.iter().enumerate() {
                let address = TABLES + 512 * table as u64 + 16 * index as u64;
                ram.write(address, &entry.to_bytes());
            }
        }
        for head in &self.heads {
            driver.offer(*head);
        }
        (ram, driver)
    }
}

/// The device over `virtio-queue`.
struct Reference {
    queue: Queue,
    memory: GuestMemoryMmap,
    features: Features,
}

impl Reference {
    fn new(ram: &Ram, driver: &Driver, features: Features) -> Self {
        let layout = driver.layout();
        let mut queue = Queue::new(SIZE).unwrap();
        queue.set_size(SIZE);
        queue.try_set_desc_table_address(GuestAddress(layout.descriptors)).unwrap();
        queue.try_set_avail_ring_address(GuestAddress(layout.avail)).unwrap();
        queue.try_set_used_ring_address(GuestAddress(layout.used)).unwrap();
        queue.set_ready(true);
        Self { queue, memory: ram.memory().clone(), features }
    }

    /// The buffers of a chain up to `enough` bytes, or what is wrong with it.
    fn buffers(
        &self,
        chain: &mut DescriptorChain<&GuestMemoryMmap>,
        to_guest: bool,
        enough: usize,
    ) -> Result<Vec<(GuestAddress, usize)>, Step> {
        let forbidden = self.forbidden_table(chain.head_index());
        let mut buffers = Vec::new();
        let mut bytes = 0;
        let mut has_next = true;
        for (position, descriptor) in chain.by_ref().enumerate() {
            if forbidden == Some(position) {
                return Err(Step::Quarantine);
            }
            match (to_guest, descriptor.is_write_only()) {
                (false, true) => return Err(Step::Drop),
                (true, false) => return Err(Step::Quarantine),
                _ => {}
            }
            let len = descriptor.len() as usize;
            if !self.memory.check_range(descriptor.addr(), len.max(1)) {
                return Err(Step::Quarantine);
            }
            buffers.push((descriptor.addr(), len));
            bytes += len;
            has_next = descriptor.has_next();
            if bytes >= enough {
                return Ok(buffers);
            }
        }
        // The library's iterator ends in silence where a chain goes wrong.
        if has_next { Err(Step::Quarantine) } else { Ok(buffers) }
    }

    /// The place in its chain of a table that the specification forbids (2.7.5.3.1) and the library
    /// accepts.
    fn forbidden_table(&self, head: u16) -> Option<usize> {
        let chain = self.walk(self.queue.desc_table(), head, SIZE);
        let position = chain.iter().position(|descriptor| descriptor.flags & INDIRECT != 0)?;
        let table = chain[position];
        let is_forbidden = !self.features.names().contains(&"indirect_desc".to_owned())
            || table.flags & NEXT != 0
            || table.len / 16 > u32::from(SIZE);
        is_forbidden.then_some(position)
    }

    /// Whether the chain at `head` returns to itself, in the ring or in a table.
    fn loops(&self, head: u16) -> bool {
        let ring = self.walk(self.queue.desc_table(), head, SIZE);
        let is_endless = |walk: &[Descriptor]| walk.len() > usize::from(SIZE);
        let table = ring.iter().find(|descriptor| descriptor.flags & INDIRECT != 0);
        is_endless(&ring)
            || table.is_some_and(|table| {
                let entries = u16::try_from(table.len / 16).unwrap_or(0).min(SIZE);
                is_endless(&self.walk(table.address, 0, entries))
            })
    }

    /// The descriptors from `index` of a table on, at most one more than it has.
    fn walk(&self, table: u64, mut index: u16, entries: u16) -> Vec<Descriptor> {
        let mut chain = Vec::new();
        while index < entries && chain.len() <= usize::from(SIZE) {
            let address = GuestAddress(table.wrapping_add(16 * u64::from(index)));
            let Ok(bytes) = self.memory.read_obj::<[u8; 16]>(address) else { break };
            let descriptor = Descriptor {
                address: u64::from_le_bytes(bytes[..8].try_into().unwrap()),
                len: u32::from_le_bytes(bytes[8..12].try_into().unwrap()),
                flags: u16::from_le_bytes([bytes[12], bytes[13]]),
                next: u16::from_le_bytes([bytes[14], bytes[15]]),
            };
            chain.push(descriptor);
            if descriptor.flags & NEXT == 0 || descriptor.flags & INDIRECT != 0 {
                break;
            }
            index = descriptor.next;
        }
        chain
    }

    fn receive(&mut self) -> Option<Step> {
        let memory = self.memory.clone();
        let mut chain = self.queue.pop_descriptor_chain(&memory)?;
        let buffers = match self.buffers(&mut chain, false, usize::MAX) {
            Err(Step::Quarantine) => return Some(Step::Quarantine),
            other => other,
        };
        self.queue.add_used(&memory, chain.head_index(), 0).unwrap();
        let Ok(buffers) = buffers else { return Some(Step::Drop) };
        let mut bytes = Vec::new();
        for (address, len) in buffers {
            let mut part = vec![0; len];
            self.memory.read_slice(&mut part, address).unwrap();
            bytes.extend(part);
        }
        let frame = bytes.get(HEADER..).unwrap_or_default().to_vec();
        if !(14..=9216).contains(&frame.len()) || bytes[0] & 1 != 0 || bytes[1] != 0 {
            return Some(Step::Drop);
        }
        Some(Step::Frame(frame))
    }

    fn deliver(&mut self, frame: &[u8]) -> Step {
        let memory = self.memory.clone();
        let wanted = HEADER + frame.len();
        let mut buffers = Vec::new();
        let mut heads = Vec::new();
        let mut bytes = 0;
        while bytes < wanted {
            let may_go_on = heads.is_empty() || self.features.names().contains(&"mrg_rxbuf".into());
            let chain = may_go_on.then(|| self.queue.pop_descriptor_chain(&memory)).flatten();
            if chain.as_ref().is_some_and(|chain| self.loops(chain.head_index())) {
                return Step::Loop;
            }
            let Some(mut chain) = chain else {
                heads.iter().for_each(|_| self.queue.go_to_previous_position());
                return Step::Drop;
            };
            let taken = match self.buffers(&mut chain, true, wanted - bytes) {
                Ok(taken) => taken,
                Err(step) => return step,
            };
            let written: usize = taken.iter().map(|(_, len)| len).sum();
            let written = written.min(wanted - bytes);
            heads.push((chain.head_index(), written as u32));
            buffers.extend(taken);
            bytes += written;
        }
        let count = (heads.len() as u16).to_le_bytes();
        let mut rest = [&[0; 10], &count[..], frame].concat();
        for (address, len) in buffers {
            let part: Vec<u8> = rest.drain(..len.min(rest.len())).collect();
            memory.write_slice(&part, address).unwrap();
        }
        for (head, written) in heads {
            self.queue.add_used(&memory, head, written).unwrap();
        }
        Step::Frame(frame.to_vec())
    }
}

fn whole_frame(burst: &Burst, index: usize) -> Vec<u8> {
    let mut bytes = burst.packet(index).unwrap().header.bytes().to_vec();
    for segment in burst.payload(index) {
        let mut part = vec![0; segment.len()];
        segment.copy_to(&mut part);
        bytes.extend(part);
    }
    bytes
}

/// The used index and all used entries, and everything behind the ring.
fn trace(ram: &Ram, driver: &Driver) -> (u16, Vec<(u32, u32)>, Vec<u8>) {
    let entries = (0..SIZE).map(|position| driver.used_entry(position)).collect();
    let rest = driver.layout().buffers;
    let bytes = ram.read(rest, RAM_BYTES - (rest - RAM) as usize);
    (driver.used_index(), entries, bytes)
}

fn check_receive(scene: &Scene, bursts: &[usize]) {
    let (reference_ram, reference_driver) = scene.build();
    let mut reference = Reference::new(&reference_ram, &reference_driver, scene.features);
    let mut expected = Vec::new();
    while let Some(step) = reference.receive() {
        expected.push(step);
        if expected.last() == Some(&Step::Quarantine) {
            break;
        }
    }

    let (ram, driver) = scene.build();
    let mut ring =
        mock::activate(&ram, &driver, FROM_GUEST, scene.features, &Arc::default()).unwrap();
    let mut burst = Burst::new();
    let mut stats = FetchStats::new();
    let mut frames = Vec::new();
    for max in bursts.iter().cycle() {
        if !ring.has_work() {
            break;
        }
        // Now and then half of a burst is given back before it is looked at.
        let fetched = ring.fetch(&mut burst, *max, &mut stats);
        let kept = if max.is_multiple_of(3) { fetched.div_ceil(2) } else { fetched };
        ring.unfetch(fetched - kept);
        frames.extend((0..kept).map(|index| whole_frame(&burst, index)));
        burst.clear();
        ring.complete();
    }
    let drops = expected.iter().filter(|step| **step == Step::Drop).count();
    let wanted: Vec<_> = expected
        .iter()
        .filter_map(|step| match step {
            Step::Frame(frame) => Some(frame.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(frames, wanted);
    assert_eq!(stats.dropped() as usize, drops);
    assert_eq!(ring.fault().is_some(), expected.last() == Some(&Step::Quarantine));
    let fault = ring.fault();
    assert_eq!(trace(&ram, &driver), trace(&reference_ram, &reference_driver), "{fault:?}");
}

fn check_deliver(scene: &Scene, lengths: &[usize], prefetch: usize) {
    let (reference_ram, reference_driver) = scene.build();
    let mut reference = Reference::new(&reference_ram, &reference_driver, scene.features);
    let (ram, driver) = scene.build();
    let mut ring =
        mock::activate(&ram, &driver, TO_GUEST, scene.features, &Arc::default()).unwrap();
    for (seed, len) in lengths.iter().enumerate() {
        let frame = frame(*len, seed as u8);
        let (header, payload) = frame.split_at(frame.len().min(150));
        let (one, two) = payload.split_at(payload.len() / 3);
        let payload = [Segment::from_slice(one), Segment::from_slice(two)];
        ring.prefetch(prefetch);
        let step = match ring.deliver(header, &payload) {
            Ok(()) => Step::Frame(frame.clone()),
            Err(DropReason::TxFault) => Step::Quarantine,
            Err(_) => Step::Drop,
        };
        ring.publish();
        let expected = reference.deliver(&frame);
        if expected == Step::Loop {
            break;
        }
        assert_eq!(step, expected);
        assert_eq!(trace(&ram, &driver), trace(&reference_ram, &reference_driver));
        if step == Step::Quarantine {
            break;
        }
    }
}

/// A buffer address: mostly good, sometimes over the seam, rarely nowhere.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        40 => (0u64..0x140).prop_map(|block| BUFFERS + BLOCK as u64 * block),
        2 => (0u64..0x5000).prop_map(|offset| BUFFERS + offset),
        4 => (0u64..64).prop_map(|offset| SEAM - 32 + offset),
        1 => Just(RAM + RAM_BYTES as u64 - 20),
        1 => any::<u64>(),
    ]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![
        2 => 0u32..20,
        20 => 26u32..400,
        4 => 400u32..5000,
        1 => any::<u32>(),
    ]
}

fn next(entries: u16) -> impl Strategy<Value = u16> {
    prop_oneof![60 => 0..entries, 1 => any::<u16>()]
}

/// A descriptor of a ring or table. `write` is the flag of the direction; now and then it is wrong.
fn descriptor(write: u16, next_weight: u32) -> impl Strategy<Value = Descriptor> {
    let chained = prop_oneof![next_weight => Just(NEXT), 10 => Just(0u16)];
    let flag = prop_oneof![60 => Just(write), 1 => Just(write ^ WRITE)];
    (address(), len(), chained, flag, next(SIZE)).prop_map(|(address, len, chained, flag, next)| {
        Descriptor { address, len, flags: chained | flag, next }
    })
}

fn reference_to_table() -> impl Strategy<Value = Descriptor> {
    let table_len = prop_oneof![
        30 => (1u32..=16).prop_map(|entries| entries * 16),
        1 => Just(0),
        1 => Just(17 * 16),
        1 => any::<u32>(),
    ];
    let flags =
        prop_oneof![30 => Just(INDIRECT), 2 => Just(INDIRECT | WRITE), 1 => Just(INDIRECT | NEXT)];
    let table =
        prop_oneof![30 => (0u64..4).prop_map(|table| TABLES + 512 * table), 1 => any::<u64>()];
    (table, table_len, flags, next(SIZE)).prop_map(|(address, len, flags, next)| Descriptor {
        address,
        len,
        flags,
        next,
    })
}

fn scene(write: u16) -> impl Strategy<Value = Scene> {
    let direct = || descriptor(write, 4).boxed();
    let any_descriptor = prop_oneof![8 => direct(), 2 => reference_to_table().boxed()];
    let entry = prop_oneof![60 => direct(), 1 => reference_to_table().boxed()];
    let head = prop_oneof![60 => 0..SIZE, 1 => any::<u16>()];
    let features = prop_oneof![
        4 => Just(Features::offered(1)),
        1 => Just(Features(1 << 32 | 1 << 28)),
        1 => Just(Features(1 << 15)),
    ];
    (
        vec(any_descriptor, usize::from(SIZE)),
        vec(vec(entry, 17), 4),
        vec(head, 0..usize::from(SIZE)),
        // EVENT_IDX only changes notifications, which `virtio-queue` does otherwise.
        features.prop_map(|features| Features(features.0 & !(1 << 29))),
    )
        .prop_map(|(descriptors, tables, heads, features)| Scene {
            descriptors,
            tables,
            heads,
            features,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_from_the_guest_are_those_of_the_reference(
        scene in scene(0),
        bursts in vec(1usize..33, 1..4),
    ) {
        check_receive(&scene, &bursts);
    }

    #[test]
    fn frames_to_the_guest_are_those_of_the_reference(
        scene in scene(WRITE),
        lengths in vec(14usize..3000, 1..12),
        prefetch in 0usize..40,
    ) {
        check_deliver(&scene, &lengths, prefetch);
    }
}
