//! The far end of an OpenFlow 1.3 connection, which knows no more of the protocol than headers: it
//! plays recorded messages and sorts what comes back.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::process::eventually;

const HEADER_BYTES: usize = 8;
const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// `OFPT_PACKET_IN`.
pub const PACKET_IN: u8 = 10;
/// `OFPT_MULTIPART_REPLY`.
pub const MULTIPART_REPLY: u8 = 19;
const BARRIER_REQUEST: u8 = 20;
const BARRIER_REPLY: u8 = 21;

/// Far beyond anything but a hang.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// A message as it came, header included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received(pub Vec<u8>);

impl Received {
    /// Its type.
    pub fn kind(&self) -> u8 {
        self.0.get(1).copied().unwrap_or_default()
    }

    /// What follows the header.
    pub fn body(&self) -> &[u8] {
        self.0.get(HEADER_BYTES..).unwrap_or_default()
    }
}

/// A connection after its greeting.
#[derive(Debug)]
pub struct Controller {
    stream: UnixStream,
    next_xid: u32,
}

impl Controller {
    /// Connects to the socket of a bridge, which may still be on its way.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream =
            eventually("OpenFlow socket", REPLY_LIMIT, || Ok(UnixStream::connect(path).ok()))?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        let mut controller = Self { stream, next_xid: 1 };
        controller.send(&[4, HELLO, 0, 8, 0, 0, 0, 0])?;
        let hello = controller.read()?;
        ensure!(hello.kind() == HELLO, "greeted with {hello:02x?}");
        Ok(controller)
    }

    /// Sends one whole message under an xid of this connection's own.
    pub fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let mut message = message.to_vec();
        let xid = self.next_xid.to_be_bytes();
        message.get_mut(4..8).context("shorter than a header")?.copy_from_slice(&xid);
        self.next_xid += 1;
        Ok(self.stream.write_all(&message)?)
    }

    /// Waits for the switch to have carried out everything sent so far; returns what it has sent
    /// meanwhile.
    ///
    /// # Errors
    /// With the first error message among them.
    pub fn barrier(&mut self) -> anyhow::Result<Vec<Received>> {
        self.send(&[4, BARRIER_REQUEST, 0, 8, 0, 0, 0, 0])?;
        let mut received = Vec::new();
        let mut refused = None;
        loop {
            let message = self.read()?;
            match message.kind() {
                BARRIER_REPLY => break,
                ERROR if refused.is_none() => refused = Some(message),
                ECHO_REQUEST => {
                    let mut reply = message.0;
                    reply.get_mut(1).context("empty echo")?.clone_from(&ECHO_REPLY);
                    self.stream.write_all(&reply)?;
                }
                _ => received.push(message),
            }
        }
        match refused.as_ref().map(|error| error.body()) {
            None => Ok(received),
            Some([a, b, c, d, ..]) => bail!(
                "refused: error type {}, code {}",
                u16::from_be_bytes([*a, *b]),
                u16::from_be_bytes([*c, *d])
            ),
            Some(short) => bail!("refused with a short error: {short:02x?}"),
        }
    }

    fn read(&mut self) -> anyhow::Result<Received> {
        let mut message = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut message).context("the switch closed the connection")?;
        let [_, _, high, low, ..] = message[..] else { bail!("no header") };
        let length = usize::from(u16::from_be_bytes([high, low]));
        ensure!(length >= HEADER_BYTES, "a message of {length} bytes");
        message.resize(length, 0);
        self.stream.read_exact(&mut message[HEADER_BYTES..])?;
        Ok(Received(message))
    }
}
