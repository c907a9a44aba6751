//! Bounds on what one OpenFlow message may ask for.

/// Longest OpenFlow message: its length field has 16 bits (OF 1.3.5 §7.1).
pub const MESSAGE_MAX_BYTES: usize = 65535;

/// Actions in one list, and in all lists of one flow together. A rule's cost per packet grows with
/// them; flooding by hand to a full 48-port rack needs about 100. It also keeps every flow that
/// was accepted printable in one multipart part: 1024 actions of at most 32 bytes are half a
/// message.
pub const ACTIONS_MAX: usize = 1024;

/// Bytes of a refused message that are sent back in an OFPT_ERROR. The specification asks for at
/// least 64; most flow-mods fit in 512 whole, so that a client can print what was refused.
pub const ERROR_DATA_MAX_BYTES: usize = 512;

/// Longest line of flow text that is parsed: what 1024 actions with IPv6 addresses need.
pub const FLOW_TEXT_MAX_BYTES: usize = 65536;

/// Room for a port name on the wire, with its terminating NUL (OFP_MAX_PORT_NAME_LEN).
pub const PORT_NAME_BYTES: usize = 16;

/// Room for a table name on the wire, with its terminating NUL (OFP_MAX_TABLE_NAME_LEN).
pub const TABLE_NAME_BYTES: usize = 32;
