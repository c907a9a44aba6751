//! OpenFlow 1.3: the wire codec, for both ends of the channel, and the flow language of
//! `ovs-ofctl`.
//!
//! Nothing here does I/O or keeps state. [`message`] turns frames into [`Message`]s and back;
//! whatever a peer may send decodes to a value or to the OpenFlow error to answer it with
//! ([`DecodeError`]), never to a panic. [`text`] parses and prints flows the way Debian's
//! `ovs-ofctl` 3.1 does.
//!
//! Numbers and structures are those of the *OpenFlow Switch Specification 1.3.5* (ONF TS-023),
//! cited as "OF 1.3.5 §n".
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod action;
pub mod bundle;
pub mod controller;
pub mod error;
pub mod event;
pub mod field;
pub mod flow_mod;
pub mod group;
pub mod instruction;
pub mod limits;
pub mod message;
pub mod meter;
pub mod multipart;
mod nicira;
mod nxm;
pub mod oxm;
pub mod packet_out;
pub mod port;
pub mod port_mod;
pub mod queue;
pub mod subfield;
pub mod table_features;
pub mod text;
mod wire;

pub use action::{Action, Actions};
pub use error::{DecodeError, ErrorCode};
pub use field::Field;
pub use flow_mod::{FlowCommand, FlowFlags, FlowMod};
pub use instruction::{Instruction, Instructions};
pub use message::{Header, Message};
pub use oxm::{Match, OxmField};
pub use subfield::SubField;
