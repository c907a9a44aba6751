//! Commands over OpenFlow.

mod changes;
mod connection;
mod dump;
mod sort;

use std::io::IsTerminal;

use anyhow::Context;
use tollgate_openflow::Message;
use tollgate_openflow::multipart::{MultipartReply, MultipartRequest};
use tollgate_openflow::port::PortDesc;
use tollgate_openflow::text::PortTable;

use self::connection::{Connection, unexpected};
use crate::cli::{Cli, FlowCommand, FlowOptions};
use crate::{output, target};

/// Runs one command.
pub(crate) fn run(cli: &Cli, command: &FlowCommand) -> anyhow::Result<()> {
    use FlowCommand as C;
    let open = |bridge: &str| Session::open(cli, bridge);
    match command {
        C::AddFlow { bridge, flow } => changes::add(open(bridge)?, flow),
        C::AddFlows { bridge, file } => changes::file(open(bridge)?, file),
        C::ModFlows { bridge, flow } => changes::modify(open(bridge)?, flow),
        C::DelFlows { bridge, flow } => changes::delete(open(bridge)?, flow.as_deref()),
        C::DumpFlows { bridge, flow } => dump::flows(open(bridge)?, flow.as_deref()),
        C::DumpAggregate { bridge, flow } => dump::aggregate(open(bridge)?, flow.as_deref()),
        C::Show { bridge } => dump::show(open(bridge)?),
        C::DumpPorts { bridge, port } => dump::ports(open(bridge)?, port.as_deref()),
        C::DumpPortsDesc { bridge, port } => dump::ports_desc(open(bridge)?, port.as_deref()),
        C::DumpDesc { bridge } => dump::desc(open(bridge)?),
        C::DumpTables { bridge } => dump::tables(open(bridge)?),
        C::Probe { bridge } => probe(open(bridge)?),
    }
}

/// A connection and the options of the command that uses it.
struct Session<'a> {
    connection: Connection,
    options: &'a FlowOptions,
}

impl<'a> Session<'a> {
    fn open(cli: &'a Cli, bridge: &str) -> anyhow::Result<Session<'a>> {
        let socket = target::bridge_socket(bridge, &cli.run_dir);
        Ok(Session { connection: Connection::open(&socket)?, options: &cli.flow_options })
    }

    /// Whether ports are printed by name.
    fn shows_names(&self) -> bool {
        self.options.names || (!self.options.no_names && std::io::stdout().is_terminal())
    }

    fn port_descriptions(&mut self) -> anyhow::Result<(Vec<PortDesc>, u32)> {
        let (mut ports, mut last_xid) = (Vec::new(), 0);
        self.connection
            .multipart(MultipartRequest::PortDesc, |reply, xid, _| match reply {
                MultipartReply::PortDesc(part) => {
                    ports.extend(part);
                    last_xid = xid;
                    Ok(())
                }
                _ => Err(unexpected()),
            })
            .context("reading the bridge's ports")?;
        Ok((ports, last_xid))
    }

    /// The port names that flows may use: all of the bridge's, or none with `--no-names`.
    fn accepted_names(&mut self) -> anyhow::Result<PortTable> {
        if self.options.no_names {
            return Ok(PortTable::default());
        }
        Ok(PortTable::new(&self.port_descriptions()?.0))
    }

    /// The port names to print.
    fn printed_names(&mut self) -> anyhow::Result<PortTable> {
        if self.shows_names() { self.accepted_names() } else { Ok(PortTable::default()) }
    }
}

/// Whether the switch answers an echo. Silent on success, as ovs-ofctl is.
fn probe(mut session: Session<'_>) -> anyhow::Result<()> {
    match session.connection.request(&Message::EchoRequest(b"probe".to_vec()))? {
        (Message::EchoReply(data), _) if data == b"probe" => Ok(output::print("")?),
        _ => Err(unexpected()),
    }
}
