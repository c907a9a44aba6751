//! Commands over OpenFlow.

mod bundle;
mod changes;
mod compare;
mod connection;
mod dump;
mod flow_file;
mod liveness;
mod meters;
mod packets;
mod pipeline;
mod ports;
mod sort;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use tollgate_openflow::FlowCommand as FlowModCommand;
use tollgate_openflow::meter::MeterCommand;
use tollgate_openflow::multipart::{MultipartReply, MultipartRequest};
use tollgate_openflow::port::PortDesc;
use tollgate_openflow::text::{NoNames, PortTable, parse_port};

use self::connection::{Connection, unexpected};
use crate::cli::{Cli, FlowCommand, FlowOptions};
use crate::target::{self, Target};

/// Runs one command.
pub(crate) fn run(cli: &Cli, command: &FlowCommand) -> anyhow::Result<ExitCode> {
    use FlowCommand as C;
    let open = |bridge: &str| Session::open(cli, bridge);
    match command {
        C::AddFlow { bridge, flow } => changes::add(open(bridge)?, flow),
        C::AddFlows { bridge, file } => changes::file(open(bridge)?, FlowModCommand::Add, file),
        C::ModFlows { bridge, flow } => changes::modify(open(bridge)?, flow),
        C::DelFlows { bridge, flow } => changes::delete(open(bridge)?, flow.as_deref()),
        C::ReplaceFlows { bridge, file } => compare::replace(open(bridge)?, file),
        C::DiffFlows { source1, source2 } => return compare::diff(cli, [source1, source2]),
        C::DumpFlows { bridge, flow } => dump::flows(open(bridge)?, flow.as_deref()),
        C::DumpAggregate { bridge, flow } => dump::aggregate(open(bridge)?, flow.as_deref()),
        C::Show { bridge } => dump::show(open(bridge)?),
        C::DumpPorts { bridge, port } => dump::ports(open(bridge)?, port.as_deref()),
        C::DumpPortsDesc { bridge, port } => dump::ports_desc(open(bridge)?, port.as_deref()),
        C::DumpDesc { bridge } => dump::desc(open(bridge)?),
        C::DumpTables { bridge } => dump::tables(open(bridge)?),
        C::ModPort { bridge, port, change } => ports::change(open(bridge)?, port, change),
        C::PacketOut { bridge, packet } => packets::send(open(bridge)?, packet),
        C::Monitor { bridge, options } => packets::monitor(open(bridge)?, options),
        C::QueueStats { bridge, port, queue } => {
            ports::queues(open(bridge)?, port.as_deref(), queue.as_deref())
        }
        C::DumpGroups { bridge } => ports::groups(open(bridge)?),
        C::AddMeter { bridge, meter } => {
            meters::change(open(bridge)?, MeterCommand::Add, Some(meter))
        }
        C::ModMeter { bridge, meter } => {
            meters::change(open(bridge)?, MeterCommand::Modify, Some(meter))
        }
        C::DelMeter { bridge, meter } => {
            meters::change(open(bridge)?, MeterCommand::Delete, meter.as_deref())
        }
        C::DumpMeters { bridge, meter } => meters::dump(open(bridge)?, meter.as_deref()),
        C::MeterStats { bridge, meter } => meters::stats(open(bridge)?, meter.as_deref()),
        C::MeterFeatures { bridge } => meters::features(open(bridge)?),
        C::Probe { bridge } => liveness::probe(open(bridge)?),
        C::Ping { bridge, bytes } => liveness::ping(open(bridge)?, bridge, *bytes),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// A connection and the options of the command that uses it.
struct Session<'a> {
    connection: Connection,
    options: &'a FlowOptions,
}

impl<'a> Session<'a> {
    fn open(cli: &'a Cli, bridge: &str) -> anyhow::Result<Session<'a>> {
        Session::to(&target::bridge(bridge, &cli.run_dir), cli)
    }

    fn to(target: &Target, cli: &'a Cli) -> anyhow::Result<Session<'a>> {
        Ok(Session { connection: Connection::open(target)?, options: &cli.flow_options })
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

    /// The number of the port of this name or number.
    fn port_number(&mut self, text: &str) -> anyhow::Result<u32> {
        match parse_port(text, &NoNames) {
            Some(number) => Ok(number),
            None => {
                let names = self.accepted_names()?;
                parse_port(text, &names).ok_or_else(|| dump::no_such_port(text))
            }
        }
    }

    /// The port names to print.
    fn printed_names(&mut self) -> anyhow::Result<PortTable> {
        if self.shows_names() { self.accepted_names() } else { Ok(PortTable::default()) }
    }
}
