//! `replace-flows` and `diff-flows`: two sets of flows side by side.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use tollgate_openflow::multipart::{FlowStatsRequest, MultipartReply, MultipartRequest};
use tollgate_openflow::text::{
    NoNames, PortNames, PortTable, format_actions, format_error, format_match,
};
use tollgate_openflow::{FlowCommand, FlowFlags, FlowMod, Instructions, Match};

use super::changes::others;
use super::connection::unexpected;
use super::flow_file::FlowFile;
use super::{Session, connection::Connection};
use crate::cli::Cli;
use crate::output::print;
use crate::target;

/// What a flow is, apart from what it does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    table_id: u8,
    priority: u16,
    matcher: Match,
}

/// What a flow does.
#[derive(Clone, Debug)]
struct Version {
    cookie: u64,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    flags: FlowFlags,
    instructions: Instructions,
}

impl Version {
    /// As in ovs-ofctl the flags do not make a difference: a switch may not know all.
    fn differs(&self, other: &Version) -> bool {
        (self.cookie, self.idle_timeout_s, self.hard_timeout_s)
            != (other.cookie, other.idle_timeout_s, other.hard_timeout_s)
            || self.instructions != other.instructions
    }
}

/// Each flow with its version in the first set and in the second.
type Flows = HashMap<Key, [Option<Version>; 2]>;

#[derive(Clone, Copy)]
enum Side {
    First = 0,
    Second = 1,
}

fn put(flows: &mut Flows, side: Side, key: Key, version: Version) {
    let versions = flows.entry(key).or_default();
    if let Some(place) = versions.get_mut(side as usize) {
        *place = Some(version);
    }
}

/// Takes a flow from a file; flags that concern the adding alone are left out.
fn put_flow(flows: &mut Flows, side: Side, flow: FlowMod) {
    let key = Key { table_id: flow.table_id, priority: flow.priority, matcher: flow.matcher };
    let version = Version {
        cookie: flow.cookie,
        idle_timeout_s: flow.idle_timeout_s,
        hard_timeout_s: flow.hard_timeout_s,
        flags: flow.flags.lasting(),
        instructions: flow.instructions,
    };
    put(flows, side, key, version);
}

fn read_file(
    flows: &mut Flows,
    side: Side,
    file: &FlowFile,
    names: &(dyn PortNames + Sync),
) -> anyhow::Result<()> {
    for flow in file.flows(FlowCommand::Add, names)? {
        let flow = flow?;
        if flow.command != FlowCommand::Add {
            bail!("{}: only flows can be compared, without add, modify or delete", file.name);
        }
        put_flow(flows, side, flow);
    }
    Ok(())
}

fn read_switch(flows: &mut Flows, side: Side, connection: &mut Connection) -> anyhow::Result<()> {
    let request = MultipartRequest::Flow(FlowStatsRequest::default());
    connection.multipart(request, |reply, _, _| {
        let MultipartReply::Flow(part) = reply else { return Err(unexpected()) };
        for flow in part {
            let key =
                Key { table_id: flow.table_id, priority: flow.priority, matcher: flow.matcher };
            let version = Version {
                cookie: flow.cookie,
                idle_timeout_s: flow.idle_timeout_s,
                hard_timeout_s: flow.hard_timeout_s,
                flags: flow.flags,
                instructions: flow.instructions,
            };
            put(flows, side, key, version);
        }
        Ok(())
    })
}

/// Makes the flows of the switch those of a file.
pub(super) fn replace(mut session: Session<'_>, path: &str) -> anyhow::Result<()> {
    let file = FlowFile::open(path)?;
    let names = session.accepted_names()?;
    let mut flows = Flows::new();
    read_file(&mut flows, Side::First, &file, &names)?;
    read_switch(&mut flows, Side::Second, &mut session.connection)?;
    let readd = session.options.readd;
    let (mut deletions, mut additions) = (Vec::new(), Vec::new());
    for (key, [wanted, present]) in flows {
        match (wanted, present) {
            (None, Some(_)) => deletions.push(flow_mod(FlowCommand::DeleteStrict, key, None)),
            (Some(wanted), present) => {
                if readd || present.is_none_or(|present| wanted.differs(&present)) {
                    additions.push(flow_mod(FlowCommand::Add, key, Some(wanted)));
                }
            }
            (None, None) => {}
        }
    }
    let changes = deletions.into_iter().chain(additions);
    let sent = session.send_flows(changes.map(Ok))?;
    match sent.first_refusal {
        None => Ok(()),
        Some(refusal) => bail!(
            "the switch refused a flow: {}{}{}",
            format_error(refusal.code),
            others(&sent),
            session.nothing_done()
        ),
    }
}

fn flow_mod(command: FlowCommand, key: Key, version: Option<Version>) -> FlowMod {
    let Key { table_id, priority, matcher } = key;
    let mut flow = FlowMod { table_id, priority, matcher, ..FlowMod::new(command) };
    if let Some(version) = version {
        flow.cookie = version.cookie;
        flow.idle_timeout_s = version.idle_timeout_s;
        flow.hard_timeout_s = version.hard_timeout_s;
        flow.flags = version.flags;
        flow.instructions = version.instructions;
    }
    flow
}

/// Prints what two sets of flows do not have in common; status 2 if there is anything.
pub(super) fn diff(cli: &Cli, sources: [&str; 2]) -> anyhow::Result<ExitCode> {
    let sides = [Side::First, Side::Second];
    let mut flows = Flows::new();
    let mut names = PortTable::default();
    let mut shows_names = false;
    let mut files = Vec::new();
    for (side, source) in sides.into_iter().zip(sources) {
        if Path::new(source).is_file() || source == "-" {
            files.push((side, FlowFile::open(source)?));
            continue;
        }
        let target = target::bridge(source, &cli.run_dir);
        let mut session = Session::to(&target, cli)
            .map_err(|error| anyhow!("{source} is no file, and no bridge: {error:#}"))?;
        names = session.accepted_names()?;
        shows_names |= session.shows_names();
        read_switch(&mut flows, side, &mut session.connection)?;
    }
    // (Files come last: a bridge's port names may stand in them.)
    for (side, file) in &files {
        read_file(&mut flows, *side, file, &names)?;
    }
    let printed: &dyn PortNames = if shows_names { &names } else { &NoNames };
    let differences = differences(flows, printed);
    print(&differences)?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// The differences, by table, then by falling priority.
fn differences(flows: Flows, names: &dyn PortNames) -> String {
    let differ = |versions: &[Option<Version>; 2]| match versions {
        [Some(first), Some(second)] => first.differs(second),
        _ => true,
    };
    let mut lines: Vec<_> = flows
        .into_iter()
        .filter(|(_, versions)| differ(versions))
        .map(|(key, versions)| {
            let matched = format_match(&key.matcher, key.priority, names);
            let line = |sign, version: &Version| {
                format!("{sign}{}", format_version(&key, &matched, version, names))
            };
            let [first, second] = versions;
            let lines = [first.map(|v| line('-', &v)), second.map(|v| line('+', &v))];
            let text: String = lines.into_iter().flatten().collect();
            (key.table_id, Reverse(key.priority), matched, text)
        })
        .collect();
    lines.sort();
    lines.into_iter().map(|(_, _, _, text)| text).collect()
}

fn format_version(key: &Key, matched: &str, version: &Version, names: &dyn PortNames) -> String {
    let mut line = match key.table_id {
        0 => String::new(),
        table => format!("table={table} "),
    };
    line += matched;
    if version.cookie != 0 {
        line += &format!(" cookie={:#x}", version.cookie);
    }
    for (name, seconds) in
        [("idle_timeout", version.idle_timeout_s), ("hard_timeout", version.hard_timeout_s)]
    {
        if seconds != 0 {
            line += &format!(" {name}={seconds}");
        }
    }
    format!("{line} actions={}\n", format_actions(&version.instructions, names))
}
