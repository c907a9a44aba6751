//! Sending.

use std::sync::Arc;

use tollgate_dpdk_sys as dpdk;
use tollgate_frame::{Buffer, DropReason, Segment, Sink, payload_len};

use super::calls::{Mbuf, free};
use super::device::OpenPort;
use super::pool::Pool;
use crate::Unsent;
use crate::limits::DRIVER_BURST;

/// The transmit queue of a started device, for one polling thread, which must not drop it: it may be
/// the last that keeps the device open. It is given back to [`Device::close`](crate::Device::close).
#[derive(Debug)]
pub struct TxQueue {
    port: Arc<OpenPort>,
    pool: Arc<Pool>,
    frame_bytes_max: usize,
    /// Frames for the next call of the driver.
    outgoing: Vec<Mbuf>,
    /// What the driver had no room for since the last [`flush`](Self::flush).
    unsent: Unsent,
}

// SAFETY: the raw mbuf pointers are owned by this value alone, and DPDK lets a queue move to
// another thread as long as one thread uses it at a time, which `&mut self` ensures.
unsafe impl Send for TxQueue {}

impl TxQueue {
    pub(super) fn new(port: Arc<OpenPort>, pool: Arc<Pool>, frame_bytes_max: usize) -> Self {
        let outgoing = Vec::with_capacity(DRIVER_BURST);
        Self { port, pool, frame_bytes_max, outgoing, unsent: Unsent::default() }
    }

    /// Sends a frame that may lie in an mbuf that the burst was lent. That goes out as it is, with
    /// `header` in the place of what was in front of the payload, and nothing is copied but the header;
    /// where there is none, or it has no room for the header, or is in pieces, all of it is copied.
    ///
    /// `take` must not say an mbuf whose payload is needed again. The frame is on its way with the next
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// Why the frame is dropped.
    #[inline]
    pub fn deliver_from(
        &mut self,
        take: impl FnOnce() -> Option<Buffer>,
        header: &[u8],
        payload: &[Segment<'_>],
    ) -> Result<(), DropReason> {
        self.check_len(header.len() + payload_len(payload))?;
        let Some(mbuf) = take().map(|buffer| buffer.into_raw().cast()) else {
            return self.copy(header, payload);
        };
        if replace_header(mbuf, header, payload_len(payload)) {
            self.queue(mbuf);
            return Ok(());
        }
        let outcome = self.copy(header, payload);
        // Its payload was read until now.
        free(mbuf);
        outcome
    }

    /// Hands what was delivered to the driver. What its ring has no room for is dropped, and so
    /// reported, with what was dropped for that reason since the last call.
    #[inline]
    pub fn flush(&mut self) -> Unsent {
        if !self.outgoing.is_empty() {
            self.hand_over();
        }
        std::mem::take(&mut self.unsent)
    }

    fn hand_over(&mut self) {
        let mut done = 0;
        // Some drivers take no more than a few at a time; each call but the last gets on.
        while let Some(left) = self.outgoing.get_mut(done..)
            && !left.is_empty()
        {
            // SAFETY: `Mbuf` is a non-null pointer with the layout of a pointer; one thread uses the
            // queue; the driver owns the mbufs that it has taken afterwards.
            let sent = unsafe {
                let mbufs = left.as_mut_ptr().cast::<*mut dpdk::rte_mbuf>();
                dpdk::shim_eth_tx_burst(self.port.number(), 0, mbufs, left.len() as u16)
            };
            if sent == 0 {
                break;
            }
            done += usize::from(sent);
        }
        for mbuf in self.outgoing.drain(..).skip(done) {
            self.unsent.frames += 1;
            // SAFETY: the driver has not taken it, so it is ours.
            self.unsent.bytes += u64::from(unsafe { dpdk::shim_pktmbuf_pkt_len(mbuf.as_ptr()) });
            free(mbuf);
        }
    }

    #[inline]
    fn queue(&mut self, mbuf: Mbuf) {
        if self.outgoing.len() == DRIVER_BURST {
            self.hand_over();
        }
        self.outgoing.push(mbuf);
    }

    #[inline]
    fn check_len(&self, len: usize) -> Result<(), DropReason> {
        if len > self.frame_bytes_max { Err(DropReason::TxTooLong) } else { Ok(()) }
    }

    fn copy(&mut self, header: &[u8], payload: &[Segment<'_>]) -> Result<(), DropReason> {
        let len = header.len() + payload_len(payload);
        let room = u16::try_from(len).map_err(|_| DropReason::TxTooLong)?;
        let mbuf = self.pool.alloc().ok_or(DropReason::NoBuffers)?;
        // SAFETY: a fresh mbuf that nobody else has.
        let data = unsafe { dpdk::shim_pktmbuf_append(mbuf.as_ptr(), room) };
        if data.is_null() {
            free(mbuf);
            return Err(DropReason::TxTooLong);
        }
        // SAFETY: `append` gave `len` bytes at `data`, in an mbuf that only we hold.
        let mut to = unsafe { std::slice::from_raw_parts_mut(data, len) };
        let (front, rest) = to.split_at_mut(header.len());
        front.copy_from_slice(header);
        to = rest;
        for segment in payload {
            let copied = segment.copy_to(to);
            to = to.get_mut(copied..).unwrap_or_default();
        }
        self.queue(mbuf);
        Ok(())
    }
}

impl Sink for TxQueue {
    #[inline]
    fn deliver(&mut self, header: &[u8], payload: &[Segment<'_>]) -> Result<(), DropReason> {
        self.check_len(header.len() + payload_len(payload))?;
        self.copy(header, payload)
    }
}

impl Drop for TxQueue {
    fn drop(&mut self) {
        self.outgoing.drain(..).for_each(free);
    }
}

/// Puts `header` in the place of all that is in front of the last `payload_len` bytes of a frame; `false`,
/// with nothing changed, where the mbuf does not allow it.
#[inline]
fn replace_header(mbuf: Mbuf, header: &[u8], payload_len: usize) -> bool {
    // SAFETY: an mbuf that the caller owns.
    let frame_len = unsafe { dpdk::shim_pktmbuf_pkt_len(mbuf.as_ptr()) } as usize;
    let skip = frame_len.checked_sub(payload_len).and_then(|skip| u16::try_from(skip).ok());
    let (Some(skip), Ok(len)) = (skip, u16::try_from(header.len())) else { return false };
    // SAFETY: as above.
    let front = unsafe { dpdk::shim_pktmbuf_replace_front(mbuf.as_ptr(), skip, len) };
    if front.is_null() {
        return false;
    }
    // SAFETY: there is room for as many bytes as were asked for, in an mbuf that only the caller has.
    let front = unsafe { std::slice::from_raw_parts_mut(front, header.len()) };
    front.copy_from_slice(header);
    true
}
