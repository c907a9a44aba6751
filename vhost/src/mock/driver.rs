//! A driver's side of a split ring.

use std::sync::atomic::Ordering;

use vm_memory::{Bytes, GuestAddress};

use super::Ram;
use crate::shared::RingAddresses;

const WRITE: u16 = 2;

/// Where a ring lies, in guest physical addresses.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The descriptor table.
    pub descriptors: u64,
    /// The avail ring.
    pub avail: u64,
    /// The used ring.
    pub used: u64,
    /// Buffers for [`Driver::transmit`] and [`Driver::post`]: `buffer_bytes` for each descriptor.
    pub buffers: u64,
    /// Bytes of each buffer.
    pub buffer_bytes: u32,
}

impl Layout {
    /// A ring of `size` entries and its buffers in a row from `start` (a multiple of 16).
    pub fn packed_at(start: u64, size: u16, buffer_bytes: u32) -> Self {
        let entries = u64::from(size);
        let avail = start + 16 * entries;
        let used = (avail + 6 + 2 * entries).next_multiple_of(4);
        let buffers = (used + 6 + 8 * entries).next_multiple_of(4096);
        Self { descriptors: start, avail, used, buffers, buffer_bytes }
    }

    /// The first byte behind it.
    pub fn end(&self, size: u16) -> u64 {
        self.buffers + u64::from(size) * u64::from(self.buffer_bytes)
    }
}

/// A descriptor as the driver writes it (virtio 1.2, 2.7.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Guest physical address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// NEXT = 1, WRITE = 2, INDIRECT = 4.
    pub flags: u16,
    /// The next descriptor, with NEXT.
    pub next: u16,
}

impl Descriptor {
    /// In the layout of the ring.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }
}

/// A driver that fills the ring as told.
#[derive(Clone, Debug)]
pub struct Driver {
    ram: Ram,
    layout: Layout,
    size: u16,
    base: u16,
    avail: u16,
    used_seen: u16,
    next_slot: u16,
}

impl Driver {
    /// An empty ring whose indexes start at `base`.
    pub fn new(ram: &Ram, layout: Layout, size: u16, base: u16) -> Self {
        let driver = Self {
            ram: ram.clone(),
            layout,
            size,
            base,
            avail: base,
            used_seen: base,
            next_slot: 0,
        };
        driver.store_u16(layout.avail, 0);
        driver.store_u16(layout.avail + 2, base);
        driver.store_u16(layout.used + 2, base);
        driver
    }

    /// A ring alone in one region of 1 MiB at guest address 0x10000, with buffers of 2 KiB.
    pub fn alone(size: u16) -> (Ram, Self) {
        let ram = Ram::new(&[(0x10000, 1 << 20)]);
        let driver = Self::new(&ram, Layout::packed_at(0x10000, size, 2048), size, 0);
        (ram, driver)
    }

    /// Entries in the ring.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Where the ring lies.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory that it lies in.
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    pub(crate) fn base(&self) -> u16 {
        self.base
    }

    pub(crate) fn addresses(&self) -> RingAddresses {
        RingAddresses {
            descriptors: self.ram.user_address(self.layout.descriptors),
            avail: self.ram.user_address(self.layout.avail),
            used: self.ram.user_address(self.layout.used),
        }
    }

    /// Writes descriptor `index`.
    pub fn describe(&self, index: u16, descriptor: Descriptor) {
        let address = self.layout.descriptors + 16 * u64::from(index);
        self.ram.write(address, &descriptor.to_bytes());
    }

    /// Makes the chain at `head` available.
    pub fn offer(&mut self, head: u16) {
        self.offer_later(head);
        self.publish();
    }

    /// As [`offer`](Self::offer), but the index moves only with [`publish`](Self::publish).
    pub fn offer_later(&mut self, head: u16) {
        let entry = u64::from(self.avail % self.size);
        self.store_u16(self.layout.avail + 4 + 2 * entry, head);
        self.avail = self.avail.wrapping_add(1);
    }

    /// Publishes the avail index.
    pub fn publish(&self) {
        self.set_avail_index(self.avail);
    }

    /// Writes any avail index.
    pub fn set_avail_index(&self, index: u16) {
        self.store_u16(self.layout.avail + 2, index);
    }

    /// Sets the flags that ask for no interrupts (1) or for them (0).
    pub fn set_avail_flags(&self, flags: u16) {
        self.store_u16(self.layout.avail, flags);
    }

    /// Asks for an interrupt after used entry `event`, with EVENT_IDX.
    pub fn set_used_event(&self, event: u16) {
        self.store_u16(self.layout.avail + 4 + 2 * u64::from(self.size), event);
    }

    /// The device's flags: whether it wants no kicks.
    pub fn used_flags(&self) -> u16 {
        self.load_u16(self.layout.used)
    }

    /// The avail index after which the device wants a kick, with EVENT_IDX.
    pub fn avail_event(&self) -> u16 {
        self.load_u16(self.layout.used + 4 + 8 * u64::from(self.size))
    }

    /// The device's index.
    pub fn used_index(&self) -> u16 {
        self.load_u16(self.layout.used + 2)
    }

    /// The used entry at a position: head and bytes written.
    pub fn used_entry(&self, position: u16) -> (u32, u32) {
        let address = self.layout.used + 4 + 8 * u64::from(position % self.size);
        let bytes = self.ram.read(address, 8);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        (word(0), word(4))
    }

    /// The used entries published since the last call.
    pub fn take_used(&mut self) -> Vec<(u32, u32)> {
        let mut entries = Vec::new();
        let until = self.used_index();
        while self.used_seen != until {
            entries.push(self.used_entry(self.used_seen));
            self.used_seen = self.used_seen.wrapping_add(1);
        }
        entries
    }

    /// Where the buffer of descriptor `index` is.
    pub fn buffer(&self, index: u16) -> u64 {
        self.layout.buffers + u64::from(index) * u64::from(self.layout.buffer_bytes)
    }

    /// Sends `frame` behind a virtio-net header of `header_bytes` zeros, in one buffer.
    pub fn transmit(&mut self, header_bytes: usize, frame: &[u8]) {
        let slot = self.take_slot();
        let address = self.buffer(slot);
        let mut bytes = vec![0; header_bytes];
        bytes.extend_from_slice(frame);
        self.ram.write(address, &bytes);
        let len = bytes.len() as u32;
        self.describe(slot, Descriptor { address, len, flags: 0, next: 0 });
        self.offer(slot);
    }

    /// Posts a receive buffer of `len` bytes.
    pub fn post(&mut self, len: u32) {
        let slot = self.take_slot();
        let descriptor = Descriptor { address: self.buffer(slot), len, flags: WRITE, next: 0 };
        self.describe(slot, descriptor);
        self.offer(slot);
    }

    /// What the buffers posted by [`post`](Self::post) and used since the last call hold, without
    /// the virtio-net header of `header_bytes`; several buffers merge as the header says.
    pub fn receive(&mut self, header_bytes: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut used = self.take_used().into_iter();
        while let Some((head, written)) = used.next() {
            let mut bytes = self.ram.read(self.buffer(head as u16), written as usize);
            let buffers = match header_bytes {
                12 => u16::from_le_bytes([bytes[10], bytes[11]]),
                _ => 1,
            };
            for _ in 1..buffers {
                let (head, written) = used.next().expect("num_buffers within the used entries");
                bytes.extend(self.ram.read(self.buffer(head as u16), written as usize));
            }
            frames.push(bytes.split_off(header_bytes));
        }
        frames
    }

    fn take_slot(&mut self) -> u16 {
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % self.size;
        slot
    }

    fn store_u16(&self, address: u64, value: u16) {
        self.ram.memory().store(value, GuestAddress(address), Ordering::Release).unwrap();
    }

    fn load_u16(&self, address: u64) -> u16 {
        self.ram.memory().load(GuestAddress(address), Ordering::Acquire).unwrap()
    }
}
