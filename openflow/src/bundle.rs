//! Bundles: changes that take effect together (ONF extension 230 to OpenFlow 1.3).

use crate::error::{DecodeError, ErrorCode};
use crate::message::{HEADER_BYTES, Header, Message};
use crate::wire::{Reader, Writer};

/// Experimenter type of a bundle control message.
pub(crate) const ONF_BUNDLE_CONTROL: u32 = 2300;
/// Experimenter type of a message that adds to a bundle.
pub(crate) const ONF_BUNDLE_ADD: u32 = 2301;

/// `OFPBF_ATOMIC`: all or nothing.
pub const OFPBF_ATOMIC: u16 = 1;
/// `OFPBF_ORDERED`: in the order in which they were added.
pub const OFPBF_ORDERED: u16 = 1 << 1;

/// What a bundle control message asks for, or says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BundleCommand {
    /// Begin a bundle.
    OpenRequest = 0,
    /// It has begun.
    OpenReply = 1,
    /// Add no more.
    CloseRequest = 2,
    /// It is complete.
    CloseReply = 3,
    /// Carry it out.
    CommitRequest = 4,
    /// It has taken effect.
    CommitReply = 5,
    /// Forget it.
    DiscardRequest = 6,
    /// It is forgotten.
    DiscardReply = 7,
}

impl BundleCommand {
    fn from_wire(value: u16) -> Result<BundleCommand, DecodeError> {
        use BundleCommand as C;
        [
            C::OpenRequest,
            C::OpenReply,
            C::CloseRequest,
            C::CloseReply,
            C::CommitRequest,
            C::CommitReply,
            C::DiscardRequest,
            C::DiscardReply,
        ]
        .into_iter()
        .find(|command| *command as u16 == value)
        .ok_or(DecodeError::new(ErrorCode::OFPBFC_BAD_TYPE, "unknown bundle command"))
    }
}

/// ONFT_BUNDLE_CONTROL. Properties, of which none is known, are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// Which bundle of this connection.
    pub bundle_id: u32,
    /// What to do.
    pub command: BundleCommand,
    /// `OFPBF_*` bits.
    pub flags: u16,
}

impl BundleControl {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.bundle_id);
        out.u16(self.command as u16);
        out.u16(self.flags);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<BundleControl, DecodeError> {
        let bundle_id = input.u32()?;
        let command = BundleCommand::from_wire(input.u16()?)?;
        let flags = decode_flags(input)?;
        input.rest();
        Ok(BundleControl { bundle_id, command, flags })
    }
}

fn decode_flags(input: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let flags = input.u16()?;
    if flags & !(OFPBF_ATOMIC | OFPBF_ORDERED) != 0 {
        return Err(DecodeError::new(ErrorCode::OFPBFC_BAD_FLAGS, "unknown bundle flag"));
    }
    Ok(flags)
}

/// ONFT_BUNDLE_ADD_MESSAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// Which bundle of this connection.
    pub bundle_id: u32,
    /// `OFPBF_*` bits, the same as when it was opened.
    pub flags: u16,
    /// What is added. It has the xid of this message.
    pub message: Box<Message>,
}

impl BundleAdd {
    pub(crate) fn encode(&self, xid: u32, out: &mut Writer) {
        out.u32(self.bundle_id);
        out.zeros(2);
        out.u16(self.flags);
        self.message.encode_one(xid, out);
    }

    pub(crate) fn decode(xid: u32, input: &mut Reader<'_>) -> Result<BundleAdd, DecodeError> {
        let bundle_id = input.u32()?;
        input.skip(2)?;
        let flags = decode_flags(input)?;
        let header = Header::decode(input.clone().array::<HEADER_BYTES>()?)?;
        if header.xid != xid {
            return Err(DecodeError::new(
                ErrorCode::OFPBFC_MSG_BAD_XID,
                "a message has another xid than the one that adds it to its bundle",
            ));
        }
        if !header.may_be_bundled() {
            return Err(DecodeError::new(
                ErrorCode::OFPBFC_MSG_UNSUP,
                "only flow-mods, group-mods, port-mods and packet-outs are bundled",
            ));
        }
        let message = input.bytes(usize::from(header.length))?;
        // Properties, of which none is known, may follow.
        input.rest();
        let (_, message) = Message::decode(message)?;
        Ok(BundleAdd { bundle_id, flags, message: Box::new(message) })
    }
}
