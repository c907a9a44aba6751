//! Receiving from a guest: entries of its transmit ring become packets of a burst.
#![deny(clippy::disallowed_macros)] // on the PMD

use tollgate_frame::{BURST_PACKETS, Burst, DropReason, FetchStats, copy};
use tollgate_packet::limits::HEADER_COPY_BYTES;
use virtio_bindings::virtio_net::VIRTIO_NET_HDR_F_NEEDS_CSUM;

use crate::chain::{self, ChainError, Cursor};
use crate::limits::{MAX_CHAIN_DESCRIPTORS, MAX_FRAME_BYTES, MIN_FRAME_BYTES};
use crate::ring::{ActiveVring, Entry};
use crate::status::RingFault;

/// What is needed to give packets of the last fetch back.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// The position in the avail ring of each packet of the last fetch.
    positions: [u16; BURST_PACKETS],
    count: usize,
    /// Drops before this position have been counted, although the entry may be met again.
    counted_until: u16,
}

impl Fetched {
    pub(crate) fn new(base: u16) -> Self {
        Self { positions: [0; BURST_PACKETS], count: 0, counted_until: base }
    }
}

enum Refused {
    /// This frame only.
    Drop(DropReason),
    /// The burst has no room; the entry stays.
    Later,
    Fault(RingFault),
}

impl ActiveVring {
    /// Appends up to `max` frames of the guest to `burst` and returns how many: headers copied,
    /// payloads by reference. Frames that cannot be taken are consumed and counted in `stats`; they
    /// use up `max` as well. A ring that breaks the rules is quarantined once the frames before the
    /// breach have been fetched, by the fetch that meets it first. Nothing is given back to the guest before [`complete`](Self::complete).
    pub fn fetch(&mut self, burst: &mut Burst, max: usize, stats: &mut FetchStats) -> usize {
        self.fetched.count = 0;
        if self.fault().is_some() {
            return 0;
        }
        let max = max.min(burst.room()).min(BURST_PACKETS) as u16;
        let count = max.min(self.available());
        self.stage(count);
        let before = burst.len();
        for _ in 0..count {
            if burst.segments_room() < MAX_CHAIN_DESCRIPTORS {
                break;
            }
            let position = self.next_avail;
            let entry = self.entry(0);
            let head = entry.map_or(0, |entry| entry.head);
            let taken =
                entry.map_err(Refused::Fault).and_then(|entry| self.fetch_one(&entry, burst));
            match taken {
                Ok(()) => self.fetched.note(position),
                Err(Refused::Drop(reason)) => self.fetched.note_drop(position, reason, stats),
                Err(Refused::Later) => break,
                // The packets before it may still be given back and wanted again, so the ring
                // goes on until the breach comes first.
                Err(Refused::Fault(_)) if self.fetched.count > 0 => break,
                Err(Refused::Fault(fault)) => {
                    self.quarantine(fault);
                    break;
                }
            }
            self.shared.write_used(self.next_used, head, 0);
            self.next_used = self.next_used.wrapping_add(1);
            self.advance(1);
        }
        self.fetched.count_until(self.next_avail);
        burst.len() - before
    }

    /// Gives the last `count` packets of the last fetch back, which the caller has not looked at
    /// and takes out of its burst: the next fetch yields them again. Not after
    /// [`complete`](Self::complete), which makes this do nothing.
    pub fn unfetch(&mut self, count: usize) {
        let kept = self.fetched.count.saturating_sub(count);
        let Some(position) = self.fetched.positions.get(kept).filter(|_| kept < self.fetched.count)
        else {
            return;
        };
        let entries = self.next_avail.wrapping_sub(*position);
        self.next_used = self.next_used.wrapping_sub(entries);
        self.retreat(entries);
        self.fetched.count = kept;
    }

    /// Gives everything fetched so far back to the guest, in the order in which it came (which is
    /// what IN_ORDER promises). Returns whether the guest wants an interrupt. The burst must have
    /// been delivered or copied: from now on the guest may reuse the payloads.
    #[inline]
    pub fn complete(&mut self) -> bool {
        self.fetched.count = 0;
        self.publish_used()
    }

    #[inline(always)]
    fn fetch_one(&mut self, entry: &Entry, burst: &mut Burst) -> Result<(), Refused> {
        let Entry { descriptor: first, host, .. } = entry;
        // By far the most common: one buffer in one region.
        if first.flags == 0 && !host.is_null() {
            let header_bytes = self.net_header_bytes;
            let frame_len = first.len.saturating_sub(header_bytes as u32);
            check_len(u64::from(frame_len))?;
            // SAFETY: `first.len` bytes from `host` are mapped while the ring holds its memory
            // (`Entry`), and check_len left at least MIN_FRAME_BYTES of them after the header.
            let [flags, gso_type] = unsafe { copy::load_u16(*host) }.to_le_bytes();
            if asks_for_offload([flags, gso_type]) {
                return Err(Refused::Drop(DropReason::RxBadOffload));
            }
            let frame = host.wrapping_add(header_bytes);
            // SAFETY: the `frame_len` bytes after the header, in the memory that `mapping` is.
            let pushed = unsafe { burst.push_contiguous(frame, frame_len, &self.mapping) };
            return pushed.map_err(|_| Refused::Later);
        }
        self.fetch_chain(entry, burst)
    }

    /// Any other chain: gathered piece by piece.
    fn fetch_chain(&mut self, entry: &Entry, burst: &mut Burst) -> Result<(), Refused> {
        let header_bytes = self.net_header_bytes;
        // One byte more than allowed, so that a longer chain shows.
        let walk = self.walk(header_bytes as u64 + u64::from(MAX_FRAME_BYTES) + 1);
        self.pieces.clear();
        chain::collect(&self.shared, walk, entry.descriptor, &mut self.near, &mut self.pieces)
            .map_err(|error| match error {
                ChainError::Fault(fault) => Refused::Fault(fault),
                ChainError::TooLong => Refused::Drop(DropReason::RxTooManySegments),
                ChainError::WriteOnly => Refused::Drop(DropReason::RxBadChain),
            })?;
        let frame_len = self.pieces.bytes().saturating_sub(header_bytes as u64);
        check_len(frame_len)?;
        let mut cursor = Cursor::new(&self.pieces);
        let mut net_header = [0; 12];
        gather(&mut cursor, net_header.get_mut(..header_bytes).unwrap_or_default());
        let [flags, gso_type, ..] = net_header;
        if asks_for_offload([flags, gso_type]) {
            return Err(Refused::Drop(DropReason::RxBadOffload));
        }
        let mut packet = burst.begin(&self.mapping).ok_or(Refused::Later)?;
        let header_len = (frame_len as usize).min(HEADER_COPY_BYTES);
        gather(&mut cursor, packet.header().reset(header_len));
        while let Some(piece) = cursor.take(usize::MAX) {
            // SAFETY: pieces lie in the memory that `mapping` is, which keeps them mapped.
            unsafe { packet.push_segment(piece.address, piece.len) }.map_err(|_| Refused::Later)?;
        }
        packet.commit();
        Ok(())
    }
}

impl Fetched {
    #[inline]
    fn note(&mut self, position: u16) {
        if let Some(slot) = self.positions.get_mut(self.count) {
            *slot = position;
            self.count += 1;
        }
    }

    #[cold]
    fn note_drop(&mut self, position: u16, reason: DropReason, stats: &mut FetchStats) {
        if !self.is_before_counted(position) {
            stats.count(reason);
        }
    }

    #[inline]
    fn count_until(&mut self, position: u16) {
        if !self.is_before_counted(position) {
            self.counted_until = position;
        }
    }

    /// At most a burst is ever given back, so "before" needs no more than half the range.
    #[inline]
    fn is_before_counted(&self, position: u16) -> bool {
        let ahead = self.counted_until.wrapping_sub(position);
        ahead != 0 && ahead < 1 << 15
    }
}

#[inline(always)]
fn check_len(frame_len: u64) -> Result<(), Refused> {
    let (min, max) = (u64::from(MIN_FRAME_BYTES), u64::from(MAX_FRAME_BYTES));
    if (min..=max).contains(&frame_len) {
        return Ok(());
    }
    let reason = if frame_len < min { DropReason::RxTooShort } else { DropReason::RxTooLong };
    Err(Refused::Drop(reason))
}

/// No checksum or segmentation offload is ever offered, so a header that asks for one is not to be
/// obeyed, and its frame is not one to be forwarded (virtio 1.2, 5.1.6.2).
#[inline(always)]
fn asks_for_offload([flags, gso_type]: [u8; 2]) -> bool {
    flags & VIRTIO_NET_HDR_F_NEEDS_CSUM as u8 != 0 || gso_type != 0
}

/// Fills `to` from the pieces under the cursor.
fn gather(cursor: &mut Cursor<'_>, to: &mut [u8]) {
    let mut filled = 0;
    while let Some(rest) = to.get_mut(filled..)
        && let Some(piece) = cursor.take(rest.len())
    {
        let len = piece.len as usize;
        if let Some(part) = rest.get_mut(..len) {
            // SAFETY: the piece has `len` bytes of guest memory that the ring holds mapped.
            unsafe { copy::copy_in(piece.address, part) };
        }
        filled += len;
    }
}
