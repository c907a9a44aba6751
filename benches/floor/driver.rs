//! The guest: sends numbered frames as fast as it can, and takes them back.

use anyhow::{Context as _, ensure};
use tollgate_guest::memory::GuestMemory;
use tollgate_guest::queue::{RxConfig, RxQueue, TxQueue};
use tollgate_guest::ring::{RingConfig, SplitRing};
use tollgate_guest::virtio::{Layout, VERSION_1};
use tollgate_vhost::mock;

use crate::device::BURST_PACKETS;

/// As in a comparison.
const RING_ENTRIES: u16 = 1024;

/// Where a frame has its number: behind the Ethernet header.
const NUMBER_AT: usize = 14;
const NUMBER_END: usize = NUMBER_AT + size_of::<u64>();

/// Frames that are looked at as a whole: each buffer once.
const WHOLE_FRAMES: u64 = RING_ENTRIES as u64;

/// One that sends and receives.
#[derive(Debug)]
pub(crate) struct Driver {
    sender: TxQueue,
    receiver: RxQueue,
    frame: Vec<u8>,
    sent: u64,
    received: u64,
}

impl Driver {
    pub(crate) fn memory_bytes(frame_bytes_max: usize) -> usize {
        TxQueue::memory_bytes(RING_ENTRIES, frame_bytes_max)
            + RxQueue::memory_bytes(RING_ENTRIES, frame_bytes_max)
    }

    pub(crate) fn new(
        memory: &mut GuestMemory,
        frame_bytes: usize,
        frame_bytes_max: usize,
    ) -> anyhow::Result<Self> {
        let ring = RingConfig {
            size: RING_ENTRIES,
            event_idx: false,
            in_order: false,
            read_used_entries: true,
            first_index: 0,
        };
        let layout = Layout::of(VERSION_1);
        let receive =
            RxConfig { ring, layout, mergeable: false, buffer_bytes: frame_bytes_max, segments: 1 };
        let mut receiver = RxQueue::new(memory, receive)?;
        receiver.publish();
        let sender = TxQueue::new(memory, ring, layout, frame_bytes_max, false)?;
        let frame = mock::frame(frame_bytes, 1);
        Ok(Self { sender, receiver, frame, sent: 0, received: 0 })
    }

    /// The sender's and the receiver's.
    pub(crate) fn rings(&self) -> [&SplitRing; 2] {
        [self.sender.ring(), self.receiver.ring()]
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Sends a full burst if there is room for it, and takes back what has arrived.
    pub(crate) fn step(&mut self) -> anyhow::Result<()> {
        let burst = usize::from(BURST_PACKETS);
        if self.sender.room(burst, 1) == burst {
            for _ in 0..burst {
                self.send()?;
            }
            self.sender.publish();
        }
        let (mut received, mut wrong) = (self.received, None);
        self.receiver.poll(|frame| {
            let mut start = [0; NUMBER_END];
            frame.copy_to(&mut start);
            let numbered = start.ends_with(&received.to_le_bytes());
            let whole = received >= WHOLE_FRAMES || {
                let mut bytes = vec![0; frame.len()];
                frame.copy_to(&mut bytes);
                bytes.get(..NUMBER_AT) == self.frame.get(..NUMBER_AT)
                    && bytes.get(NUMBER_END..) == self.frame.get(NUMBER_END..)
            };
            if !numbered || !whole {
                wrong.get_or_insert(received);
            }
            received += 1;
        })?;
        self.received = received;
        ensure!(wrong.is_none(), "frame {wrong:?} did not arrive as it was sent");
        Ok(())
    }

    fn send(&mut self) -> anyhow::Result<()> {
        let buffer = self.sender.buffer().context("there was room")?;
        if *buffer.content == 0 {
            buffer.write(0, &self.frame);
            *buffer.content = 1;
        }
        buffer.write(NUMBER_AT, &self.sent.to_le_bytes());
        self.sender.send(self.frame.len(), 1)?;
        self.sent += 1;
        Ok(())
    }
}
