//! `probe` and `ping`.

use std::time::Instant;

use anyhow::bail;
use tollgate_openflow::Message;

use super::Session;
use super::connection::unexpected;
use crate::output::print;

/// Whether the switch answers an echo. Silent on success, as ovs-ofctl is.
pub(super) fn probe(mut session: Session<'_>) -> anyhow::Result<()> {
    match session.connection.request(&Message::EchoRequest(b"probe".to_vec()))? {
        (Message::EchoReply(data), _) if data == b"probe" => Ok(print("")?),
        _ => Err(unexpected()),
    }
}

/// How many times `ping` asks.
const PINGS: usize = 10;

/// Bytes that the header leaves of a message.
const ECHO_MAX_BYTES: u16 = u16::MAX - 8;

/// Asks ten times for an echo of so many bytes, and prints how long it took.
pub(super) fn ping(mut session: Session<'_>, bridge: &str, bytes: u16) -> anyhow::Result<()> {
    if bytes > ECHO_MAX_BYTES {
        bail!("{bytes} bytes do not fit into a message: at most {ECHO_MAX_BYTES}");
    }
    // Not all alike, so that a switch that sends something else is found out.
    let data: Vec<u8> = (0..bytes).map(|index| index as u8).collect();
    for _ in 0..PINGS {
        let start = Instant::now();
        let (reply, xid) = session.connection.request(&Message::EchoRequest(data.clone()))?;
        let elapsed_ms = start.elapsed().as_secs_f64() * 1000.0;
        match reply {
            Message::EchoReply(echo) if echo == data => {}
            _ => return Err(unexpected()),
        }
        print(&format!("{bytes} bytes from {bridge}: xid={xid:08x} time={elapsed_ms:.1} ms\n"))?;
    }
    Ok(())
}
