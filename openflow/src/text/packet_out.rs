//! Parses what `packet-out` is given.

use super::error::ParseError;
use super::instructions::parse_actions;
use super::lexer::{Item, Lexer};
use super::names::{PortNames, parse_port};
use super::value::unknown_port;
use crate::oxm::Match;
use crate::packet_out::PacketOut;
use crate::port::{OFP_NO_BUFFER, OFPP_CONTROLLER};

/// Shortest frame: two addresses and a type.
const FRAME_MIN_BYTES: usize = 14;

/// Reads `in_port=PORT,packet=HEX,actions=ACTIONS`, the last being the actions. `matched` says what
/// a frame is, which decides what may be done with it.
pub fn parse_packet_out(
    text: &str,
    names: &dyn PortNames,
    matched: &dyn Fn(&[u8]) -> Match,
) -> Result<PacketOut, ParseError> {
    let mut in_port = OFPP_CONTROLLER;
    let (mut frame, mut actions) = (None, "");
    let mut lexer = Lexer::new(text);
    loop {
        let before = lexer.rest();
        let Some(Item { key, value }) = lexer.next()? else { break };
        let value = value.ok_or_else(|| ParseError::new(format!("field {key} has no value")))?;
        match key {
            "in_port" => {
                in_port = parse_port(value, names).ok_or_else(|| unknown_port(key, value))?;
            }
            "packet" => frame = Some(parse_frame(value)?),
            "actions" | "action" => {
                actions = before.split_once(['=', ':']).map_or("", |(_, list)| list);
                break;
            }
            "metadata" => {
                return Err(ParseError::new(
                    "metadata is written by the actions: load:N->metadata",
                ));
            }
            _ => {
                return Err(ParseError::new(format!(
                    "unknown keyword {key}: a packet-out has in_port=PORT,packet=HEX,actions=ACTIONS"
                )));
            }
        }
    }
    let frame = frame.ok_or_else(|| {
        ParseError::new("a packet-out needs a packet before the actions: packet=HEX")
    })?;
    packet_out(in_port, actions, frame, names, matched)
}

/// Puts together what `packet-out BRIDGE PORT ACTIONS HEX` is given.
pub fn packet_out(
    in_port: u32,
    actions: &str,
    data: Vec<u8>,
    names: &dyn PortNames,
    matched: &dyn Fn(&[u8]) -> Match,
) -> Result<PacketOut, ParseError> {
    let actions = parse_actions(actions, &matched(&data), names)?;
    let packet = PacketOut { buffer_id: OFP_NO_BUFFER, in_port, actions, data };
    if !packet.fits() {
        return Err(ParseError::new("packet and actions are too long for one message"));
    }
    Ok(packet)
}

/// Reads a frame in hexadecimal; white space and the colons between bytes do not count.
pub fn parse_frame(text: &str) -> Result<Vec<u8>, ParseError> {
    let digits: Vec<u8> =
        text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b':').collect();
    let (pairs, odd) = digits.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        Some((high? << 4 | low?) as u8)
    };
    let frame: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let frame = frame.filter(|_| odd.is_empty()).ok_or_else(|| {
        ParseError::new("packet: expected the bytes of an Ethernet frame in hexadecimal")
    })?;
    if frame.len() < FRAME_MIN_BYTES {
        return Err(ParseError::new(format!(
            "packet: {} bytes are too few for an Ethernet frame: it has {FRAME_MIN_BYTES} or more",
            frame.len()
        )));
    }
    Ok(frame)
}
