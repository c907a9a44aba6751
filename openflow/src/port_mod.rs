//! OFPT_PORT_MOD (OF 1.3.5 §7.3.4.3).

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// A change of a port's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// OpenFlow port number.
    pub port_no: u32,
    /// The port's Ethernet address, to make sure that it is meant.
    pub hw_addr: [u8; 6],
    /// `OFPPC_*` bits, of those in `mask`.
    pub config: u32,
    /// `OFPPC_*` bits that are changed.
    pub mask: u32,
    /// `OFPPF_*` bits to advertise; 0 leaves them as they are.
    pub advertise: u32,
}

impl PortMod {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.port_no);
        out.zeros(4);
        out.put(&self.hw_addr);
        out.zeros(2);
        out.u32(self.config);
        out.u32(self.mask);
        out.u32(self.advertise);
        out.zeros(4);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<PortMod, DecodeError> {
        let port_no = input.u32()?;
        input.skip(4)?;
        let hw_addr = input.array()?;
        input.skip(2)?;
        let (config, mask, advertise) = (input.u32()?, input.u32()?, input.u32()?);
        input.skip(4)?;
        Ok(PortMod { port_no, hw_addr, config, mask, advertise })
    }
}
