//! Parses whole flows: the text of `add-flow`, `del-flows`, `dump-flows` and of flow files.

use super::error::ParseError;
use super::instructions::parse_instructions;
use super::lexer::{Item, Lexer};
use super::matches::MatchParser;
use super::names::{PortNames, parse_port};
use super::value::{parse_number, unknown_port};
use crate::flow_mod::{FlowCommand, FlowFlags, FlowMod};
use crate::limits::FLOW_TEXT_MAX_BYTES;
use crate::multipart::FlowStatsRequest;
use crate::port::OFPTT_ALL;

/// What a flow's text is for, which decides the names it may have beside the match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Change(FlowCommand),
    Select,
}

/// Names beside the match, for suggestions.
const FLOW_KEYS: [&str; 9] = [
    "table",
    "priority",
    "cookie",
    "idle_timeout",
    "hard_timeout",
    "out_port",
    "out_group",
    "actions",
    "send_flow_rem",
];

/// What dump-flows prints and add-flow ignores, so that a dump can be read back.
const IGNORED_KEYS: [&str; 5] = ["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

/// Reads one flow as given to `add-flow`, `mod-flows` and `del-flows`.
pub fn parse_flow(
    text: &str,
    command: FlowCommand,
    names: &dyn PortNames,
) -> Result<FlowMod, ParseError> {
    parse(text, Purpose::Change(command), names)
}

/// Reads the argument of `dump-flows` and `dump-aggregate`: a match with `table`, `cookie`,
/// `out_port` and `out_group`.
pub fn parse_flow_stats_request(
    text: &str,
    names: &dyn PortNames,
) -> Result<FlowStatsRequest, ParseError> {
    let flow = parse(text, Purpose::Select, names)?;
    Ok(FlowStatsRequest {
        table_id: flow.table_id,
        out_port: flow.out_port,
        out_group: flow.out_group,
        cookie: flow.cookie,
        cookie_mask: flow.cookie_mask,
        matcher: flow.matcher,
    })
}

/// Reads one line of a file of flows. `None`: blank or a comment (`#`). A line is of `command`; if
/// that is to add, it may begin with the word `add`, `modify`, `modify_strict`, `delete` or
/// `delete_strict` that says otherwise.
pub fn parse_flow_line(
    line: &str,
    command: FlowCommand,
    names: &dyn PortNames,
) -> Result<Option<FlowMod>, ParseError> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() {
        return Ok(None);
    }
    if command != FlowCommand::Add {
        return parse_flow(line, command, names).map(Some);
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let command = match word {
        "add" => FlowCommand::Add,
        "modify" => FlowCommand::Modify,
        "modify_strict" => FlowCommand::ModifyStrict,
        "delete" => FlowCommand::Delete,
        "delete_strict" => FlowCommand::DeleteStrict,
        _ => return parse_flow(line, command, names).map(Some),
    };
    parse_flow(rest, command, names).map(Some)
}

fn parse(text: &str, purpose: Purpose, names: &dyn PortNames) -> Result<FlowMod, ParseError> {
    if text.len() > FLOW_TEXT_MAX_BYTES {
        return Err(ParseError::new(format!("flow longer than {FLOW_TEXT_MAX_BYTES} bytes")));
    }
    let mut flow = FlowMod::new(match purpose {
        Purpose::Change(command) => command,
        Purpose::Select => FlowCommand::Delete,
    });
    let mut matcher = MatchParser::new(names);
    let mut actions = None;
    let mut lexer = Lexer::new(text);
    loop {
        let before = lexer.rest();
        let Some(item) = lexer.next()? else { break };
        if matches!(item.key, "actions" | "action") {
            actions = before.split_once(['=', ':']).map(|(_, list)| list);
            break;
        }
        if !flow_item(&mut flow, item, purpose, names)? {
            matcher.item(item, &FLOW_KEYS)?;
        }
    }
    flow.matcher = matcher.finish()?;
    match (actions, takes_actions(purpose)) {
        (Some(actions), true) => {
            flow.instructions = parse_instructions(actions, &flow.matcher, names)?;
            let next = flow.instructions.goto_table();
            if let Some(next) = next.filter(|next| *next <= flow.table_id) {
                return Err(ParseError::new(format!(
                    "goto_table:{next} goes back: the flow is in table {}",
                    flow.table_id
                )));
            }
        }
        (None, true) => {
            return Err(ParseError::new("must specify an action (actions=drop drops)"));
        }
        (Some(_), false) => {
            return Err(ParseError::new(
                "actions: only flows that are added or modified have them",
            ));
        }
        (None, false) => {}
    }
    Ok(flow)
}

fn takes_actions(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Change(command) if !command.is_delete())
}

/// Takes what is not a part of the match; false if it is.
fn flow_item(
    flow: &mut FlowMod,
    item: Item<'_>,
    purpose: Purpose,
    names: &dyn PortNames,
) -> Result<bool, ParseError> {
    let Item { key, value } = item;
    if let Some((flag, _)) = FlowFlags::NAMES.iter().find(|(_, name)| *name == key) {
        if !takes_actions(purpose) {
            return Err(out_of_place(key, "flows that are added or modified"));
        }
        flow.flags = flow.flags | *flag;
        return Ok(true);
    }
    if IGNORED_KEYS.contains(&key) && takes_actions(purpose) {
        return Ok(true);
    }
    if !matches!(
        key,
        "table"
            | "priority"
            | "cookie"
            | "idle_timeout"
            | "hard_timeout"
            | "importance"
            | "out_port"
            | "out_group"
    ) {
        return Ok(false);
    }
    let value = value.ok_or_else(|| ParseError::new(format!("field {key} has no value")))?;
    let number = |max: u16| parse_number(key, value, u128::from(max)).map(|n| n as u16);
    match key {
        "table" => flow.table_id = table(value, purpose)?,
        "priority" if has_priority(purpose) => flow.priority = number(u16::MAX)?,
        "priority" => {
            return Err(ParseError::new(
                "priority selects one flow: only with --strict, which needs the whole match",
            ));
        }
        "cookie" => cookie(flow, value, purpose)?,
        "idle_timeout" if takes_actions(purpose) => flow.idle_timeout_s = number(u16::MAX)?,
        "hard_timeout" if takes_actions(purpose) => flow.hard_timeout_s = number(u16::MAX)?,
        "out_port" if !takes_actions(purpose) => {
            flow.out_port = parse_port(value, names).ok_or_else(|| unknown_port(key, value))?;
        }
        "out_group" if !takes_actions(purpose) => {
            flow.out_group = parse_number(key, value, u128::from(u32::MAX))? as u32;
        }
        "out_port" | "out_group" => {
            return Err(out_of_place(key, "selecting flows to dump or delete"));
        }
        "importance" => {
            return Err(ParseError::new("importance exists since OpenFlow 1.4; this is 1.3"));
        }
        _ => return Err(out_of_place(key, "flows that are added or modified")),
    }
    Ok(true)
}

fn out_of_place(key: &str, place: &str) -> ParseError {
    ParseError::new(format!("{key} is for {place}"))
}

fn has_priority(purpose: Purpose) -> bool {
    !matches!(purpose, Purpose::Select | Purpose::Change(FlowCommand::Delete))
}

fn table(text: &str, purpose: Purpose) -> Result<u8, ParseError> {
    if takes_actions(purpose) || !text.eq_ignore_ascii_case("all") {
        let max = if takes_actions(purpose) { 254 } else { 255 };
        return parse_number("table", text, max).map(|table| table as u8);
    }
    Ok(OFPTT_ALL)
}

/// `cookie=VALUE` sets it, `cookie=VALUE/MASK` selects by it.
fn cookie(flow: &mut FlowMod, text: &str, purpose: Purpose) -> Result<(), ParseError> {
    let max = u128::from(u64::MAX);
    let (value, mask) = match text.split_once('/') {
        Some((value, "-1")) => (value, Some(u64::MAX)),
        Some((value, mask)) => (value, Some(parse_number("cookie", mask, max)? as u64)),
        None => (text, None),
    };
    flow.cookie = parse_number("cookie", value, max)? as u64;
    match (mask, purpose) {
        (Some(_), Purpose::Change(FlowCommand::Add)) => Err(ParseError::new(format!(
            "cookie={text}: an added flow has a cookie without a mask"
        ))),
        (Some(mask), _) => {
            flow.cookie_mask = mask;
            Ok(())
        }
        (None, _) if takes_actions(purpose) => Ok(()),
        (None, _) => Err(ParseError::new(format!(
            "cookie={text}: to select by a cookie give a mask too: cookie={text}/-1"
        ))),
    }
}
