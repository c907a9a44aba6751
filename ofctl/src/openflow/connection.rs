//! One OpenFlow connection to a switch, from the client's side.

use std::io::{self, Read, Write};

use anyhow::{Context, anyhow, bail};
use tollgate_openflow::Message;
use tollgate_openflow::message::{HEADER_BYTES, Header, Hello};
use tollgate_openflow::multipart::{MultipartReply, MultipartRequest};
use tollgate_openflow::text::format_error;

use crate::limits::{HELLO_MAX, SILENCE_MAX};
use crate::stream::Stream;
use crate::target::{self, Target};

/// A connection on which OpenFlow 1.3 has been agreed.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) stream: Stream,
    /// Transaction id of the last request. (The HELLO had 1.)
    pub(super) xid: u32,
}

impl Connection {
    /// Connects and agrees on a version.
    pub(crate) fn open(target: &Target) -> anyhow::Result<Connection> {
        let stream = Stream::connect(target)
            .map_err(|error| anyhow!(target::cannot_connect(target, &error)))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let mut connection = Connection { stream, xid: 1 };
        connection.negotiate().with_context(|| target.to_string())?;
        Ok(connection)
    }

    fn negotiate(&mut self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(HELLO_MAX))?;
        // The switch speaks first too, and may say why it hangs up: heard even if writing failed.
        let written = self.stream.write_all(&Message::Hello(Hello::OURS).encode(self.xid));
        let heard = self.hear().map_err(no_openflow)?;
        match heard {
            (header, Message::Hello(hello)) if hello.speaks_1_3(&header) => {}
            (header, Message::Hello(_)) => bail!(
                "the switch does not speak OpenFlow 1.3 (its HELLO has version {:#04x})",
                header.version
            ),
            (_, Message::Error(error)) => {
                bail!("the switch refused OpenFlow 1.3: {}", format_error(error.code))
            }
            _ => bail!("the switch does not begin with a HELLO: no OpenFlow socket?"),
        }
        written.map_err(broken)?;
        self.stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(())
    }

    /// From now on the switch may be silent for as long as it likes.
    pub(super) fn wait_without_end(&self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }

    pub(super) fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// The next message of the switch.
    pub(super) fn receive(&mut self) -> anyhow::Result<(Header, Message)> {
        self.hear().map_err(|error| match error.downcast::<io::Error>() {
            Ok(error) => broken(error),
            Err(error) => error,
        })
    }

    /// The next message of the switch, or the `io::Error` as it came.
    pub(super) fn hear(&mut self) -> anyhow::Result<(Header, Message)> {
        let mut bytes = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut bytes)?;
        let header = *bytes.first_chunk().ok_or(anyhow!("no header"))?;
        let header = Header::decode(header).context("the switch sent a malformed message")?;
        // Text in place of a header would have us wait for a body that never comes.
        if header.message_type > MESSAGE_TYPE_MAX {
            bail!("the switch sent a malformed message");
        }
        bytes.resize(usize::from(header.length), 0);
        self.stream.read_exact(bytes.get_mut(HEADER_BYTES..).unwrap_or_default())?;
        Message::decode(&bytes).context("the switch sent a malformed message")
    }

    /// The next message that answers the request `xid`. Echo requests are answered in between;
    /// what the switch sends unasked is skipped.
    fn answer(&mut self, xid: u32) -> anyhow::Result<Message> {
        loop {
            let (header, message) = self.receive()?;
            match message {
                Message::Error(error) if header.xid == xid => {
                    bail!("the switch refused: {}", format_error(error.code));
                }
                message if header.xid == xid && !matches!(message, Message::EchoRequest(_)) => {
                    return Ok(message);
                }
                message => self.reply_to_echo(header.xid, message)?,
            }
        }
    }

    /// Answers an echo request; nothing else.
    pub(super) fn reply_to_echo(&mut self, xid: u32, message: Message) -> anyhow::Result<()> {
        match message {
            Message::EchoRequest(data) => {
                let reply = Message::EchoReply(data).encode(xid);
                self.stream.write_all(&reply).map_err(broken)
            }
            _ => Ok(()),
        }
    }

    /// Sends a message; its xid.
    pub(super) fn send(&mut self, message: &Message) -> anyhow::Result<u32> {
        let xid = self.next_xid();
        self.stream.write_all(&message.encode(xid)).map_err(broken)?;
        Ok(xid)
    }

    /// Sends a request that has one message as its answer; the answer and its xid.
    pub(crate) fn request(&mut self, request: &Message) -> anyhow::Result<(Message, u32)> {
        let xid = self.send(request)?;
        Ok((self.answer(xid)?, xid))
    }

    /// Sends a request that is answered only if it is refused.
    pub(crate) fn order(&mut self, request: Message) -> anyhow::Result<()> {
        match self.pipeline(std::iter::once(Ok(request)))?.first_refusal {
            None => Ok(()),
            Some(refusal) => bail!("the switch refused: {}", format_error(refusal.code)),
        }
    }

    /// Sends a multipart request; `part` gets every part of the answer with the xid and whether
    /// more follow.
    pub(crate) fn multipart(
        &mut self,
        request: MultipartRequest,
        mut part: impl FnMut(MultipartReply, u32, bool) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let xid = self.send(&Message::MultipartRequest(request))?;
        loop {
            match self.answer(xid)? {
                Message::MultipartReply { reply, more } => {
                    part(reply, xid, more)?;
                    if !more {
                        return Ok(());
                    }
                }
                _ => return Err(unexpected()),
            }
        }
    }
}

/// OFPT_METER_MOD, the last message type of OpenFlow 1.3.
const MESSAGE_TYPE_MAX: u8 = 29;

/// The answer has a type that does not fit the request.
pub(crate) fn unexpected() -> anyhow::Error {
    anyhow!("the switch's answer does not fit the question")
}

/// What came, or did not come, instead of a HELLO.
fn no_openflow(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<io::Error>() {
        Ok(error) if is_timeout(&error) => {
            anyhow!("does not speak OpenFlow: no HELLO within {} s", HELLO_MAX.as_secs())
        }
        Ok(error) => broken(error),
        Err(error) => error.context("does not speak OpenFlow"),
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

pub(super) fn broken(error: io::Error) -> anyhow::Error {
    match error.kind() {
        _ if is_timeout(&error) => {
            anyhow!("the switch does not answer ({} s)", SILENCE_MAX.as_secs())
        }
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => anyhow!("the switch closed the connection"),
        _ => anyhow!(error),
    }
}
