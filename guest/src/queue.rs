//! Transmit and receive queues: a ring, and the buffers that go round in it.
//!
//! Each buffer is one slot of a block. The virtio-net header ends where a cache line begins, and
//! the frame starts there: a header that nobody changes stays in both caches, and a 60-byte frame
//! moves as one line.

use vmm_sys_util::eventfd::EventFd;

use crate::limits::{BURST_FRAMES, RX_BUFFERS_PER_FRAME_MAX, TX_SEGMENTS_MAX};
use crate::memory::{Block, GuestMemory};
use crate::racing::Scalar;
use crate::ring::{
    RingConfig, RingError, RingFault, RingFull, Segment, SegmentKind, SplitRing, Used,
    indirect_entries,
};
use crate::virtio::Layout;

/// A cache line, and where the frame starts in its slot.
const LINE: usize = 64;
const INDIRECT_ENTRY_BYTES: usize = 16;

/// Slots of one size in guest memory.
#[derive(Debug)]
struct Slots {
    block: Block,
    stride: usize,
    layout: Layout,
}

impl Slots {
    fn new(
        memory: &mut GuestMemory,
        count: usize,
        frame_bytes: usize,
        layout: Layout,
    ) -> Result<Self, RingError> {
        let stride = Self::stride(frame_bytes);
        Ok(Self { block: memory.allocate(count * stride, LINE)?, stride, layout })
    }

    fn stride(frame_bytes: usize) -> usize {
        LINE + frame_bytes.next_multiple_of(LINE)
    }

    /// Offset of a slot's frame.
    #[inline]
    fn frame(&self, slot: u16) -> usize {
        usize::from(slot) * self.stride + LINE
    }

    /// Header and frame of `frame_bytes` in one segment.
    #[inline]
    fn whole(&self, slot: u16, frame_bytes: usize, kind: SegmentKind) -> Segment {
        let header_bytes = self.layout.header_bytes;
        let start = self.frame(slot) - header_bytes;
        Segment {
            guest_address: self.block.guest_address() + start as u64,
            bytes: (header_bytes + frame_bytes) as u32,
            kind,
        }
    }

    /// The same in `count` segments (2 or more): the header, and the frame in equal parts.
    fn cut(
        &self,
        slot: u16,
        frame_bytes: usize,
        kind: SegmentKind,
        count: usize,
        chain: &mut Vec<Segment>,
    ) {
        let header = self.whole(slot, 0, kind);
        let frame = header.guest_address + u64::from(header.bytes);
        chain.clear();
        chain.push(header);
        let parts = count.saturating_sub(1).max(1);
        chain.extend((0..parts).map(|part| {
            let (start, end) = (frame_bytes * part / parts, frame_bytes * (part + 1) / parts);
            Segment { guest_address: frame + start as u64, bytes: (end - start) as u32, kind }
        }));
    }
}

/// What one queue counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames handed to or taken from the device.
    pub frames: u64,
    /// Their bytes, without virtio-net headers.
    pub bytes: u64,
    /// Kicks written.
    pub kicks: u64,
    /// Received frames whose header or length broke the rules (and which were not delivered).
    pub malformed: u64,
}

/// Rings the device's bell if it asked for that. A full counter means that it rang already.
#[inline]
fn kick(ring: &mut SplitRing, event: &EventFd, counters: &mut QueueCounters) {
    if ring.wants_kick() {
        counters.kicks += 1;
        let _ = event.write(1);
    }
    ring.keep_quiet();
}

/// A transmit queue.
#[derive(Debug)]
pub struct TxQueue {
    ring: SplitRing,
    slots: Slots,
    frame_bytes_max: usize,
    /// One table of [`TX_SEGMENTS_MAX`] entries per slot, when INDIRECT_DESC was negotiated.
    tables: Option<Block>,
    /// What each slot's table describes: segments and bytes.
    shapes: Box<[(usize, usize)]>,
    /// Free slots, first in first out: chain n then always describes the same slot, and its
    /// descriptor need not be written again.
    free: Box<[u16]>,
    free_first: u16,
    free_count: u16,
    contents: Box<[u32]>,
    /// The chain being made: kept, because clearing a large array on the stack for each frame would
    /// fill the store buffer behind stores that wait for shared lines (half of all time, measured).
    chain: Vec<Segment>,
    counters: QueueCounters,
}

/// The next free slot, to be filled and then sent by [`TxQueue::send`].
#[derive(Debug)]
pub struct TxBuffer<'q> {
    block: &'q Block,
    frame: usize,
    capacity: usize,
    /// What the slot holds, in the caller's terms; 0 when it was never filled. The device does not
    /// change it, so a sender of like frames need not write them whole.
    pub content: &'q mut u32,
}

impl TxBuffer<'_> {
    /// Writes bytes of the frame; what exceeds the capacity is the caller's mistake and left out.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.capacity, "frame exceeds the transmit buffer");
        if at + bytes.len() <= self.capacity {
            self.block.write(self.frame + at, bytes);
        }
    }

    /// Writes a scalar in memory order.
    #[inline]
    pub(crate) fn put<T: Scalar>(&self, at: usize, value: T) {
        debug_assert!(at + size_of::<T>() <= self.capacity, "frame exceeds the transmit buffer");
        if at + size_of::<T>() <= self.capacity {
            self.block.put(self.frame + at, value);
        }
    }
}

impl TxQueue {
    /// Bytes of guest memory that such a queue takes.
    pub fn memory_bytes(size: u16, frame_bytes_max: usize) -> usize {
        let slot = Slots::stride(frame_bytes_max) + TX_SEGMENTS_MAX * INDIRECT_ENTRY_BYTES;
        SplitRing::memory_bytes(size) + usize::from(size) * slot + 2 * LINE
    }

    /// A queue for frames of up to `frame_bytes_max`.
    ///
    /// # Errors
    /// A bad ring size, or no memory.
    pub fn new(
        memory: &mut GuestMemory,
        ring: RingConfig,
        layout: Layout,
        frame_bytes_max: usize,
        indirect: bool,
    ) -> Result<Self, RingError> {
        let count = usize::from(ring.size);
        let table_bytes = count * TX_SEGMENTS_MAX * INDIRECT_ENTRY_BYTES;
        Ok(Self {
            slots: Slots::new(memory, count, frame_bytes_max, layout)?,
            tables: indirect.then(|| memory.allocate(table_bytes, LINE)).transpose()?,
            ring: SplitRing::new(memory, ring)?,
            frame_bytes_max,
            shapes: vec![(0, 0); count].into(),
            free: (0..ring.size).collect(),
            free_first: 0,
            free_count: ring.size,
            contents: vec![0; count].into(),
            chain: Vec::with_capacity(TX_SEGMENTS_MAX),
            counters: QueueCounters::default(),
        })
    }

    /// The ring itself.
    pub fn ring(&self) -> &SplitRing {
        &self.ring
    }

    /// The used index as the device left it.
    pub fn device_used_index(&mut self) -> u16 {
        self.ring.device_used_index()
    }

    /// What was counted since the queue was made.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Largest frame.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// Forgets all outstanding frames. Only while the device does not use the ring.
    pub fn reset(&mut self, first_index: u16) {
        self.ring.reset(first_index);
        self.free = (0..self.ring.size()).collect();
        self.free_first = 0;
        self.free_count = self.ring.size();
    }

    /// Descriptors that a frame in `segments` takes.
    #[inline]
    fn descriptors(&self, segments: usize) -> usize {
        let segments = self.segments(segments);
        if segments > 1 && self.tables.is_some() { 1 } else { segments }
    }

    #[inline]
    fn segments(&self, asked: usize) -> usize {
        let least = if self.slots.layout.header_apart { 2 } else { 1 };
        asked.clamp(least, TX_SEGMENTS_MAX)
    }

    /// How many frames of `segments` segments fit now, up to `wanted`. Takes used buffers back only
    /// when fewer than `wanted` fit, so that the used index is seldom read.
    #[inline]
    pub fn room(&mut self, wanted: usize, segments: usize) -> usize {
        let each = self.descriptors(segments);
        let fit = |queue: &Self| {
            (queue.ring.free_descriptors() / each).min(usize::from(queue.free_count))
        };
        if fit(self) < wanted {
            self.reap();
        }
        fit(self).min(wanted)
    }

    /// Takes used buffers back. Returns how many.
    pub fn reap(&mut self) -> usize {
        let mut count = 0;
        let mask = self.ring.size() - 1;
        while let Ok(Some(Used { token, .. })) = self.ring.take_used() {
            let end = self.free_first.wrapping_add(self.free_count) & mask;
            if let Some(entry) = self.free.get_mut(usize::from(end)) {
                *entry = token;
            }
            self.free_count += 1;
            count += 1;
        }
        count
    }

    #[inline]
    fn free_slot(&self, ahead: u16) -> u16 {
        let position = self.free_first.wrapping_add(ahead) & (self.ring.size() - 1);
        self.free.get(usize::from(position)).copied().unwrap_or_default()
    }

    /// Hints that the next `count` slots will be written, in the line that holds byte `at`.
    #[inline]
    pub fn prefetch(&self, count: usize, at: usize) {
        for ahead in 0..count.min(BURST_FRAMES) as u16 {
            self.slots.block.prefetch_write(self.slots.frame(self.free_slot(ahead)) + at);
        }
    }

    /// The next free slot, if there is one.
    #[inline]
    pub fn buffer(&mut self) -> Option<TxBuffer<'_>> {
        if self.free_count == 0 {
            return None;
        }
        let slot = self.free_slot(0);
        Some(TxBuffer {
            block: &self.slots.block,
            frame: self.slots.frame(slot),
            capacity: self.frame_bytes_max,
            content: self.contents.get_mut(usize::from(slot))?,
        })
    }

    /// Offers the slot of [`TxQueue::buffer`] as a frame of `frame_bytes` in a chain of `segments`
    /// (1 to [`TX_SEGMENTS_MAX`]); visible to the device after [`TxQueue::publish`].
    ///
    /// # Errors
    /// When the ring is full or the frame too long; the slot stays free then.
    #[inline]
    pub fn send(&mut self, frame_bytes: usize, segments: usize) -> Result<(), RingFull> {
        if self.free_count == 0 || frame_bytes > self.frame_bytes_max {
            return Err(RingFull);
        }
        let slot = self.free_slot(0);
        let count = self.segments(segments);
        if count == 1 {
            let whole = self.slots.whole(slot, frame_bytes, SegmentKind::Readable);
            self.ring.post(&[whole], slot)?;
        } else {
            self.send_chain(slot, frame_bytes, count)?;
        }
        self.free_first = self.free_first.wrapping_add(1) & (self.ring.size() - 1);
        self.free_count -= 1;
        self.counters.frames += 1;
        self.counters.bytes += frame_bytes as u64;
        Ok(())
    }

    fn send_chain(&mut self, slot: u16, frame_bytes: usize, count: usize) -> Result<(), RingFull> {
        self.slots.cut(slot, frame_bytes, SegmentKind::Readable, count, &mut self.chain);
        if self.tables.is_some() {
            let table = self.write_table(slot, frame_bytes);
            self.ring.post(&[table], slot)
        } else {
            self.ring.post(&self.chain, slot)
        }
    }

    /// Writes a slot's indirect table, unless it describes such a frame already.
    fn write_table(&mut self, slot: u16, frame_bytes: usize) -> Segment {
        let chain = &self.chain;
        let offset = usize::from(slot) * TX_SEGMENTS_MAX * INDIRECT_ENTRY_BYTES;
        let Some(tables) = &self.tables else { return Segment::default() };
        if let Some(shape) = self.shapes.get_mut(usize::from(slot))
            && *shape != (chain.len(), frame_bytes)
        {
            *shape = (chain.len(), frame_bytes);
            for (index, [first, second]) in indirect_entries(chain).enumerate() {
                let entry = offset + index * INDIRECT_ENTRY_BYTES;
                tables.store_u64(entry, first);
                tables.store_u64(entry + 8, second);
            }
        }
        Segment {
            guest_address: tables.guest_address() + offset as u64,
            bytes: (chain.len() * INDIRECT_ENTRY_BYTES) as u32,
            kind: SegmentKind::Indirect,
        }
    }

    /// Makes what was sent visible; [`TxQueue::kick`] must follow, though not at once.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Kicks the device if it asked for that.
    #[inline]
    pub fn kick(&mut self, event: &EventFd) {
        kick(&mut self.ring, event, &mut self.counters);
    }
}

/// How a receive queue is made.
#[derive(Clone, Copy, Debug)]
pub struct RxConfig {
    /// The ring.
    pub ring: RingConfig,
    /// Headers.
    pub layout: Layout,
    /// MRG_RXBUF was negotiated.
    pub mergeable: bool,
    /// Frame bytes that one buffer holds.
    pub buffer_bytes: usize,
    /// Descriptors per buffer, 1 to [`TX_SEGMENTS_MAX`].
    pub segments: usize,
}

/// Buffers looked at in one poll: a burst of single-buffer frames, and one frame of any size.
const LOOK_AHEAD: usize = BURST_FRAMES + RX_BUFFERS_PER_FRAME_MAX;

/// A receive queue.
#[derive(Debug)]
pub struct RxQueue {
    ring: SplitRing,
    slots: Slots,
    config: RxConfig,
    /// Used buffers that were taken back and not yet handed out.
    pending: Vec<Used>,
    /// The chain being made, as in [`TxQueue`].
    chain: Vec<Segment>,
    counters: QueueCounters,
}

/// A received frame, where it lies.
#[derive(Debug)]
pub struct RxFrame<'q> {
    slots: &'q Slots,
    buffers: &'q [Used],
    buffer_bytes: usize,
    first_bytes: usize,
    bytes: usize,
}

impl RxFrame<'_> {
    /// Bytes of the frame.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the device delivered nothing at all.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Buffers that it takes up.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Copies the first bytes out; returns how many there were.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        let mut copied = 0;
        for (index, used) in self.buffers.iter().enumerate() {
            let (offset, bytes) = if index == 0 {
                (self.slots.frame(used.token), self.first_bytes)
            } else {
                // Only the first buffer has a header: the others start where it would be.
                let header_bytes = self.slots.layout.header_bytes;
                let whole = header_bytes + self.buffer_bytes;
                let bytes = used.bytes.map_or(whole, |bytes| (bytes as usize).min(whole));
                (self.slots.frame(used.token) - header_bytes, bytes)
            };
            let Some(rest) = target.get_mut(copied..) else { break };
            let take = bytes.min(rest.len());
            if let Some(part) = rest.get_mut(..take) {
                self.slots.block.read(offset, part);
            }
            copied += take;
        }
        copied
    }

    /// A scalar in memory order, if it lies wholly in the first buffer.
    #[inline]
    pub(crate) fn get<T: Scalar>(&self, at: usize) -> Option<T> {
        let frame = self.slots.frame(self.buffers.first()?.token);
        (at + size_of::<T>() <= self.first_bytes).then(|| self.slots.block.get(frame + at))
    }
}

impl RxQueue {
    /// Bytes of guest memory that such a queue takes.
    pub fn memory_bytes(size: u16, buffer_bytes: usize) -> usize {
        SplitRing::memory_bytes(size) + usize::from(size) * Slots::stride(buffer_bytes) + LINE
    }

    /// A queue whose buffers are all posted, though not yet published.
    ///
    /// # Errors
    /// A bad ring size, or no memory.
    pub fn new(memory: &mut GuestMemory, config: RxConfig) -> Result<Self, RingError> {
        let least = if config.layout.header_apart { 2 } else { 1 };
        let segments = config.segments.clamp(least, TX_SEGMENTS_MAX);
        let count = usize::from(config.ring.size) / segments;
        let mut queue = Self {
            slots: Slots::new(memory, count, config.buffer_bytes, config.layout)?,
            ring: SplitRing::new(memory, config.ring)?,
            config: RxConfig { segments, ..config },
            pending: Vec::with_capacity(LOOK_AHEAD),
            chain: Vec::with_capacity(segments),
            counters: QueueCounters::default(),
        };
        queue.post_all();
        Ok(queue)
    }

    /// The ring itself.
    pub fn ring(&self) -> &SplitRing {
        &self.ring
    }

    /// The used index as the device left it.
    pub fn device_used_index(&mut self) -> u16 {
        self.ring.device_used_index()
    }

    /// What was counted since the queue was made.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Forgets what was received and posts all buffers anew. Only while the device does not use the
    /// ring.
    pub fn reset(&mut self, first_index: u16) {
        self.ring.reset(first_index);
        self.pending.clear();
        self.post_all();
    }

    fn post_all(&mut self) {
        for slot in 0..self.ring.size() / self.config.segments as u16 {
            self.post(slot);
        }
    }

    #[inline]
    fn post(&mut self, slot: u16) {
        let bytes = self.config.buffer_bytes;
        // A slot's chain is as long as it was before, so the descriptors just freed suffice.
        let posted = if self.config.segments == 1 {
            self.ring.post(&[self.slots.whole(slot, bytes, SegmentKind::Writable)], slot)
        } else {
            let count = self.config.segments;
            self.slots.cut(slot, bytes, SegmentKind::Writable, count, &mut self.chain);
            self.ring.post(&self.chain, slot)
        };
        debug_assert!(posted.is_ok(), "receive ring full while reposting");
    }

    /// Makes posted buffers visible; [`RxQueue::kick`] must follow, though not at once.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Kicks the device if it asked for that.
    #[inline]
    pub fn kick(&mut self, event: &EventFd) {
        kick(&mut self.ring, event, &mut self.counters);
    }

    /// Asks for an interrupt at the next frame; true when there is one already.
    pub fn enable_interrupts(&mut self) -> bool {
        self.ring.enable_interrupts() || !self.pending.is_empty()
    }

    /// Ends [`RxQueue::enable_interrupts`].
    pub fn disable_interrupts(&mut self) {
        self.ring.disable_interrupts();
    }

    /// Hands out at most [`BURST_FRAMES`] frames, then gives their buffers back to the device;
    /// [`RxQueue::kick`] must follow, though not at once. Returns how many.
    ///
    /// # Errors
    /// When the device broke the ring's rules, now or earlier.
    #[inline]
    pub fn poll(&mut self, mut each: impl FnMut(&RxFrame<'_>)) -> Result<usize, RingFault> {
        self.look_ahead()?;
        let (mut done, mut frames) = (0, 0);
        while frames < BURST_FRAMES {
            let Some(rest) = self.pending.get(done..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let Some((buffers, frame)) = self.frame(rest) else { break };
            done += buffers;
            frames += 1;
            match frame {
                Some(frame) => {
                    each(&frame);
                    let bytes = frame.bytes as u64;
                    self.counters.frames += 1;
                    self.counters.bytes += bytes;
                }
                None => self.counters.malformed += 1,
            }
        }
        if done > 0 {
            self.repost(done);
            self.publish();
        }
        Ok(frames)
    }

    /// Takes used buffers back and asks for their lines.
    #[inline]
    fn look_ahead(&mut self) -> Result<(), RingFault> {
        let most = if self.config.mergeable { LOOK_AHEAD } else { BURST_FRAMES };
        while self.pending.len() < most {
            let Some(used) = self.ring.take_used()? else { break };
            let frame = self.slots.frame(used.token);
            self.slots.block.prefetch_read(frame - self.config.layout.header_bytes);
            self.slots.block.prefetch_read(frame);
            self.pending.push(used);
        }
        Ok(())
    }

    /// The frame that starts in the first of `pending`: how many buffers it takes, and the frame
    /// if it is well-formed. `None` while not all of its buffers are there.
    #[inline]
    fn frame<'q>(&'q self, pending: &'q [Used]) -> Option<(usize, Option<RxFrame<'q>>)> {
        let first = pending.first()?;
        let header_bytes = self.config.layout.header_bytes;
        let whole = header_bytes + self.config.buffer_bytes;
        let header = self.slots.frame(first.token) - header_bytes;
        let block = &self.slots.block;
        // No offload was negotiated, so flags, GSO type and all lengths must be zero.
        let offloads = block.get::<u64>(header) != 0 || block.get::<u16>(header + 8) != 0;
        let count =
            if self.config.mergeable { usize::from(block.get::<u16>(header + 10)) } else { 1 };
        if count == 0 || count > RX_BUFFERS_PER_FRAME_MAX || offloads {
            return Some((1, None));
        }
        let buffers = pending.get(..count)?;
        let bytes_of = |used: &Used| used.bytes.map_or(whole, |bytes| bytes as usize);
        let total: usize = buffers.iter().map(bytes_of).sum();
        let first_bytes = bytes_of(first);
        if first_bytes < header_bytes || buffers.iter().any(|used| bytes_of(used) > whole) {
            return Some((count, None));
        }
        let frame = RxFrame {
            slots: &self.slots,
            buffers,
            buffer_bytes: self.config.buffer_bytes,
            first_bytes: first_bytes - header_bytes,
            bytes: total - header_bytes,
        };
        Some((count, Some(frame)))
    }

    fn repost(&mut self, count: usize) {
        for index in 0..count {
            if let Some(used) = self.pending.get(index).copied() {
                self.post(used.token);
            }
        }
        self.pending.drain(..count);
    }
}
