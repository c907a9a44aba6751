//! Receiving.

use std::ptr::NonNull;
use std::sync::Arc;

use tollgate_accel::prefetch::prefetch_read;
use tollgate_dpdk_sys as dpdk;
use tollgate_frame::burst::Mapping;
use tollgate_frame::{Buffer, Burst, DropReason, FetchStats, MAX_PACKET_SEGMENTS, Segment};
use tollgate_packet::limits::{HEADER_COPY_BYTES, MAX_FRAME_BYTES, MIN_FRAME_BYTES};

use super::calls::{Mbuf, free};
use super::device::OpenPort;
use super::pool::Pool;
use crate::limits::DRIVER_BURST;

/// One receive queue of a started device, for one polling thread, which must not drop it: it may be the
/// last that keeps the device open. It is given back to [`Device::close`](crate::Device::close).
#[derive(Debug)]
pub struct RxQueue {
    port: Arc<OpenPort>,
    number: u16,
    /// The pool.
    mapping: Mapping,
    /// What the driver has given, the next one last, and room for what is given back.
    waiting: Vec<Mbuf>,
    /// The driver gave as many as were asked for the last time, so it may well have more.
    had_plenty: bool,
}

// SAFETY: the raw mbuf pointers are owned by this value alone, and DPDK lets a queue move to
// another thread as long as one thread uses it at a time, which `&mut self` ensures.
unsafe impl Send for RxQueue {}

impl RxQueue {
    pub(super) fn new(port: Arc<OpenPort>, number: u16, pool: Arc<Pool>) -> Self {
        let waiting = Vec::with_capacity(DRIVER_BURST);
        Self { port, number, mapping: pool, waiting, had_plenty: false }
    }

    /// Throws away what waits.
    pub(super) fn discard(&mut self) {
        self.waiting.drain(..).for_each(free);
    }

    /// Whether frames wait, or are likely to.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.had_plenty || !self.waiting.is_empty()
    }

    /// Asks the driver for frames unless some wait; whether some do then.
    #[inline]
    pub fn poll(&mut self) -> bool {
        if self.waiting.is_empty() {
            // SAFETY: there is room for as many pointers as are asked for, of the layout of a pointer
            // that is not null; one thread uses the queue.
            let got = unsafe {
                let to = self.waiting.as_mut_ptr().cast::<*mut dpdk::rte_mbuf>();
                dpdk::shim_eth_rx_burst(self.port.number(), self.number, to, DRIVER_BURST as u16)
            };
            let got = usize::from(got).min(DRIVER_BURST);
            // SAFETY: the driver has written so many mbufs, which are ours now.
            unsafe { self.waiting.set_len(got) };
            self.had_plenty = got == DRIVER_BURST;
            // The next one last.
            self.waiting.reverse();
        }
        !self.waiting.is_empty()
    }

    /// Appends up to `max` received frames to an empty burst and returns how many: headers copied,
    /// payloads by reference, their mbufs lent. Frames that cannot be taken are dropped and counted in
    /// `stats`; they use up `max` as well.
    pub fn fetch(&mut self, burst: &mut Burst, max: usize, stats: &mut FetchStats) -> usize {
        self.poll();
        let count = self.waiting.len().min(max).min(burst.room());
        let first = self.waiting.len() - count;
        let next = self.waiting.get(first..).unwrap_or_default();
        next.iter().rev().for_each(|mbuf| prefetch_read(piece(*mbuf).0));
        let before = burst.len();
        for _ in 0..count {
            if burst.segments_room() < MAX_PACKET_SEGMENTS {
                break;
            }
            let Some(mbuf) = self.waiting.pop() else { break };
            match push(burst, &self.mapping, mbuf) {
                Ok(()) => {
                    // SAFETY: an mbuf of ours, which goes to whoever takes it; the mapping holds its
                    // pool.
                    burst.lend(unsafe { Buffer::from_raw(mbuf.cast()) });
                }
                Err(reason) => {
                    stats.count(reason);
                    free(mbuf);
                }
            }
        }
        burst.len() - before
    }

    /// Takes the last `count` packets of the burst that this queue has filled back, which nobody has
    /// looked at: the next fetch yields them again.
    pub fn unfetch(&mut self, burst: &Burst, count: usize) {
        let first = burst.len().saturating_sub(count);
        for buffer in (first..burst.len()).rev().filter_map(|index| burst.take_buffer(index)) {
            // No more than came from here.
            self.waiting.push(buffer.into_raw().cast());
        }
    }

    /// Frees the mbufs of the burst that nobody has taken. It must have been delivered or copied.
    #[inline]
    pub fn complete(&mut self, burst: &Burst) {
        for buffer in (0..burst.len()).filter_map(|index| burst.take_buffer(index)) {
            free(buffer.into_raw().cast());
        }
    }
}

impl Drop for RxQueue {
    fn drop(&mut self) {
        self.discard();
    }
}

/// One piece of an mbuf chain.
#[inline]
fn piece(mbuf: Mbuf) -> (*const u8, u32) {
    let mut len = 0;
    // SAFETY: an mbuf that the caller owns; both pointers are valid.
    let data = unsafe { dpdk::shim_pktmbuf_data(mbuf.as_ptr(), &raw mut len) };
    (data, u32::from(len))
}

/// Appends a received frame: the first bytes copied, the rest by reference. The burst has room.
#[inline]
fn push(burst: &mut Burst, mapping: &Mapping, mbuf: Mbuf) -> Result<(), DropReason> {
    // SAFETY: an mbuf that the caller owns.
    let frame_len = unsafe { dpdk::shim_pktmbuf_pkt_len(mbuf.as_ptr()) };
    if frame_len < MIN_FRAME_BYTES {
        return Err(DropReason::RxTooShort);
    }
    if frame_len > MAX_FRAME_BYTES {
        return Err(DropReason::RxTooLong);
    }
    let (data, len) = piece(mbuf);
    if len == frame_len {
        // SAFETY: the piece's bytes are mapped while the pool, which the mapping holds, is.
        let pushed = unsafe { burst.push_contiguous(data, len, mapping) };
        return pushed.map_err(|_| DropReason::NoBuffers);
    }
    push_chain(burst, mapping, mbuf, frame_len as usize)
}

fn push_chain(
    burst: &mut Burst,
    mapping: &Mapping,
    mbuf: Mbuf,
    frame_len: usize,
) -> Result<(), DropReason> {
    let mut writer = burst.begin(mapping).ok_or(DropReason::NoBuffers)?;
    let mut missing = writer.header().reset(frame_len.min(HEADER_COPY_BYTES)).len();
    let mut at = Some(mbuf);
    for _ in 0..MAX_PACKET_SEGMENTS {
        let Some(current) = at else { break };
        let (data, len) = piece(current);
        // SAFETY: the piece's bytes are mapped: the caller owns the mbuf.
        let segment = unsafe { Segment::from_raw(data, len) };
        let header = writer.header().bytes_mut();
        let filled = header.len() - missing;
        let copied = header.get_mut(filled..).map_or(0, |to| segment.copy_to(to));
        missing -= copied;
        let rest = segment.skip(copied);
        if !rest.is_empty() {
            // SAFETY: mbuf memory belongs to the pool, which the mapping keeps alive.
            unsafe { writer.push_segment(rest.address(), rest.len() as u32) }
                .map_err(|_| DropReason::RxTooManySegments)?;
        }
        // SAFETY: an mbuf that the caller owns.
        at = NonNull::new(unsafe { dpdk::shim_pktmbuf_next(current.as_ptr()) });
    }
    if at.is_some() || missing > 0 {
        return Err(DropReason::RxTooManySegments);
    }
    writer.commit();
    Ok(())
}
