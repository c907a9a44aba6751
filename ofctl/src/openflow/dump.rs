//! `dump-flows`, `show`, `dump-ports` and the other commands that only print.

use tollgate_openflow::Message;
use tollgate_openflow::multipart::{FlowStats, FlowStatsRequest, MultipartReply, MultipartRequest};
use tollgate_openflow::port::{OFPP_ANY, PortDesc};
use tollgate_openflow::text::{
    FlowFormat, PortTable, format_aggregate, format_desc, format_features, format_flow,
    format_port_desc, format_port_stats, format_switch_config, format_table_stats,
    parse_flow_stats_request, parse_port, reply_heading,
};

use super::Session;
use super::connection::unexpected;
use super::sort::Order;
use crate::output::print;

fn selection(session: &mut Session<'_>, flow: Option<&str>) -> anyhow::Result<FlowStatsRequest> {
    match flow {
        None => Ok(FlowStatsRequest::default()),
        Some(text) => Ok(parse_flow_stats_request(text, &session.accepted_names()?)?),
    }
}

/// As ovs-ofctl: plain, the replies print as they come, each with a heading; with names, without
/// counters or sorted, only the flows.
pub(super) fn flows(mut session: Session<'_>, flow: Option<&str>) -> anyhow::Result<()> {
    let options = session.options;
    let order = match (&options.sort, &options.rsort) {
        (Some(field), _) => Some(Order::parse(field, false)?),
        (None, Some(field)) => Some(Order::parse(field, true)?),
        (None, None) => None,
    };
    let format = FlowFormat { stats: !options.no_stats };
    let request = MultipartRequest::Flow(selection(&mut session, flow)?);
    let names = session.printed_names()?;
    let plain = order.is_none() && format.stats && !session.shows_names();
    let mut kept = Vec::new();
    session.connection.multipart(request, |reply, xid, more| {
        let MultipartReply::Flow(mut flows) = reply else { return Err(unexpected()) };
        if order.is_some() {
            kept.append(&mut flows);
            return Ok(());
        }
        let heading = reply_heading("OFPST_FLOW reply", xid, more);
        let heading = if plain { heading + "\n" } else { String::new() };
        Ok(print(&(heading + &lines(&flows, &names, format)))?)
    })?;
    if let Some(order) = order {
        order.sort(&mut kept);
        print(&lines(&kept, &names, format))?;
    }
    Ok(())
}

fn lines(flows: &[FlowStats], names: &PortTable, format: FlowFormat) -> String {
    flows.iter().map(|flow| format!(" {}\n", format_flow(flow, names, format))).collect()
}

pub(super) fn aggregate(mut session: Session<'_>, flow: Option<&str>) -> anyhow::Result<()> {
    let request = MultipartRequest::Aggregate(selection(&mut session, flow)?);
    session.connection.multipart(request, |reply, xid, more| match reply {
        MultipartReply::Aggregate(stats) => {
            let heading = reply_heading("OFPST_AGGREGATE reply", xid, more);
            Ok(print(&(heading + &format_aggregate(&stats)))?)
        }
        _ => Err(unexpected()),
    })
}

pub(super) fn show(mut session: Session<'_>) -> anyhow::Result<()> {
    let (Message::FeaturesReply(features), xid) =
        session.connection.request(&Message::FeaturesRequest)?
    else {
        return Err(unexpected());
    };
    print(&(reply_heading("OFPT_FEATURES_REPLY", xid, false) + &format_features(&features)))?;
    let (ports, xid) = session.port_descriptions()?;
    print_ports(ports, xid)?;
    let (Message::GetConfigReply(config), xid) =
        session.connection.request(&Message::GetConfigRequest)?
    else {
        return Err(unexpected());
    };
    let heading = reply_heading("OFPT_GET_CONFIG_REPLY", xid, false);
    Ok(print(&(heading + &format_switch_config(&config)))?)
}

fn print_ports(mut ports: Vec<PortDesc>, xid: u32) -> anyhow::Result<()> {
    ports.sort_by_key(|port| port.port_no);
    let heading = reply_heading("OFPST_PORT_DESC reply", xid, false) + "\n";
    let ports: String = ports.iter().map(format_port_desc).collect();
    Ok(print(&(heading + &ports))?)
}

pub(super) fn ports_desc(mut session: Session<'_>, port: Option<&str>) -> anyhow::Result<()> {
    let (mut ports, xid) = session.port_descriptions()?;
    if let Some(text) = port {
        let number = parse_port(text, &PortTable::new(&ports)).ok_or_else(|| no_such_port(text))?;
        ports.retain(|port| port.port_no == number);
        if ports.is_empty() {
            return Err(no_such_port(text));
        }
    }
    print_ports(ports, xid)
}

pub(super) fn ports(mut session: Session<'_>, port: Option<&str>) -> anyhow::Result<()> {
    let port_no = match port {
        None => OFPP_ANY,
        Some(text) => session.port_number(text)?,
    };
    let names = session.printed_names()?;
    let mut found = 0;
    session.connection.multipart(MultipartRequest::PortStats { port_no }, |reply, xid, more| {
        let MultipartReply::PortStats(ports) = reply else { return Err(unexpected()) };
        found += ports.len();
        let heading = reply_heading("OFPST_PORT reply", xid, more);
        let lines: String = ports.iter().map(|stats| format_port_stats(stats, &names)).collect();
        Ok(print(&format!("{heading} {} ports\n{lines}", ports.len()))?)
    })?;
    match port {
        Some(text) if found == 0 => Err(no_such_port(text)),
        _ => Ok(()),
    }
}

pub(super) fn no_such_port(text: &str) -> anyhow::Error {
    anyhow::anyhow!("the bridge has no port {text} (\"ofctl show BRIDGE\" lists them)")
}

pub(super) fn desc(mut session: Session<'_>) -> anyhow::Result<()> {
    session.connection.multipart(MultipartRequest::Desc, |reply, xid, more| match reply {
        MultipartReply::Desc(desc) => {
            let heading = reply_heading("OFPST_DESC reply", xid, more);
            Ok(print(&format!("{heading}\n{}", format_desc(&desc)))?)
        }
        _ => Err(unexpected()),
    })
}

pub(super) fn tables(mut session: Session<'_>) -> anyhow::Result<()> {
    session.connection.multipart(MultipartRequest::Table, |reply, xid, more| match reply {
        MultipartReply::Table(tables) => {
            let heading = reply_heading("OFPST_TABLE reply", xid, more);
            Ok(print(&format!("{heading}\n{}", format_table_stats(&tables)))?)
        }
        _ => Err(unexpected()),
    })
}
