//! `add-flow`, `add-flows`, `mod-flows`, `del-flows`.

use std::fs::File;
use std::io::{self, Read};

use anyhow::{Context, anyhow, bail};
use tollgate_openflow::text::{format_error, parse_flow, parse_flow_line};
use tollgate_openflow::{FlowCommand, Message};

use super::Session;
use super::connection::{Batch, Refusal};
use crate::limits::FLOW_FILE_MAX_BYTES;

pub(super) fn add(session: Session<'_>, flow: &str) -> anyhow::Result<()> {
    one(session, FlowCommand::Add, flow)
}

pub(super) fn modify(session: Session<'_>, flow: &str) -> anyhow::Result<()> {
    let strict = session.options.strict;
    one(session, if strict { FlowCommand::ModifyStrict } else { FlowCommand::Modify }, flow)
}

pub(super) fn delete(session: Session<'_>, flow: Option<&str>) -> anyhow::Result<()> {
    let strict = session.options.strict;
    let command = if strict { FlowCommand::DeleteStrict } else { FlowCommand::Delete };
    one(session, command, flow.unwrap_or_default())
}

fn one(mut session: Session<'_>, command: FlowCommand, flow: &str) -> anyhow::Result<()> {
    let names = session.accepted_names()?;
    let flow_mod = parse_flow(flow, command, &names)?;
    let mut batch = Batch::default();
    batch.push(&Message::FlowMod(Box::new(flow_mod)));
    match session.connection.pipeline(&batch)?.first() {
        None => Ok(()),
        Some(refusal) => bail!("the switch refused the flow: {}", format_error(refusal.code)),
    }
}

pub(super) fn file(mut session: Session<'_>, path: &str) -> anyhow::Result<()> {
    let name = if path == "-" { "standard input" } else { path };
    let text = read(path).with_context(|| format!("cannot read {name}"))?;
    let names = session.accepted_names()?;
    let mut batch = Batch::default();
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let flow = parse_flow_line(line, &names).map_err(|e| anyhow!("{name}:{number}: {e}"))?;
        if let Some(flow) = flow {
            batch.push(&Message::FlowMod(Box::new(flow)));
            lines.push(number);
        }
    }
    report(name, &lines, &session.connection.pipeline(&batch)?)
}

fn read(path: &str) -> io::Result<String> {
    let source: Box<dyn Read> =
        if path == "-" { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
    let mut text = String::new();
    let length = source.take(FLOW_FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > FLOW_FILE_MAX_BYTES {
        return Err(io::Error::other(format!("longer than {} MiB", FLOW_FILE_MAX_BYTES >> 20)));
    }
    Ok(text)
}

fn report(name: &str, lines: &[usize], refusals: &[Refusal]) -> anyhow::Result<()> {
    let Some(first) = refusals.first() else { return Ok(()) };
    let line = lines.get(first.index).copied().unwrap_or_default();
    let reason = format_error(first.code);
    match refusals.len() {
        1 => bail!("{name}:{line}: the switch refused the flow: {reason}"),
        n => bail!(
            "{name}:{line}: the switch refused the flow: {reason} (and {} more of {} flows)",
            n - 1,
            lines.len()
        ),
    }
}
