//! The flow language of `ovs-ofctl`: what it accepts and what it prints for OpenFlow 1.3.
//!
//! Differences from `ovs-ofctl` 3.1, on purpose:
//! - A match or action whose prerequisite is missing (`tp_dst=80` without `tcp`, an ICMPv6 code that
//!   is not 0 with `nd_target`, ports of `ip_frag=later`) is an error that says what is missing;
//!   `ovs-ofctl` drops the field and goes on. The VLAN id of a packet that may have no tag cannot be
//!   moved to.
//! - A field given twice with different values is an error; there the last one wins.
//! - Values out of range (`dl_vlan=5000`, `1.2.3.400`) and numbers with a leading zero, which
//!   there are octal, are errors.
//! - `vlan_vid=10`, which can match nothing because a tagged packet has the present bit, is an
//!   error that names `dl_vlan=10`.
//! - `load` and `move` of `NXM_OF_VLAN_TCI` and `NXM_OF_IP_TOS` take bits of one of the fields in
//!   them only: `NXM_OF_VLAN_TCI[0..11]`, `[13..15]`, `NXM_OF_IP_TOS[2..7]`.
//! - Numbers may be hexadecimal wherever there is a number, and an IPv6 mask may begin with any
//!   digit.
//! - What Open vSwitch has beyond this (tunnels, connection tracking, `learn`, output to a register
//!   ...) is refused as not supported.

mod actions;
mod assign;
mod error;
mod events;
mod flow;
mod format;
mod instructions;
mod known;
mod lexer;
mod matches;
mod meters;
mod names;
mod packet_out;
mod replies;
mod suggest;
mod value;

pub use error::ParseError;
pub use events::{format_flow_removed, format_packet_in, format_port_status, format_queue_stats};
pub use flow::{parse_flow, parse_flow_line, parse_flow_stats_request};
pub use format::{FlowFormat, format_actions, format_flow, format_match};
pub use matches::fields_named;
pub use meters::{
    format_meter_config, format_meter_features, format_meter_stats, parse_meter, parse_meter_id,
};
pub use names::{NoNames, PortNames, PortTable, format_port, parse_port};
pub use packet_out::{packet_out, parse_frame, parse_packet_out};
pub use replies::{
    format_aggregate, format_desc, format_error, format_features, format_port_desc,
    format_port_stats, format_switch_config, format_table_stats, reply_heading,
};
pub use value::format_flags as format_tcp_flags;
