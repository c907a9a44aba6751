//! Queue statistics (OF 1.3.5 §7.3.5.8).

use std::time::Duration;

use crate::error::DecodeError;
use crate::wire::{Reader, Writer, decode_duration, encode_duration};

/// All queues, in requests.
pub const OFPQ_ALL: u32 = 0xffff_ffff;

/// Counters of one queue; [`crate::multipart::COUNTER_UNSUPPORTED`] where the switch keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The port it belongs to.
    pub port_no: u32,
    /// Its number at that port.
    pub queue_id: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped for want of room.
    pub tx_errors: u64,
    /// How long it has existed; `None` where the switch does not know.
    pub duration: Option<Duration>,
}

impl QueueStats {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.port_no);
        out.u32(self.queue_id);
        out.u64(self.tx_bytes);
        out.u64(self.tx_packets);
        out.u64(self.tx_errors);
        match self.duration {
            Some(duration) => encode_duration(duration, out),
            None => out.u64(u64::MAX),
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<QueueStats, DecodeError> {
        let port_no = input.u32()?;
        let queue_id = input.u32()?;
        let (tx_bytes, tx_packets, tx_errors) = (input.u64()?, input.u64()?, input.u64()?);
        let mut ahead = *input;
        let known = ahead.u64()? != u64::MAX;
        let duration = decode_duration(input)?;
        let duration = known.then_some(duration);
        Ok(QueueStats { port_no, queue_id, tx_bytes, tx_packets, tx_errors, duration })
    }
}
