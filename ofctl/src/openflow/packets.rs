//! `packet-out` and `monitor`.

use anyhow::{anyhow, bail};
use tollgate_openflow::message::SwitchConfig;
use tollgate_openflow::text::{
    format_error, format_flow_removed, format_packet_in, format_port_status, packet_out,
    parse_frame, parse_packet_out, parse_port, reply_heading,
};
use tollgate_openflow::{Header, Message};

use super::Session;
use super::connection::unexpected;
use crate::frame;
use crate::output::print;

/// Sends packets: `in_port=PORT,packet=HEX,actions=ACTIONS`, or a port, actions and frames.
pub(super) fn send(mut session: Session<'_>, arguments: &[String]) -> anyhow::Result<()> {
    let names = session.accepted_names()?;
    let describe = |frame: &[u8]| frame::describe(frame);
    let packets = match arguments {
        [text] => vec![parse_packet_out(text, &names, &describe)?],
        [port, actions, frames @ ..] if !frames.is_empty() => {
            let in_port = match port.to_ascii_lowercase().as_str() {
                // OpenFlow 1.0's word for it.
                "none" => tollgate_openflow::port::OFPP_CONTROLLER,
                _ => parse_port(port, &names).ok_or_else(|| super::dump::no_such_port(port))?,
            };
            let packet =
                |text: &String| packet_out(in_port, actions, parse_frame(text)?, &names, &describe);
            frames.iter().map(packet).collect::<Result<_, _>>()?
        }
        _ => {
            bail!("packet-out needs in_port=PORT,packet=HEX,actions=ACTIONS or PORT ACTIONS HEX...")
        }
    };
    let messages = packets.into_iter().map(|packet| Ok(Message::PacketOut(Box::new(packet))));
    match session.connection.pipeline(messages)?.first_refusal {
        None => Ok(()),
        Some(refusal) => bail!("the switch refused the packet: {}", format_error(refusal.code)),
    }
}

/// Prints what the switch reports, until it goes.
pub(super) fn monitor(mut session: Session<'_>, options: &[String]) -> anyhow::Result<()> {
    let mut miss_len = None;
    for option in options {
        miss_len = Some(miss_send_len(option)?);
    }
    let names = session.printed_names()?;
    if let Some(miss_send_len) = miss_len {
        let (Message::GetConfigReply(config), _) =
            session.connection.request(&Message::GetConfigRequest)?
        else {
            return Err(unexpected());
        };
        let config = SwitchConfig { miss_send_len, ..config };
        session.connection.order(Message::SetConfig(config))?;
    }
    session.connection.wait_without_end()?;
    loop {
        let (header, message) = session.connection.receive()?;
        let heading = |name: &str| reply_heading(name, header.xid, false);
        let text = match &message {
            Message::PacketIn(packet) => {
                let mut text = heading("OFPT_PACKET_IN") + &format_packet_in(packet, &names);
                text += &frame::summary(&packet.data);
                text + "\n"
            }
            Message::FlowRemoved(flow) => {
                heading("OFPT_FLOW_REMOVED") + &format_flow_removed(flow, &names)
            }
            Message::PortStatus(status) => {
                heading("OFPT_PORT_STATUS") + &format_port_status(status)
            }
            Message::Error(error) => {
                format!("{} {}\n", heading("OFPT_ERROR"), format_error(error.code))
            }
            _ => String::new(),
        };
        print(&text)?;
        answer(&mut session, header, message)?;
    }
}

/// The number that an option of `monitor` is; ovs-ofctl's others are not supported.
fn miss_send_len(option: &str) -> anyhow::Result<u16> {
    match option {
        "invalid_ttl" => bail!("invalid_ttl: OpenFlow 1.3 has no such configuration"),
        "resume" => bail!("resume: packets are not paused here"),
        option if option.starts_with("watch:") => {
            bail!("{option}: watching the flow tables is not supported")
        }
        option => option
            .parse()
            .map_err(|_| anyhow!("{option}: expected a number of bytes from 0 to {}", u16::MAX)),
    }
}

fn answer(session: &mut Session<'_>, header: Header, message: Message) -> anyhow::Result<()> {
    session
        .connection
        .reply_to_echo(header.xid, message)
        .map_err(|error| anyhow!("answering the switch's echo request: {error:#}"))
}
