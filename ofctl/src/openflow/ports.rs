//! `mod-port` and `queue-stats`.

use anyhow::{anyhow, bail};
use tollgate_openflow::Message;
use tollgate_openflow::multipart::{MultipartReply, MultipartRequest};
use tollgate_openflow::port::{
    OFPP_ANY, OFPPC_NO_FWD, OFPPC_NO_PACKET_IN, OFPPC_NO_RECV, OFPPC_PORT_DOWN,
};
use tollgate_openflow::port_mod::PortMod;
use tollgate_openflow::queue::OFPQ_ALL;
use tollgate_openflow::text::{PortTable, format_queue_stats, parse_port, reply_heading};

use super::Session;
use super::connection::unexpected;
use super::dump::no_such_port;
use crate::output::print;

/// What can be changed: the word, the bit, and whether it is set.
const CHANGES: [(&str, u32, bool); 8] = [
    ("up", OFPPC_PORT_DOWN, false),
    ("down", OFPPC_PORT_DOWN, true),
    ("receive", OFPPC_NO_RECV, false),
    ("no-receive", OFPPC_NO_RECV, true),
    ("forward", OFPPC_NO_FWD, false),
    ("no-forward", OFPPC_NO_FWD, true),
    ("packet-in", OFPPC_NO_PACKET_IN, false),
    ("no-packet-in", OFPPC_NO_PACKET_IN, true),
];

/// What only OpenFlow 1.0 could change.
const GONE: [&str; 6] = ["flood", "no-flood", "stp", "no-stp", "receive-stp", "no-receive-stp"];

pub(super) fn change(mut session: Session<'_>, port: &str, change: &str) -> anyhow::Result<()> {
    let (_, mask, set) =
        CHANGES.into_iter().find(|(word, ..)| *word == change).ok_or_else(|| {
            if GONE.contains(&change) {
                return anyhow!("{change}: OpenFlow 1.3 has no such configuration of a port");
            }
            let words = CHANGES.map(|(word, ..)| word).join(", ");
            anyhow!("unknown change {change}: expected {words}")
        })?;
    let (ports, _) = session.port_descriptions()?;
    let number = parse_port(port, &PortTable::new(&ports));
    let described = ports.iter().find(|known| Some(known.port_no) == number);
    let Some(described) = described else { return Err(no_such_port(port)) };
    let config = if set { mask } else { 0 };
    session.connection.order(Message::PortMod(PortMod {
        port_no: described.port_no,
        hw_addr: described.hw_addr,
        config,
        mask,
        advertise: 0,
    }))
}

pub(super) fn queues(
    mut session: Session<'_>,
    port: Option<&str>,
    queue: Option<&str>,
) -> anyhow::Result<()> {
    let port_no = match port {
        None => OFPP_ANY,
        Some(text) => session.port_number(text)?,
    };
    let queue_id = match queue {
        None => OFPQ_ALL,
        Some(text) if text.eq_ignore_ascii_case("all") => OFPQ_ALL,
        Some(text) => text.parse().map_err(|_| {
            anyhow!("queue {text}: expected a number from 0 to {}, or ALL", u32::MAX)
        })?,
    };
    let names = session.printed_names()?;
    let request = MultipartRequest::Queue { port_no, queue_id };
    session.connection.multipart(request, |reply, xid, more| {
        let MultipartReply::Queue(queues) = reply else { return Err(unexpected()) };
        let heading = reply_heading("OFPST_QUEUE reply", xid, more);
        let lines: String = queues.iter().map(|queue| format_queue_stats(queue, &names)).collect();
        Ok(print(&format!("{heading} {} queues\n{lines}", queues.len()))?)
    })
}

/// Groups, of which a switch without any has nothing to say.
pub(super) fn groups(mut session: Session<'_>) -> anyhow::Result<()> {
    session.connection.multipart(MultipartRequest::GroupDesc, |reply, xid, more| match reply {
        MultipartReply::GroupDesc(entries) if entries.is_empty() => {
            Ok(print(&(reply_heading("OFPST_GROUP_DESC reply", xid, more) + "\n"))?)
        }
        MultipartReply::GroupDesc(_) => {
            bail!("the switch has groups, which are not supported: this program cannot print them")
        }
        _ => Err(unexpected()),
    })
}
