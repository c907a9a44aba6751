//! Changes that take effect together or not at all.

use anyhow::bail;
use tollgate_openflow::Message;
use tollgate_openflow::bundle::{
    BundleAdd, BundleCommand, BundleControl, OFPBF_ATOMIC, OFPBF_ORDERED,
};
use tollgate_openflow::text::format_error;

use super::connection::{Connection, unexpected};
use super::pipeline::Sent;

/// Each connection opens one bundle at most.
const BUNDLE_ID: u32 = 0;
const FLAGS: u16 = OFPBF_ATOMIC | OFPBF_ORDERED;

impl Connection {
    /// Sends the messages as one bundle. If any of them is refused, none takes effect.
    pub(crate) fn bundle<I>(&mut self, messages: I) -> anyhow::Result<Sent>
    where
        I: Iterator<Item = anyhow::Result<Message>> + Send,
    {
        self.open_bundle()?;
        let added = messages.map(|message| {
            let message = Box::new(message?);
            Ok(Message::BundleAdd(BundleAdd { bundle_id: BUNDLE_ID, flags: FLAGS, message }))
        });
        let sent = self.pipeline(added)?;
        // A bundle that is not committed goes with the connection.
        if sent.refused > 0 { Ok(sent) } else { self.commit(sent) }
    }

    fn open_bundle(&mut self) -> anyhow::Result<()> {
        match self.request(&control(BundleCommand::OpenRequest))? {
            (Message::BundleControl(answer), _) if answer.command == BundleCommand::OpenReply => {
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }

    /// The switch says of each message that it cannot carry out why not, and then that the commit
    /// has failed.
    fn commit(&mut self, mut sent: Sent) -> anyhow::Result<Sent> {
        let xid = self.send(&control(BundleCommand::CommitRequest))?;
        loop {
            let (header, message) = self.receive()?;
            match message {
                Message::BundleControl(answer)
                    if header.xid == xid && answer.command == BundleCommand::CommitReply =>
                {
                    return Ok(sent);
                }
                Message::Error(_) if header.xid == xid && sent.refused > 0 => return Ok(sent),
                Message::Error(error) if !sent.refuse(header.xid, error.code) => {
                    bail!("the switch refused the bundle: {}", format_error(error.code));
                }
                message => self.reply_to_echo(header.xid, message)?,
            }
        }
    }
}

fn control(command: BundleCommand) -> Message {
    Message::BundleControl(BundleControl { bundle_id: BUNDLE_ID, command, flags: FLAGS })
}
