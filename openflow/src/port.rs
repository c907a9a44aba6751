//! Port numbers and descriptions (OF 1.3.5 §7.2.1).

use crate::error::DecodeError;
use crate::limits::PORT_NAME_BYTES;
use crate::wire::{Reader, Writer};

/// Highest number of a physical or logical port.
pub const OFPP_MAX: u32 = 0xffff_ff00;
/// Highest port number that flow text may name, as in Open vSwitch: above it are the reserved
/// numbers of OpenFlow 1.0, and what does not fit into its 16 bits.
pub const TEXT_PORT_MAX: u32 = 0xfeff;
/// Send back out of the port the packet came in by.
pub const OFPP_IN_PORT: u32 = 0xffff_fff8;
/// Submit to the first table (packet-out only).
pub const OFPP_TABLE: u32 = 0xffff_fff9;
/// The learning, non-OpenFlow pipeline.
pub const OFPP_NORMAL: u32 = 0xffff_fffa;
/// All ports but the ingress one and those with flooding disabled.
pub const OFPP_FLOOD: u32 = 0xffff_fffb;
/// All ports but the ingress one.
pub const OFPP_ALL: u32 = 0xffff_fffc;
/// The controller.
pub const OFPP_CONTROLLER: u32 = 0xffff_fffd;
/// The switch's own host port.
pub const OFPP_LOCAL: u32 = 0xffff_fffe;
/// Any port: a wildcard in requests, never an output.
pub const OFPP_ANY: u32 = 0xffff_ffff;
/// Any group: the wildcard of `out_group`.
pub const OFPG_ANY: u32 = 0xffff_ffff;
/// All tables, in deletions and statistics requests.
pub const OFPTT_ALL: u8 = 0xff;
/// `max_len` of an output to the controller: the whole packet, not buffered.
pub const OFPCML_NO_BUFFER: u16 = 0xffff;
/// `buffer_id` without a buffered packet.
pub const OFP_NO_BUFFER: u32 = 0xffff_ffff;

/// The number in 16 bits, as OpenFlow 1.0 and Nicira's extensions have it; `None` if there is
/// none. The reserved numbers are the highest of either width.
pub(crate) fn narrow_port(port: u32) -> Option<u16> {
    let fits = port <= TEXT_PORT_MAX || port >= OFPP_MAX;
    fits.then_some(port as u16)
}

/// The number in 32 bits of one in 16.
pub(crate) fn widen_port(port: u16) -> u32 {
    let port = u32::from(port);
    if port > TEXT_PORT_MAX { port | 0xffff_0000 } else { port }
}

/// Reserved ports and their names in flow text.
pub const RESERVED_PORTS: [(&str, u32); 8] = [
    ("IN_PORT", OFPP_IN_PORT),
    ("TABLE", OFPP_TABLE),
    ("NORMAL", OFPP_NORMAL),
    ("FLOOD", OFPP_FLOOD),
    ("ALL", OFPP_ALL),
    ("CONTROLLER", OFPP_CONTROLLER),
    ("LOCAL", OFPP_LOCAL),
    ("ANY", OFPP_ANY),
];

/// `ofp_port`: a port as `show` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortDesc {
    /// OpenFlow port number.
    pub port_no: u32,
    /// Ethernet address.
    pub hw_addr: [u8; 6],
    /// Name, at most 15 bytes.
    pub name: String,
    /// `OFPPC_*` bits.
    pub config: u32,
    /// `OFPPS_*` bits.
    pub state: u32,
    /// `OFPPF_*` bits in use.
    pub curr: u32,
    /// `OFPPF_*` bits advertised.
    pub advertised: u32,
    /// `OFPPF_*` bits supported.
    pub supported: u32,
    /// `OFPPF_*` bits advertised by the peer.
    pub peer: u32,
    /// Current bitrate, kbit/s.
    pub curr_speed_kbps: u32,
    /// Highest bitrate, kbit/s.
    pub max_speed_kbps: u32,
}

/// `OFPPC_PORT_DOWN`: administratively down.
pub const OFPPC_PORT_DOWN: u32 = 1;
/// `OFPPC_NO_RECV`: drop what is received.
pub const OFPPC_NO_RECV: u32 = 1 << 2;
/// `OFPPC_NO_FWD`: drop what is sent.
pub const OFPPC_NO_FWD: u32 = 1 << 5;
/// `OFPPC_NO_PACKET_IN`: no packet-in for table misses.
pub const OFPPC_NO_PACKET_IN: u32 = 1 << 6;
/// `OFPPS_LINK_DOWN`: no link.
pub const OFPPS_LINK_DOWN: u32 = 1;
/// `OFPPS_BLOCKED`: blocked by a protocol such as spanning tree.
pub const OFPPS_BLOCKED: u32 = 1 << 1;
/// `OFPPS_LIVE`: usable in fast-failover groups.
pub const OFPPS_LIVE: u32 = 1 << 2;

impl PortDesc {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.port_no);
        out.zeros(4);
        out.put(&self.hw_addr);
        out.zeros(2);
        out.string(&self.name, PORT_NAME_BYTES);
        for value in [
            self.config,
            self.state,
            self.curr,
            self.advertised,
            self.supported,
            self.peer,
            self.curr_speed_kbps,
            self.max_speed_kbps,
        ] {
            out.u32(value);
        }
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<PortDesc, DecodeError> {
        let port_no = input.u32()?;
        input.skip(4)?;
        let hw_addr = input.array()?;
        input.skip(2)?;
        Ok(PortDesc {
            port_no,
            hw_addr,
            name: input.string(PORT_NAME_BYTES)?,
            config: input.u32()?,
            state: input.u32()?,
            curr: input.u32()?,
            advertised: input.u32()?,
            supported: input.u32()?,
            peer: input.u32()?,
            curr_speed_kbps: input.u32()?,
            max_speed_kbps: input.u32()?,
        })
    }
}
