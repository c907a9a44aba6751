//! Description, table and port statistics (OF 1.3.5 §7.3.5.1, §7.3.5.4, §7.3.5.6).

use std::time::Duration;

use crate::error::DecodeError;
use crate::wire::{Reader, Writer, decode_duration, encode_duration};

/// `DESC_STR_LEN`.
const DESC_STR_BYTES: usize = 256;
/// `SERIAL_NUM_LEN`.
const SERIAL_NUM_BYTES: usize = 32;

/// Who made the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescStats {
    /// Manufacturer.
    pub mfr_desc: String,
    /// Hardware.
    pub hw_desc: String,
    /// Software.
    pub sw_desc: String,
    /// Serial number.
    pub serial_num: String,
    /// Name of the datapath for humans.
    pub dp_desc: String,
}

impl DescStats {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.string(&self.mfr_desc, DESC_STR_BYTES);
        out.string(&self.hw_desc, DESC_STR_BYTES);
        out.string(&self.sw_desc, DESC_STR_BYTES);
        out.string(&self.serial_num, SERIAL_NUM_BYTES);
        out.string(&self.dp_desc, DESC_STR_BYTES);
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<DescStats, DecodeError> {
        Ok(DescStats {
            mfr_desc: input.string(DESC_STR_BYTES)?,
            hw_desc: input.string(DESC_STR_BYTES)?,
            sw_desc: input.string(DESC_STR_BYTES)?,
            serial_num: input.string(SERIAL_NUM_BYTES)?,
            dp_desc: input.string(DESC_STR_BYTES)?,
        })
    }
}

/// Counters of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Which table.
    pub table_id: u8,
    /// Flows in it.
    pub active_count: u32,
    /// Packets looked up in it.
    pub lookup_count: u64,
    /// Packets that matched a flow.
    pub matched_count: u64,
}

impl TableStats {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.u8(self.table_id);
        out.zeros(3);
        out.u32(self.active_count);
        out.u64(self.lookup_count);
        out.u64(self.matched_count);
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<TableStats, DecodeError> {
        let table_id = input.u8()?;
        input.skip(3)?;
        Ok(TableStats {
            table_id,
            active_count: input.u32()?,
            lookup_count: input.u64()?,
            matched_count: input.u64()?,
        })
    }
}

/// A counter that the switch does not keep.
pub const COUNTER_UNSUPPORTED: u64 = u64::MAX;

/// Counters of one port; [`COUNTER_UNSUPPORTED`] where the switch keeps none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// OpenFlow port number.
    pub port_no: u32,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped on receipt.
    pub rx_dropped: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Send errors.
    pub tx_errors: u64,
    /// Frame alignment errors.
    pub rx_frame_err: u64,
    /// Receive overruns.
    pub rx_over_err: u64,
    /// CRC errors.
    pub rx_crc_err: u64,
    /// Collisions.
    pub collisions: u64,
    /// How long the port has existed.
    pub duration: Duration,
}

impl PortStats {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.u32(self.port_no);
        out.zeros(4);
        for counter in [
            self.rx_packets,
            self.tx_packets,
            self.rx_bytes,
            self.tx_bytes,
            self.rx_dropped,
            self.tx_dropped,
            self.rx_errors,
            self.tx_errors,
            self.rx_frame_err,
            self.rx_over_err,
            self.rx_crc_err,
            self.collisions,
        ] {
            out.u64(counter);
        }
        encode_duration(self.duration, out);
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<PortStats, DecodeError> {
        let port_no = input.u32()?;
        input.skip(4)?;
        Ok(PortStats {
            port_no,
            rx_packets: input.u64()?,
            tx_packets: input.u64()?,
            rx_bytes: input.u64()?,
            tx_bytes: input.u64()?,
            rx_dropped: input.u64()?,
            tx_dropped: input.u64()?,
            rx_errors: input.u64()?,
            tx_errors: input.u64()?,
            rx_frame_err: input.u64()?,
            rx_over_err: input.u64()?,
            rx_crc_err: input.u64()?,
            collisions: input.u64()?,
            duration: decode_duration(input)?,
        })
    }
}
