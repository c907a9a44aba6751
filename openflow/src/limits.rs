//! Bounds on what one OpenFlow message may ask for.

/// Longest OpenFlow message: its length field has 16 bits (OF 1.3.5 §7.1).
pub const MESSAGE_MAX_BYTES: usize = 65535;

/// Actions in one list, and in all lists of one flow together. A rule's cost per packet grows with
/// them; flooding by hand to a full 48-port rack needs about 100. It also keeps every flow that
/// was accepted printable in one multipart part: 1024 actions of at most 56 bytes (an IPv6 address
/// with a mask) and the notes leave 4 KiB of a message for the rest of the flow.
pub const ACTIONS_MAX: usize = 1024;

/// Bytes in the notes of one list of actions together.
pub const NOTES_MAX_BYTES: usize = 4096;

/// Bytes of a refused message that are sent back in an OFPT_ERROR. The specification asks for at
/// least 64; most flow-mods fit in 512 whole, so that a client can print what was refused.
pub const ERROR_DATA_MAX_BYTES: usize = 512;

/// Longest line of flow text that is parsed: what 1024 actions with IPv6 addresses need.
pub const FLOW_TEXT_MAX_BYTES: usize = 65536;

/// Room for a port name on the wire, with its terminating NUL (OFP_MAX_PORT_NAME_LEN).
pub const PORT_NAME_BYTES: usize = 16;

/// Room for a table name on the wire, with its terminating NUL (OFP_MAX_TABLE_NAME_LEN).
pub const TABLE_NAME_BYTES: usize = 32;

/// Bands in one meter: as many as Open vSwitch has room for.
pub const METER_BANDS_MAX: usize = 8;

/// VLAN tags that actions may leave on a frame: those that are matched and pushed by QinQ.
pub const VLAN_TAGS_MAX: u32 = 2;
