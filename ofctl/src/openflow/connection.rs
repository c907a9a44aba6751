//! One OpenFlow connection to a switch, from the client's side.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use tollgate_openflow::message::{HEADER_BYTES, Header, Hello};
use tollgate_openflow::multipart::{MultipartReply, MultipartRequest};
use tollgate_openflow::text::format_error;
use tollgate_openflow::{ErrorCode, Message};

use crate::limits::{HELLO_MAX, SEND_CHUNK_BYTES, SILENCE_MAX};
use crate::target;

/// A connection on which OpenFlow 1.3 has been agreed.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    /// Transaction id of the last request. (The HELLO had 1.)
    xid: u32,
}

/// A refusal of one of several pipelined messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Which message, counted from 0 in the order of sending.
    pub(crate) index: usize,
    /// Why.
    pub(crate) code: ErrorCode,
}

impl Connection {
    /// Connects and agrees on a version.
    pub(crate) fn open(socket: &Path) -> anyhow::Result<Connection> {
        let stream = UnixStream::connect(socket)
            .map_err(|error| anyhow!(target::cannot_connect(socket, &error)))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let mut connection = Connection { stream, xid: 1 };
        connection.negotiate().with_context(|| socket.display().to_string())?;
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

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// The next message of the switch.
    fn receive(&mut self) -> anyhow::Result<(Header, Message)> {
        self.hear().map_err(|error| match error.downcast::<io::Error>() {
            Ok(error) => broken(error),
            Err(error) => error,
        })
    }

    /// The next message of the switch, or the `io::Error` as it came.
    fn hear(&mut self) -> anyhow::Result<(Header, Message)> {
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
                Message::EchoRequest(data) => {
                    let reply = Message::EchoReply(data).encode(header.xid);
                    self.stream.write_all(&reply).map_err(broken)?;
                }
                Message::Error(error) if header.xid == xid => {
                    bail!("the switch refused: {}", format_error(error.code));
                }
                message if header.xid == xid => return Ok(message),
                _ => {}
            }
        }
    }

    /// Sends a request that has one message as its answer; the answer and its xid.
    pub(crate) fn request(&mut self, request: &Message) -> anyhow::Result<(Message, u32)> {
        let xid = self.next_xid();
        self.stream.write_all(&request.encode(xid)).map_err(broken)?;
        Ok((self.answer(xid)?, xid))
    }

    /// Sends a multipart request; `part` gets every part of the answer with the xid and whether
    /// more follow.
    pub(crate) fn multipart(
        &mut self,
        request: MultipartRequest,
        mut part: impl FnMut(MultipartReply, u32, bool) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let xid = self.next_xid();
        let request = Message::MultipartRequest(request).encode(xid);
        self.stream.write_all(&request).map_err(broken)?;
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

    /// Sends all messages of `batch` and a barrier, and waits until the switch has carried out all
    /// of them. Returns what was refused.
    ///
    /// Sending and receiving go on side by side: a switch that stops reading until its refusals
    /// are read would otherwise never go on.
    pub(crate) fn pipeline(&mut self, batch: &Batch) -> anyhow::Result<Vec<Refusal>> {
        let first = self.next_xid();
        let barrier = first.wrapping_add(batch.len() as u32);
        self.xid = barrier;
        let mut sender = self.stream.try_clone()?;
        let mut echoes = Vec::new();
        let refusals = std::thread::scope(|scope| {
            let sending = scope.spawn(move || batch.send(&mut sender, first));
            let refusals = self.until_barrier(barrier, first, batch.len(), &mut echoes);
            if refusals.is_err() {
                // Ends a write that would wait for the switch for ever.
                let _ = self.stream.shutdown(std::net::Shutdown::Both);
            }
            match sending.join() {
                Ok(Ok(())) | Err(_) => refusals,
                Ok(Err(error)) => refusals.and(Err(broken(error))),
            }
        })?;
        for echo in echoes {
            self.stream.write_all(&echo).map_err(broken)?;
        }
        Ok(refusals)
    }

    /// Receives up to the barrier's answer. Replies to echo requests are only collected: while the
    /// other thread writes, waiting for the socket could block both sides.
    fn until_barrier(
        &mut self,
        barrier: u32,
        first: u32,
        count: usize,
        echoes: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<Vec<Refusal>> {
        let mut refusals = Vec::new();
        loop {
            let (header, message) = self.receive()?;
            match message {
                Message::BarrierReply if header.xid == barrier => return Ok(refusals),
                Message::Error(error) => {
                    let index = header.xid.wrapping_sub(first) as usize;
                    if index >= count {
                        bail!("the switch refused: {}", format_error(error.code));
                    }
                    refusals.push(Refusal { index, code: error.code });
                }
                Message::EchoRequest(data) => {
                    echoes.push(Message::EchoReply(data).encode(header.xid));
                }
                _ => {}
            }
        }
    }
}

/// Messages to be sent in one go, encoded: a million flows take 100 MB this way and many times
/// that as values.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where each message ends.
    ends: Vec<usize>,
}

impl Batch {
    pub(crate) fn push(&mut self, message: &Message) {
        self.bytes.extend(message.encode(0));
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Sends the messages with xids from `first` on, and a barrier with the next one.
    fn send(&self, stream: &mut UnixStream, first: u32) -> io::Result<()> {
        let mut chunk = Vec::new();
        let mut xid = first;
        let mut start = 0;
        for end in &self.ends {
            let message = self.bytes.get(start..*end).unwrap_or_default();
            let at = chunk.len();
            chunk.extend_from_slice(message);
            if let Some(field) = chunk.get_mut(at + XID_OFFSET..at + HEADER_BYTES) {
                field.copy_from_slice(&xid.to_be_bytes());
            }
            if chunk.len() >= SEND_CHUNK_BYTES {
                stream.write_all(&chunk)?;
                chunk.clear();
            }
            start = *end;
            xid = xid.wrapping_add(1);
        }
        chunk.extend(Message::BarrierRequest.encode(xid));
        stream.write_all(&chunk)
    }
}

/// Where the transaction id stands in the header.
const XID_OFFSET: usize = 4;

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

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn broken(error: io::Error) -> anyhow::Error {
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
