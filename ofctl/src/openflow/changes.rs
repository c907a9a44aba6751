//! `add-flow`, `add-flows`, `mod-flows`, `del-flows`.

use anyhow::bail;
use tollgate_openflow::text::{format_error, parse_flow};
use tollgate_openflow::{FlowCommand, FlowMod, Message};

use super::Session;
use super::flow_file::FlowFile;
use super::pipeline::Sent;

pub(super) fn add(session: Session<'_>, flow: &str) -> anyhow::Result<()> {
    change(session, FlowCommand::Add, flow)
}

pub(super) fn modify(session: Session<'_>, flow: &str) -> anyhow::Result<()> {
    let strict = session.options.strict;
    change(session, if strict { FlowCommand::ModifyStrict } else { FlowCommand::Modify }, flow)
}

pub(super) fn delete(session: Session<'_>, flow: Option<&str>) -> anyhow::Result<()> {
    let strict = session.options.strict;
    let command = if strict { FlowCommand::DeleteStrict } else { FlowCommand::Delete };
    change(session, command, flow.unwrap_or_default())
}

/// One flow, or with `-` those on standard input.
fn change(mut session: Session<'_>, command: FlowCommand, flow: &str) -> anyhow::Result<()> {
    if flow == "-" {
        return file(session, command, flow);
    }
    let names = session.accepted_names()?;
    let flow_mod = parse_flow(flow, command, &names)?;
    let sent = session.send_flows(std::iter::once(Ok(flow_mod)))?;
    match sent.first_refusal {
        None => Ok(()),
        Some(refusal) => bail!("the switch refused the flow: {}", format_error(refusal.code)),
    }
}

/// All flows of a file, none if a line of it is wrong.
pub(super) fn file(
    mut session: Session<'_>,
    command: FlowCommand,
    path: &str,
) -> anyhow::Result<()> {
    let file = FlowFile::open(path)?;
    let names = session.accepted_names()?;
    file.check(command, &names)?;
    let sent = session.send_flows(file.flows(command, &names)?)?;
    let Some(refusal) = sent.first_refusal else { return Ok(()) };
    let line = file.line_of(refusal.index, command, &names)?;
    let reason = format_error(refusal.code);
    let others = others(&sent);
    let nothing = session.nothing_done();
    bail!("{}:{line}: the switch refused the flow: {reason}{others}{nothing}", file.name)
}

/// Says of how many flows more than one was refused.
pub(super) fn others(sent: &Sent) -> String {
    match sent.refused {
        0 | 1 => String::new(),
        n => format!(" (and {} more of {} flows)", n - 1, sent.count),
    }
}

impl Session<'_> {
    /// Sends flow-mods, with `--bundle` as a bundle.
    pub(super) fn send_flows<I>(&mut self, flows: I) -> anyhow::Result<Sent>
    where
        I: Iterator<Item = anyhow::Result<FlowMod>> + Send,
    {
        let messages = flows.map(|flow| Ok(Message::FlowMod(Box::new(flow?))));
        if self.options.bundle {
            self.connection.bundle(messages)
        } else {
            self.connection.pipeline(messages)
        }
    }

    /// What a refusal means for the rest.
    pub(super) fn nothing_done(&self) -> &'static str {
        if self.options.bundle { "; of the bundle nothing was carried out" } else { "" }
    }
}
