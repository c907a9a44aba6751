//! Sending to a guest: a frame is copied once into its receive buffers.
#![deny(clippy::disallowed_macros)] // on the PMD

use tollgate_accel::tsc;
use tollgate_frame::segment::payload_len;
use tollgate_frame::{DropReason, Segment, Sink, copy};

use crate::chain::{self, ChainError, Cursor};
use crate::limits::{
    MAX_BUFFERS_PER_FRAME, MAX_FRAME_BYTES, MAX_MEET_CYCLES, MAX_PIECE_CYCLES, STAGED_ENTRIES,
    USUAL_FRAME_BYTES,
};
use crate::ring::{ActiveVring, Entry};

/// The virtio-net header with `num_buffers`; the legacy one is its first 10 bytes.
const NET_HEADER_BYTES: usize = 12;

/// The buffers that the frame at hand goes into.
#[derive(Debug)]
pub(crate) struct UsedBuffers {
    list: Box<[UsedBuffer; MAX_BUFFERS_PER_FRAME]>,
    len: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct UsedBuffer {
    head: u16,
    written: u32,
}

impl UsedBuffers {
    pub(crate) fn new() -> Self {
        Self { list: Box::new([UsedBuffer::default(); MAX_BUFFERS_PER_FRAME]), len: 0 }
    }

    fn push(&mut self, head: u16, written: u32) -> Result<(), DropReason> {
        let slot = self.list.get_mut(self.len).ok_or(DropReason::TxNoBuffers)?;
        *slot = UsedBuffer { head, written };
        self.len += 1;
        Ok(())
    }
}

impl ActiveVring {
    /// Copies one frame into the guest's receive buffers; it becomes visible with the next
    /// [`publish`](Self::publish).
    ///
    /// # Errors
    /// Why the frame is dropped; the ring is as it was, or quarantined.
    #[inline(always)]
    pub fn deliver(&mut self, header: &[u8], payload: &[Segment<'_>]) -> Result<(), DropReason> {
        let frame_len = header.len() + payload_len(payload);
        // By far the most common: one buffer, writable, in one region, large enough. A ring with
        // anything staged is not quarantined.
        if frame_len <= MAX_FRAME_BYTES as usize
            && let Some(Entry { head, descriptor, host }) = self.staged()
            && descriptor.flags == WRITABLE
            && !host.is_null()
        {
            // Fits: at most MAX_FRAME_BYTES and a header.
            let wanted = (self.net_header_bytes + frame_len) as u32;
            if descriptor.len >= wanted {
                // SAFETY: `wanted` <= descriptor.len bytes from `host` are mapped writable while
                // the ring holds its memory (`Entry`), and it is the length of all that is written.
                unsafe { self.write_contiguous(host, header, payload) };
                self.use_buffer(head, wanted);
                self.advance(1);
                return Ok(());
            }
        }
        self.deliver_any(header, payload, frame_len)
    }

    /// A frame into whatever there is.
    #[inline(never)]
    fn deliver_any(
        &mut self,
        header: &[u8],
        payload: &[Segment<'_>],
        frame_len: usize,
    ) -> Result<(), DropReason> {
        if self.fault().is_some() {
            return Err(DropReason::TxFault);
        }
        if frame_len > MAX_FRAME_BYTES as usize {
            return Err(DropReason::TxTooLong);
        }
        if self.available() == 0 {
            return Err(self.no_buffer());
        }
        // For the frames after this one.
        self.stage(STAGED_ENTRIES as u16);
        let first = self.next_buffer(0)?;
        let wanted = (self.net_header_bytes + frame_len) as u32;
        self.deliver_scattered(first, header, payload, wanted)
    }

    /// Cycles, since the last call, that small buffers have cost beyond those that such frames usually
    /// take, and pages that were written to for the first time. They are the receiver's alone to choose,
    /// so it pays for them.
    ///
    /// A new page is written to apart from the frame, and that is timed; it counts for no more than
    /// [`MAX_MEET_CYCLES`]. Of small buffers, what is measured is the finding, in which nothing of the
    /// sender's is touched: the pieces beyond the usual ones have their part of it, and as much again for
    /// being written to. So neither cold nor scattered payload makes a receiver pay; and no piece counts
    /// for more than [`MAX_PIECE_CYCLES`], so that an interruption does not.
    #[inline]
    pub fn take_receiver_cycles(&mut self) -> u64 {
        std::mem::take(&mut self.receiver_cycles)
    }

    fn charge_receiver(&mut self, wanted: u32, gather_cycles: u64) {
        self.receiver_cycles += receiver_part(self.pieces.count(), wanted, gather_cycles);
    }

    /// Reads ahead for `frames` deliveries to come, so that their cache misses overlap.
    pub fn prefetch(&mut self, frames: usize) {
        if self.fault().is_none() {
            let frames = u16::try_from(frames).unwrap_or(u16::MAX);
            if self.free_buffers_hint() < frames {
                self.refresh();
            }
            self.stage(frames);
        }
    }

    /// Makes all frames delivered since the last time visible to the guest, at once; whether it
    /// wants an interrupt for them.
    #[inline]
    pub fn publish(&mut self) -> bool {
        self.publish_used()
    }

    /// Header by header and piece by piece, over as many descriptors and buffers as it takes.
    fn deliver_scattered(
        &mut self,
        first: Entry,
        header: &[u8],
        payload: &[Segment<'_>],
        wanted: u32,
    ) -> Result<(), DropReason> {
        let began_tsc = tsc::now();
        let gathered = self.gather_buffers(first, wanted);
        self.charge_receiver(wanted, tsc::now().saturating_sub(began_tsc));
        gathered?;
        self.meet_pages(wanted);
        // At most MAX_BUFFERS_PER_FRAME.
        let buffers = self.used_buffers.len as u16;
        let net_header = net_header(buffers);
        let mut cursor = Cursor::new(&self.pieces);
        scatter(&mut cursor, net_header.get(..self.net_header_bytes).unwrap_or_default());
        scatter(&mut cursor, header);
        for segment in payload {
            scatter_segment(&mut cursor, *segment);
        }
        for index in 0..self.used_buffers.len {
            if let Some(UsedBuffer { head, written }) = self.used_buffers.list.get(index).copied() {
                self.use_buffer(head, written);
            }
        }
        self.advance(buffers);
        Ok(())
    }

    /// Writes to pages that no frame was written to before, which takes as long as the receiver's memory
    /// has it: it pays.
    fn meet_pages(&mut self, wanted: u32) {
        let mut left = wanted;
        let mut met_cycles = 0;
        for piece in self.pieces.list() {
            // As far as is looked at when a buffer is read ahead, or small frames would always meet a page
            // that only larger ones are written to.
            let len = piece.len.min(left.max(USUAL_FRAME_BYTES));
            // SAFETY: pieces are in guest memory that the ring holds mapped, of buffers that are the
            // device's to write to.
            met_cycles += unsafe { self.shared.memory().meet(piece.address, len) };
            left = left.saturating_sub(len);
        }
        self.receiver_cycles += met_cycles.min(MAX_MEET_CYCLES);
    }

    /// Collects buffers until `wanted` bytes fit. Changes nothing that the guest can see.
    fn gather_buffers(&mut self, first: Entry, wanted: u32) -> Result<(), DropReason> {
        self.pieces.clear();
        self.used_buffers.len = 0;
        let mut entry = first;
        loop {
            let before = self.pieces.bytes();
            let walk = self.walk(u64::from(wanted));
            chain::collect(&self.shared, walk, entry.descriptor, &mut self.near, &mut self.pieces)
                .map_err(|error| self.refuse(error))?;
            let after = self.pieces.bytes().min(u64::from(wanted));
            self.used_buffers.push(entry.head, (after - before) as u32)?;
            if after == u64::from(wanted) {
                return Ok(());
            }
            if !self.features.mergeable() {
                return Err(DropReason::TxNoBuffers);
            }
            let ahead = self.used_buffers.len as u16;
            if self.free_buffers_hint() <= ahead && self.refresh() <= ahead {
                return Err(self.no_buffer());
            }
            entry = self.next_buffer(ahead)?;
        }
    }

    fn next_buffer(&mut self, ahead: u16) -> Result<Entry, DropReason> {
        self.entry(ahead).map_err(|fault| {
            self.quarantine(fault);
            DropReason::TxFault
        })
    }

    #[cold]
    fn refuse(&mut self, error: ChainError) -> DropReason {
        match error {
            ChainError::Fault(fault) => {
                self.quarantine(fault);
                DropReason::TxFault
            }
            ChainError::TooLong | ChainError::WriteOnly => DropReason::TxNoBuffers,
        }
    }

    /// Nothing available: because of a fault, or just so.
    fn no_buffer(&self) -> DropReason {
        if self.fault().is_some() { DropReason::TxFault } else { DropReason::TxRingFull }
    }

    #[inline]
    fn use_buffer(&mut self, head: u16, written: u32) {
        self.shared.write_used(self.next_used, head, written);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Writes virtio-net header, header and payload in a row.
    ///
    /// # Safety
    /// `self.net_header_bytes` and the lengths of `header` and `payload` together are mapped
    /// writable at `host`.
    #[inline]
    unsafe fn write_contiguous(&self, host: *mut u8, header: &[u8], payload: &[Segment<'_>]) {
        // SAFETY: the net header is the first part of the bytes that the caller vouches for.
        unsafe { write_net_header(host, self.net_header_bytes) };
        let mut to = host.wrapping_add(self.net_header_bytes);
        // SAFETY: the second part.
        unsafe { copy::copy_out(header, to) };
        to = to.wrapping_add(header.len());
        for segment in payload {
            // SAFETY: `to` is the next part, of the segment's length; the segment's bytes are
            // mapped by its own contract.
            unsafe { copy::copy_racing(segment.address(), to, segment.len()) };
            to = to.wrapping_add(segment.len());
        }
    }
}

impl Sink for ActiveVring {
    #[inline]
    fn deliver(&mut self, header: &[u8], payload: &[Segment<'_>]) -> Result<(), DropReason> {
        Self::deliver(self, header, payload)
    }
}

/// Flags of a descriptor that is a whole receive buffer.
const WRITABLE: u16 = virtio_bindings::virtio_ring::VRING_DESC_F_WRITE as u16;

/// Pieces that nobody need answer for: a header apart, and buffers of 1 KiB or more.
fn usual_pieces(wanted: u32) -> u64 {
    2 + u64::from(wanted) / 1024
}

/// The receiver's part of what it took to deliver `wanted` bytes, of which the finding of `pieces`
/// took `gather_cycles`.
fn receiver_part(pieces: u32, wanted: u32, gather_cycles: u64) -> u64 {
    let pieces = u64::from(pieces);
    let excess = pieces.saturating_sub(usual_pieces(wanted));
    let piece_cycles = gather_cycles.checked_div(pieces).unwrap_or_default();
    2 * excess * piece_cycles.min(MAX_PIECE_CYCLES)
}

const fn net_header(buffers: u16) -> [u8; NET_HEADER_BYTES] {
    let [low, high] = buffers.to_le_bytes();
    // No offload and no hash: all zero but num_buffers.
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, low, high]
}

/// Writes the header of a frame in one buffer, but only if it is not there already: buffers come
/// back with the header that they were given the last time, and a line that is not written stays
/// shared with the guest's core.
///
/// # Safety
/// `len` bytes at `to` are mapped readable and writable.
#[inline(always)]
unsafe fn write_net_header(to: *mut u8, len: usize) {
    const ONE_BUFFER: [u8; NET_HEADER_BYTES] = net_header(1);
    // SAFETY: read only if all 12 bytes belong to the header.
    if len == NET_HEADER_BYTES && unsafe { copy::equals_12(to, &ONE_BUFFER) } {
        return;
    }
    // SAFETY: `len` bytes by contract.
    unsafe { copy::copy_out(ONE_BUFFER.get(..len).unwrap_or_default(), to) };
}

/// Writes `from` to the pieces under the cursor.
fn scatter(cursor: &mut Cursor<'_>, from: &[u8]) {
    scatter_segment(cursor, Segment::from_slice(from));
}

fn scatter_segment(cursor: &mut Cursor<'_>, mut from: Segment<'_>) {
    while let Some(piece) = cursor.take(from.len()) {
        let len = piece.len as usize;
        // SAFETY: `take` gave at most `from.len()` bytes, all in guest memory that the ring holds
        // mapped; the segment's bytes are mapped by its own contract.
        unsafe { copy::copy_racing(from.address(), piece.address, len) };
        from = from.skip(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_pays_for_pieces_beyond_the_usual_and_for_no_interruption() {
        // A header apart, and buffers of a usual size.
        assert_eq!(receiver_part(2, 72, 10_000), 0);
        assert_eq!(receiver_part(7, 9012, 10_000), 0);
        assert_eq!(receiver_part(0, 72, 10_000), 0);
        assert_eq!(receiver_part(72, 72, 7200), 2 * 70 * 100);
        let interrupted = receiver_part(3, 72, 1_000_000_000);
        assert_eq!(interrupted, 2 * MAX_PIECE_CYCLES);
    }
}
